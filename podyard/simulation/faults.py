"""Faults: faults drawn from the seed, and what each of them does.

Each uses what the control plane, the machines or the broker have today; a new kind is a row in
`kinds.FAULTS`, a weight here and a function here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.rng import Streams
from podyard.control.checks import faults as fault_rules
from podyard.control.compute import maintenance, nodes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.node import Node
from podyard.domain.operation import Operation
from podyard.domain.principal import PLATFORM, Principal
from podyard.simulation.actions import place_of
from podyard.simulation.scenario import DAY_SECONDS, Event
from podyard.simulation.world import AGENT_COUNT, LONG_TURN_REAL_SECONDS, World

MAINTENANCE_WINDOW_SECONDS = 4 * 3600.0
NOTICE_SECONDS = 1.0  # a window cannot begin before now

EARLY_SHARE = 0.3  # of the faults that hit something come while it is made, or in its first minute
EARLY_SECONDS = 160.0
LAPSE_TURNS = 10  # long ones: more than any lease

# How often each kind comes, in parts of all.
_WEIGHTS: Mapping[str, float] = {
    "preempt": 5, "maintain": 2, "announce": 1, "vanish": 1, "silence": 1, "die": 1, "exit": 2,
    "broker": 3,
    "crash": 3, "leap": 1,
}  # fmt: skip


def draw(streams: Streams, workload: Sequence[Event], days: float, per_day: float) -> list[Event]:
    """Faults at times of a Poisson process; each hits something that the workload has then asked
    for."""
    chance = streams.stream("faults")
    lives = _lives(workload)
    events: list[Event] = []
    at = 0.0
    while per_day > 0:
        at += chance.expovariate(per_day / DAY_SECONDS)
        if at >= days * DAY_SECONDS:
            break
        do = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        target, moment = "", at
        kinds = _TARGETS.get(do, ())
        if kinds:
            alive = [life for life in lives if life[1] in kinds and life[2] <= at < life[3]]
            if alive:
                target, _, begin, _ = chance.choice(alive)
                if chance.random() < EARLY_SHARE:
                    moment = begin + chance.uniform(0.0, EARLY_SECONDS)
        events.append(Event(round(moment, 3), do, target, _args(do, chance)))
    return events


_TARGETS: Mapping[str, tuple[str, ...]] = {
    "preempt": ("create", "queue", "job"),
    "maintain": ("create", "queue"),
    "announce": ("create", "queue"),
    "vanish": ("create", "queue", "job"),
    "exit": ("job",),
}


def _lives(workload: Sequence[Event]) -> list[tuple[str, str, float, float]]:
    """(name, kind, begin, end) of what is asked for, in the order of its beginning. A job's end is
    not known."""
    ends = {event.name: event.at for event in workload if event.do in ("delete", "unqueue")}
    found: dict[str, tuple[str, str, float, float]] = {}
    for event in sorted(workload, key=lambda event: (event.at, event.name)):
        if event.do in ("create", "queue", "job") and event.name not in found:
            longest = event.args.get("steps", 0) * event.args.get("step_seconds", 0.0)
            end = ends.get(event.name, event.at + longest if longest else float("inf"))
            found[event.name] = (event.name, event.do, event.at, end)
    return list(found.values())


def _args(do: str, chance: Any) -> dict[str, Any]:
    if do == "maintain":
        return {"seconds": round(chance.uniform(NOTICE_SECONDS, 7200.0), 3)}
    if do == "silence":
        seconds = round(chance.uniform(1.0, 2.0 * 3600.0), 3)
        return {
            "agent": chance.randrange(AGENT_COUNT),
            "seconds": seconds,
            "lapse": chance.random() < 0.7,
        }
    if do == "die":
        return {"agent": chance.randrange(AGENT_COUNT)}
    if do == "exit":
        return {"code": chance.choice((1, -9, -11))}
    if do == "broker":
        amounts = {
            "lose": chance.random(),
            "double": chance.random(),
            "delay": chance.uniform(0.0, 30.0),
        }
        return {
            **{name: round(value, 3) for name, value in amounts.items()},
            "messages": chance.randrange(1, 20),
        }
    if do == "crash":
        return {"units": chance.randrange(0, 12)}
    if do == "leap":
        return {"seconds": round(chance.uniform(1.0, 3600.0), 3)}
    return {}


def apply(world: World, event: Event) -> None:
    """Does what the fault says; nothing where its target is not there."""
    _EFFECTS[event.do](world, event.name, event.args)


Effect = Callable[[World, str, Mapping[str, Any]], None]


def _nodes_of(world: World, name: str) -> list[str]:
    """The live nodes that an event's name stands for: the node, a job's own, or those of a queued
    resource."""
    if not name:
        return []
    sql = (
        "SELECT node_id FROM nodes WHERE live_name IS NOT NULL AND (node_id = :name OR "
        "queued_resource LIKE :queue)"
    )
    found = world.rows(
        f"{sql} ORDER BY node_id", {"name": name, "queue": f"%/queuedResources/{name}"}
    )
    return [str(row[0]) for row in found]


def _each_node(use_case: Callable[..., Node | Operation], most: int | None = None) -> Effect:
    def effect(world: World, name: str, args: Mapping[str, Any]) -> None:
        for node_id in _nodes_of(world, name)[:most]:
            place = place_of(world, "nodes", "node_id", node_id)
            assert place is not None
            world.ask(use_case, *place, node_id, *args.values())

    return effect


def _maintain(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    node_id: str,
    seconds: float,
) -> Node:
    begin: PlatformTime = uow.now.plus_seconds(seconds)
    end = begin.plus_seconds(MAINTENANCE_WINDOW_SECONDS)
    return maintenance.schedule(uow, fleet, principal, project, zone, node_id, begin, end)


def _silence(world: World, name: str, args: Mapping[str, Any]) -> None:
    del name
    agent = world.agents[args["agent"] % AGENT_COUNT]
    agent.silent_until = world.now().plus_seconds(args["seconds"])
    if args["lapse"]:
        for _ in range(LAPSE_TURNS):
            world.turn(LONG_TURN_REAL_SECONDS)


def _die(world: World, name: str, args: Mapping[str, Any]) -> None:
    del name
    world.agents[args["agent"] % AGENT_COUNT].die()


def _exit(world: World, name: str, args: Mapping[str, Any]) -> None:
    """The first process of a job ends, or (exit code 1) says the same twice before."""
    for agent in world.agents:
        for replica_id in sorted(agent.processes):
            if agent.processes[replica_id].assigned.job.job_id == name:
                if args["code"] == 1:
                    agent.report_twice(replica_id)
                agent.kill(replica_id, args["code"])
                return


def _broker(world: World, name: str, args: Mapping[str, Any]) -> None:
    del name
    world.broker.disturb(**args)


def _crash(world: World, name: str, args: Mapping[str, Any]) -> None:
    del name
    world.database.fuse = args["units"]


def _leap(world: World, name: str, args: Mapping[str, Any]) -> None:
    del name
    world.clock.advance(args["seconds"])


def _rule(world: World, name: str, args: Mapping[str, Any]) -> None:
    del name
    world.database.run(lambda uow: fault_rules.create(uow, PLATFORM, args["rule"]))


_EFFECTS: Mapping[str, Effect] = {
    "preempt": _each_node(nodes.preempt, most=2),
    "maintain": _each_node(_maintain, most=1),
    "announce": _each_node(maintenance.simulate, most=1),
    "vanish": _each_node(nodes.delete, most=1),
    "silence": _silence,
    "die": _die,
    "exit": _exit,
    "broker": _broker,
    "crash": _crash,
    "leap": _leap,
    "rule": _rule,
}
