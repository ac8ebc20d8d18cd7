"""What google-cloud-storage finds below gs://BUCKET/PREFIX: {name: [bytes, crc32c]}."""

import json
import sys

from google.cloud import storage

bucket, _, prefix = sys.argv[-1].removeprefix("gs://").partition("/")
found = storage.Client().list_blobs(bucket, prefix=prefix)
print(json.dumps({blob.name.removeprefix(prefix): [blob.size, blob.crc32c] for blob in found}))
