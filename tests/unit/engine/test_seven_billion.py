"""A training step of seven billion parameters on 64 chips, split as FSDP does it, against the
compiler's answers.

The batches lie on both sides of what the memory holds. Recorded by `benchmarks/corpus/limits.py`
(`LARGE`).
"""

from __future__ import annotations

import functools
import time

import pytest

from benchmarks.programs_of_today import Case, cases
from podyard.engine.timing.estimate import Estimate

NAME = "limit-llama-7b-fsdp64-scan-"
# By how much the need may be off.
MEMORY_NEAR = 0.04
# Of the compiler's cycles; attention is too cheap.
TIME = {"v5e": (0.81, 1.2), "v5p": (0.87, 1.15)}


@functools.cache
def of(generation: str) -> dict[int, Case]:
    return {
        int(case.row.program.removeprefix(NAME)): case
        for case in cases(generation, [NAME], limits=True)
    }


def estimate_of(case: Case) -> Estimate:
    assert case.estimate is not None, case.refusal
    return case.estimate


@pytest.mark.slow
@pytest.mark.parametrize("batch", [128, 256, 512, 640, 768, 1024])
def test_a_batch_fits_where_the_compiler_says_so(batch: int) -> None:
    case = of("v5e")[batch]
    assert case.row.fits == (batch <= 512)
    assert estimate_of(case).fits == case.row.fits


@pytest.mark.slow
def test_on_v5p_all_verdicts_are_equal() -> None:
    every = of("v5p")
    assert len(every) >= 7 and {every[batch].row.fits for batch in every} == {True, False}
    assert all(estimate_of(case).fits == case.row.fits for case in every.values())


@pytest.mark.slow
@pytest.mark.parametrize("generation", TIME)
def test_time_and_memory_are_near_the_compilers(generation: str) -> None:
    fit = [case for case in of(generation).values() if case.row.fits]
    assert len(fit) == 3
    low, high = TIME[generation]
    for case in fit:
        assert case.is_argument_exact
        assert estimate_of(case).peak_hbm_bytes == pytest.approx(
            case.row.peak_bytes, rel=MEMORY_NEAR
        )
        assert case.ratio is not None and low <= case.ratio <= high


@pytest.mark.slow
def test_the_analysis_takes_less_than_five_seconds() -> None:
    start = time.monotonic()
    of.__wrapped__("v5e")
    assert time.monotonic() - start < 5 * len(of("v5e"))
