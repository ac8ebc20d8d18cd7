"""A seed tells everything: whatever the process, the hash seed of Python, and the way to the
database."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from podyard.db.engines.inline_statements import InlineConnection
from podyard.simulation.run import draw_events, simulate
from podyard.simulation.scenario import Event, Scenario

SCENARIO = Scenario(seed=5, days=1, nodes=5)


def _in_process(hash_seed: str) -> str:
    command = (
        "from podyard.simulation.run import simulate; from podyard.simulation.scenario "
        "import Scenario; "
        f"print(simulate({SCENARIO!r}).state_hash)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_two_processes_with_two_hash_seeds_agree() -> None:
    hashes = [_in_process("1"), _in_process("271828")]
    assert hashes[0] == hashes[1] == simulate(SCENARIO).state_hash


@pytest.mark.slow
def test_the_way_to_the_database_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = simulate(SCENARIO)
    monkeypatch.setattr(InlineConnection, "execute", InlineConnection._at_length)
    assert simulate(SCENARIO) == fast


def test_another_seed_is_another_run() -> None:
    short = [simulate(Scenario(seed=seed, days=0.2, nodes=3)).state_hash for seed in (1, 1, 2)]
    assert short[0] == short[1] != short[2]


def test_events_that_are_given_are_the_events_that_happen() -> None:
    scenario = Scenario(seed=5, days=0.2, nodes=3)
    events = draw_events(scenario)
    assert len(events) > 3
    given = Scenario(seed=5, days=0.2, nodes=3, events=events)
    assert simulate(given).state_hash == simulate(scenario).state_hash
    first = next(
        index for index, event in enumerate(events) if event.do in ("create", "queue", "job")
    )
    less = Scenario(seed=5, days=0.2, nodes=3, events=(*events[:first], *events[first + 1 :]))
    assert simulate(less).state_hash != simulate(scenario).state_hash


def test_the_hash_sees_a_change_of_one_column() -> None:
    create = Event(
        1.0, "create", "n", {"project": "atlas", "zone": "us-central1-a", "type": "v5litepod-1"}
    )
    hashes = {
        simulate(
            Scenario(
                days=0.01, events=(Event(1.0, "create", "n", {**create.args, "usage": usage}),)
            )
        ).state_hash
        for usage in ("on-demand", "spot")
    }
    assert len(hashes) == 2
