"""Buckets and objects of Cloud Storage: buckets, objects, uploads in parts, and the rules for their
names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from enum import StrEnum

from podyard.base.clock import PlatformTime, RealTime
from podyard.base.errors import invalid

# cloud.google.com/storage/quotas, where no other reason is given.
BUCKETS_PER_PROJECT_MAX = 1000  # ours: one answer lists them all
OBJECTS_PER_BUCKET_MAX = 1_000_000  # ours: what a list is measured with
OBJECT_BYTES_MAX = 5 << 40
METADATA_BYTES_MAX = 8192  # names and values of an object's own metadata
OBJECT_NAME_BYTES_MAX = 1024
COMPOSE_SOURCES_MAX = 32
LABELS_MAX = 64
UPLOAD_SECONDS_MAX = 7 * 86_400.0  # how long an upload in parts may take
UPLOADS_PER_BUCKET_MAX = 10_000  # ours: uploads in parts that are not done hold space
DEFAULT_LOCATION = "US"
DEFAULT_STORAGE_CLASS = "STANDARD"
STORAGE_CLASSES = (
    DEFAULT_STORAGE_CLASS, "NEARLINE", "COLDLINE", "ARCHIVE", "MULTI_REGIONAL", "REGIONAL",
    "DURABLE_REDUCED_AVAILABILITY",
)  # fmt: skip
DEFAULT_CONTENT_TYPE = "application/octet-stream"
JOBS_BUCKET_SUFFIX = "-podyard-jobs"
_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_BUCKET_PART_CHARACTERS_MAX = 63
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


class OperationClass(StrEnum):
    """The class of a request by which it is charged
    (cloud.google.com/storage/pricing#operations-by-class): A changes or lists, B reads. Deletions
    are free."""

    A = "class-a"
    B = "class-b"


@dataclasses.dataclass(frozen=True, slots=True)
class Bucket:
    """`objects` and `bytes` are those of its objects. `usage_key`: what its usage events are of;
    `usage_version`: how many there are."""

    name: str
    project: str
    location: str
    storage_class: str
    labels: Mapping[str, str]
    metageneration: int
    objects: int
    bytes: int
    created: PlatformTime
    updated: PlatformTime
    created_by: str
    usage_key: str
    usage_version: int


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectFields:
    """The fields of an object that a client sends. Empty texts were not given."""

    content_type: str = DEFAULT_CONTENT_TYPE
    content_encoding: str = ""
    content_disposition: str = ""
    content_language: str = ""
    cache_control: str = ""
    custom_time: str = ""  # RFC 3339
    storage_class: str = DEFAULT_STORAGE_CLASS
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class StoredObject:
    """The live version of an object. `md5` is empty if it was composed, from `component_count`
    objects (else 0)."""

    bucket: str
    name: str
    generation: int
    metageneration: int
    digest: str
    size: int
    crc32c: int
    md5: str
    component_count: int
    fields: ObjectFields
    created: PlatformTime
    updated: PlatformTime
    created_by: str


@dataclasses.dataclass(frozen=True, slots=True)
class Preconditions:
    """Conditions on the live version; None: anything. Generation 0 stands for no live version."""

    generation: int | None = None
    not_generation: int | None = None
    metageneration: int | None = None
    not_metageneration: int | None = None

    def is_met_by(self, stored: StoredObject | None) -> bool:
        generation = 0 if stored is None else stored.generation
        metageneration = 0 if stored is None else stored.metageneration
        return (
            self.generation in (None, generation)
            and self.not_generation != generation
            and self.metageneration in (None, metageneration)
            and self.not_metageneration != metageneration
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Upload:
    """An upload in parts. `size` None: not yet known. `generation` None: it is not done. `crc32c`
    and `md5`: what the client has announced."""

    upload_id: str
    bucket: str
    name: str
    fields: ObjectFields
    preconditions: Preconditions
    size: int | None
    crc32c: int | None
    md5: str | None
    created: RealTime
    created_by: str
    generation: int | None = None


def check_bucket_name(name: str) -> None:
    """Raises INVALID_ARGUMENT (cloud.google.com/storage/docs/buckets#naming)."""
    parts = name.split(".")
    if (
        not _BUCKET_NAME.fullmatch(name)
        or _ADDRESS.fullmatch(name)
        or any(not part or len(part) > _BUCKET_PART_CHARACTERS_MAX for part in parts)
        or name.startswith("goog")
        or "google" in name
    ):
        raise invalid(
            f"Invalid bucket name: '{name[:80]}'. Use 3 to 63 lowercase letters, digits, '-', "
            "'_' and '.', "
            "starting and ending with a letter or digit, without 'google', and not an IP address.",
            "name",
        )


def check_object_name(name: str) -> None:
    """Raises INVALID_ARGUMENT (cloud.google.com/storage/docs/objects#naming)."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise invalid("the object's name is not valid UTF-8", "name") from None
    if not name:
        raise invalid("Required parameter: name (of the object)", "name")
    if size > OBJECT_NAME_BYTES_MAX:
        raise invalid(
            f"the object's name has {size} bytes: at most {OBJECT_NAME_BYTES_MAX} are allowed",
            "name",
        )
    if name in (".", "..") or "\n" in name or "\r" in name or "\0" in name:
        raise invalid(
            f"Invalid object name: {name[:80]!r}. It must not be '.' or '..', or contain "
            "line breaks.",
            "name",
        )
    if name.startswith(".well-known/acme-challenge/"):
        raise invalid(
            "Invalid object name: it must not start with .well-known/acme-challenge/", "name"
        )


def check_fields(fields: ObjectFields) -> None:
    """Raises INVALID_ARGUMENT for metadata that is too large, or a storage class that does not
    exist."""
    size = sum(len(key.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace"))
               for key, value in fields.metadata.items())  # fmt: skip
    if size > METADATA_BYTES_MAX:
        raise invalid(
            f"the metadata has {size} bytes: at most {METADATA_BYTES_MAX} are allowed", "metadata"
        )
    check_storage_class(fields.storage_class)


def check_storage_class(name: str) -> None:
    if name not in STORAGE_CLASSES:
        raise invalid(
            f"unknown storage class {name[:40]!r}: use {', '.join(STORAGE_CLASSES)}", "storageClass"
        )
