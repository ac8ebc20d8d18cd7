"""Orders of kernels next to which collectives run, and what memory holds then. The orders, bytes
and cycles in here
are the compiler's (libtpu 0.0.42.1)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from benchmarks.corpus import others, parallel
from benchmarks.corpus.drawn import LAYOUTS
from benchmarks.corpus.layout import Made
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.copies import on_chip
from podyard.engine.timing.estimate import Estimate
from podyard.engine.timing.latency_hiding import hiding_latency
from podyard.engine.timing.schedule import Run, Step
from podyard.hardware.accelerator_types import parse

ROOMY = 16e9
# Four layers whose weights are gathered by hand, with their gradients: converted (c), gathered (g),
# forward (f), backward (b), gradient (w), scattered sum (s), update (u); what each of them reads.
LAYERS: Mapping[str, str] = {
    "c1": "p1", "g1": "c1", "f1": "x g1", "c2": "p2", "g2": "c2", "f2": "f1 g2", "c3": "p3",
    "g3": "c3",
    "f3": "f2 g3", "c4": "p4", "g4": "c4", "f4": "f3 g4", "b4": "f3 f4 g4", "b3": "f2 b4 g3",
    "b2": "b3 g2",
    "w1": "x b2 f1", "s1": "w1", "u1": "p1 s1", "w2": "b3 f1", "s2": "w2", "u2": "p2 s2",
    "w3": "b4 f2",
    "s3": "w3", "u3": "p3 s3", "w4": "f4 f3", "s4": "w4", "u4": "p4 s4",
}  # fmt: skip
COMPILED = "c1 g1 c2 g2 c3 g3 c4 g4 f1 f2 f3 f4 w4 b4 w3 b3 w2 b2 w1 s1 u1 s2 u2 s3 u3 s4 u4"


def _gather(latency: float) -> Run:
    return Run(latency=latency, kind="all_gather" if latency else "")


def _ordered(reads: Mapping[str, str], latency: float, cycles: float = 3e3) -> str:
    numbers = {
        name: number
        for number, name in enumerate([*reads, "x", *(f"p{layer}" for layer in range(1, 9))])
    }
    steps = [
        Step(
            tuple(numbers[one] for one in given.split()),
            (numbers[name],),
            0,
            False,
            run=_gather(latency) if name[0] == "g" else Run(cycles, is_product=name[0] in "fbw"),
        )
        for name, given in reads.items()
    ]
    results = [numbers[name] for name in reads if name[0] == "u"]
    sizes = dict.fromkeys(numbers.values(), 2**20)
    names = list(numbers)
    made = hiding_latency(steps, sizes, results, ROOMY)
    return " ".join(names[step.makes[0]] for step in made)


def test_weights_come_before_products_that_are_shorter_than_their_gathers() -> None:
    assert _ordered(LAYERS, 55_924.0) == COMPILED


def test_a_gather_starts_as_late_as_the_products_before_it_hide_it() -> None:
    order = _ordered(LAYERS, 20e3, cycles=30e3).split()
    for layer in (2, 3, 4):
        assert order.index(f"f{layer - 1}") - 1 == order.index(f"g{layer}")


def test_a_body_without_such_collectives_keeps_its_order() -> None:
    assert _ordered(LAYERS, 0.0) == " ".join(LAYERS)


def test_a_value_that_is_made_twice_keeps_no_step_from_its_place() -> None:
    steps = [
        Step((0,), (1,), 0, False, run=Run(1.0)),
        Step((1,), (2,), 0, False, run=Run(1.0)),
        Step((0, 1), (1,), 0, False, run=Run(1.0)),
        Step((5,), (3,), 0, False, run=_gather(1e3)),
        Step((1, 2, 3), (4,), 0, False, run=Run(1.0)),
    ]
    made = [(step.reads, step.makes) for step in hiding_latency(steps, {}, (4,), ROOMY)]
    # The gather comes first, and the others as they were.
    assert made == [(step.reads, step.makes) for step in (steps[3], *steps[:3], steps[4])]


def test_what_is_gathered_next_to_a_product_is_told() -> None:
    made = hiding_latency(
        [
            Step((0,), (1,), 0, False, run=_gather(1e3)),
            Step((2,), (3,), 0, False, run=Run(2e3, is_product=True)),
            Step((2,), (4,), 0, False, run=Run(1e3)),
            Step((1, 3, 4), (5,), 0, False, run=Run(1e3, is_product=True)),
        ],
        {},
        (5,),
        ROOMY,
    )
    assert {step.makes[0]: step.gathered for step in made} == {1: (), 3: (1,), 4: (), 5: ()}


def test_short_of_memory_what_needs_least_comes_first() -> None:
    """Seen from the end: the kernel that reads the large array waits while the memory would not
    hold it."""
    steps = [
        Step((0,), (7,), 0, False, run=Run(1.0)),
        Step((7,), (1,), 0, False, run=_gather(10.0)),
        Step((7,), (2,), 0, False, run=Run(1.0)),
        Step((7,), (3,), 0, False, run=Run(1.0)),
        Step((2,), (4,), 0, False, run=Run(1.0)),
        Step((3,), (5,), 0, False, run=Run(1.0)),
        Step((1, 4, 5), (6,), 0, False, run=Run(1.0)),
    ]
    sizes = {1: 1, 2: 1, 3: 100, 4: 1, 5: 1, 6: 1, 7: 40}

    def last_of_two(limit: float) -> int:
        order = [step.makes[0] for step in hiding_latency(steps, sizes, (6, 7), limit)]
        return max((4, 5), key=order.index)

    assert (last_of_two(ROOMY), last_of_two(60.0)) == (5, 4)


def _estimate(made: Made, on: str) -> Estimate:
    return estimate_program(parse_stablehlo(made.text()), parse(on))


@pytest.mark.parametrize(
    ("devices", "width", "batch", "layers", "peak"),
    [
        (8, 1024, 512, 3, 11_403_776),
        (8, 2048, 4096, 4, 65_012_224),
        (16, 1536, 8192, 3, 32_842_240),
        (32, 3072, 1024, 2, 60_752_384),
        (8, 4096, 16384, 2, 176_161_280),
        (16, 1024, 65536, 5, 78_914_048),
    ],
)
def test_gathered_weights_are_there_as_early_as_compiled(
    devices: int, width: int, batch: int, layers: int, peak: int
) -> None:
    made = _estimate(
        parallel.gathered_weights(devices, width, batch, layers), f"v5litepod-{devices}"
    )
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.04)


@pytest.mark.parametrize(
    ("widths", "batch", "optimizer", "peak"),
    [
        ((512, 1024, 256), 512, "sgd", 3_162_624),
        ((1024, 1024, 1024, 512), 1024, "sgd", 9_467_392),
        ((768, 3072, 768, 384), 2048, "adam", 27_494_912),
        ((2048, 2048, 128), 256, "momentum", 19_238_912),
        ((512, 2048, 512, 2048, 256), 4096, "adam", 21_852_160),
    ],
)
def test_fully_sharded_perceptrons_gather_as_early_as_compiled(
    widths: tuple[int, ...], batch: int, optimizer: str, peak: int
) -> None:
    made = _estimate(others.perceptron(widths, batch, optimizer, LAYOUTS["fsdp8"]), "v5litepod-8")
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.06)


@pytest.mark.parametrize(
    ("devices", "batch", "heads", "tokens", "head", "cycles", "peak", "far"),
    [
        (8, 1, 4, 1024, 128, 125_757, 1_976_832, 524_288),
        (8, 2, 8, 4096, 64, 910_693, 29_493_760, 4_194_304),
        (16, 1, 2, 2048, 128, 213_189, 990_720, 262_144),
    ],
)
def test_what_goes_around_in_a_loop_is_copied_before_it_and_in_each_turn(  # noqa: PLR0913
    devices: int, batch: int, heads: int, tokens: int, head: int, cycles: int, peak: int, far: int
) -> None:
    made = _estimate(
        parallel.ring_attention(devices, batch, heads, tokens, head), f"v5litepod-{devices}"
    )
    assert made.peak_hbm_bytes == pytest.approx(peak, rel=0.08)
    assert made.peak_hbm_bytes - made.on_chip_bytes == pytest.approx(far, rel=0.01)
    assert made.cycles == pytest.approx(cycles, rel=0.15)


def test_what_a_product_runs_next_to_and_what_a_loop_changes_in_place_are_there_twice() -> None:
    steps = [
        Step((), (1,), 0, False),
        Step((), (2,), 0, False, gathered=(1,)),
        Step((1, 2), (3,), 0, False, doubled=7),
    ]
    _, _, twice = on_chip(steps, {1: 50}, 100, {})
    assert np.array_equal(twice, [0, 50, 7])
