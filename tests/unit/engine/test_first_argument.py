"""The argument that is on the chip when a program starts: peaks of libtpu 0.0.42.1."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.corpus.others import adam_tree
from benchmarks.corpus.parallel import ring_attention
from benchmarks.corpus.vision import convolution
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.engine.timing.first_argument import steps_with_first
from podyard.engine.timing.latency_hiding import Run
from podyard.engine.timing.schedule import MemorySchedule, Step
from podyard.hardware.accelerator_types import parse

_ON = {"v4": "v4-8", "v5e": "v5litepod-1", "v5p": "v5p-8", "v6e": "v6e-1"}
_BF16, _F32 = jnp.bfloat16, jnp.float32


def _shape(*extents: int, dtype: Any = _BF16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(extents, dtype)


def _estimate(function: Any, generation: str, *shapes: jax.ShapeDtypeStruct) -> Estimate:
    text = jax.jit(function).trace(*shapes).lower(lowering_platforms=("tpu",)).as_text()
    return estimate_program(parse_stablehlo(text), parse(_ON[generation]))


def _scored(table: Any, weights: Any, head: Any, tokens: Any) -> Any:
    return jnp.tanh(table[tokens] @ weights) @ head


def _picked(*arguments: Any) -> Any:
    return jnp.argmax(_scored(*arguments), -1)


@pytest.mark.parametrize(
    ("generation", "peak"),
    [("v4", 68_683_776), ("v5e", 68_683_776), ("v5p", 67_641_344), ("v6e", 68_163_584)],
)
def test_of_two_as_large_the_one_is_there_that_more_is_made_with(
    generation: str, peak: int
) -> None:
    """The head, not the table that rows are looked up in: that stays in HBM."""
    arrays = _shape(16384, 512), _shape(512, 512), _shape(512, 16384), _shape(512, dtype=jnp.int32)
    assert _estimate(_scored, generation, *arrays).peak_hbm_bytes == pytest.approx(peak, rel=0.02)


@pytest.mark.parametrize("generation", ["v4", "v5e", "v6e"])
def test_the_table_is_there_where_little_is_made_with_the_head(generation: str) -> None:
    arrays = _shape(16384, 512), _shape(512, 512), _shape(512, 16384), _shape(256, dtype=jnp.int32)
    assert _estimate(_picked, generation, *arrays).peak_hbm_bytes == pytest.approx(
        51_124_224, rel=0.015
    )


@pytest.mark.parametrize("generation", list(_ON))
def test_what_is_converted_is_not_there_at_the_start(generation: str) -> None:
    """The larger argument is; its product converts the other, or itself."""

    def converted(x: Any, weights: Any, others: Any) -> Any:
        return jax.nn.relu(x @ weights.astype(_BF16)) @ others.astype(_BF16)

    arrays = _shape(2048, 1024), _shape(1024, 4096, dtype=_F32), _shape(4096, 1024, dtype=_F32)
    peak = 62_914_560 if generation == "v5p" else 79_691_776
    assert _estimate(converted, generation, *arrays).peak_hbm_bytes == pytest.approx(peak, rel=0.01)
    arrays = _shape(4096, 1024, dtype=_F32), _shape(1024, 1024)
    one = _estimate(lambda x, weights: x.astype(_BF16) @ weights, generation, *arrays)
    assert one.peak_hbm_bytes == pytest.approx(29_360_128, rel=0.01)


def test_it_comes_back_at_the_end_only_where_the_chip_is_full() -> None:
    steps = [Step((), (9,), 0, False, run=Run(100.0)), Step((1, 9), (8,), 0, False, run=Run(100.0))]
    steps += [Step((8 - place,), (7 - place,), 0, False, run=Run(100.0)) for place in range(4)]
    here = steps_with_first(steps, 1, 150.0, 1.0, is_full=False)
    assert here.tolist() == [True, True, False, False, False, False]
    here = steps_with_first(steps, 1, 90.0, 1.0, is_full=True)
    assert here.tolist() == [True, True, False, False, False, True]
    # It would be away for less than two fifths of the time.
    here = steps_with_first(steps, 1, 190.0, 1.0, is_full=True)
    assert here.tolist() == [True, True, False, False, False, False]
    assert MemorySchedule(steps, {9: 4, 8: 2, 7: 1}).peak == 6
    assert np.count_nonzero(here) == 2


@pytest.mark.parametrize("generation", ["v4-16", "v6e-8"])
def test_what_goes_round_a_ring_lies_next_to_what_comes(generation: str) -> None:
    """Keys and values are attended to while those of the neighbour arrive: 17.9 MB."""
    program = parse_stablehlo(ring_attention(8, 1, 16, 2048, 128).text())
    assert estimate_program(program, parse(generation)).peak_hbm_bytes == pytest.approx(
        17_877_504, rel=0.07
    )


def test_an_optimizer_takes_the_smallest_weights_first() -> None:
    program = parse_stablehlo(adam_tree([(2048, 2048), (2048, 4096), (4096, 1024)]).text())
    estimate = estimate_program(program, parse("v6e-1"))
    moved = [one.bytes for one in estimate.ops if one.kind == "loop"]
    assert len(moved) == 3 and moved == sorted(moved)


@pytest.mark.parametrize(
    ("on", "shape", "kernel", "gradient", "cycles"),
    [
        ("v6e-1", (256, 7, 7, 256), (5, 5, 256, 48), "", 48_039),
        ("v6e-1", (192, 8, 8, 256), (5, 5, 256, 32), "", 64_404),
        ("v6e-1", (256, 9, 9, 256), (5, 5, 256, 32), "", 73_026),
        ("v6e-1", (256, 7, 7, 384), (5, 5, 384, 32), "", 68_599),
        ("v4-8", (8, 80, 80, 256), (3, 3, 256, 192), "kernel", 112_017),
        ("v4-8", (8, 96, 96, 192), (3, 3, 192, 192), "kernel", 131_051),
        ("v4-8", (16, 64, 64, 256), (3, 3, 256, 192), "kernel", 112_084),
        ("v4-8", (8, 112, 112, 256), (3, 3, 256, 192), "kernel", 201_884),
    ],
)  # fmt: skip
def test_convolutions_of_few_results_and_gradients_over_large_images(
    on: str, shape: tuple[int, ...], kernel: tuple[int, ...], gradient: str, cycles: int
) -> None:
    text = convolution(shape, kernel, 2 if gradient else 1, gradient).text()
    assert estimate_program(parse_stablehlo(text), parse(on)).cycles == pytest.approx(
        cycles, rel=0.12
    )
