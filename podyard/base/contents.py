"""Contents: files named by their SHA-256 below one folder.

A content is written, synced and renamed before the unit of work that names it, so that a row never
names what is not there. A content that no row names is removed by a sweep, once it is old.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import google_crc32c

from podyard.base.errors import Code, ErrorInfo, PodyardError
from podyard.base.files import sync_folder
from podyard.base.rng import secret_token

DISK_LEFT_BYTES_MIN = 16 << 20  # what is left to the database and the logs
DISK_CHECK_BYTES = 8 << 20  # between two looks at the disk
SWEEP_AGE_SECONDS = 3600.0  # no unit of work takes as long after its content was written
TOO_LARGE, DISK_FULL = "uploadTooLarge", "insufficientStorage"  # reasons of errors
_READ_BYTES = 1 << 20
_LARGE_BYTES = 256 << 10  # from here on a second thread pays for the MD5
_PIECES_MAX = 1024  # of one writev: Linux's IOV_MAX
_HELPERS = ThreadPoolExecutor(4, "podyard-contents")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """`digest` is the SHA-256 and `md5` the MD5, both in hexadecimal."""

    digest: str
    size: int
    crc32c: int
    md5: str


class Contents:
    """The contents below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._partial = root / "partial"

    def incoming(self, bytes_max: int) -> Incoming:
        """A new content of at most `bytes_max` bytes."""
        return Incoming(self, self._partial_file(f"new-{secret_token(12)}"), bytes_max)

    def resume(self, name: str, bytes_max: int) -> Incoming:
        """The content that an earlier `Incoming` of this name has suspended; an empty one if there
        is none."""
        return Incoming(self, self._partial_file(name), bytes_max)

    def discard_parts(self, name: str) -> None:
        """Of a content that comes in parts named `name`.1 and so on."""
        for path in self._partial.glob(f"{name}.*"):
            path.unlink(missing_ok=True)

    def discard_partial(self, name: str) -> None:
        self._partial_file(name).unlink(missing_ok=True)

    def path(self, digest: str) -> Path:
        assert _DIGEST.fullmatch(digest), digest
        return self._root / digest[:2] / digest[2:4] / digest

    def old_digests(self, before_seconds: float) -> Iterator[str]:
        """Of contents written before this time of the machine (seconds since 1970)."""
        for path in sorted(self._root.glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]/*")):
            with contextlib.suppress(FileNotFoundError):
                if _DIGEST.fullmatch(path.name) and path.stat().st_mtime < before_seconds:
                    yield path.name

    def old_partials(self, before_seconds: float) -> Iterator[str]:
        for path in sorted(self._partial.glob("*")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before_seconds:
                    yield path.name

    def remove(self, digest: str, before_seconds: float) -> bool:
        """Removes a content, unless it was written again meanwhile; whether it did."""
        path = self.path(digest)
        aside = self._partial_file(f"old-{digest}")
        try:
            path.rename(aside)
        except FileNotFoundError:
            return False
        is_old = aside.stat().st_mtime < before_seconds
        if not is_old:
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
        aside.unlink()
        return is_old

    def _partial_file(self, name: str) -> Path:
        assert re.fullmatch(r"[\w-][\w.-]*", name), name
        return self._partial / name


class Incoming:
    """A content that is being received. It is used by one thread at a time."""

    def __init__(self, contents: Contents, path: Path, bytes_max: int) -> None:
        self._contents = contents
        self._path = path
        self._bytes_max = bytes_max
        self.size = self._checked = 0
        self._crc32c = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._syncing: Future[None] | None = None
        self._hashing: Future[None] | None = None
        with _full_disk_named():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._check_disk()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        while data := self._file.read(_READ_BYTES):
            self._add(data)

    def write(self, *pieces: bytes) -> None:
        """Raises INVALID_ARGUMENT when it is more than was allowed, RESOURCE_EXHAUSTED when the
        disk is full."""
        size = sum(map(len, pieces))
        if self.size + size > self._bytes_max:
            text = f"the content is larger than {self._bytes_max} bytes"
            raise PodyardError(Code.INVALID_ARGUMENT, text, [ErrorInfo(TOO_LARGE, "podyard", {})])
        with _full_disk_named():
            if self.size - self._checked >= DISK_CHECK_BYTES:
                self._check_disk()
                if self._syncing is None or self._syncing.done():
                    # What is on disk before the end need not be waited for at the end.
                    self._syncing = _HELPERS.submit(os.fdatasync, self._file.fileno())
            self._wait_hashed()
            is_large = size >= _LARGE_BYTES
            if is_large:
                # goes on while the next ones come
                self._hashing = _HELPERS.submit(_update, self._md5, pieces)
            _write_all(self._file.fileno(), pieces)
        for piece in pieces:
            self._add(piece, with_md5=not is_large)

    def store(self) -> Content:
        """Makes it durable under its digest."""
        with _full_disk_named(), self._file:
            self._wait_synced()
            os.fsync(self._file.fileno())
            target = self._contents.path(self._sha256.hexdigest())
            made = not target.parent.exists()
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path.replace(target)
            for folder in target.parents[: 3 if made else 1]:
                sync_folder(folder)
        return self.content()

    def content(self) -> Content:
        """As far as it has come."""
        self._wait_hashed()
        return Content(self._sha256.hexdigest(), self.size, self._crc32c, self._md5.hexdigest())

    def suspend(self) -> None:
        """Keeps what has come so far, for `Contents.resume`."""
        self._wait_synced()
        self._file.close()

    def suspend_as(self, name: str) -> None:
        """The same under another name, in the place of what was suspended there."""
        self.suspend()
        self._path.replace(self._path.with_name(name))

    def copy_to(self, other: Incoming) -> None:
        self._file.seek(0)
        while data := self._file.read(_READ_BYTES):
            other.write(data)

    @property
    def is_open(self) -> bool:
        return not self._file.closed

    def discard(self) -> None:
        self._wait_synced()
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _wait_synced(self) -> None:
        """The descriptor must not be closed, and used for another file, meanwhile. The last sync
        says what failed."""
        if self._syncing is not None:
            wait([self._syncing])

    def _wait_hashed(self) -> None:
        if self._hashing is not None:
            self._hashing.result()

    def _add(self, data: bytes, *, with_md5: bool = True) -> None:
        self.size += len(data)
        self._sha256.update(data)
        if with_md5:
            self._md5.update(data)
        self._crc32c = google_crc32c.extend(self._crc32c, data)

    def _check_disk(self) -> None:
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < DISK_LEFT_BYTES_MIN:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._checked = self.size


def _write_all(descriptor: int, pieces: Iterable[bytes]) -> None:
    """Without putting the pieces together: a copy of them costs as much as their CRC32C five
    times."""
    rest = [memoryview(piece) for piece in pieces]
    while rest:
        written = os.writev(descriptor, rest[:_PIECES_MAX])
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if rest:
            rest[0] = rest[0][written:]


def _update(digest: hashlib._Hash, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        digest.update(piece)


@contextlib.contextmanager
def _full_disk_named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        text = (
            f"the disk is full ({DISK_LEFT_BYTES_MIN >> 20} MiB are kept free): delete objects "
            "or other files"
        )
        raise PodyardError(
            Code.RESOURCE_EXHAUSTED, text, [ErrorInfo(DISK_FULL, "podyard", {})]
        ) from error
