"""CRC-32C and the wire format of tf.Example against published values and bytes written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.engine.training.input import crc32c as crc
from podyard.engine.training.input.example import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    feature_messages,
    feature_values,
)
from tests.unit.engine.input_writers import encode_example, write_tfrecord

# RFC 3720, appendix B.4, and the usual check value.
KNOWN = {
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(reversed(range(32))): 0x113FDB5C,
    b"": 0,
}


def bit_by_bit(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


@pytest.mark.parametrize(("data", "value"), KNOWN.items())
def test_crc32c_has_the_published_values(data: bytes, value: int) -> None:
    assert crc.crc32c(data) == value
    assert crc.crc32c_many(b"xx" + data, [2], [len(data)]).tolist() == [value]


def test_crc32c_of_many_is_that_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(0).bytes(20_000)
    lengths = [*range(140), 255, 256, 257, 5000]
    starts = list(range(len(lengths)))
    expected = [
        bit_by_bit(data[start : start + length])
        for start, length in zip(starts, lengths, strict=True)
    ]
    assert crc.crc32c_many(data, starts, lengths).tolist() == expected
    monkeypatch.setattr(crc, "_LANES_MAX", 7)
    assert crc.crc32c_many(data, starts, lengths).tolist() == expected


def test_crc32c_of_long_data_is_the_same_by_both_ways() -> None:
    data = np.random.default_rng(0).bytes(crc._SHORT_BYTES + 1)
    assert crc.crc32c(data) == bit_by_bit(data)
    assert crc.crc32c(data[:-1]) == bit_by_bit(data[:-1])


def test_an_empty_record_is_the_bytes_that_tensorflow_writes(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a", [b""])
    assert (tmp_path / "a").read_bytes() == bytes(8) + bytes.fromhex("29039807 d8ea82a2")


def test_masked_checksums() -> None:
    values = np.array([0, 1, 0x8A9136AA, 0xFFFFFFFF], np.uint32)
    assert crc.masked_many(values).tolist() == [crc.mask(value) for value in values.tolist()]
    assert crc.mask(0) == 0xA282EAD8


def example(*entries: bytes) -> bytes:
    """Of entries of the map, already encoded."""
    features = b"".join(tagged(1, entry) for entry in entries)
    return tagged(1, features)


def tagged(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def entry(name: bytes, feature: bytes) -> bytes:
    return tagged(1, name) + tagged(2, feature)


def one(feature: bytes) -> tuple[int | None, list[object]]:
    which, values = feature_values(feature_messages(example(entry(b"x", feature)))["x"])
    return which, list(values)


def test_an_example_as_protobuf_writes_it() -> None:
    by_hand = bytes.fromhex("0a 12 0a10 0a05 6c6162656c 1207 1a05 0a03 a606 07")
    assert encode_example({"label": np.array([806, 7])}) == by_hand
    which, values = feature_values(feature_messages(by_hand)["label"])
    assert which == INT64_LIST and list(values) == [806, 7]


@pytest.mark.parametrize(
    ("feature", "which", "values"),
    [
        (tagged(1, tagged(1, b"ab") + tagged(1, b"")), BYTES_LIST, [b"ab", b""]),
        (tagged(2, tagged(1, bytes.fromhex("0000803f 000000c0"))), FLOAT_LIST, [1.0, -2.0]),
        (tagged(2, bytes.fromhex("0d 0000803f 0d 000000c0")), FLOAT_LIST, [1.0, -2.0]),
        (tagged(3, tagged(1, bytes.fromhex("05 ac02"))), INT64_LIST, [5, 300]),
        (tagged(3, bytes.fromhex("08 05 08 ac02")), INT64_LIST, [5, 300]),
        (tagged(3, bytes.fromhex("08 05 0a 02 ac02")), INT64_LIST, [5, 300]),
        (tagged(3, bytes.fromhex("08") + b"\xff" * 9 + b"\1"), INT64_LIST, [-1]),
        (tagged(3, b"\x08" + b"\x80" * 9 + b"\1"), INT64_LIST, [-(1 << 63)]),
        (
            tagged(3, tagged(1, b"\1" * 30 + b"\x80" * 9 + b"\1")),
            INT64_LIST,
            [1] * 30 + [-(1 << 63)],
        ),
        (tagged(3, b""), INT64_LIST, []),
        (b"", None, []),
        # The same kind goes on, another one replaces.
        (tagged(3, b"\x08\1") + tagged(3, b"\x08\2"), INT64_LIST, [1, 2]),
        (tagged(3, b"\x08\1") + tagged(1, tagged(1, b"a")), BYTES_LIST, [b"a"]),
    ],
)
def test_lists_of_all_kinds_packed_and_not(
    feature: bytes, which: int | None, values: list[object]
) -> None:
    assert one(feature) == (which, values)


def test_unknown_fields_are_skipped() -> None:
    unknown = (
        bytes.fromhex("7805 71") + bytes(8) + bytes.fromhex("7d") + bytes(4) + tagged(13, b"abc")
    )
    value = tagged(3, unknown + b"\x08\5" + unknown)
    data = unknown + example(unknown + entry(b"x", unknown + value + unknown)) + unknown
    which, values = feature_values(feature_messages(data)["x"])
    assert which == INT64_LIST and list(values) == [5]


def test_of_two_of_one_name_the_last_counts() -> None:
    messages = feature_messages(
        example(entry(b"x", tagged(3, b"\x08\1")), entry(b"x", tagged(3, b"\x08\2")))
    )
    assert list(feature_values(messages["x"])[1]) == [2]


@pytest.mark.parametrize(
    "feature",
    [
        tagged(3, b"\x08"),
        tagged(3, b"\x08" + b"\xff" * 10),
        tagged(3, b"\x08" + b"\xff" * 9 + b"\2"),
        tagged(3, tagged(1, b"\x80")),
        tagged(3, tagged(1, b"\1" * 40 + b"\x80")),
        tagged(3, tagged(1, b"\1" * 40 + b"\xff" * 9 + b"\2")),
        tagged(3, tagged(1, b"\1" * 40 + b"\xff" * 10 + b"\1")),
        tagged(3, b"\x0d" + bytes(4)),
        tagged(2, tagged(1, bytes(3))),
        tagged(2, b"\x08\1"),
        tagged(1, b"\x08\1"),
        b"\x1a\x05\x08",
        b"\x1b",
        b"\x02\x00",
    ],
)
def test_what_is_no_feature_is_an_error(feature: bytes) -> None:
    with pytest.raises(ValueError):
        one(feature)


def test_cut_examples_are_errors() -> None:
    whole = encode_example(
        {"a": b"xyz", "b": np.array([1, 1 << 40, -1]), "c": np.zeros(3, np.float32)}
    )
    for length in range(1, len(whole)):
        with pytest.raises(ValueError):
            feature_messages(whole[:length])
    assert feature_messages(b"") == {}


@pytest.mark.parametrize(
    "array", [np.zeros(2), np.array([1 << 63], np.uint64), np.array(["a"]), np.array([True])]
)
def test_what_an_example_cannot_hold_is_refused(array: np.ndarray) -> None:
    encode: Callable[[], bytes] = lambda: encode_example({"x": array})  # noqa: E731
    with pytest.raises(PodyardError, match="feature x") as caught:
        encode()
    assert caught.value.code is Code.INVALID_ARGUMENT
