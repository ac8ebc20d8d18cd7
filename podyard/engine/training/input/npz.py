"""numpy's npz: a zip archive of arrays. Pickles are never read; members that are not compressed are
mapped."""

from __future__ import annotations

import contextlib
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.engine.training.input.files import (
    DEFLATE_RATIO_MAX,
    InputFile,
    bad_file,
    check_size,
    concatenate,
    data_loss,
    expand,
    known_format,
)

# numpy writes 128 bytes for an array of numbers; the limit is numpy's own for what it reads.
NPY_HEADER_BYTES_MAX = 10_000
# Far more than any set of examples has: a directory of millions would take long to read.
MEMBERS_MAX = 1_000
_SUFFIX = ".npy"
# Of zip: the fixed part of a member's own header; at its end the lengths of the name and of the
# extra field.
_LOCAL_HEADER = struct.Struct("<26xHH")
# Of npy: magic, version, and the length of the header's text, by version.
_NPY_MAGIC = b"\x93NUMPY"
_LENGTHS = {b"\1\0": struct.Struct("<H"), b"\2\0": struct.Struct("<I")}
# The text is a literal of Python; one pattern is safer than evaluating it, and only arrays of
# records do not fit.
_TEXT = re.compile(
    r"\{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*(True|False),\s*'shape':\s*\(((?:\d+L?,"
    r"\s*)*(?:\d+L?)?)\),?\s*\}\s*"
)


def read_npz(
    pattern: Path | str, names: Mapping[str, str] | None = None
) -> dict[str, NDArray[Any]]:
    """The arrays of a file, or of several (wildcards) along their first axes. `names` chooses and
    renames: the name wanted -> the name in the file ({"image": "x_train", "label": "y_train"}).
    What `numpy.savez` wrote is mapped after its checksum was compared: the file must not change
    while an array is used.

    Raises PodyardError NOT_FOUND; INVALID_ARGUMENT for another format, a name that is not there, an
    array of something else than numbers, or more than `files.DATA_BYTES_MAX`; DATA_LOSS for damage.
    """
    return concatenate([(path, _read_one(path, names)) for path in expand(pattern)])


def _read_one(path: Path, names: Mapping[str, str] | None) -> dict[str, NDArray[Any]]:
    with InputFile(path, may_be_gzip=lambda _: False) as file:
        beginning = file.read(InputFile.BEGINNING_BYTES)
    if not beginning.startswith(b"PK"):
        found = known_format(beginning)
        raise bad_file(path, f"is not npz{f' but {found}' if found else ''}")
    with _finding_damage(path, "directory"):
        opened = zipfile.ZipFile(path)
    with opened as archive:
        members = _members(path, archive)
        wanted = {name: name for name in members} if names is None else names
        missing = sorted(set(wanted.values()) - members.keys())
        if missing:
            raise bad_file(path, f"has no array {missing[0]}, but {sorted(members)}")
        check_size(path, sum(members[own].file_size for own in wanted.values()))
        return {
            name: _read_member(path, archive, own, members[own]) for name, own in wanted.items()
        }


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    infos = archive.infolist()
    if not 1 <= len(infos) <= MEMBERS_MAX:
        raise bad_file(path, f"{len(infos)} arrays; 1 to {MEMBERS_MAX} can be read")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.removesuffix(_SUFFIX)
        if name == info.filename or info.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise bad_file(path, f"member {info.filename} is not an array as numpy writes it")
        if name in members:
            raise bad_file(path, f"two arrays have the name {name}")
        ratio = 1 if info.compress_type == zipfile.ZIP_STORED else DEFLATE_RATIO_MAX
        if info.file_size > info.compress_size * ratio:
            raise data_loss(
                path, f"array {name}", f"{info.file_size} bytes cannot be in {info.compress_size}"
            )
        members[name] = info
    return members


def _read_member(
    path: Path, archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo
) -> NDArray[Any]:
    where = f"array {name}"
    with _finding_damage(path, where):
        if info.compress_type == zipfile.ZIP_DEFLATED:
            data = np.frombuffer(archive.read(info), np.uint8)
        else:
            data = np.memmap(path, np.uint8, "r", _data_start(path, info), info.file_size).view(
                np.ndarray
            )
            if zlib.crc32(data.data) != info.CRC:
                raise data_loss(path, where, "does not have the checksum of the archive")
    shape, order, dtype, header = _header(path, name, data)
    size = math.prod(shape) * dtype.itemsize
    if header + size != len(data):
        raise data_loss(
            path, where, f"{shape} {dtype} are {size} bytes, but {len(data) - header} follow"
        )
    array = data[header:].view(dtype).reshape(shape, order=order)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _header(
    path: Path, name: str, data: NDArray[Any]
) -> tuple[tuple[int, ...], Any, np.dtype[Any], int]:
    """(shape, order of the axes, type, where the elements begin) of a member's bytes."""
    magic, version = data[:6].tobytes(), data[6:8].tobytes()
    if magic != _NPY_MAGIC or version not in _LENGTHS:
        raise bad_file(
            path,
            f"array {name} is not an array of numbers: it begins with {(magic + version).hex()}",
        )
    length = _LENGTHS[version]
    start = 8 + length.size
    with _finding_damage(path, f"array {name}"):
        text_bytes = length.unpack(data[8:start].tobytes())[0]
    end = start + text_bytes
    if text_bytes > NPY_HEADER_BYTES_MAX or end > len(data):
        raise bad_file(
            path,
            f"array {name} has a header of {text_bytes} bytes; at most "
            f"{NPY_HEADER_BYTES_MAX} are read",
        )
    text = _TEXT.fullmatch(data[start:end].tobytes().decode("latin-1"))
    if text is None:
        raise bad_file(path, f"array {name} is not an array of numbers")
    descr, fortran, sizes = text.groups()
    if "O" in descr:
        raise bad_file(
            path,
            f"array {name} holds pickled objects; "
            "they are not read: reading one runs what is in it",
        )
    if not re.fullmatch(r"[<>|=]?(b1|[iu][1248]|f[248])", descr):
        raise bad_file(path, f"array {name} is {descr}; only numbers can be trained on")
    shape = tuple(int(size.rstrip("L")) for size in re.split(r",\s*", sizes) if size)
    return shape, "F" if fortran == "True" else "C", np.dtype(descr), end


def _data_start(path: Path, info: zipfile.ZipInfo) -> int:
    """Return where the member's bytes begin in the file."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_bytes, extra_bytes = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    return info.header_offset + _LOCAL_HEADER.size + int(name_bytes) + int(extra_bytes)


@contextlib.contextmanager
def _finding_damage(path: Path, where: str) -> Iterator[None]:
    """All that zipfile and numpy's mapping raise for bytes that make no sense."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        EOFError,
        OSError,
        ValueError,
        RuntimeError,
    ) as error:
        raise data_loss(path, where, str(error) or type(error).__name__) from error
