"""Opening files of examples: names with wildcards, gzip, and errors that say which file and
where."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import Code, PodyardError, invalid, not_found

# All arrays of a data set together: they are held in memory, and a host of a slice has little more
# for one process.
DATA_BYTES_MAX = 8 << 30
# No stream of deflate is longer than this many times its compressed form (RFC 1951: 258 bytes for 2
# bits, and tables).
DEFLATE_RATIO_MAX = 1032
# A read makes room for all that is asked for, so no more than this is asked for at once.
_PIECE_BYTES = 1 << 24

_GZIP_MAGIC = b"\x1f\x8b"
_WILDCARDS = frozenset("*?[")
# What users mistake for another format; a pickle begins with its protocol.
_KNOWN_BEGINNINGS = {
    b"PK\x03\x04": "a zip archive (npz)",
    b"\x93NUMPY": "a .npy file",
    b"\x89HDF": "an HDF5 file",
    b"\x89PNG": "a PNG image",
    b"\x1f\x8b": "compressed with gzip",
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
}
_TAR_MAGIC_AT = 257


def data_loss(path: Path, where: str, what: str) -> PodyardError:
    """DATA_LOSS: `where` is a record or a byte of the file."""
    return PodyardError(Code.DATA_LOSS, f"{path}, {where}: {what}")


def bad_file(path: Path, what: str) -> PodyardError:
    """INVALID_ARGUMENT: the file is whole as far as one can see, but not what was asked for."""
    return invalid(f"{path}: {what}")


def known_format(beginning: bytes) -> str | None:
    """Return what a file with this beginning (of at least 262 bytes, for tar) is, if it is one of
    those that get mixed up."""
    if beginning[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return "a tar archive"
    return next(
        (name for magic, name in _KNOWN_BEGINNINGS.items() if beginning.startswith(magic)), None
    )


def expand(pattern: Path | str) -> list[Path]:
    """The file of this name, or all files that fit its wildcards (* ? [ ] **), sorted by name;
    hidden ones never fit. Raises PodyardError NOT_FOUND when there is none."""
    path = Path(pattern)
    if path.exists() or not _WILDCARDS & set(str(path)):
        return [path]
    anchor = Path(path.anchor)
    fits = anchor.glob(str(path.relative_to(anchor)))
    found = sorted(file for file in fits if file.is_file() and not file.name.startswith("."))
    if not found:
        raise PodyardError(Code.NOT_FOUND, f"no file fits {pattern}")
    return found


def expand_all(patterns: Path | str | Sequence[Path | str]) -> list[Path]:
    """`expand` of each, in the order given. Raises PodyardError INVALID_ARGUMENT when a file is
    named twice."""
    listed = [patterns] if isinstance(patterns, Path | str) else patterns
    found = [path for pattern in listed for path in expand(pattern)]
    twice = sorted({str(path) for path in found if found.count(path) > 1})
    if twice or not found:
        raise invalid(
            f"the files of a data set name {twice[0]} twice" if twice else "a data set of no files"
        )
    return found


def concatenate(parts: Sequence[tuple[Path, dict[str, NDArray[Any]]]]) -> dict[str, NDArray[Any]]:
    """The arrays of several files of one set, one after the other; those of a single file as they
    are. Raises PodyardError INVALID_ARGUMENT for a file whose names, types or shapes (but for the
    first axis) are not the first's, and when all are more than `DATA_BYTES_MAX`."""
    first_path, first = parts[0]
    for path, arrays in parts[1:]:
        if arrays.keys() != first.keys():
            raise bad_file(path, f"has {sorted(arrays)}, but {first_path} has {sorted(first)}")
        for name, array in arrays.items():
            own, other = (array.dtype, array.shape[1:]), (first[name].dtype, first[name].shape[1:])
            if own != other or array.ndim == 0:
                raise bad_file(
                    path,
                    f"{name} is {own[0]} {own[1]} per example, in {first_path} "
                    f"{other[0]} {other[1]}",
                )
    if len(parts) == 1:
        return first
    check_size(first_path, sum(array.nbytes for _, arrays in parts for array in arrays.values()))
    return {name: np.concatenate([arrays[name] for _, arrays in parts]) for name in first}


def check_size(path: Path, size: int) -> None:
    """Raises PodyardError INVALID_ARGUMENT when `size` bytes of arrays are too many."""
    if size > DATA_BYTES_MAX:
        raise bad_file(path, f"{size} bytes of arrays; at most {DATA_BYTES_MAX} are read")


def is_gzip(beginning: bytes) -> bool:
    return beginning.startswith(_GZIP_MAGIC)


@contextlib.contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turns what can be wrong with a name into PodyardError NOT_FOUND, PERMISSION_DENIED or
    INVALID_ARGUMENT."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise not_found(str(path)) from error
    except PermissionError as error:
        raise PodyardError(Code.PERMISSION_DENIED, f"{path} may not be read") from error
    except IsADirectoryError as error:
        raise bad_file(path, "is a folder") from error


class InputFile:
    """A file read from its beginning, decompressed if it is gzip (by its content, not by its
    name)."""

    # Enough for every test of content: a tar's magic ends here.
    BEGINNING_BYTES = _TAR_MAGIC_AT + 5

    def __init__(self, path: Path, may_be_gzip: Callable[[bytes], bool] = is_gzip) -> None:
        """Raises what `opening` raises. `may_be_gzip` gets the beginning of the file."""
        self.path = path
        with opening(path):
            raw = path.open("rb")
        self._raw = raw
        self.size = raw.seek(0, 2)
        raw.seek(0)
        self.compressed = may_be_gzip(raw.read(self.BEGINNING_BYTES))
        raw.seek(0)
        self._stream: BinaryIO = (
            cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if self.compressed else raw
        )
        # No more than this can come out of it, whatever a header in it says.
        self.bytes_max = self.size * DEFLATE_RATIO_MAX if self.compressed else self.size

    def __enter__(self) -> InputFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stream.close()
        self._raw.close()

    def read(self, count: int) -> bytes:
        """The next `count` bytes; fewer only at the end. Raises PodyardError DATA_LOSS when gzip
        finds damage."""
        pieces: list[bytes] = []
        try:
            while count and (piece := self._stream.read(min(count, _PIECE_BYTES))):
                pieces.append(piece)
                count -= len(piece)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise data_loss(self.path, "gzip", str(error)) from error
        return b"".join(pieces)

    def read_rest(self) -> bytes:
        """All that is left. Raises what `read` raises, and PodyardError INVALID_ARGUMENT for too
        much to hold."""
        data = self.read(DATA_BYTES_MAX + 1)
        check_size(self.path, len(data))
        return data

    def read_array(self, dtype: np.dtype[Any], count: int, header: int) -> NDArray[Any]:
        """The next and last `count` elements, after `header` bytes. Nothing is allocated that the
        file cannot fill. Raises PodyardError DATA_LOSS when there are fewer or more,
        INVALID_ARGUMENT when they are too many to hold."""
        size = count * dtype.itemsize
        if header + size > self.bytes_max:
            found = f"the file has {self.size}{' compressed' if self.compressed else ''}"
            raise data_loss(self.path, f"byte {header}", f"{size} bytes should follow, but {found}")
        check_size(self.path, size)
        data = self.read(size)
        if len(data) < size:
            raise data_loss(
                self.path, f"byte {header + len(data)}", f"ends {size - len(data)} bytes too early"
            )
        if self.read(1):
            raise data_loss(self.path, f"byte {header + size}", "bytes after the end of the data")
        return np.frombuffer(data, dtype, count)
