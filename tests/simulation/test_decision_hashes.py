"""What the platform decides stays what was recorded; `make decision-hashes` checks all 40 runs,
this a few of them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.ids import row_id
from podyard.base.rng import Random
from podyard.db.store import transition
from podyard.db.views.decisions import Decision
from podyard.simulation.digest import decision_hash
from podyard.simulation.run import Result, simulate
from podyard.simulation.scenario import FAULTS_PER_DAY_USUAL, Event, Scenario
from tests.simulation import decision_hashes
from tests.simulation.decision_hashes import difference, read, record

IN_THE_SUITE = ("5", "16", "30", "35", "elastic")
SHORT = Scenario(seed=3, days=0.5, nodes=5)
DECISIONS = (
    Decision(PlatformTime(1), "node/p/z/a", "create", ">CREATING by loop"),
    Decision(PlatformTime(2), "node/p/z/a", "created", "CREATING>READY by loop"),
    Decision(PlatformTime(2), "node/p/z/b", "preempt", "READY>PREEMPTED by loop"),
)


@pytest.fixture(scope="module")
def short() -> Result:
    return simulate(SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("run", IN_THE_SUITE)
def test_the_decisions_are_those_that_were_recorded(run: str) -> None:
    old = next(item for item in read() if item.run == run)
    assert difference(old, record(run)) == ""


def test_the_file_has_all_runs_of_the_list() -> None:
    recorded = {item.run: item for item in read()}
    assert list(recorded) == [*map(str, range(40)), "elastic"]
    for name, scenario in decision_hashes.scenarios().items():
        item = recorded[name]
        assert (item.days, item.nodes, item.faults_per_day) == (
            scenario.days,
            scenario.nodes,
            scenario.faults_per_day,
        )
        assert item.faults > 0
        assert name == "elastic" or (scenario.seed, scenario.events) == (int(name), None)
    assert len({item.decision_hash for item in recorded.values()}) == 41
    assert sum(item.days == 30 for item in recorded.values()) == 5
    assert all(item.faults_per_day >= FAULTS_PER_DAY_USUAL for item in recorded.values())


def test_a_job_shrinks_yields_and_grows_in_the_elastic_run() -> None:
    lines = [item.line() for item in simulate(decision_hashes.scenarios()["elastic"]).decisions]
    mine = [line for line in lines if "|attempt/atlas/us-east1-d/j-1/" in line]
    hosts = [line.split(" hosts ")[1].split(" ")[0] for line in mine if "|create|" in line]
    assert hosts == ["4", "2", "2", "4"]
    assert len([line for line in mine if line.endswith(" RESIZED")]) == 1


def test_the_hash_is_that_of_the_lines() -> None:
    # Independent of the code: printf '1|node/p/z/a|create|>CREATING by loop\n' | sha256sum
    expected = "f32be43c4d183aa5c158d1926c00148d11372d8386f534dd2c9cdc6dac06710c"
    assert decision_hash(DECISIONS[:1]) == expected


@pytest.mark.parametrize(
    "changed",
    [
        DECISIONS[:2],
        DECISIONS[1:],
        (DECISIONS[0], DECISIONS[2], DECISIONS[1]),
        (
            *DECISIONS[:2],
            dataclasses.replace(DECISIONS[2], reason_code="READY>PREEMPTED by owner@p.example"),
        ),
        (*DECISIONS[:2], dataclasses.replace(DECISIONS[2], event="terminate")),
        (*DECISIONS[:2], dataclasses.replace(DECISIONS[2], resource="node/p/z/c")),
        (*DECISIONS[:2], dataclasses.replace(DECISIONS[2], at=PlatformTime(3))),
        (*DECISIONS, DECISIONS[2]),
    ],
    ids=["dropped", "first-dropped", "reordered", "reason", "event", "resource", "time", "doubled"],
)
def test_the_hash_sees_each_change(changed: Sequence[Decision]) -> None:
    assert decision_hash(changed) != decision_hash(DECISIONS)


def test_two_runs_of_a_seed_are_equal_and_two_seeds_are_not(short: Result) -> None:
    again = simulate(SHORT)
    assert len(short.decisions) == short.events > 50
    assert again.decisions == short.decisions
    assert (
        again.decision_hash
        == short.decision_hash
        != simulate(dataclasses.replace(SHORT, seed=4)).decision_hash
    )


def test_another_process_with_another_hash_seed_prints_the_same(short: Result) -> None:
    arguments = ["simulate", "--seed", "3", "--days", "0.5", "--nodes", "5", "-o", "json"]
    environment = {**os.environ, "PYTHONHASHSEED": "31337"}
    command = [sys.executable, "-c", "from podyard.main import cli; cli()", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["decision_hash"] == short.decision_hash


def test_no_key_and_no_text_of_a_reason_is_hashed(
    short: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Any = transition._record_event

    def other(rng: Random, prefix: str) -> str:
        return row_id(rng, prefix)[::-1]

    def reworded(*args: Any) -> None:
        real(*args[:-1], f"In other words: {args[-1]}")

    monkeypatch.setattr(transition, "row_id", other)
    monkeypatch.setattr(transition, "_record_event", reworded)
    again = simulate(SHORT)
    assert again.state_hash != short.state_hash
    assert again.decision_hash == short.decision_hash
    assert not [
        item for item in short.decisions if "node-" in item.line() or "operation-" in item.line()
    ]


def test_resources_are_named_as_people_know_them() -> None:
    where = {
        "project": "atlas",
        "zone": "us-central1-a",
        "usage": "on-demand",
        "type": "v5litepod-1",
    }
    events = (
        Event(10.0, "create", "n", where),
        Event(200.0, "materialise", "n"),
        Event(
            300.0, "job", "j", {**where, "node": "n", "steps": 12, "every": 4, "step_seconds": 600}
        ),
        Event(5000.0, "delete", "n"),
    )
    lines: dict[str, list[str]] = {}
    for item in simulate(Scenario(days=0.1, events=events)).decisions:
        lines.setdefault(item.resource, []).append(f"{item.event}: {item.reason_code}")
    place = "atlas/us-central1-a"
    assert lines == {
        f"node/{place}/n": [
            "create: >CREATING by owner@atlas.example",
            "created: CREATING>READY by loop",
            "delete: READY>DELETING by owner@atlas.example",
            "deleted: DELETING>GONE by loop",
        ],
        f"operation/{place}/1": [
            "create: >RUNNING by owner@atlas.example create",
            "succeed: RUNNING>SUCCEEDED by loop",
        ],
        f"operation/{place}/2": [
            "create: >RUNNING by owner@atlas.example delete",
            "succeed: RUNNING>SUCCEEDED by loop",
        ],
        f"host/{place}/n/0": [
            "materialise: VIRTUAL>STARTING by owner@atlas.example",
            "run: STARTING>RUNNING by machine-0",
            "stop: RUNNING>STOPPING by machine-0",
            "exit: STOPPING>VIRTUAL by machine-0",
        ],
        f"job/{place}/j": [
            "create: >QUEUED by owner@atlas.example",
            "prepare: QUEUED>PREPARING by loop",
            "run: PREPARING>RUNNING by machine-0",
            "recover: RUNNING>RECOVERING by owner@atlas.example",
            "fail: RECOVERING>FAILED by loop 10",
        ],
        f"attempt/{place}/j/1": [
            "create: >STARTING by loop step 0 hosts 1 batch 8",
            "run: STARTING>RUNNING by machine-0",
            "end: RUNNING>ENDING by owner@atlas.example",
            "ended: ENDING>ENDED by machine-0 PREEMPTED",
        ],
        f"replica/{place}/j/1/0": [
            "create: >PENDING by loop machine-0",
            "start: PENDING>STARTING by machine-0",
            "run: STARTING>RUNNING by machine-0",
            "exit: RUNNING>EXITED by machine-0 -",
        ],
    }


def test_a_difference_is_told_apart_from_another_order() -> None:
    old = read()[0]
    assert difference(old, old) == ""
    other = dataclasses.replace(old, decision_hash="0" * 64)
    assert "only their order within a moment differs" in difference(old, other)
    decided = dataclasses.replace(other, sorted_hash="0" * 64, events=7)
    assert f"7 state changes, recorded {old.events}" in difference(old, decided)
    assert difference(old, decided).startswith("run 0: decision_hash is 0000")
