"""The model against the TPU compiler on programs of today, with bounds that hold now: tighten them, never loosen them.

The figures are printed (-s); `python -m benchmarks.programs_of_today` names the worst programs.
"""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from benchmarks import programs_of_today
from benchmarks.corpus.data import GENERATIONS, load_rows, load_texts
from benchmarks.programs_of_today import Figures, cases, figures

# One worker of the test run does all of it: the others would work out the same estimates.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("programs of today")]


@dataclasses.dataclass(frozen=True)
class _Bounds:
    """Of all programs of a generation: the median error at most, shares at least, and programs that are more than
    twice off without a word about it at most."""

    median: float
    near: float
    far_unflagged: int
    arguments: float
    peaks: float
    collectives: float
    verdicts: float


_BOUNDS = {
    "v3": _Bounds(0.20, 0.5, 20, 0.9, 0.35, 0.1, 0.98),
    "v5e": _Bounds(0.60, 0.25, 20, 0.9, 0.15, 0.15, 0.98),
}


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
    for name in ("near", "arguments", "peaks", "collectives", "verdicts"):
        assert (getattr(reached, name) or 0.0) >= getattr(bounds, name), name


def test_the_record_is_whole() -> None:
    texts, rows = load_texts(), load_rows()
    assert {row.text_hash for row in rows.values()} == set(texts)
    assert all(hashlib.sha256(text.encode()).hexdigest()[:16] == text_hash for text_hash, text in texts.items())
    assert {generation for _, generation in rows} <= set(GENERATIONS)
    assert len({row.compiler_version for row in rows.values()}) <= 1 + len(GENERATIONS)
