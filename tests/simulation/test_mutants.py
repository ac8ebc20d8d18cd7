"""Each deliberately wrong variant is noticed by a seed that is named for it, and by the invariant that it breaks."""

from __future__ import annotations

import collections

import pytest

from tests.simulation.mutant import MUTANTS, Mutant
from tests.simulation.mutants import noticed

CHECKED = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I13", "I14", "I15", "I16", "I17")


def test_there_are_at_least_two_for_each_invariant() -> None:
    counted = collections.Counter(item.invariant for item in MUTANTS)
    assert {name: counted[name] for name in CHECKED if counted[name] < 2} == {}
    assert sum(counted.values()) >= 30
    assert len({item.name for item in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
@pytest.mark.parametrize("candidate", MUTANTS, ids=[item.name for item in MUTANTS])
def test_a_named_seed_notices_the_mutant(candidate: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate.patch(monkeypatch)
    found: list[set[str]] = []
    for seed in candidate.seeds:
        found.append(noticed(candidate, seed))
        if candidate.invariant in found[-1]:
            return
    pytest.fail(f"seeds {candidate.seeds} find {found}, and not {candidate.invariant}")
