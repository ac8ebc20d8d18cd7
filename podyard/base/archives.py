"""Archives that users bring: looked at before anything is taken out of them, and unpacked inside a
box.

What may surprise is refused: paths that lead outside, links, devices, names that another system
takes for one, and contents that grow beyond all measure. `python -I -S archives.py NAME FOLDER
LEFT_OUT` unpacks what comes on standard input, in a Python of the user's: on the standard library
alone, and with the same look first. `archives.py NAME FILE` writes it as it is.
"""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import lzma
import os
import shutil
import stat
import sys
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ENTRIES_MAX = 20_000  # a virtual environment has as many files
TOTAL_BYTES_MAX = 4 << 30  # unpacked
RATIO_MAX = 200  # text packs at 5 to 20; a file of zeros at 1000
RATIO_FREE_BYTES = 16 << 20  # so much may be packed as tightly as it can
# of paths; Linux takes 255 bytes for one name
NAME_BYTES_MAX, PART_BYTES_MAX, DEPTH_MAX = 1000, 255, 40
MEMBER_BYTES_MAX = 1 << 20  # of a file that is read into memory
ZIPS = (".zip", ".whl")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
PLAIN = (".py", ".sh")  # single files
_READ_BYTES = 1 << 20
# an extra field with another name than the entry's own: some readers take this one
_UNICODE_PATH = 0x7075
_ENCRYPTED = 0x1
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    ValueError,
)


class ArchiveError(ValueError):
    """A faulty archive, and what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Member:
    """One file or folder. `read`: opens it."""

    name: str
    size: int
    is_folder: bool
    is_executable: bool
    open: Callable[[], IO[bytes]]


def list_files(path: Path, name: str) -> list[str]:
    """The files of an archive, by their paths in it. `name` says of which kind it is. All of it is
    read once: what is damaged shows. Raises ArchiveError."""
    if name.lower().endswith(PLAIN):
        return [name]
    with _open(path, name) as members:
        return [member.name for member in _check(members, path, None)]


def read_file(path: Path, name: str, wanted: str) -> bytes:
    """One file of an archive that `list_files` has passed. Raises ArchiveError if it is too
    large."""
    with _open(path, name) as members:
        for member in members:
            if _plain_name(member.name) == wanted and not member.is_folder:
                if member.size > MEMBER_BYTES_MAX:
                    raise ArchiveError(
                        f"{wanted} has {member.size} bytes: at most {MEMBER_BYTES_MAX} are allowed"
                    )
                with member.open() as source:
                    return source.read(MEMBER_BYTES_MAX)
    raise ArchiveError(f"{wanted} is not in the archive")


def unpack(path: Path, name: str, target: Path, left_out: str = "") -> None:
    """Puts the files below `target`, over what is there. `left_out`: a folder of the archive whose
    files are put where it would be. Raises ArchiveError, OSError."""
    target.mkdir(parents=True, exist_ok=True)
    if name.lower().endswith(PLAIN):
        with path.open("rb") as source:
            _write(source, target / name, is_executable=True)
        return
    list_files(path, name)

    def take(member: _Member, source: IO[bytes]) -> None:
        own = member.name.removeprefix(f"{left_out}/") if left_out else member.name
        _write(source, target / own, is_executable=member.is_executable)

    with _open(path, name) as members:
        for _ in _check(members, path, take):
            pass


def top_folder(files: list[str]) -> str:
    """The folder that holds all files, as archives of whole folders have one; "" if there is none,
    or if it is a
    package that is imported by its name."""
    tops = {file.partition("/")[0] for file in files}
    if len(tops) != 1 or any("/" not in file for file in files):
        return ""
    (top,) = tops
    return "" if f"{top}/__init__.py" in files else top


def _check(
    members: Iterator[_Member], path: Path, take: Callable[[_Member, IO[bytes]], None] | None
) -> Iterator[_Member]:
    """The files, under plain names. Each is read whole, by `take` if that is given."""
    packed = path.stat().st_size
    count = total = files = 0
    seen: dict[str, tuple[str, bool]] = {}
    for member in members:
        count += 1
        if count > ENTRIES_MAX:
            raise ArchiveError(
                f"it has more than {ENTRIES_MAX} entries: leave out what the program does not read"
            )
        plain = _plain_name(member.name)
        if not plain:
            continue  # the folder itself
        _check_unique(plain, member.is_folder, seen)
        if member.is_folder:
            continue
        total += member.size
        _check_size(total, packed)
        with member.open() as source:
            _read_whole(source, member, take, plain)
        files += 1
        yield dataclasses.replace(member, name=plain)
    if not files:
        raise ArchiveError("it has no files")


def _read_whole(
    source: IO[bytes],
    member: _Member,
    take: Callable[[_Member, IO[bytes]], None] | None,
    plain: str,
) -> None:
    if take is not None:
        take(dataclasses.replace(member, name=plain), source)
        return
    size = 0
    while piece := source.read(_READ_BYTES):
        size += len(piece)
    if size != member.size:
        raise ArchiveError(f"{plain}: it says {member.size} bytes and has {size}: pack it again")


def _check_size(total: int, packed: int) -> None:
    if total > TOTAL_BYTES_MAX:
        text = f"it unpacks to more than {TOTAL_BYTES_MAX >> 30} GiB"
        raise ArchiveError(f"{text}: keep data in a bucket, and read it from there")
    if total > RATIO_FREE_BYTES and total > packed * RATIO_MAX:
        text = f"it unpacks to more than {RATIO_MAX} times its size"
        raise ArchiveError(f"{text}: leave out files that are empty space")


def _plain_name(name: str) -> str:
    """The path, if it is one that every system reads alike, without "." in it. Raises
    ArchiveError."""
    shown = repr(name[:200])
    if "\\" in name:
        raise ArchiveError(f"{shown} has a backslash: use / between folders")
    if name.startswith("/") or (len(name) > 1 and name[1] == ":" and name[0].isalpha()):
        raise ArchiveError(f"{shown} is an absolute path: pack from inside the folder")
    if not name.isprintable() or any(0xD800 <= ord(letter) < 0xE000 for letter in name):
        raise ArchiveError(f"{shown} has characters that cannot be shown: rename the file")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ArchiveError(
            f"{shown} leads outside of the archive with ..: pack from inside the folder"
        )
    if len(name.encode()) > NAME_BYTES_MAX or len(parts) > DEPTH_MAX:
        text = (
            f"the path {shown} is too long: at most {NAME_BYTES_MAX} bytes and {DEPTH_MAX} "
            "folders are allowed"
        )
        raise ArchiveError(text)
    if any(len(part.encode()) > PART_BYTES_MAX for part in parts):
        raise ArchiveError(
            f"a name in {shown} is longer than {PART_BYTES_MAX} bytes: rename the file"
        )
    return "/".join(parts)


def _check_unique(name: str, is_folder: bool, seen: dict[str, tuple[str, bool]]) -> None:
    """`seen`: key -> name as it was first spelt, and whether it is a folder."""
    parts = name.split("/")
    for depth in range(1, len(parts) + 1):
        path, folder = "/".join(parts[:depth]), depth < len(parts) or is_folder
        # What a system takes for equal that knows no case, or composes letters from their parts.
        key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())
        before, was_folder = seen.setdefault(key, (path, folder))
        if before != path:
            raise ArchiveError(
                f"{before!r} and {path!r} are the same name on some systems: rename one"
            )
        if was_folder != folder:
            raise ArchiveError(f"{path!r} is both a file and a folder: pack it again")
        if depth == len(parts) and not folder and seen.get(f"\0{key}") is not None:
            raise ArchiveError(f"{path!r} is there twice: pack it again")
    if not is_folder:
        seen[f"\0{key}"] = (name, False)


def _write(source: IO[bytes], target: Path, *, is_executable: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # a link that the program has made there is not followed
    descriptor = os.open(
        target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755 if is_executable else 0o644
    )
    with os.fdopen(descriptor, "wb") as out:
        shutil.copyfileobj(source, out, _READ_BYTES)


@contextmanager
def _open(path: Path, name: str) -> Iterator[Iterator[_Member]]:
    lowered = name.lower()
    try:
        if lowered.endswith(ZIPS):
            with zipfile.ZipFile(path) as archive:
                yield _zip_members(archive)
        elif lowered.endswith(TARS):
            with path.open("rb") as raw, _unpack(raw, lowered) as source:
                limited: Any = _Limited(source, path.stat().st_size)
                with tarfile.open(fileobj=limited, mode="r:", errorlevel=2) as tar:
                    yield _tar_members(tar)
        else:
            known = ", ".join((*ZIPS, *TARS, *PLAIN))
            raise ArchiveError(f"{name!r} is not an archive or a program: use {known}")
    except ArchiveError:
        raise
    except NotImplementedError as error:
        raise ArchiveError(
            f"it cannot be unpacked ({error}): pack it again with deflate, without a password"
        ) from error
    except (*_BROKEN, RuntimeError, AssertionError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk
        raise ArchiveError(
            f"it is damaged, or not what its name says ({error}): pack it again"
        ) from error


def _zip_members(archive: zipfile.ZipFile) -> Iterator[_Member]:
    for info in archive.infolist():
        mode = info.external_attr >> 16
        name = info.orig_filename
        if "\0" in name:
            raise ArchiveError(
                f"{name[:200]!r} has characters that cannot be shown: rename the file"
            )
        if info.flag_bits & _ENCRYPTED:
            raise ArchiveError(f"{name[:200]!r} has a password: pack it without one")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ArchiveError(
                f"{name[:200]!r} is a link or a device: pack the file that it stands for"
            )
        if _has_other_name(info):
            raise ArchiveError(f"{name[:200]!r} has a second name: pack it again")
        is_folder = info.is_dir() or stat.S_ISDIR(mode)
        yield _Member(
            name,
            info.file_size,
            is_folder,
            bool(mode & 0o100),
            lambda info=info: archive.open(info),  # type: ignore[misc]
        )


def _has_other_name(info: zipfile.ZipInfo) -> bool:
    extra = info.extra
    while len(extra) >= 4:
        kind, length = int.from_bytes(extra[:2], "little"), int.from_bytes(extra[2:4], "little")
        if kind == _UNICODE_PATH and extra[9 : 4 + length] != info.orig_filename.encode(
            "utf-8", "replace"
        ):
            return True
        extra = extra[4 + length :]
    return False


def _tar_members(archive: tarfile.TarFile) -> Iterator[_Member]:
    while (info := archive.next()) is not None:
        if info.issym() or info.islnk():
            raise ArchiveError(
                f"{info.name[:200]!r} is a link: pack the file that it stands for (tar -h does)"
            )
        if info.issparse() or not (info.isreg() or info.isdir()):
            raise ArchiveError(f"{info.name[:200]!r} is not a plain file: leave it out")

        def read(info: tarfile.TarInfo = info) -> IO[bytes]:
            source = archive.extractfile(info)
            assert source is not None
            return source

        yield _Member(info.name, info.size, info.isdir(), bool(info.mode & 0o100), read)


@contextmanager
def _unpack(raw: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    kinds: dict[str, Any] = {"gz": gzip.open, "tgz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
    opener = kinds.get(name.rpartition(".")[2])
    if opener is None:
        yield raw
        return
    with opener(raw) as source:
        yield source


class _Limited:
    """The content of a compressed file, up to what an archive may have: headers may claim any
    length."""

    def __init__(self, source: IO[bytes], packed: int) -> None:
        self._source = source
        self._packed = packed
        self.tell = source.tell

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 0:
            _check_size(offset, self._packed)
        return self._source.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= 2 * _READ_BYTES:
            raise ArchiveError("a header is longer than any that programs write: pack it again")
        _check_size(self._source.tell() + size, self._packed + _READ_BYTES)
        return self._source.read(size)


def main(argv: list[str]) -> int:
    name, target = argv[0], Path(argv[1])
    try:
        with tempfile.NamedTemporaryFile() as file:
            shutil.copyfileobj(sys.stdin.buffer, file, _READ_BYTES)
            file.flush()
            if not argv[2:]:
                target.parent.mkdir(parents=True, exist_ok=True)
                with Path(file.name).open("rb") as source:
                    _write(source, target, is_executable=True)
            else:
                unpack(Path(file.name), name, target, argv[2])
    except (ArchiveError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
