"""The file of a backup: a tar archive of plain files that ends with a manifest of their sizes and
SHA-256.

An archive that was cut short has no manifest, and one that was changed has other digests: neither
is restored. A file may be in it twice, if it has changed while the backup ran; the later one
counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from podyard.base.errors import Code, PodyardError, failed_precondition

MANIFEST = "MANIFEST.json"
FORMAT = 1
MANIFEST_BYTES_MAX = 1 << 30  # of ten million files; a larger one is damage
_READ_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ArchivedFile:
    size: int
    sha256: str


class ArchiveWriter:
    """Adds files to an archive. `finish` makes it valid."""

    def __init__(self, file: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self.entries: dict[str, ArchivedFile] = {}

    def add(self, name: str, path: Path) -> ArchivedFile | None:
        """The file as it is now; None if it has gone meanwhile. Of one that grows meanwhile the
        beginning is taken."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as source:
            info = tarfile.TarInfo(name)
            info.size, info.mode = os.fstat(descriptor).st_size, 0o600
            hashed = _Hashed(source, info.size)
            self._tar.addfile(info, hashed)
        self.entries[name] = found = ArchivedFile(info.size, hashed.digest.hexdigest())
        return found

    def add_text(self, name: str, text: str) -> None:
        data = text.encode()
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), 0o600
        self._tar.addfile(info, io.BytesIO(data))
        self.entries[name] = ArchivedFile(len(data), hashlib.sha256(data).hexdigest())

    def finish(self, facts: Mapping[str, str]) -> None:
        """`facts`: what is said about the backup, such as its version and time."""
        files = {name: [entry.size, entry.sha256] for name, entry in self.entries.items()}
        text = json.dumps({"format": FORMAT, "facts": dict(facts), "files": files})
        self.add_text(MANIFEST, text)
        self._tar.close()

    def close(self) -> None:
        """Let go of an archive, finished or not: otherwise a failure is followed by tarfile's own
        complaint about the closed file."""
        with contextlib.suppress(OSError):
            self._tar.close()


class _Hashed(io.RawIOBase):
    """A file that is hashed while it is read. Where it has become shorter, zeros follow: it is in
    the archive again,
    as it is then, since its time has changed."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        self._source, self._left = source, size
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._source.read(wanted)
        data += bytes(wanted - len(data))
        self._left -= wanted
        self.digest.update(data)
        return data


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[tarfile.TarFile]:
    """Raises FAILED_PRECONDITION for a file that is not an archive."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield tar
    except (tarfile.TarError, OSError) as error:
        raise failed_precondition(f"{path} cannot be read as a backup: {error}") from error


def read_manifest(path: Path) -> tuple[dict[str, str], dict[str, ArchivedFile]]:
    """(facts, entries). Raises FAILED_PRECONDITION for an archive that is not complete or is of
    another format."""
    with open_archive(path) as tar:
        last = None
        for member in tar:
            last = member
        source = (
            None
            if last is None or last.name != MANIFEST or last.size > MANIFEST_BYTES_MAX
            else last
        )
        file = None if source is None else tar.extractfile(source)
        if file is None:
            raise failed_precondition(f"{path} is not a complete backup: its manifest is missing")
        found = json.loads(file.read())
    if found.get("format") != FORMAT:
        raise failed_precondition(
            f"{path} is a backup of format {found.get('format')}: this version reads {FORMAT}"
        )
    return found["facts"], {
        name: ArchivedFile(size, sha256) for name, (size, sha256) in found["files"].items()
    }


def extract(path: Path, folder: Path) -> dict[str, str]:
    """Writes all files below `folder`, which is empty; returns the facts. Raises DATA_LOSS for a
    file that is not as
    the manifest says, FAILED_PRECONDITION for a name that leads elsewhere."""
    facts, entries = read_manifest(path)
    written: dict[str, ArchivedFile] = {}
    with open_archive(path) as tar:
        for member in tar:
            if member.name == MANIFEST:
                continue
            source = tar.extractfile(member) if member.isreg() else None
            if source is None or not is_inside(member.name):
                raise failed_precondition(
                    f"{path} holds {member.name!r}, which does not belong to a backup"
                )
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            written[member.name] = _write(source, target)
    wrong = sorted(
        name for name in written.keys() | entries.keys() if written.get(name) != entries.get(name)
    )
    if wrong:
        raise PodyardError(
            Code.DATA_LOSS, f"{path} is damaged: {len(wrong)} files, such as {wrong[0]}"
        )
    return facts


def is_inside(name: str) -> bool:
    """Return whether the name of an archive's file stays below the folder that it is written to."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name


def _write(source: IO[bytes], target: Path) -> ArchivedFile:
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while data := source.read(_READ_BYTES):
            file.write(data)
            digest.update(data)
            size += len(data)
        file.flush()
        os.fsync(descriptor)
    return ArchivedFile(size, digest.hexdigest())


def remove_folder(folder: Path) -> None:
    """Remove what a killed process left."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
