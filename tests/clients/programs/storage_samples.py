"""What Google's documentation shows of google-cloud-storage
(cloud.google.com/storage/docs/samples), each as a case.

Prints one line of JSON: what each case has come to, "ok" or its error.
"""

import hashlib
import io
import json
import sys
import tempfile
import traceback
from pathlib import Path

from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage import transfer_manager

SEED = hashlib.sha256(b"storage samples").digest()
DATA = SEED * 40_000  # 1.28 MB: not a multiple of 256 KiB


def raises(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected")


def buckets(client, bucket):
    assert bucket.exists()
    assert client.get_bucket(bucket.name).location == "US"
    assert bucket.name in [one.name for one in client.list_buckets()]
    bucket.labels = {"team": "a"}
    bucket.patch()
    assert client.get_bucket(bucket.name).labels == {"team": "a"}
    assert bucket.test_iam_permissions(["storage.objects.get", "storage.nothing"]) == [
        "storage.objects.get"
    ]
    raises(exceptions.Conflict, lambda: client.create_bucket(bucket.name))
    raises(exceptions.NotFound, lambda: client.get_bucket("there-is-no-such-bucket"))


def texts(client, bucket):
    blob = bucket.blob("texts/ü $#?&+.txt")
    blob.upload_from_string("hé", content_type="text/plain; charset=utf-8")
    assert blob.download_as_text() == "hé"
    assert bucket.get_blob(blob.name).content_type == "text/plain; charset=utf-8"
    assert blob.exists() and not bucket.blob("nothing").exists()
    assert bucket.get_blob("nothing") is None
    empty = bucket.blob("texts/empty")
    empty.upload_from_string("")
    assert empty.download_as_bytes() == b""


def files(client, bucket):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.write_bytes(DATA)
        blob = bucket.blob("files/data")
        blob.upload_from_filename(path, checksum="md5")
        blob.reload()
        assert blob.size == len(DATA)
        back = Path(folder) / "back"
        blob.download_to_filename(back)
        assert back.read_bytes() == DATA
        blob.chunk_size = 256 << 10
        blob.download_to_filename(back)
        assert back.read_bytes() == DATA
    assert blob.download_as_bytes(start=10, end=19) == DATA[10:20]
    assert blob.download_as_bytes(start=len(DATA) - 5) == DATA[-5:]
    raises(
        exceptions.RequestRangeNotSatisfiable,
        lambda: bucket.blob(blob.name).download_as_bytes(start=len(DATA)),
    )


def resumable(client, bucket):
    blob = bucket.blob("resumable/known", chunk_size=256 << 10)
    blob.upload_from_file(io.BytesIO(DATA), size=len(DATA), checksum="crc32c", content_type="x/y")
    assert blob.download_as_bytes() == DATA
    blob = bucket.blob("resumable/unknown", chunk_size=512 << 10)
    blob.upload_from_file(io.BytesIO(DATA))
    assert blob.download_as_bytes() == DATA
    with bucket.blob("resumable/writer").open("wb", chunk_size=256 << 10) as writer:
        for at in range(0, len(DATA), 100_000):
            writer.write(DATA[at : at + 100_000])
    with bucket.blob("resumable/writer").open("rb") as reader:
        reader.seek(1000)
        assert reader.read(10) == DATA[1000:1010]
        reader.seek(0)
        assert reader.read() == DATA
    url = bucket.blob("resumable/session").create_resumable_upload_session(size=4)
    response = client._http.put(url, data=b"1234")
    assert response.status_code == 200, response.text
    assert bucket.blob("resumable/session").download_as_bytes() == b"1234"


def wrong_checksums(client, bucket):
    blob = bucket.blob("wrong")
    blob.md5_hash = "AAAAAAAAAAAAAAAAAAAAAA=="
    raises(exceptions.BadRequest, lambda: blob.upload_from_string("text", checksum=None))
    assert not bucket.blob("wrong").exists()


def lists(client, bucket):
    for name in ("l/a", "l/b/1", "l/b/2", "l/c"):
        bucket.blob(name).upload_from_string(name)
    assert [blob.name for blob in client.list_blobs(bucket, prefix="l/")] == [
        "l/a",
        "l/b/1",
        "l/b/2",
        "l/c",
    ]
    found = client.list_blobs(bucket, prefix="l/", delimiter="/")
    assert ([blob.name for blob in found], found.prefixes) == (["l/a", "l/c"], {"l/b/"})
    assert len(list(client.list_blobs(bucket, prefix="l/", page_size=1))) == 4
    assert len(list(client.list_blobs(bucket, prefix="l/", max_results=2))) == 2
    assert [
        blob.name for blob in client.list_blobs(bucket, start_offset="l/b/2", end_offset="m")
    ] == ["l/b/2", "l/c"]
    assert [blob.name for blob in client.list_blobs(bucket, match_glob="l/*")] == ["l/a", "l/c"]
    assert [blob.name for blob in client.list_blobs(bucket, match_glob="l/**")] == [
        "l/a",
        "l/b/1",
        "l/b/2",
        "l/c",
    ]
    assert [blob.name for blob in client.list_blobs(bucket, match_glob="**/{1,c}")] == [
        "l/b/1",
        "l/c",
    ]


def metadata(client, bucket):
    blob = bucket.blob("metadata")
    blob.metadata = {"a": "1", "b": "é"}
    blob.cache_control = "no-store"
    blob.upload_from_string("x")
    blob.metadata = {"b": "2"}
    blob.content_language = "de"
    blob.patch()
    again = bucket.get_blob("metadata")
    assert again.metadata["b"] == "2"
    assert (again.cache_control, again.content_language, again.metageneration) == (
        "no-store",
        "de",
        2,
    )
    again.update_storage_class("NEARLINE")
    assert bucket.get_blob("metadata").storage_class == "NEARLINE"
    raises(exceptions.BadRequest, lambda: again.update_storage_class("UNHEARD_OF"))


def copies(client, bucket):
    blob = bucket.blob("copies/a", chunk_size=None)
    blob.upload_from_string("copy me", content_type="a/b")
    copy = bucket.copy_blob(blob, bucket, "copies/b", if_generation_match=0)
    assert (copy.download_as_bytes(), copy.content_type) == (b"copy me", "a/b")
    raises(
        exceptions.PreconditionFailed,
        lambda: bucket.copy_blob(blob, bucket, "copies/b", if_generation_match=0),
    )
    bucket.rename_blob(blob, "copies/c")
    assert not bucket.blob("copies/a").exists()
    bucket.move_blob(bucket.blob("copies/c"), "copies/d")
    assert [one.name for one in client.list_blobs(bucket, prefix="copies/")] == [
        "copies/b",
        "copies/d",
    ]
    token, written, size = bucket.blob("copies/e").rewrite(bucket.blob("copies/d"))
    assert (token, written, size) == (None, 7, 7)


def composed(client, bucket):
    for name in "123":
        bucket.blob(f"part-{name}").upload_from_string(name * 3)
    whole = bucket.blob("composed")
    whole.content_type = "text/plain"
    whole.compose([bucket.blob(f"part-{name}") for name in "123"])
    assert whole.download_as_bytes() == b"111222333"
    whole.reload()
    assert (whole.component_count, whole.md5_hash) == (3, None)
    raises(exceptions.NotFound, lambda: whole.compose([bucket.blob("nothing")]))


def preconditions(client, bucket):
    blob = bucket.blob("conditions")
    blob.upload_from_string("1", if_generation_match=0)
    raises(
        exceptions.PreconditionFailed, lambda: blob.upload_from_string("2", if_generation_match=0)
    )
    raises(
        exceptions.PreconditionFailed,
        lambda: blob.upload_from_file(io.BytesIO(DATA * 8), if_generation_match=0),
    )
    generation = bucket.get_blob("conditions").generation
    blob.upload_from_string("2", if_generation_match=generation)
    raises(exceptions.PreconditionFailed, lambda: blob.delete(if_generation_match=generation))
    raises(
        exceptions.NotFound,
        lambda: bucket.blob("conditions", generation=generation).download_as_bytes(),
    )
    raises(exceptions.PreconditionFailed, lambda: blob.patch(if_metageneration_match=9))


def deletes(client, bucket):
    blob = bucket.blob("gone")
    blob.upload_from_string("x")
    blob.delete()
    raises(exceptions.NotFound, blob.delete)
    names = [f"many/{number}" for number in range(120)]
    for name in names:
        bucket.blob(name).upload_from_string(name)
    with client.batch():
        for name in names[:90]:
            bucket.delete_blob(name)
    assert len(list(client.list_blobs(bucket, prefix="many/"))) == 30
    raises(exceptions.Conflict, lambda: client.get_bucket(bucket.name).delete())
    bucket.delete_blobs(names[90:])


def batches(client, bucket):
    blobs = [bucket.blob(f"batch/{number}") for number in range(3)]
    for blob in blobs:
        blob.upload_from_string("x")
    with client.batch():
        for blob in blobs:
            blob.metadata = {"n": blob.name}
            blob.patch()
    assert bucket.get_blob("batch/2").metadata == {"n": "batch/2"}


def zipped(client, bucket):
    import gzip

    blob = bucket.blob("zipped")
    blob.content_encoding = "gzip"
    blob.upload_from_string(gzip.compress(DATA), content_type="text/plain")
    assert blob.download_as_bytes() == DATA
    assert gzip.decompress(blob.download_as_bytes(raw_download=True)) == DATA


def many_at_once(client, bucket):
    with tempfile.TemporaryDirectory() as folder:
        names = [f"f{number}" for number in range(20)]
        for name in names:
            (Path(folder) / name).write_bytes(name.encode() * 1000)
        how = {"worker_type": transfer_manager.THREAD, "max_workers": 4}
        found = transfer_manager.upload_many_from_filenames(
            bucket, names, source_directory=folder, **how
        )
        assert not any(isinstance(one, Exception) for one in found), found
        back = Path(folder) / "back"
        found = transfer_manager.download_many_to_path(
            bucket, names, destination_directory=str(back), **how
        )
        assert not any(isinstance(one, Exception) for one in found), found
        assert all((back / name).read_bytes() == name.encode() * 1000 for name in names)
        path = Path(folder) / "large"
        path.write_bytes(DATA * 10)
        blob = bucket.blob("large")
        transfer_manager.upload_chunks_concurrently(str(path), blob, chunk_size=5 << 20, **how)
        transfer_manager.download_chunks_concurrently(
            blob, str(back / "large"), chunk_size=1 << 20, **how
        )
        assert (back / "large").read_bytes() == DATA * 10


CASES = (
    buckets, texts, files, resumable, wrong_checksums, lists, metadata, copies, composed,
    preconditions, deletes,
    batches, zipped, many_at_once,
)  # fmt: skip


def main():
    client = storage.Client()
    results = {}
    for case in CASES:
        bucket = client.create_bucket(f"samples-{sys.argv[1]}-{case.__name__.replace('_', '-')}")
        try:
            case(client, bucket)
            bucket.delete(force=True)
            results[case.__name__] = "ok"
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            results[case.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(results))


main()
