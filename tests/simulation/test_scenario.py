"""Scenario files and traces: what is wrong is named by line and field. A failing run is made
shorter."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from podyard.base.errors import PodyardError
from podyard.base.rng import Streams
from podyard.simulation import faults, hosts, instances, workload
from podyard.simulation.kinds import FAULTS, KINDS, WORKLOAD
from podyard.simulation.run import Result, draw_events, simulate
from podyard.simulation.scenario import DAY_SECONDS, Event, Scenario, fleet_for, read
from podyard.simulation.shrink import shrink
from tests.simulation.mutant_table import MUTANTS


def _file(folder: Path, text: str, name: str = "scenario.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_scenario_comes_back_as_it_was_written(tmp_path: Path) -> None:
    drawn_once = draw_events(Scenario(seed=7, days=0.3, nodes=3))
    scenario = Scenario(seed=7, days=0.3, nodes=3, faults_per_day=4.0, events=drawn_once)
    assert read(_file(tmp_path, scenario.as_yaml())) == scenario


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("seed: 1\nday: 3\n", 2, "'day'"),
        ("seed: 1\ndays: three\n", 2, "days is 'three'"),
        ("days: 1\nseed: 1.5\n", 2, "seed is 1.5"),
        ("- 1\n", 1, "a mapping"),
        (
            "seed: 1\nevents:\n- {at: 1, do: create}\n- {at: -1, do: delete, name: n}\n",
            4,
            "events[1].at",
        ),
        ("seed: 1\nevents:\n- {at: 1, do: explode, name: n}\n", 3, "events[0].do is 'explode'"),
        ("seed: 1\nevents:\n- {at: 1, do: delete, name: n, size: 3}\n", 3, "events[0].size"),
        (
            "seed: 1\nevents:\n- {at: 1, do: leap, seconds: long}\n",
            3,
            "events[0].seconds is 'long'",
        ),
        ("seed: 1\nfaults:\n- effect: preempt\n  cuont: 3\n", 4, "faults[0].cuont"),
        ("seed: 1\nfaults:\n- effect: explode\n", 3, "faults[0].effect"),
    ],
)
def test_a_wrong_scenario_names_its_line_and_field(
    tmp_path: Path, text: str, line: int, field: str
) -> None:
    with pytest.raises(PodyardError) as caught:
        read(_file(tmp_path, text))
    assert f"line {line}: " in caught.value.message
    assert field in caught.value.message


def test_fault_rules_of_a_file_stand_from_the_beginning(tmp_path: Path) -> None:
    node = "{project: bora, zone: us-central1-a, type: v5litepod-1, usage: spot}"
    events = f"events:\n- {{at: 60, do: create, name: n, {node[1:]}\n"
    rules = "faults:\n- {effect: preempt, match: {usage: spot}, count: 1, from: 1h}\n"
    calm, disturbed = (
        read(_file(tmp_path, f"days: 0.2\nnodes: 3\n{text}")) for text in (events, rules + events)
    )
    assert (simulate(calm).preemptions, simulate(disturbed).preemptions) == (0, 1)
    assert read(_file(tmp_path, disturbed.as_yaml())) == disturbed


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"days": 0.0}, "days"), ({"nodes": 0}, "nodes"), ({"faults_per_day": -1.0}, "faultsPerDay")],
)
def test_what_is_out_of_bounds_is_refused(changes: dict[str, float], field: str) -> None:
    with pytest.raises(PodyardError, match=field):
        simulate(dataclasses.replace(Scenario(), **changes))


CSV = "submit_time,type,duration,priority\n0,v5litepod-4,600,100\n30.5,v3-8,900,0\n"
JSONL = '{"submit_time": 0, "type": "v5litepod-4", "duration": 600, "priority": 100}\n\n'


def test_a_trace_becomes_nodes_that_are_made_and_deleted(tmp_path: Path) -> None:
    events = workload.of_trace(_file(tmp_path, CSV, "trace.csv"), fleet_for(6))
    assert [(event.do, event.at) for event in events] == [
        ("create", 0.0),
        ("delete", 600.0),
        ("create", 30.5),
        ("delete", 930.5),
    ]
    assert [event.args["usage"] for event in events if event.do == "create"] == [
        "on-demand",
        "spot",
    ]
    alone = workload.of_trace(_file(tmp_path, JSONL, "trace.jsonl"), fleet_for(6))
    assert [(event.do, event.at) for event in alone] == [("create", 0.0), ("delete", 600.0)]
    result = simulate(
        Scenario(days=0.05, nodes=6, faults_per_day=0, trace=str(tmp_path / "trace.csv"))
    )
    assert not result.is_failure
    assert result.faults == 0
    assert result.events >= 12


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("submit_time,type,duration\n", "line 1: the header lacks priority"),
        (CSV + "1,v3-8,long,0\n", "line 4: duration is 'long'"),
        (CSV + "1,v9-8,10,0\n", "line 4: type is 'v9-8'"),
        (CSV + "-1,v3-8,10,0\n", "line 4: submit_time is '-1'"),
        (JSONL + "{]\n", "line 3: not JSON"),
        (JSONL + '{"submit_time": 1}\n', "line 3: duration is missing"),
    ],
)
def test_a_wrong_trace_names_its_line_and_field(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(PodyardError) as caught:
        workload.of_trace(_file(tmp_path, text, "trace"), fleet_for(6))
    assert problem in caught.value.message


def test_arrivals_follow_the_day_and_keep_so_many_nodes_alive() -> None:
    fleet = fleet_for(50)
    events = workload.draw(Streams(1), fleet, 30.0, 50)
    begun = [event.at for event in events if event.name.startswith("n-") and event.do == "create"]
    by_day = sum(0.25 < at / DAY_SECONDS % 1.0 < 0.75 for at in begun) / len(begun)
    assert 0.6 < by_day < 0.8  # a constant rate would give a half
    ends = {event.name: event.at for event in events if event.do in ("delete", "unqueue")}
    lives = [
        (e.at, ends.get(e.name, 30 * DAY_SECONDS)) for e in events if e.do in ("create", "queue")
    ]
    alive = sum(begin <= 20 * DAY_SECONDS < end for begin, end in lives)
    assert 25 < alive < 100


def test_every_kind_of_fault_but_the_rules_is_drawn() -> None:
    work = workload.draw(Streams(1), fleet_for(6), 20.0, 6)
    found = faults.draw(Streams(1), work, 20.0, 40.0)
    assert {event.do for event in found} == set(FAULTS) - {"rule"}
    asked = list(hosts.draw(Streams(1), work))
    # Instances are drawn with both roads: test_instances.py.
    of_nodes = set(WORKLOAD) - set(instances.ACTIONS)
    assert {event.do for event in (*work, *asked)} == of_nodes
    for event in (*work, *asked, *found):
        assert set(event.args) <= set(KINDS[event.do]), event


@pytest.mark.slow
def test_a_failing_run_is_made_shorter_and_still_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = next(
        item for item in MUTANTS if item.name == "the_release_of_a_preempted_node_is_dropped"
    )
    candidate.patch(monkeypatch)
    scenario = Scenario(seed=1, days=1, nodes=3)
    failed = simulate(scenario)
    assert [item.invariant for item in failed.violations] == ["I2"]
    shorter = shrink(scenario, failed)
    assert shorter.events is not None
    assert len(shorter.events) <= 4
    assert simulate(shorter).violations[0].invariant == "I2"


def test_shrinking_ends_after_so_many_runs() -> None:
    runs = 0

    def run(scenario: Scenario) -> Result:
        nonlocal runs
        runs += 1
        assert scenario.events is not None
        return dataclasses.replace(
            passed, stopped_by="Error: again" if len(scenario.events) > 30 else ""
        )

    events = tuple(Event(float(number), "leap", "", {"seconds": 1.0}) for number in range(200))
    passed = simulate(Scenario(days=0.001, nodes=1, events=()))
    failed = dataclasses.replace(passed, stopped_by="Error: once")
    found = shrink(Scenario(events=events), failed, run, runs_max=25)
    assert runs == 25
    assert found.events is not None
    assert 30 < len(found.events) < 200
