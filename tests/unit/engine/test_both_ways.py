"""A program as a function and as its StableHLO: drawn programs have the same cycles, seconds and
memory both ways.

PODYARD_DRAWN_PROGRAMS says how many are drawn; `make drawn-programs` draws 1,050.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import pytest

from podyard.engine.program.from_jaxpr import program_of_jaxpr
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.hardware.accelerator_types import parse
from tests.unit.engine.drawn_programs import FAMILIES, drawn

_COUNT = int(os.environ.get("PODYARD_DRAWN_PROGRAMS", 10 * len(FAMILIES)))
_TYPES = ("v3-8", "v5litepod-1")
_DIFFERENCE = 0.01


def _differences(seed: int) -> list[str]:
    program = drawn(seed)
    jitted = jax.jit(program.function, donate_argnums=program.donated)
    text = jitted.trace(*program.shapes).lower(lowering_platforms=("tpu",)).as_text()
    read = program_of_jaxpr(jax.make_jaxpr(jitted)(*program.shapes)), parse_stablehlo(text)
    found: list[str] = []
    for name in _TYPES:
        first, second = (estimate_program(one, parse(name)) for one in read)
        for what in ("cycles", "compute_seconds", "peak_hbm_bytes"):
            one, other = (float(getattr(estimate, what)) for estimate in (first, second))
            if abs(one - other) > _DIFFERENCE * max(one, other):
                found.append(
                    f"{program.name} on {name}: {what} {one} as a function, {other} as StableHLO"
                )
        if first.unknown_ops != second.unknown_ops:
            found.append(
                f"{program.name}: {first.unknown_ops} are unknown, {second.unknown_ops} "
                "as StableHLO"
            )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", range(len(FAMILIES)), ids=lambda place: FAMILIES[place].__name__.strip("_")
)
def test_a_function_and_its_stablehlo_agree(family: int) -> None:
    seeds = range(family, _COUNT, len(FAMILIES))
    assert [difference for seed in seeds for difference in _differences(seed)] == []


def test_programs_are_drawn_again_as_they_were() -> None:
    def shapes(seed: int) -> Any:
        return drawn(seed).name, str(drawn(seed).shapes)

    assert [shapes(seed) for seed in range(42)] == [shapes(seed) for seed in range(42)]
    assert len({shapes(seed)[0] for seed in range(42)}) == 42
