"""The files of replicas whose machine does not have the platform's folders: their job's objects,
the data sets and the programs, by digest.

An object comes in pieces, each of which fits the limit of a request's body and may be sent again.
It gets its name when all of it is there, has its digest and is on the disk.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import FileResponse, Response
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid, not_found
from podyard.base.files import sync_folder
from podyard.control.jobs import reports
from podyard.engine.training.store import UNFINISHED_PREFIX, FileStore

router = APIRouter(prefix="/podyard/v1", route_class=deps.Route)

# a checkpoint is held in memory by who writes it: no machine that trains here has more
OBJECT_BYTES_MAX = 16 << 30
DISK_LEFT_BYTES_MIN = 64 << 20  # what is left to the database and the logs
LISTED_MAX = 100_000  # files of one data set, or of one job
EVENTS = "events/"  # the only objects that grow: TensorBoard's
_DIGESTS_KEPT = 4096
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OBJECTS, _SOURCE, _DATA, _PROGRAMS = "objects", "source", "data", "programs"


def _query(
    name: str, description: str, kind: str = "string", *, required: bool = True
) -> deps.Query:
    return {
        "name": name,
        "description": description,
        "schema": {"type": kind},
        "required": required,
    }


_NAME = _query("name", "Name below the folder.")
_OF: deps.Query = {
    "name": "of",
    "description": "Which folder: the job's objects (default), those of the job that it "
    "starts from, its "
    "data set, or "
    "the programs.",
    "schema": {"type": "string", "enum": [_OBJECTS, _SOURCE, _DATA, _PROGRAMS]},
}
_PREFIX = _query("prefix", "What the names begin with.", required=False)
_OFFSET = _query("offset", "Where in the object the body begins.", "integer")
_BYTES = _query("bytes", "Size of the whole object.", "integer")
_SHA256 = _query("digest", "SHA-256 of the whole object, hexadecimal.")
_BODY = {
    "requestBody": {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    }
}


async def _raw(request: Request) -> bytes:
    return await request.body()


Piece = Annotated[bytes, Depends(_raw)]


class ObjectAnswer(TypedDict):
    name: str
    bytes: int


class Objects(TypedDict):
    objects: list[ObjectAnswer]


class ObjectDigest(TypedDict):
    bytes: int
    digest: str


class Written(TypedDict):
    """`bytes`: how much of the object is there."""

    bytes: int


@router.get(
    "/replicas/{replica}:objects", openapi_extra=deps.asks(_OF, _PREFIX), responses=deps.errors(404)
)
def list_objects(request: Request, replica: str) -> Objects:
    """The files that a replica may read."""
    folder, prefix = _folder(request, replica), request.query_params.get("prefix") or ""
    found = sorted(_files(folder, prefix), key=lambda item: item["name"])
    return {"objects": found}


@router.get(
    "/replicas/{replica}:objectDigest",
    openapi_extra=deps.asks(_OF, _NAME),
    responses=deps.errors(404),
)
def object_digest(request: Request, replica: str) -> ObjectDigest:
    """Size and digest of a file."""
    path = _path(_folder(request, replica), request.query_params.get("name") or "")
    status = path.stat()
    return {
        "bytes": status.st_size,
        "digest": _digest_of(str(path), status.st_size, status.st_mtime_ns),
    }


@router.get(
    "/replicas/{replica}:object",
    openapi_extra=deps.asks(_OF, _NAME),
    responses=deps.errors(404) | {200: {"content": {"application/octet-stream": {"schema": {}}}}},
)
def read_object(request: Request, replica: str) -> Response:
    """A file's contents."""
    path = _path(_folder(request, replica), request.query_params.get("name") or "")
    return FileResponse(path, media_type="application/octet-stream")


@router.post(
    "/replicas/{replica}:object",
    openapi_extra=deps.asks(_NAME, _OFFSET, _BYTES, _SHA256) | _BODY,
    responses=deps.errors(429),
)
def write_object(request: Request, replica: str, piece: Piece) -> Written:
    """A piece of an object of the replica's job. With the last one it is there."""
    root = _own_objects(request, replica)
    path = FileStore(root).path(request.query_params.get("name") or "")
    offset, size = deps.number(request, "offset", 0), _size(request)
    digest = request.query_params.get("digest") or ""
    if not _DIGEST.fullmatch(digest):
        raise invalid("digest must be a SHA-256 of 64 hexadecimal digits", "digest")
    if size > OBJECT_BYTES_MAX or offset + len(piece) > size:
        raise invalid(
            f"an object has at most {OBJECT_BYTES_MAX} bytes, and its pieces lie within its size",
            "bytes",
        )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = hashlib.sha256(f"{replica}/{path.name}/{digest}".encode()).hexdigest()[:32]
    unfinished = path.with_name(f"{UNFINISHED_PREFIX}{name}")
    _check_disk(path.parent, len(piece))
    there = _write_at(unfinished, offset, piece)
    if there < size:
        return {"bytes": there}
    if not hmac.compare_digest(_hash(unfinished), digest):
        unfinished.unlink(missing_ok=True)
        raise PodyardError(
            Code.DATA_LOSS, f"object {path.name} does not have the digest {digest}: send it again"
        )
    unfinished.replace(path)
    sync_folder(path.parent)
    return {"bytes": there}


@router.post(
    "/replicas/{replica}:append",
    openapi_extra=deps.asks(_NAME, _OFFSET) | _BODY,
    responses=deps.errors(429),
)
def append(request: Request, replica: str, piece: Piece) -> Written:
    """More of an event file of the replica's job, from `offset` on."""
    store, name = FileStore(_own_objects(request, replica)), request.query_params.get("name") or ""
    if not name.startswith(EVENTS):
        raise invalid(f"only names below {EVENTS} can be appended to", "name")
    path = store.path(name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _check_disk(path.parent, len(piece))
    return {"bytes": _write_at(path, deps.number(request, "offset", 0), piece, is_synced=False)}


@router.delete("/replicas/{replica}:object", openapi_extra=deps.asks(_NAME))
def delete_object(request: Request, replica: str) -> deps.Empty:
    """Take an object of the replica's job away."""
    FileStore(_own_objects(request, replica)).delete(request.query_params.get("name") or "")
    return {}


def _own_objects(request: Request, replica: str) -> Path:
    """Return where the job of a live replica writes."""
    caller = deps.principal(request)
    files = deps.read(request, lambda uow: reports.files_of(uow, caller, replica, writes=True))
    return deps.platform(request).settings.objects_path / files.objects


def _folder(request: Request, replica: str) -> Path:
    """The folder that the query names, if it is the replica's to read. Raises NOT_FOUND."""
    caller, settings = deps.principal(request), deps.platform(request).settings
    files = deps.read(request, lambda uow: reports.files_of(uow, caller, replica))
    of = request.query_params.get("of") or _OBJECTS
    if of == _OBJECTS:
        return settings.objects_path / files.objects
    if of == _SOURCE and files.source is not None:
        return settings.objects_path / files.source
    if of == _PROGRAMS and files.has_program:
        return settings.programs_path
    if of == _DATA and files.data is not None:
        folder = settings.datasets_path / files.data
        if folder.resolve().is_relative_to(settings.datasets_path.resolve()):
            return folder
    raise not_found(f"replicas/{replica}/{of[:16]}")


def _files(folder: Path, prefix: str) -> Iterator[ObjectAnswer]:
    inside = folder.resolve()
    for count, path in enumerate(folder.rglob("*")):
        if count >= LISTED_MAX:
            raise failed_precondition(
                f"{folder.name} has more than {LISTED_MAX} files: pack them into fewer"
            )
        name = path.relative_to(folder).as_posix()
        is_hidden = any(part.startswith((".", "__pycache__")) for part in name.split("/"))
        if (
            name.startswith(prefix)
            and not is_hidden
            and path.is_file()
            and path.resolve().is_relative_to(inside)
        ):
            yield {"name": name, "bytes": path.stat().st_size}


def _path(folder: Path, name: str) -> Path:
    path = FileStore(folder).path(name)
    if not path.is_file():
        raise not_found(name)
    return path


def _size(request: Request) -> int:
    text = request.query_params.get("bytes") or ""
    if not text.isdecimal() or len(text) > 15:
        raise invalid(f"bytes {text[:20]!r} is not a size", "bytes")
    return int(text)


def _write_at(path: Path, offset: int, piece: bytes, *, is_synced: bool = True) -> int:
    """Writes a piece that continues the file, or repeats a part of it; returns the file's size."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        if offset == 0 and is_synced:
            file.truncate(0)  # a new try
        there = file.seek(0, os.SEEK_END)
        if offset > there:
            raise failed_precondition(
                f"the piece begins at byte {offset}, and {there} bytes are there: go on from them"
            )
        file.seek(offset)
        file.write(piece)
        file.flush()
        if is_synced:
            os.fdatasync(file.fileno())
        return max(there, offset + len(piece))


def _check_disk(folder: Path, size: int) -> None:
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < DISK_LEFT_BYTES_MIN + size:
        raise PodyardError(
            Code.RESOURCE_EXHAUSTED, "the platform's disk is full: no more objects can be written"
        )


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=_DIGESTS_KEPT)
def _digest_of(path: str, _size: int, _mtime_ns: int) -> str:
    """A file that changes has another time."""
    return _hash(Path(path))
