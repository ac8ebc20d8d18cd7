"""What is written is what is read, for any arrays and examples; batches do not depend on how they
are asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from podyard.engine.training.input import crc32c as crc
from podyard.engine.training.input.augment import Geometry, Normalise
from podyard.engine.training.input.example import feature_messages, feature_values
from podyard.engine.training.input.formats import TfRecordReader, read_idx
from podyard.engine.training.input.pipeline import Pipeline
from podyard.engine.training.input.source import Examples
from podyard.engine.training.order import DataOrder
from tests.unit.engine.input_writers import encode_example, write_idx, write_tfrecord

idx_types = st.sampled_from([np.dtype(name) for name in ("u1", "i1", "i2", "i4", "f4", "f8")])
shapes = arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)
values = st.one_of(
    st.lists(st.binary(max_size=40), max_size=5),
    arrays.arrays(np.int64, st.integers(0, 60)),
    arrays.arrays(np.float32, st.integers(0, 20)),
)


@contextmanager
def file(suffix: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / f"file{suffix}"


@settings(max_examples=50)
@given(idx_types.flatmap(lambda dtype: arrays.arrays(dtype, shapes)), st.sampled_from(["", ".gz"]))
def test_idx_round_trip(array: np.ndarray, suffix: str) -> None:
    with file(suffix) as path:
        write_idx(path, array)
        read = read_idx(path)
        assert (read.dtype, read.shape, read.tobytes()) == (
            array.dtype,
            array.shape,
            array.tobytes(),
        )


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=300), max_size=10), st.sampled_from(["", ".gz"]))
def test_tfrecord_round_trip(records: list[bytes], suffix: str) -> None:
    with file(suffix) as path:
        write_tfrecord(path, records)
        assert list(TfRecordReader(path)) == records


@given(st.dictionaries(st.text(max_size=10), values, max_size=5))
def test_example_round_trip(features: dict[str, list[bytes] | np.ndarray]) -> None:
    messages = feature_messages(encode_example(features))
    assert messages.keys() == features.keys()
    for name, value in features.items():
        read = feature_values(messages[name])[1]
        if isinstance(value, np.ndarray):
            assert isinstance(read, np.ndarray)
            assert (read.dtype, read.tobytes()) == (value.dtype, value.tobytes())
        else:
            assert read == value


@given(st.binary(max_size=2000), st.data())
def test_checksums_of_parts_do_not_depend_on_their_neighbours(
    data: bytes, drawn: st.DataObject
) -> None:
    cuts = sorted(drawn.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    bounds = list(zip([0, *cuts], [*cuts, len(data)], strict=True))
    many = crc.crc32c_many(data, [a for a, _ in bounds], [b - a for a, b in bounds])
    assert many.tolist() == [crc.crc32c(data[a:b]) for a, b in bounds]


@settings(max_examples=25)
@given(
    st.sampled_from([1, 2, 3, 4, 6, 12]), st.integers(0, 1 << 40), st.integers(1, 40), st.booleans()
)
def test_shards_are_parts_of_the_one_batch(
    shard_count: int, seed: int, step: int, floats: bool
) -> None:
    images = np.arange(30 * 5 * 4 * 3, dtype=np.uint8).reshape(30, 5, 4, 3)
    examples = Examples(
        {"image": images.astype(np.float32) if floats else images, "label": np.arange(30)}
    )
    transforms = (Geometry(30, 0.2, 0.2, True, 1), Normalise(1 / 255, -0.5))

    def batch(shards: int) -> dict[str, np.ndarray]:
        pipeline = Pipeline(examples, DataOrder(seed, 30, 12), 12, shards, transforms, seed)
        parts = [pipeline.shard(step, shard) for shard in reversed(range(shards))][::-1]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    whole, joined = batch(1), batch(shard_count)
    for name in whole:
        assert whole[name].tobytes() == joined[name].tobytes()
