"""Event files of TensorBoard: what is written is read, and nothing else harms."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from podyard.base import event_files
from podyard.base.clock import ManualClock, RealTime
from podyard.base.event_files import Scalar, first_record, restart_record, scalar_record, scalars
from podyard.base.protobuf import bytes_field
from podyard.engine.training.store import FileStore
from podyard.workers.replica.event_writer import EventWriter

WRITTEN = first_record(1.5) + scalar_record(2.0, 3, {"loss": 0.5, "eval/a": -1.0})
WRITTEN += scalar_record(3.0, 2**31 - 1, {"x": 2.0})
FOUND = [Scalar(3, "loss", 0.5), Scalar(3, "eval/a", -1.0), Scalar(2**31 - 1, "x", 2.0)]


def test_scalars_are_read_as_they_were_written() -> None:
    assert list(scalars(WRITTEN)) == FOUND
    assert list(scalars(first_record(0.0) + restart_record(0.0, 7))) == []


def _tensor_event(step: int, tag: bytes, tensor: bytes) -> bytes:
    """As TensorFlow 2's summary writers have it."""
    field = bytes_field
    value = field(1, tag) + field(9, field(1, field(1, b"scalars"))) + field(8, tensor)
    return event_files._record(event_files._event(1.0, step, field(5, field(1, value))))


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (b"\x08\x01\x12\x00" + b"\x22\x04" + struct.pack("<f", 0.25), 0.25),  # tensor_content
        (b"\x08\x01\x12\x00" + b"\x2a\x04" + struct.pack("<f", 0.25), 0.25),  # float_val, packed
        (b"\x08\x01\x12\x00" + b"\x2d" + struct.pack("<f", 0.25), 0.25),  # float_val
        (b"\x08\x02\x12\x00" + b"\x22\x08" + struct.pack("<d", 0.1), 0.1),
        (b"\x08\x09\x12\x00" + b"\x50\x2a", 42.0),  # int64_val
    ],
)
def test_a_scalar_may_be_a_tensor(tensor: bytes, value: float) -> None:
    assert list(scalars(_tensor_event(5, b"epoch_loss", tensor))) == [
        Scalar(5, "epoch_loss", value)
    ]


def test_larger_tensors_and_numbers_that_are_none_are_left_out() -> None:
    two = b"\x08\x01\x12\x00\x22\x08" + struct.pack("<ff", 1.0, 2.0)
    nan = scalar_record(1.0, 1, {"x": float("nan"), "y": 1.0})
    assert list(scalars(_tensor_event(5, b"image", two) + nan)) == [Scalar(1, "y", 1.0)]


def test_a_file_that_ends_anywhere_gives_what_is_whole() -> None:
    found = [list(scalars(WRITTEN[:end])) for end in range(len(WRITTEN) + 1)]
    assert all(part == FOUND[: len(part)] for part in found) and found[-1] == FOUND


def test_damaged_files_give_no_error() -> None:
    chance = random.Random(5)
    for _ in range(2000):
        data = bytearray(WRITTEN)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        assert set(scalars(bytes(data))) <= set(FOUND)
    for _ in range(2000):
        record = event_files._record(chance.randbytes(chance.randrange(60)))
        list(scalars(record))
    assert list(scalars(struct.pack("<Q", 2**63) + bytes(100))) == []


def test_an_attempt_writes_a_file_and_a_later_one_takes_back_what_was_lost(tmp_path: Path) -> None:
    clock = ManualClock(RealTime(10**18))
    first = EventWriter(FileStore(tmp_path), 1, 0, 20, clock)
    for step in range(1, 11):
        first.add(step, {"loss": 1.0 / step})
    first.flush()
    clock.advance(5)
    second = EventWriter(FileStore(tmp_path), 2, 5, 20, clock)
    second.add(6, {"loss": 2.0})
    second.add(6, {"val_loss": 3.0}, is_rare=True)
    names = sorted(path.name for path in (tmp_path / "events").iterdir())
    assert [name.rpartition(".")[2] for name in names] == ["attempt-0001", "attempt-0002"]
    data = [(tmp_path / "events" / name).read_bytes() for name in names]
    assert [scalar.step for scalar in scalars(data[0])] == list(range(1, 11))
    assert restart_record(clock.now().nanos / 10**9, 6) in data[1]
    assert [scalar.tag for scalar in scalars(data[1])] == ["loss", "val_loss"]


def test_a_long_job_writes_fewer_points_and_a_full_disk_costs_only_the_curve(
    tmp_path: Path,
) -> None:
    clock = ManualClock(RealTime(10**18))
    writer = EventWriter(FileStore(tmp_path), 1, 0, 1_000_000, clock)
    for step in range(1, 101):
        writer.add(step, {"loss": 1.0})
    writer.flush()
    (path,) = (tmp_path / "events").iterdir()
    assert [scalar.step for scalar in scalars(path.read_bytes())] == list(range(10, 101, 10))
    (tmp_path / "file").write_text("")
    broken = EventWriter(FileStore(tmp_path / "file"), 1, 0, 10, clock)
    broken.add(1, {"loss": 1.0})
    broken.flush()
