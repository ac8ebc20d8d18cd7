"""Deliberately wrong variants are noticed, by the invariant that they break. `make mutants` runs
them all; here is the first one of each invariant."""

from __future__ import annotations

import collections

import pytest

from tests.simulation import mutant_table
from tests.simulation.mutant import MUTANTS, Mutant

CHECKED = {f"I{number}" for number in range(1, 19)}
# what a simulation cannot see: callers without rights, and the bits of a training run
BY_TESTS = {"I12", "I18"}
FIRST = {item.invariant: item for item in reversed(MUTANTS) if not item.test}


def test_there_are_at_least_two_for_each_invariant() -> None:
    counted = collections.Counter(item.invariant for item in MUTANTS if not item.test)
    assert {name: counted[name] for name in CHECKED - BY_TESTS if counted[name] < 2} == {}
    assert {item.invariant for item in MUTANTS} == CHECKED
    assert sum(counted.values()) >= 30
    assert len({item.name for item in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
@pytest.mark.parametrize("candidate", FIRST.values(), ids=[item.name for item in FIRST.values()])
def test_a_named_seed_notices_the_mutant(
    candidate: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate.patch(monkeypatch)
    assert any(candidate.invariant in candidate.found(seed) for seed in candidate.seeds)


def test_a_bug_that_nothing_finds_and_a_check_that_always_fails_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harmless = Mutant("harmless", "I1", lambda _: None, (0,), events=())
    monkeypatch.setattr(mutant_table, "MUTANTS", [harmless])
    monkeypatch.setattr(mutant_table, "_run_tests", lambda *_: 1)
    monkeypatch.setattr(mutant_table, "run_of", lambda *_: "a run")
    # In this process: it may have JAX by now, and such a process must not fork.
    broken = [what for number in range(2) for what in mutant_table.check_control(number)]
    assert mutant_table.conclude([mutant_table.look_for("harmless")], broken) == 1
    assert mutant_table.conclude([], []) == 0
    said = capsys.readouterr().out
    assert "MISSED: seeds (0,) find [set()]" in said
    assert "0 of 1 bugs are found" in said
    assert "fails without any bug: the tests end with status 1" in said
