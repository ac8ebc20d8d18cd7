"""The model against the TPU compiler on programs of today, with bounds that hold now: tighten them,
never loosen them.

The figures are printed (-s); `python -m benchmarks.programs_of_today` names the worst programs.
"""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from benchmarks import programs_of_today
from benchmarks.corpus.data import GENERATIONS, load_rows, load_texts
from benchmarks.programs_of_today import Figures, cases, figures, verdict_line

# One worker of the test run does all of it: the others would work out the same estimates.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("programs of today")]


@dataclasses.dataclass(frozen=True)
class _Bounds:
    """Of all programs of a generation: the median error at most, shares at least, and programs that
    are more than
    twice off without a word about it at most."""

    median: float
    near: float
    far_unflagged: int
    arguments: float
    peaks: float
    hbm: float
    collectives: float
    verdicts: float


_BOUNDS = {
    "v3": _Bounds(0.03, 0.955, 0, 1.0, 0.965, 0.965, 0.97, 1.0),
    "v5e": _Bounds(0.046, 0.918, 0, 1.0, 0.92, 0.89, 0.97, 1.0),
    "v4": _Bounds(0.043, 0.88, 0, 1.0, 0.92, 0.92, 1.0, 1.0),
    "v5p": _Bounds(0.065, 0.954, 0, 1.0, 0.91, 0.91, 1.0, 1.0),
    "v6e": _Bounds(0.073, 0.89, 0, 1.0, 1.0, 1.0, 0.85, 1.0),
}
# Shares of equal verdicts on sharded programs around the limit of memory.
_VERDICTS = {"v3": 1.0, "v5e": 0.94, "v5p": 1.0}


@pytest.mark.parametrize("generation", list(_BOUNDS))
def test_programs_of_today_are_no_further_off_than_before(generation: str) -> None:
    judged, bounds = cases(generation), _BOUNDS[generation]
    print(programs_of_today.HEAD)
    parts = {
        "fitted": [c for c in judged if not c.row.is_kept_out],
        "kept out": [c for c in judged if c.row.is_kept_out],
    }
    for name, part in parts.items():
        print(f"{generation + ' ' + name:16} {figures(part).text()}")
    reached: Figures = figures(judged)
    assert reached.median is not None and reached.median <= bounds.median
    assert reached.far_unflagged <= bounds.far_unflagged
    for name in ("near", "arguments", "peaks", "hbm", "collectives", "verdicts"):
        assert (getattr(reached, name) or 0.0) >= getattr(bounds, name), name


@pytest.mark.parametrize("generation", list(_VERDICTS))
def test_sharded_programs_fit_where_the_compiler_says_so(generation: str) -> None:
    around = cases(generation, limits=True)
    print(verdict_line(generation, around))
    decided = [case for case in around if case.is_decided]
    assert sum(case.is_verdict_equal for case in decided) >= _VERDICTS[generation] * len(decided)


def test_the_record_is_whole() -> None:
    texts, rows = load_texts(), load_rows()
    assert {row.text_hash for row in rows.values()} == set(texts)
    assert all(
        hashlib.sha256(text.encode()).hexdigest()[:16] == text_hash
        for text_hash, text in texts.items()
    )
    assert {generation for _, generation in rows} <= set(GENERATIONS)
    assert len({row.compiler_version for row in rows.values()}) <= 1 + len(GENERATIONS)
