"""Files and objects: what `podyard storage cp` and `sync` copy, with checksums and progress."""

from __future__ import annotations

import base64
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import google_crc32c

from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.cli.kit.client import CHUNK_BYTES, Client
from podyard.cli.kit.output import say
from podyard.cli.kit.tables import size_text
from podyard.cli.kit.terminal import bar, progress

GS = "gs://"
RESUMABLE_BYTES_MIN = 8 << 20  # a larger upload goes on where it was cut off
TRIES_MAX = 5  # of one upload that is cut off
_RETRY_SECONDS = 1.0
_GLOB = "*?["


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectUrl:
    """`gs://BUCKET/NAME`; the name may be empty."""

    bucket: str
    name: str

    def __str__(self) -> str:
        return f"{GS}{self.bucket}/{self.name}"

    @property
    def path(self) -> str:
        return f"/storage/v1/b/{quote(self.bucket, safe='')}/o/{quote(self.name, safe='')}"

    def below(self, name: str) -> ObjectUrl:
        return ObjectUrl(self.bucket, f"{self.name.rstrip('/')}/{name}".lstrip("/"))


def object_url(text: str) -> ObjectUrl:
    """A usage error for anything else."""
    bucket, _, name = text.removeprefix(GS).partition("/")
    if not text.startswith(GS) or not bucket:
        raise click.UsageError(f"{text!r} is not gs://BUCKET or gs://BUCKET/OBJECT")
    return ObjectUrl(bucket, name)


def list_objects(client: Client, url: ObjectUrl, *, recursive: bool) -> list[dict[str, Any]]:
    """The objects that a name means: itself, all that match its wildcards, or (recursive) all below
    it."""
    query: dict[str, Any] = {"prefix": url.name}
    if any(character in url.name for character in _GLOB):
        query = {
            "matchGlob": f"{url.name}/**" if recursive and not url.name.endswith("**") else url.name
        }
    found = list(_pages(client, url.bucket, query))
    if "matchGlob" in query:
        return found
    below = f"{url.name.rstrip('/')}/" if url.name else ""
    return [
        one
        for one in found
        if one["name"] == url.name or (recursive and one["name"].startswith(below))
    ]


def _pages(client: Client, bucket: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return client.pages(f"/storage/v1/b/{quote(bucket, safe='')}/o", "items", **query)


def upload(client: Client, path: Path, url: ObjectUrl) -> None:
    """Raises FAILED_PRECONDITION when the file changes meanwhile."""
    size = path.stat().st_size
    place = f"/upload/storage/v1/b/{quote(url.bucket, safe='')}/o"
    with path.open("rb") as file:
        if size < RESUMABLE_BYTES_MIN:
            made = client.send(place, file, uploadType="media", name=url.name)
        else:
            made = _upload_in_parts(client, place, path, url, size)
    if made["crc32c"] != checksum(path):
        raise failed_precondition(f"{path} has changed while it was uploaded: copy it again")


def _upload_in_parts(
    client: Client, place: str, path: Path, url: ObjectUrl, size: int
) -> dict[str, Any]:
    session = client.begin_upload(place, {"name": url.name}, size)
    first = 0
    for attempt in range(1, TRIES_MAX + 1):
        try:
            with path.open("rb") as file:
                file.seek(first)
                pieces = _show(iter(lambda: file.read(CHUNK_BYTES), b""), str(url), size, first)
                return client.continue_upload(session, pieces, first, size)
        except PodyardError as error:
            if error.code is not Code.UNAVAILABLE or attempt == TRIES_MAX:
                raise
            client.wait(_RETRY_SECONDS * attempt)
            first = client.uploaded_bytes(session)
        finally:
            _clear()
    raise AssertionError("unreachable")


def download(client: Client, source: dict[str, Any], path: Path) -> None:
    """Writes the file when all of it is there and its checksum is right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.podyard-part")
    url = ObjectUrl(source["bucket"], source["name"])
    crc32c = 0
    try:
        query = {"alt": "media", "generation": source["generation"]}
        with client.stream(url.path, **query) as pieces, partial.open("wb") as file:
            for piece in _show(pieces, str(url), int(source["size"]), 0):
                file.write(piece)
                crc32c = google_crc32c.extend(crc32c, piece)
        if not source.get("contentEncoding") and _text(crc32c) != source["crc32c"]:
            raise PodyardError(
                Code.DATA_LOSS, f"{url} arrived with a wrong checksum: copy it again"
            )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
        _clear()


def copy(client: Client, source: ObjectUrl, target: ObjectUrl) -> None:
    client.call("POST", f"{source.path}/rewriteTo{target.path.removeprefix('/storage/v1')}", {})


def checksum(path: Path) -> str:
    """CRC32C as the API writes it."""
    crc32c = 0
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            crc32c = google_crc32c.extend(crc32c, piece)
    return _text(crc32c)


def _text(crc32c: int) -> str:
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def local_path(folder: Path, name: str) -> Path:
    """Return where an object goes below a folder. Raises INVALID_ARGUMENT for a name that leads out
    of it."""
    parts = name.split("/")
    if (
        name.startswith("/")
        or any(part in ("", ".", "..") for part in parts)
        or "\0" in name
        or "\\" in name
    ):
        raise invalid(
            f"object {name!r} cannot be a file below {folder}: copy it by its name to a file"
        )
    path = folder.joinpath(*parts)
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise invalid(f"object {name!r} leads out of {folder} by a link")
    return path


def _show(pieces: Iterator[bytes], name: str, size: int, done: int) -> Iterator[bytes]:
    """The pieces, with progress on a terminal."""
    is_terminal = sys.stderr.isatty()
    for piece in pieces:
        yield piece
        done += len(piece)
        if is_terminal and size:
            progress(bar(done, size, (f"{size_text(done)} of {size_text(size)}", name)))


def _clear() -> None:
    if sys.stderr.isatty():
        progress("")


def note(source: object, target: object, size: int) -> None:
    say(f"Copied {source} to {target} ({size_text(size)})")
