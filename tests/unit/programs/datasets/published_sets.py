"""Small data sets in the formats of the published ones."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TRAIN, TEST = 30, 10
SIDE = 28
CIFAR_RECORDS = 10_000  # of one file: Keras knows no other number
_CIFAR_BYTES = 3 * 32 * 32
_CIFAR_FILES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def write_mnist(folder: Path) -> list[Path]:
    """mnist.npz, and the four files of IDX."""
    images = np.arange((TRAIN + TEST) * SIDE**2, dtype=np.uint32).astype(np.uint8)
    images, labels = images.reshape(-1, SIDE, SIDE), np.arange(TRAIN + TEST, dtype=np.uint8) % 10
    parts = {"train": slice(0, TRAIN), "t10k": slice(TRAIN, None)}
    files = []
    for part, rows in parts.items():
        for kind, array in (("images-idx3", images[rows]), ("labels-idx1", labels[rows])):
            path = folder / f"{part}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(_idx(array), mtime=0))
            files.append(path)
    archive = folder / "mnist.npz"
    train, test = parts.values()
    np.savez(
        archive, x_train=images[train], y_train=labels[train], x_test=images[test],
        y_test=labels[test],
    )  # fmt: skip
    return [archive, *files]


def write_cifar10(folder: Path) -> Path:
    """cifar-10-python.tar.gz: all pixels of a file have its number."""
    archive = folder / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as opened:
        for number, name in enumerate(_CIFAR_FILES):
            pixels = np.full((CIFAR_RECORDS, _CIFAR_BYTES), number, np.uint8)
            content = _python_2(data=pixels, labels=[3] * CIFAR_RECORDS)
            _add(opened, name, content)
        _add(opened, "batches.meta", _python_2(label_names=["a"] * 10))
    return archive


def _idx(array: NDArray[np.uint8]) -> bytes:
    sizes = b"".join(struct.pack(">I", size) for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes()


def _python_2(**values: Any) -> bytes:
    """A dict as Python 2 pickled it, whose strings Python 3 reads as bytes or as text."""
    entries = b"".join(
        _text(name)
        + (
            _array(value)
            if isinstance(value, np.ndarray)
            else pickle.dumps(value, protocol=2)[2:-1]
        )
        for name, value in values.items()
    )
    return b"\x80\x02}(" + entries + b"u."


def _text(value: str) -> bytes:
    return b"U" + bytes([len(value)]) + value.encode()


def _array(array: NDArray[np.uint8]) -> bytes:
    """As numpy's `__reduce__` had it in Python 2, with the elements as a string."""
    rows, columns = (b"J" + struct.pack("<i", size) for size in array.shape)
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _text("b")
    kind = b"cnumpy\ndtype\n" + _text("u1") + b"K\x00K\x01\x87R"
    kind += b"(K\x03" + _text("|") + b"NNN" + 2 * b"J\xff\xff\xff\xff" + b"K\x00tb"
    elements = b"T" + struct.pack("<i", array.nbytes) + array.tobytes()
    return empty + b"\x87R(K\x01" + rows + columns + b"\x86" + kind + b"\x89" + elements + b"tb"


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
