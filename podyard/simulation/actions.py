"""Effects of the workload's events: calls of the use cases, as the API makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from podyard.control.compute import hosts, nodes, queued_resources, reservations
from podyard.control.jobs import jobs
from podyard.control.platform import idempotency
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.job import Elastic, JobRequest
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.operation import Operation
from podyard.domain.principal import Principal
from podyard.domain.queued_resource import NodeRequest, QueuedResourceSpec
from podyard.hardware.accelerator_types import parse
from podyard.simulation import instances
from podyard.simulation.scenario import Event
from podyard.simulation.world import World

PROCESSES_MAX = 3  # of one job: enough for every way in which a gang can fall apart
_PROGRAM = "simulated:program"  # a user's program, of which nothing is known before it runs


def apply(world: World, event: Event) -> None:
    """Does what the event says. What the platform refuses is counted, not raised."""
    _ACTIONS[event.do](world, event.name, event.args)


def place_of(world: World, table: str, column: str, name: str) -> tuple[str, str] | None:
    """(project, zone) of what is called `name`; names are unique in a run."""
    row = world.peek(f"SELECT project, zone FROM {table} WHERE {column} = :name LIMIT 1", name=name)
    return None if row is None else (str(row[0]), str(row[1]))


def _spec(args: Mapping[str, Any]) -> NodeSpec:
    kind = parse(args["type"])
    version = kind.generation.runtime_version_default
    return NodeSpec(kind.name, kind.topology.text, version, UsageClass(args["usage"]))


def _create(world: World, name: str, args: Mapping[str, Any]) -> None:
    request_id = args.get("request_id")
    if request_id is None:
        world.ask(nodes.create, args["project"], args["zone"], name, _spec(args))
        return
    operation = world.ask(
        _create_once, args["project"], args["zone"], name, _spec(args), request_id
    )
    first = world.told.operations.get(request_id)
    if first is not None and first != operation:
        world.told.strange.append(
            ("I11", name, f"requestId {request_id} gave {first}, and then {operation}")
        )
    elif operation is not None:
        world.told.operations[request_id] = operation
    if first is not None:
        other = world.ask(
            _create_once, args["project"], args["zone"], f"{name}-other", _spec(args), request_id
        )
        if other is not None:
            text = (
                f"requestId {request_id} gave {other} to another request than the one that "
                "it stands for"
            )
            world.told.strange.append(("I11", name, text))


def _create_once(  # noqa: PLR0913
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    zone: str,
    name: str,
    spec: NodeSpec,
    request_id: str,
) -> str:
    """As the API does with a requestId."""

    def act() -> str:
        return nodes.create(uow, fleet, principal, project, zone, name, spec).operation_id

    body = {"node": name, "type": spec.accelerator_type}
    return idempotency.once(uow, principal, project, "nodes.create", request_id, body, act)


def _on_node(use_case: Callable[..., Any]) -> Callable[[World, str, Mapping[str, Any]], None]:
    def act(world: World, name: str, args: Mapping[str, Any]) -> None:
        place = place_of(world, "nodes", "node_id", name)
        if place is not None:
            world.ask(use_case, *place, name, *args.values())

    return act


def _queue(world: World, name: str, args: Mapping[str, Any]) -> None:
    count = args.get("count", 1)
    spec = _spec(args)
    ids = [f"{name}-n"] if count == 1 else [f"{name}-{index}" for index in range(count)]
    request = QueuedResourceSpec(
        nodes=tuple(NodeRequest(node_id, spec, index, count) for index, node_id in enumerate(ids)),
        usage_class=spec.usage_class,
        valid_after_seconds=args.get("valid_after"),
        valid_until_seconds=args.get("valid_until"),
        max_run_seconds=args.get("run_seconds"),
    )
    world.ask(queued_resources.create, args["project"], args["zone"], name, request)


def _reset(world: World, name: str, args: Mapping[str, Any]) -> None:
    del args
    place = place_of(world, "queued_resources", "queued_resource_id", name)
    if place is not None:
        world.ask(queued_resources.reset, *place, name)


def _unqueue(world: World, name: str, args: Mapping[str, Any]) -> None:
    del args
    place = place_of(world, "queued_resources", "queued_resource_id", name)
    if place is not None:
        world.ask(queued_resources.delete, *place, name, force=True)


def _job(world: World, name: str, args: Mapping[str, Any]) -> None:
    kind = parse(args["type"])
    request = JobRequest(
        recipe=_PROGRAM,
        arguments={"stepSeconds": args["step_seconds"]},
        steps=args["steps"],
        global_batch=kind.core_count * 8,
        checkpoint_every_steps=args["every"],
        replica_processes=min(kind.host_count, PROCESSES_MAX),
        elastic=Elastic(1, "keep", "keep") if args.get("elastic") and kind.host_count > 1 else None,
    )
    world.ask(
        jobs.create, args["project"], args["zone"], name, request, args.get("node") or _spec(args)
    )


def _cancel(world: World, name: str, args: Mapping[str, Any]) -> None:
    del args
    place = place_of(world, "jobs", "job_id", name)
    if place is not None:
        world.ask(jobs.cancel, *place, name)


def _reserve(world: World, name: str, args: Mapping[str, Any]) -> None:
    where = (args["project"], args["zone"])
    world.ask(reservations.create, *where, name, args["generation"], args["size"])


def _materialise(uow: UnitOfWork, principal: Principal, project: str, zone: str, name: str) -> Any:
    return hosts.ask(uow, principal, project, zone, name, ())


_ACTIONS: Mapping[str, Callable[[World, str, Mapping[str, Any]], None]] = {
    **instances.ACTIONS,
    "reserve": _reserve,
    "create": _create,
    "delete": _on_node(nodes.delete),
    "stop": _on_node(nodes.stop),
    "start": _on_node(nodes.start),
    "patch": lambda world, name, args: _on_node(_patch)(world, name, args),
    "queue": _queue,
    "reset": _reset,
    "unqueue": _unqueue,
    "job": _job,
    "cancel": _cancel,
    "materialise": _on_node(_materialise),
}


def _patch(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    zone: str,
    name: str,
    labels: Mapping[str, str],
) -> Operation:
    return nodes.patch(uow, principal, project, zone, name, {"labels": dict(labels)})
