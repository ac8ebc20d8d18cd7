"""From v4 on: softmax in the kernel of its product, attention that the compiler runs as its own
kernel, what is fetched ahead. The cycles in here are those of compiled programs (libtpu
0.0.42.1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import HloOperation
from podyard.engine.timing.alone import without_room
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.engine.timing.graph import Fused, Kernel, KernelKind
from podyard.hardware.accelerator_types import parse

BF16, F32 = jnp.bfloat16, jnp.float32


def _attention(query: Any, key: Any, value: Any, wide: bool = False) -> Any:
    scores = jnp.einsum("bhtd,bhsd->bhts", query, key)
    scores = (scores.astype(F32) if wide else scores) * 0.125
    return jnp.einsum("bhts,bhsd->bhtd", jax.nn.softmax(scores, -1).astype(value.dtype), value)


def _wide(query: Any, key: Any, value: Any) -> Any:
    return _attention(query, key, value, wide=True)


def _estimate(function: Any, on: str, *shapes: Any) -> Estimate:
    return estimate_program(parse_stablehlo(jax.jit(function).lower(*shapes).as_text()), parse(on))


def _heads(length: int, dtype: Any = BF16) -> list[Any]:
    return [jax.ShapeDtypeStruct((4, 8, length, 64), dtype)] * 3


def test_a_softmax_of_float32_is_one_kernel_with_its_product_from_v4_on() -> None:
    older, newer = (_estimate(_wide, on, *_heads(256)) for on in ("v3-8", "v5litepod-1"))
    assert [op.kind for op in older.ops].count("reduce") == 1
    assert [op.kind for op in newer.ops] == ["matrix", "matrix"]
    assert not newer.doubts
    assert newer.cycles == pytest.approx(12362 + 11417, rel=0.15)


def test_a_softmax_of_two_axes_or_of_long_rows_is_not() -> None:
    for shape in ((512, 4096), (2, 64, 16384)):
        estimate = _estimate(
            lambda x: jax.nn.softmax(x, -1), "v5litepod-1", jax.ShapeDtypeStruct(shape, F32)
        )
        assert [op.kind for op in estimate.ops].count("reduce") == 2


def test_attention_in_one_type_is_the_compilers_own_kernel_and_the_estimate_says_so() -> None:
    own = _estimate(_attention, "v5litepod-1", *_heads(256))
    assert [doubt.subject for doubt in own.doubts] == ["attention"]
    assert own.cycles == pytest.approx(26892 + 2 * 8064, rel=0.25)
    assert own.flops >= 2 * 2 * 4 * 8 * 256 * 256 * 64
    # Not on v4 and v3, where only a softmax of the product itself is, nor for lengths that fill no
    # tiles.
    for on, length in (("v4-8", 256), ("v3-8", 256), ("v5litepod-1", 200)):
        assert not _estimate(_attention, on, *_heads(length)).doubts


def test_scores_of_more_than_half_of_the_chips_memory_stay_there_in_a_turn_of_a_loop() -> None:
    """Keys come piece by piece, with running maxima and sums; the scores of a turn are 64 MiB."""

    def run(query: Any, keys: Any, values: Any) -> Any:
        def turn(state: Any, pair: Any) -> Any:
            top, total, out = state
            scores = (
                jnp.einsum("bhtd,bhsd->bhts", query, pair[0], preferred_element_type=F32)
                * 128**-0.5
            )
            peak = jnp.maximum(top, scores.max(-1))
            shares, old = jnp.exp(scores - peak[..., None]), jnp.exp(top - peak)
            out = out * old[..., None] + jnp.einsum(
                "bhts,bhsd->bhtd", shares.astype(BF16), pair[1]
            ).astype(F32)
            return (peak, total * old + shares.sum(-1), out), None

        rows = (4, 8, 2048)
        start = jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros((*rows, 128))
        cut = [jnp.moveaxis(x.reshape(4, 8, 8, 256, 128), 2, 0) for x in (keys, values)]
        (_, total, out), _ = jax.lax.scan(turn, start, (cut[0], cut[1]))
        return (out / total[..., None]).astype(BF16)

    estimate = _estimate(run, "v5litepod-1", *[jax.ShapeDtypeStruct((4, 8, 2048, 128), BF16)] * 3)
    assert estimate.cycles == pytest.approx(4124860, rel=0.1)


def test_sums_of_one_collective_that_find_no_room_together_are_in_memory() -> None:
    """Three arrays of 40, each made just before the collective, in room for 100; also of the first
    collective."""

    def kernel(
        index: int, kind: KernelKind, opcode: str, inputs: list[int], outputs: list[int]
    ) -> Kernel:
        anchor = HloOperation(
            opcode, tuple(inputs), tuple(outputs), {"tuple": 0} if kind == "collective" else {}
        )
        return Kernel(index, kind, anchor, inputs=inputs, outputs=outputs)

    made = [kernel(place, "matrix", "dot_general", [], [place]) for place in range(3)]
    sums = [
        kernel(3 + place, "collective", "all_reduce", [place], [10 + place]) for place in range(3)
    ]
    fused = Fused([*made, *sums], {}, {}, [])
    found = list(without_room(fused, lambda value: value < 10, lambda _value: 40.0, 100.0))
    assert found == [(0, True)]  # what lives longest has no place, and is summed up
    assert not list(without_room(fused, lambda value: value < 10, lambda _value: 40.0, 120.0))


def test_what_is_fetched_ahead_and_written_behind_costs_less_than_a_first_kernel() -> None:
    """An update of a second array runs when its arrays have been fetched during the first."""
    array = jax.ShapeDtypeStruct((2048, 2048), F32)

    def one(p: Any, g: Any) -> Any:
        return p * 0.9 - g

    def two(p: Any, g: Any, q: Any, h: Any) -> Any:
        return one(p, g), one(q, h) * 0.5

    single = _estimate(one, "v6e-1", array, array)
    double = _estimate(two, "v6e-1", *[array] * 4)
    assert double.cycles < 1.9 * single.cycles


def test_zeros_are_written_window_by_window() -> None:
    """A kernel of one operation hides no start of a window: 184,480 cycles for 32 MiB on v5e,
    171,296 on v6e."""
    for on, cycles in (("v5litepod-1", 184_480), ("v6e-1", 171_296)):
        fill = _estimate(
            lambda x: jnp.broadcast_to(x, (8192, 1024)), on, jax.ShapeDtypeStruct((), F32)
        )
        assert fill.cycles == pytest.approx(cycles, rel=0.1)


def test_zeros_of_two_bytes_are_written_window_by_window_on_the_chip_too() -> None:
    """The gradient of a table of bfloat16: 171,328 of the compiler's 264,637 cycles on v6e are its
    zeros."""

    def step(table: Any, places: Any, rows: Any) -> Any:
        return table - 0.01 * jnp.zeros(table.shape, table.dtype).at[places].add(rows)

    table, rows = (jax.ShapeDtypeStruct((count, 512), BF16) for count in (16384, 1536))
    lowered = jax.jit(step, donate_argnums=0).lower(
        table, jax.ShapeDtypeStruct((1536,), jnp.int32), rows
    )
    estimate = estimate_program(parse_stablehlo(lowered.as_text()), parse("v6e-1"))
    assert estimate.cycles == pytest.approx(264_637, rel=0.16)


def test_large_values_leave_the_chip_where_what_they_are_made_from_has_the_room() -> None:
    """Logarithms of 100 MB that are made from 50 MB of scores: 162,552 of 399,844 cycles on v6e
    write these."""

    def loss(hidden: Any, weights: Any, targets: Any) -> Any:
        scores = (jnp.tanh(hidden) @ weights).astype(F32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), targets[..., None], -1))

    hidden, weights = (
        jax.ShapeDtypeStruct((8, 192, 512), BF16),
        jax.ShapeDtypeStruct((512, 16384), BF16),
    )
    cycles = _estimate(
        loss, "v6e-1", hidden, weights, jax.ShapeDtypeStruct((8, 192), jnp.int32)
    ).cycles
    assert cycles == pytest.approx(399_844, rel=0.12)


def _convolution(on: str, image: tuple[int, ...], kernel: tuple[int, ...]) -> Any:
    groups = image[-1] // kernel[-2]

    def run(x: Any, kernel: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    return _estimate(run, on, jax.ShapeDtypeStruct(image, BF16), jax.ShapeDtypeStruct(kernel, BF16))


@pytest.mark.parametrize(
    ("on", "kernel", "cycles"),
    [
        ("v3-8", (3, 3, 8, 256), 1_555_814),
        ("v5litepod-1", (3, 3, 8, 256), 760_731),
        ("v5litepod-1", (3, 3, 256, 256), 239_584),
    ],
)
def test_groups_of_few_features_cost_their_padding_and_copies(
    on: str, kernel: tuple[int, ...], cycles: int
) -> None:
    """The compiler's cycles for the groups; without them it has a third or less."""
    estimate = _convolution(on, (32, 28, 28, 256), kernel)
    assert estimate.cycles == pytest.approx(cycles, rel=0.3)
    assert bool(estimate.doubts) == (kernel[2] < 256)


def test_few_examples_are_doubtful_where_parts_of_images_become_examples() -> None:
    for examples, on, doubtful in (
        (4, "v5litepod-1", True),
        (8, "v5litepod-1", False),
        (4, "v3-8", False),
    ):
        assert bool(_convolution(on, (examples, 56, 56, 128), (3, 3, 128, 128)).doubts) == doubtful


def test_a_kernel_in_a_run_waits_for_its_results_on_the_chip_where_the_compiler_charges_it() -> (
    None
):
    """Published runs of ResNet-50 whose activations are on the chip take up to half longer than the
    units do."""

    def step(a: Any, b: Any) -> Any:
        made = jnp.exp(a @ b)
        return made @ made

    shapes = jax.ShapeDtypeStruct((3584, 128), BF16), jax.ShapeDtypeStruct((128, 3584), BF16)
    first = {on: _estimate(step, on, *shapes).ops[0] for on in ("v4-8", "v6e-1")}
    assert {on: op.bound for on, op in first.items()} == {"v4-8": "on-chip", "v6e-1": "vpu"}
    units = dict(first["v4-8"].unit_cycles)
    assert first["v4-8"].cycles > 1.2 * max(units.values())
