"""Nodes and instances compete for the same pods: no chip is held twice, and bills are exact."""

from __future__ import annotations

import dataclasses

import pytest

from podyard.hardware import accelerator_types, machine_types
from podyard.simulation.run import draw_events, simulate
from podyard.simulation.scenario import Event, Scenario
from tests.long_runs import times

EVENTS = {"create": "instance", "delete": "end", "stop": "halt", "start": "resume"}


def mix(scenario: Scenario) -> tuple[Event, ...]:
    """The events of a scenario with every other plain node as instances, and every tenth of these a
    machine without chips."""
    events = draw_events(scenario)
    roads: dict[str, str] = {}
    with_jobs = {event.args.get("node") for event in events}
    for event in events:
        kind = event.args.get("type")
        if event.do != "create" or event.name in with_jobs:
            continue
        number = int(event.name.rpartition("-")[2])
        has_machine = machine_types.of_kind(accelerator_types.parse(str(kind))) is not None
        if number % 10 == 0:
            roads[event.name] = "e2-standard-4"
        elif number % 2 == 0 and has_machine:
            roads[event.name] = str(kind)
    return tuple(_moved(event, roads) for event in events)


def _moved(event: Event, roads: dict[str, str]) -> Event:
    road = roads.get(event.name)
    if road is None or event.do not in EVENTS:
        return event
    args = dict(event.args)
    if event.do == "create":
        args.pop("request_id", None)
        args["type"] = road
    return dataclasses.replace(event, do=EVENTS[event.do], args=args)


@pytest.mark.parametrize("seed", [5, 6])
def test_two_roads_share_the_pods(seed: int) -> None:
    scenario = Scenario(seed=seed, days=2, nodes=12)
    events = mix(scenario)
    assert sum(event.do == "instance" for event in events) > 6
    result = simulate(dataclasses.replace(scenario, events=events))
    assert not result.is_failure, (result.stopped_by, result.violations)
    assert result.cost.parts > 0


@pytest.mark.slow
def test_thirty_days_of_both_roads() -> None:
    scenario = Scenario(seed=7, days=times(6, 30), nodes=40)
    result = simulate(dataclasses.replace(scenario, events=mix(scenario)))
    assert not result.is_failure, (result.stopped_by, result.violations)
