"""48 seeds of three days each, with over two thousand faults, break no invariant. A long run has
200."""

from __future__ import annotations

import pytest

from podyard.simulation.run import simulate
from podyard.simulation.scenario import Scenario
from tests.long_runs import times

SEEDS, CHUNKS = times(48, 200), 8
NODES, DAYS = 4, 3.0
FAULTS_PER_CHUNK = 50 * SEEDS // CHUNKS  # at least so many in each


@pytest.mark.slow
@pytest.mark.repeats
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_seed_breaks_an_invariant(chunk: int) -> None:
    faults = events = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        scenario = Scenario(seed=seed, days=DAYS, nodes=NODES)
        result = simulate(scenario)
        assert not result.is_failure, (scenario.command(), result.stopped_by, result.violations)
        faults += result.faults
        events += result.events
    assert faults >= FAULTS_PER_CHUNK
    assert events > 100 * SEEDS // CHUNKS


def test_one_seed_runs_with_every_kind_of_event() -> None:
    result = simulate(Scenario(seed=11, days=1, nodes=4))
    assert not result.is_failure, (result.stopped_by, result.violations)
    assert result.events > 50
    assert result.cost.parts > 0
    assert 0 < result.utilisation < 1
    assert 0 < result.waits[0] <= result.waits[1] <= result.waits[2]


@pytest.mark.slow
@pytest.mark.repeats
def test_days_of_two_hundred_nodes() -> None:
    days = times(3, 30)
    result = simulate(Scenario(seed=1, days=days, nodes=200))
    assert not result.is_failure, (result.stopped_by, result.violations)
    assert result.events >= 20_000 * days // 30
