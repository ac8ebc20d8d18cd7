"""Buckets and objects as the JSON API writes them, and what clients say about them."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping
from typing import Any

from podyard.api.storage.answers import quote_name
from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid
from podyard.domain.stored import (
    DEFAULT_CONTENT_TYPE,
    DEFAULT_STORAGE_CLASS,
    Bucket,
    ObjectFields,
    StoredObject,
)

_CRC_BYTES, _MD5_BYTES = 4, 16
# Names of texts in the JSON API.
_TEXTS: Mapping[str, str] = {
    "contentType": "content_type",
    "contentEncoding": "content_encoding",
    "contentDisposition": "content_disposition",
    "contentLanguage": "content_language",
    "cacheControl": "cache_control",
    "customTime": "custom_time",
    "storageClass": "storage_class",
}
_DEFAULTS: Mapping[str, str] = {
    "content_type": DEFAULT_CONTENT_TYPE,
    "storage_class": DEFAULT_STORAGE_CLASS,
}
_TEXT_CHARACTERS_MAX = 4096  # of a header's value
# What a bucket may be asked to have and does not get: refused when it is switched on.
_UNSUPPORTED = (
    "versioning", "lifecycle", "retentionPolicy", "website", "logging", "encryption", "autoclass",
    "cors", "billing",
    "hierarchicalNamespace", "objectRetention", "defaultEventBasedHold", "ipFilter",
)  # fmt: skip


def bucket_resource(bucket: Bucket, address: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"{address}/storage/v1/b/{quote_name(bucket.name)}",
        "projectNumber": "0",
        "name": bucket.name,
        "timeCreated": _time(bucket.created),
        "updated": _time(bucket.updated),
        "metageneration": str(bucket.metageneration),
        "generation": "1",
        "location": bucket.location,
        "locationType": _location_type(bucket.location),
        "storageClass": bucket.storage_class,
        "etag": etag(1, bucket.metageneration),
        "iamConfiguration": {
            "bucketPolicyOnly": {"enabled": True},
            "uniformBucketLevelAccess": {"enabled": True},
            "publicAccessPrevention": "enforced",
        },
        "softDeletePolicy": {"retentionDurationSeconds": "0"},
    }
    if bucket.labels:
        found["labels"] = dict(bucket.labels)
    return found


def layout_resource(bucket: Bucket) -> dict[str, Any]:
    return {
        "kind": "storage#storageLayout",
        "bucket": bucket.name,
        "location": bucket.location,
        "locationType": _location_type(bucket.location),
        "hierarchicalNamespace": {"enabled": False},
    }


def _location_type(location: str) -> str:
    return "region" if "-" in location else "multi-region"


def object_resource(stored: StoredObject, address: str) -> dict[str, Any]:
    place = f"b/{quote_name(stored.bucket)}/o/{quote_name(stored.name)}"
    fields = stored.fields
    found: dict[str, Any] = {
        "kind": "storage#object",
        "id": f"{stored.bucket}/{stored.name}/{stored.generation}",
        "selfLink": f"{address}/storage/v1/{place}",
        "mediaLink": (
            f"{address}/download/storage/v1/{place}?generation={stored.generation}&alt=media"
        ),
        "name": stored.name,
        "bucket": stored.bucket,
        "generation": str(stored.generation),
        "metageneration": str(stored.metageneration),
        "size": str(stored.size),
        "crc32c": crc32c_text(stored.crc32c),
        "etag": etag(stored.generation, stored.metageneration),
        "timeCreated": _time(stored.created),
        "updated": _time(stored.updated),
        "timeStorageClassUpdated": _time(stored.created),
        "timeFinalized": _time(stored.created),
    }
    found |= {name: value for name, field in _TEXTS.items() if (value := getattr(fields, field))}
    if stored.md5:
        found["md5Hash"] = md5_text(stored.md5)
    if stored.component_count:
        found["componentCount"] = stored.component_count
    if fields.metadata:
        found["metadata"] = dict(fields.metadata)
    return found


def etag(generation: int, metageneration: int) -> str:
    return base64.b64encode(f"{generation}/{metageneration}".encode()).decode()


def crc32c_text(value: int) -> str:
    return base64.b64encode(value.to_bytes(_CRC_BYTES, "big")).decode()


def md5_text(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def read_crc32c(text: object) -> int:
    return int.from_bytes(_digest(text, _CRC_BYTES, "crc32c"), "big")


def read_md5(text: object) -> str:
    return _digest(text, _MD5_BYTES, "md5Hash").hex()


def _digest(text: object, size: int, name: str) -> bytes:
    try:
        found = base64.b64decode(str(text).encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        found = b""
    if len(found) != size:
        raise invalid(
            f"Invalid value '{str(text)[:40]}' of {name}: it must be {size} bytes in base64", name
        )
    return found


def hash_header(text: str) -> tuple[int | None, str | None]:
    """(crc32c, MD5) of X-Goog-Hash: `crc32c=...,md5=...`."""
    given = dict(part.strip().partition("=")[::2] for part in text.split(",") if part.strip())
    crc32c, md5 = given.get("crc32c"), given.get("md5")
    return None if crc32c is None else read_crc32c(crc32c), None if md5 is None else read_md5(md5)


def object_fields(
    body: Mapping[str, Any], before: ObjectFields | None = None, *, clears: bool = False
) -> ObjectFields:
    """Return what a client says of an object. `before`: what stays where it says nothing. `clears`:
    a full replacement, in which what is not said goes away."""
    fields = ObjectFields() if before is None or clears else before
    changes: dict[str, Any] = {}
    for name, field in _TEXTS.items():
        if name in body:
            value = body[name]
            changes[field] = _DEFAULTS.get(field, "") if value is None else _text(value, name)
    if "metadata" in body:
        changes["metadata"] = _metadata(body["metadata"], fields.metadata)
    if before is not None and clears and "storageClass" not in body:
        changes["storage_class"] = before.storage_class
    if custom := changes.get("custom_time"):
        try:
            PlatformTime.from_rfc3339(custom)
        except ValueError as error:
            raise invalid(str(error), "customTime") from None
    return dataclasses.replace(fields, **changes)


def _metadata(given: object, before: Mapping[str, str]) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise invalid("metadata must be an object with texts as values", "metadata")
    found = {**before, **{_text(key, "metadata"): value for key, value in given.items()}}
    return {
        key: _text(value, "metadata", "\n\t") for key, value in found.items() if value is not None
    }


def _text(value: object, name: str, allowed: str = "\t") -> str:
    """A text that can be the value of a header."""
    if isinstance(value, bool | int | float):
        value = str(value)
    if not isinstance(value, str) or len(value) > _TEXT_CHARACTERS_MAX * 2:
        raise invalid(
            f"{name} must be a text of at most {_TEXT_CHARACTERS_MAX * 2} characters", name
        )
    if any(ord(character) < 32 and character not in allowed for character in value):
        raise invalid(f"{name} must not hold control characters", name)
    return value


def bucket_changes(body: Mapping[str, Any], before: Mapping[str, str]) -> dict[str, Any]:
    """The changes of a bucket that a client asks for. Raises INVALID_ARGUMENT for features that do
    not exist here."""
    for name in _UNSUPPORTED:
        if _is_switched_on(body.get(name)):
            raise invalid(f"{name} of buckets is not supported: leave it out", name)
    changes: dict[str, Any] = {}
    if body.get("storageClass") is not None:
        changes["storage_class"] = _text(body["storageClass"], "storageClass").upper()
    if "labels" in body:
        given = body["labels"] or {}
        if not isinstance(given, dict):
            raise invalid("labels must be an object with texts as values", "labels")
        labels = {**before, **given}
        changes["labels"] = {
            key: _text(value, "labels") for key, value in labels.items() if value is not None
        }
    return changes


def _is_switched_on(value: object) -> bool:
    """Return whether any of its parts is more than nothing."""
    if isinstance(value, dict):
        return any(_is_switched_on(part) for part in value.values())
    return value not in (None, False, [], "", "0", 0)


def _time(moment: PlatformTime) -> str:
    """To the millisecond, as Cloud Storage writes them."""
    text = PlatformTime(moment.nanos - moment.nanos % 1_000_000).rfc3339()
    return text if "." in text else f"{text[:-1]}.000Z"
