"""Readers of examples against files made here, by our writers and by numpy, whole and damaged."""

from __future__ import annotations

import gzip
import io
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.engine.training.input import files, idx, npz, tfrecord
from podyard.engine.training.input.cifar import RECORD_BYTES, read_cifar
from podyard.engine.training.input.formats import (
    ExampleFeature,
    read_idx,
    read_idx_set,
    read_npz,
    read_tfrecord,
)
from tests.unit.engine.input_writers import encode_example, write_idx, write_tfrecord

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 3, 2), np.uint8)
LABELS = np.arange(6, dtype=np.uint8)
FEATURES = {
    "image_raw": ExampleFeature("uint8", (3, 2), raw=True),
    "label": ExampleFeature("int32"),
}


def refusal(read: Callable[[], object]) -> PodyardError:
    with pytest.raises(PodyardError) as caught:
        read()
    return caught.value


def examples(images: np.ndarray = IMAGES) -> list[bytes]:
    return [
        encode_example({"image_raw": i.tobytes(), "label": np.array([n])})
        for n, i in enumerate(images)
    ]


def cifar_batch(labels: list[int]) -> tuple[bytes, np.ndarray]:
    planes = RNG.integers(0, 256, (len(labels), 3, 32, 32), np.uint8)
    records = b"".join(
        bytes([label]) + own.tobytes() for label, own in zip(labels, planes, strict=True)
    )
    return records, planes.transpose(0, 2, 3, 1)


@pytest.mark.parametrize(
    "read", [read_idx, read_npz, read_cifar, lambda path: read_tfrecord(path, FEATURES)]
)
def test_a_missing_file_a_folder_and_wildcards_without_a_file_are_said(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    missing = refusal(lambda: read(tmp_path / "none"))
    assert missing.code is Code.NOT_FOUND and str(tmp_path / "none") in missing.message
    assert refusal(lambda: read(tmp_path)).code is Code.INVALID_ARGUMENT
    nothing = refusal(lambda: read(tmp_path / "train-*"))
    assert nothing.code is Code.NOT_FOUND and "train-*" in nothing.message


def test_wildcards_are_sorted_and_leave_out_hidden_files(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden", "c[1]"):
        (tmp_path / name).touch()
    assert files.expand(tmp_path / "*") == [tmp_path / "a", tmp_path / "b", tmp_path / "c[1]"]
    assert files.expand(tmp_path / "c[1]") == [tmp_path / "c[1]"]
    twice = refusal(lambda: files.expand_all([tmp_path / "a", tmp_path / "*"]))
    assert "twice" in twice.message and twice.code is Code.INVALID_ARGUMENT


def test_files_of_one_set_have_to_fit_together(tmp_path: Path) -> None:
    write_idx(tmp_path / "part-0", IMAGES)
    write_idx(tmp_path / "part-1", IMAGES[:2])
    assert np.array_equal(read_idx(tmp_path / "part-*"), np.concatenate([IMAGES, IMAGES[:2]]))
    write_idx(tmp_path / "part-2", IMAGES[:, :2])
    wrong = refusal(lambda: read_idx(tmp_path / "part-*"))
    assert wrong.code is Code.INVALID_ARGUMENT
    assert "part-2" in wrong.message and "(2, 2)" in wrong.message and "(3, 2)" in wrong.message


def test_the_data_of_a_set_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "DATA_BYTES_MAX", 100)
    write_idx(tmp_path / "a.gz", np.zeros(101, np.uint8))
    np.savez_compressed(tmp_path / "b.npz", x=np.zeros(101, np.uint8))
    (tmp_path / "c.bin").write_bytes(cifar_batch([1])[0])
    write_tfrecord(tmp_path / "d", examples() * 3)
    limits = {
        "a.gz": read_idx,
        "b.npz": read_npz,
        "c.bin": read_cifar,
        "d": lambda p: read_tfrecord(p, FEATURES),
    }
    for name, read in limits.items():
        error = refusal(lambda read=read, name=name: read(tmp_path / name))
        assert error.code is Code.INVALID_ARGUMENT and "at most 100" in error.message, name


# IDX


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i4", "f4", "f8"])
@pytest.mark.parametrize("name", ["plain", "packed.gz"])
def test_idx_has_all_its_types(tmp_path: Path, dtype: str, name: str) -> None:
    array = RNG.integers(-100, 100, (4, 3)).astype(dtype)
    write_idx(tmp_path / name, array)
    read = read_idx(tmp_path / name)
    assert read.dtype == array.dtype and read.dtype.isnative and np.array_equal(read, array)


def test_idx_is_what_mnist_is(tmp_path: Path) -> None:
    path = tmp_path / "train-labels-idx1-ubyte"
    path.write_bytes(bytes.fromhex("00000801 00000003 050004"))
    assert read_idx(path).tolist() == [5, 0, 4]
    write_idx(tmp_path / "again", np.array([5, 0, 4], np.uint8))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    path.write_bytes(bytes.fromhex("00000b02 00000001 00000002 fffe 0100"))
    assert read_idx(path).tolist() == [[-2, 256]]


def test_idx_of_bytes_is_mapped(tmp_path: Path) -> None:
    write_idx(tmp_path / "a", IMAGES)
    assert isinstance(read_idx(tmp_path / "a").base, np.memmap)


@pytest.mark.parametrize("dtype", ["u1", "i4"])
def test_idx_that_is_cut_or_too_long_is_damaged(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "a"
    write_idx(path, IMAGES[:2].astype(dtype))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        error = refusal(lambda: read_idx(path))
        assert error.code is Code.DATA_LOSS and f"{path}, byte" in error.message, length
    path.write_bytes(whole + b"\0")
    assert refusal(lambda: read_idx(path)).code is Code.DATA_LOSS


def test_gzip_that_is_cut_or_changed_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    write_idx(path, IMAGES)
    whole = path.read_bytes()
    for length in range(3, len(whole)):
        path.write_bytes(whole[:length])
        assert refusal(lambda: read_idx(path)).code is Code.DATA_LOSS, length
    unnoticed = []
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            array = read_idx(path)
        except PodyardError as error:
            assert error.code in (Code.DATA_LOSS, Code.INVALID_ARGUMENT)
        else:
            assert np.array_equal(array, IMAGES), bit
            unnoticed.append(bit // 8)
    # A time and the like in the header, and what fills the last byte of the data.
    assert set(unnoticed) <= {*range(3, 10), len(whole) - 9}
    path.write_bytes(gzip.compress(gzip.decompress(whole)[:-1]))
    assert "1 bytes too early" in refusal(lambda: read_idx(path)).message
    path.write_bytes(gzip.compress(gzip.decompress(whole) + b"\0"))
    assert "after the end" in refusal(lambda: read_idx(path)).message


@pytest.mark.parametrize(
    "header", ["00000808" + "ffffffff" * 8, "00000e01 7fffffff", "0000081f" + "ffffffff" * 31]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx_with_a_hostile_header_allocates_nothing(
    tmp_path: Path, header: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "a"
    path.write_bytes(pack(bytes.fromhex(header) + b"data"))
    assert refusal(lambda: read_idx(path)).code is Code.DATA_LOSS


@pytest.mark.parametrize(
    ("beginning", "said"),
    [
        (b"PK\3\4", "zip"),
        (b"\x93NUMPY", ".npy"),
        (b"\0\0\x07\1", "begins with"),
        (b"\0\0\x08\0", "begins with"),
    ],
)
def test_what_is_not_idx_is_refused(tmp_path: Path, beginning: bytes, said: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(beginning + bytes(100))
    error = refusal(lambda: read_idx(path))
    assert (
        error.code is Code.INVALID_ARGUMENT and said in error.message and str(path) in error.message
    )


def test_idx_files_of_one_set_have_one_count(tmp_path: Path) -> None:
    write_idx(tmp_path / "images", IMAGES)
    write_idx(tmp_path / "labels", LABELS)
    both = {"image": tmp_path / "images", "label": tmp_path / "labels"}
    assert {name: a.shape for name, a in read_idx_set(both).items()} == {
        "image": (6, 3, 2),
        "label": (6,),
    }
    write_idx(tmp_path / "labels", LABELS[:5])
    error = refusal(lambda: read_idx_set(both))
    assert error.code is Code.INVALID_ARGUMENT
    assert "labels: 5 examples" in error.message and "images has 6" in error.message


def test_idx_cannot_hold_other_types(tmp_path: Path) -> None:
    assert idx.ELEMENT_TYPES.keys() == {0x08, 0x09, 0x0B, 0x0C, 0x0D, 0x0E}
    for array in (np.zeros(3, np.int64), np.float32(3)):
        assert (
            refusal(lambda array=array: write_idx(tmp_path / "a", array)).code
            is Code.INVALID_ARGUMENT
        )


# CIFAR-10


def test_cifar_has_channels_last_and_its_labels(tmp_path: Path) -> None:
    first, images = cifar_batch([3, 9])
    second, more = cifar_batch([0])
    (tmp_path / "data_batch_1.bin").write_bytes(first)
    (tmp_path / "data_batch_2.bin").write_bytes(second)
    (tmp_path / "packed").write_bytes(gzip.compress(first))
    read = read_cifar(tmp_path / "data_batch_*.bin")
    assert np.array_equal(read["image"], np.concatenate([images, more])) and read[
        "label"
    ].tolist() == [3, 9, 0]
    assert np.array_equal(read_cifar(tmp_path / "packed")["image"], images)


@pytest.mark.slow
def test_cifar_that_is_cut_inside_of_a_record_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    whole = cifar_batch([1, 2])[0]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if length == RECORD_BYTES:
            assert len(read_cifar(path)["label"]) == 1
            continue
        error = refusal(lambda: read_cifar(path))
        # One length is that of a record of CIFAR-100.
        expected = Code.INVALID_ARGUMENT if length == RECORD_BYTES + 1 else Code.DATA_LOSS
        assert error.code is expected, length
        assert (
            expected is Code.INVALID_ARGUMENT
            or f"record {length // RECORD_BYTES}:" in error.message
        ), length


def test_cifar_with_an_impossible_label_names_the_record(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(cifar_batch([1, 10])[0])
    error = refusal(lambda: read_cifar(tmp_path / "a.bin"))
    assert (
        error.code is Code.DATA_LOSS and "record 1" in error.message and "label 10" in error.message
    )


@pytest.mark.parametrize("protocol", [2, 5])
def test_cifars_pickles_are_refused_with_a_reason(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(bytes([0x80, protocol]) + bytes(RECORD_BYTES - 2))
    error = refusal(lambda: read_cifar(path))
    assert error.code is Code.INVALID_ARGUMENT
    assert "runs what is in it" in error.message and "cifar-10-binary" in error.message


def test_a_tar_is_refused_even_when_packed(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(gzip.compress(bytes(257) + b"ustar" + bytes(RECORD_BYTES)))
    error = refusal(lambda: read_cifar(path))
    assert error.code is Code.INVALID_ARGUMENT and "tar archive" in error.message


# npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_holds_numbers_of_all_types_and_orders(
    tmp_path: Path, save: Callable[..., None]
) -> None:
    arrays = {
        "image": IMAGES,
        "label": np.arange(6),
        "fortran": np.asfortranarray(RNG.normal(size=(6, 4))),
        "big_endian": np.arange(6, dtype=">i2"),
        "empty": np.zeros((0, 3), np.float32),
        "number": np.array(True),
    }
    save(tmp_path / "a.npz", **arrays)
    read = read_npz(tmp_path / "a.npz")
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (
            read[name].shape == array.shape
            and read[name].dtype.isnative
            and np.array_equal(read[name], array)
        )
    chosen = read_npz(tmp_path / "a.npz", {"x": "image"})
    assert chosen.keys() == {"x"} and np.array_equal(chosen["x"], IMAGES)


def test_npz_that_is_not_compressed_is_mapped(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=IMAGES)
    array = read_npz(tmp_path / "a.npz")["x"]
    assert not array.flags.owndata and not array.flags.writeable
    base: object = array
    while not isinstance(base, np.memmap):
        assert isinstance(base, np.ndarray)
        base = base.base


def test_npz_without_the_name_says_which_there_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=IMAGES)
    error = refusal(lambda: read_npz(tmp_path / "a.npz", {"image": "x"}))
    assert (
        error.code is Code.INVALID_ARGUMENT
        and "no array x" in error.message
        and "x_train" in error.message
    )


def test_npz_never_reads_pickles(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{}, []], object))
    error = refusal(lambda: read_npz(tmp_path / "a.npz"))
    assert error.code is Code.INVALID_ARGUMENT and "runs what is in it" in error.message


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.zeros(2, [("a", "i4")]), np.zeros(2, complex)]
)
def test_npz_of_something_else_than_numbers_is_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", x=array)
    error = refusal(lambda: read_npz(tmp_path / "a.npz"))
    assert error.code is Code.INVALID_ARGUMENT and "array x" in error.message


@pytest.mark.slow
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_any_changed_bit_or_cut_anywhere_gives_no_other_numbers(
    tmp_path: Path, save: Callable[..., None]
) -> None:
    path = tmp_path / "a.npz"
    save(path, x=LABELS)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        code = refusal(lambda: read_npz(path)).code
        assert code is Code.DATA_LOSS if length >= 2 else Code.INVALID_ARGUMENT, length
    found = 0
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            # A time or an attribute of a member may differ, and the last bits of its name.
            (array,) = read_npz(path).values()
        except PodyardError as error:
            assert error.code in (Code.DATA_LOSS, Code.INVALID_ARGUMENT)
            found += 1
        else:
            assert array.dtype == LABELS.dtype and np.array_equal(array, LABELS), bit
    assert found > 4 * len(whole)


def npy(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + data


@pytest.mark.parametrize(
    ("member", "code"),
    [
        (
            npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1152921504606846976,), }"),
            Code.DATA_LOSS,
        ),
        (npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", b"123"), Code.DATA_LOSS),
        (npy("{'descr': '|u1', 'fortran_order': False, 'shape': (-1,), }"), Code.INVALID_ARGUMENT),
        (npy("__import__('os').abort()"), Code.INVALID_ARGUMENT),
        (
            npy("{'descr': '|u1', 'fortran_order': False, 'shape': (0,), }" + " " * 20_000),
            Code.INVALID_ARGUMENT,
        ),
        (b"\x93NUMPY\1\0", Code.DATA_LOSS),
        (b"\x93NUMPY\3\0" + bytes(100), Code.INVALID_ARGUMENT),
        (b"", Code.INVALID_ARGUMENT),
    ],
)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_npz_with_a_hostile_member_is_refused(
    tmp_path: Path, member: bytes, code: Code, compression: int
) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", compression) as archive:
        archive.writestr("x.npy", member)
    assert refusal(lambda: read_npz(tmp_path / "a.npz")).code is code


def test_npz_that_claims_more_than_deflate_can_hold_is_damaged(tmp_path: Path) -> None:
    packed = io.BytesIO()
    np.savez_compressed(packed, x=LABELS)
    data = bytearray(packed.getvalue())
    directory = data.index(b"PK\1\2")
    data[directory + 24 : directory + 28] = struct.pack("<I", 1 << 31)
    (tmp_path / "a.npz").write_bytes(data)
    error = refusal(lambda: read_npz(tmp_path / "a.npz"))
    assert error.code is Code.DATA_LOSS and f"{1 << 31} bytes cannot be in" in error.message


def test_an_archive_of_other_things_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "x")
    assert "readme.txt" in refusal(lambda: read_npz(path)).message
    with zipfile.ZipFile(path, "w"):
        pass
    assert refusal(lambda: read_npz(path)).code is Code.INVALID_ARGUMENT
    np.savez(path, a=LABELS, b=LABELS)
    monkeypatch.setattr(npz, "MEMBERS_MAX", 1)
    assert "2 arrays; 1 to 1" in refusal(lambda: read_npz(path)).message


# TFRecord


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
def test_tfrecord_of_examples_becomes_arrays(tmp_path: Path, name: str) -> None:
    write_tfrecord(tmp_path / name, examples())
    read = read_tfrecord(tmp_path / name, FEATURES)
    assert np.array_equal(read["image_raw"], IMAGES) and read["image_raw"].dtype == np.uint8
    assert read["label"].tolist() == list(range(6)) and read["label"].dtype == np.int32
    assert list(read) == list(FEATURES)


def test_shards_are_read_in_order_and_one_of_them_may_be_empty(tmp_path: Path) -> None:
    for shard, own in enumerate(np.split(IMAGES, [2, 2])):
        write_tfrecord(tmp_path / f"train-{shard:05d}-of-00003", examples(own))
    read = read_tfrecord(tmp_path / "train-?????-of-00003", FEATURES)
    assert np.array_equal(read["image_raw"], IMAGES)
    assert (
        refusal(lambda: read_tfrecord(tmp_path / "train-00001*", FEATURES)).code is Code.DATA_LOSS
    )


def test_records_do_not_depend_on_the_pieces_that_a_file_is_read_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [RNG.bytes(size) for size in (0, 1, 7, 100, 3000, 0, 40, 9000)]
    write_tfrecord(tmp_path / "a", records)
    for size in (1, 13, 64, 1000, 1 << 20):
        monkeypatch.setattr(tfrecord, "_PIECE_BYTES", size)
        reader = tfrecord.TfRecordReader(tmp_path / "a")
        assert list(reader) == records and list(reader) == records


def test_tfrecord_with_any_changed_bit_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_tfrecord(path, [b"abc", b"", b"defgh"])
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        error = refusal(lambda: list(tfrecord.TfRecordReader(path)))
        record = 0 if bit < 8 * 19 else 1 if bit < 8 * 35 else 2
        assert error.code is Code.DATA_LOSS and f"{path}, record {record}:" in error.message, bit


def test_tfrecord_that_is_cut_inside_of_a_record_is_damaged_after_the_whole_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    write_tfrecord(path, [b"abc", b"", b"defgh"])
    whole = path.read_bytes()
    ends = {0: 0, 19: 1, 35: 2}
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if length in ends:
            assert len(list(tfrecord.TfRecordReader(path))) == ends[length]
            continue
        before: list[bytes] = []
        error = refusal(lambda before=before: before.extend(tfrecord.TfRecordReader(path)))
        count = sum(length > end for end in ends) - 1
        assert error.code is Code.DATA_LOSS and f"record {count}:" in error.message, length
        assert before == [b"abc", b"", b"defgh"][:count]


def test_a_record_above_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 60)
    check = struct.pack("<I", tfrecord.mask(tfrecord.crc32c(length)))
    (tmp_path / "a").write_bytes(length + check + bytes(100))
    error = refusal(lambda: list(tfrecord.TfRecordReader(tmp_path / "a")))
    assert error.code is Code.INVALID_ARGUMENT and str(tfrecord.RECORD_BYTES_MAX) in error.message


@pytest.mark.parametrize(
    ("beginning", "said"), [(b"PK\3\4", "zip"), (b"\x93NUMPY", ".npy"), (b"\x89PNG", "PNG")]
)
def test_what_is_not_tfrecord_is_refused(tmp_path: Path, beginning: bytes, said: str) -> None:
    (tmp_path / "a").write_bytes(beginning + bytes(100))
    error = refusal(lambda: read_tfrecord(tmp_path / "a", FEATURES))
    assert error.code is Code.INVALID_ARGUMENT and said in error.message
    (tmp_path / "a").write_bytes(b"label,pixel1,pixel2\n5,0,0\n")
    assert "not TFRecord" in refusal(lambda: read_tfrecord(tmp_path / "a", FEATURES)).message


def test_a_length_that_looks_like_gzip_is_a_length(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a", [bytes(0x8B1F)])
    assert list(tfrecord.TfRecordReader(tmp_path / "a")) == [bytes(0x8B1F)]


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        (
            {"lable": ExampleFeature("int32")},
            "no feature lable, but ['floats', 'image_raw', 'label', 'texts']",
        ),
        (
            {"image_raw": ExampleFeature("uint8", (3, 3), raw=True)},
            "[6] bytes; uint8 (3, 3) is one of 9",
        ),
        ({"label": ExampleFeature("int64", (2,))}, "has 1 values; shape (2,) needs 2"),
        ({"label": ExampleFeature("uint8")}, "has values 300 to 300, which do not fit uint8"),
        ({"label": ExampleFeature("float32")}, "is a int64_list, not a float_list"),
        ({"floats": ExampleFeature("int64", (2,))}, "is a float_list, not a int64_list"),
        ({"image_raw": ExampleFeature("uint8", (6,))}, "is a bytes_list, not a int64_list"),
        ({"texts": ExampleFeature("uint8", (2,), raw=True)}, "[1, 1] bytes"),
    ],
)
def test_a_feature_that_is_missing_or_does_not_fit_is_said_with_its_record(
    tmp_path: Path, feature: dict[str, ExampleFeature], said: str
) -> None:
    example = {"image_raw": bytes(6), "texts": [b"a", b"b"], "floats": np.zeros(2, np.float32)}
    write_tfrecord(tmp_path / "a", [encode_example(example | {"label": np.array([300])})])
    error = refusal(lambda: read_tfrecord(tmp_path / "a", feature))
    assert error.code is Code.INVALID_ARGUMENT and said in error.message
    assert f"{tmp_path / 'a'}: record 0" in error.message


def test_a_record_that_is_no_example_is_refused(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a", [*examples(), b"\x0a\xff"])
    error = refusal(lambda: read_tfrecord(tmp_path / "a", FEATURES))
    assert error.code is Code.INVALID_ARGUMENT and "record 6 is not a tf.Example" in error.message


@pytest.mark.parametrize("dtype", ["object", "complex64", "U3", "no type"])
def test_a_feature_is_of_numbers(dtype: str) -> None:
    assert refusal(lambda: ExampleFeature(dtype)).code is Code.INVALID_ARGUMENT
    assert refusal(lambda: ExampleFeature("uint8", (-1,))).code is Code.INVALID_ARGUMENT


def test_a_set_of_no_features_is_refused(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a", examples())
    assert refusal(lambda: read_tfrecord(tmp_path / "a", {})).code is Code.INVALID_ARGUMENT
    assert refusal(lambda: read_idx_set({})).code is Code.INVALID_ARGUMENT


def test_reading_a_thousand_examples_takes_no_second(tmp_path: Path) -> None:
    write_tfrecord(
        tmp_path / "a", [encode_example({"image_raw": bytes(784), "label": np.array([1])})] * 1000
    )
    before = time.process_time()
    read_tfrecord(
        tmp_path / "a",
        {
            "image_raw": ExampleFeature("uint8", (28, 28, 1), raw=True),
            "label": ExampleFeature("int64"),
        },
    )
    assert time.process_time() - before < 1
