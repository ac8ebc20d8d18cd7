"""What the tests of queued resources, reservations and maintenance share: the real loop on a database, a clock that is
moved by hand, and use cases by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import insert, select

from podyard.base.clock import ManualClock, PlatformTime
from podyard.control.access import identity
from podyard.control.compute import nodes, queued_resources
from podyard.control.platform import operations
from podyard.db.tables import state_changes
from podyard.db.tables_billing import usage_events
from podyard.db.tables_compute import nodes as nodes_table
from podyard.db.tables_compute import slices
from podyard.db.unit_of_work import Database, UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import load_fleet
from podyard.domain.node import Node, NodeSpec, UsageClass, kind_of
from podyard.domain.operation import Operation
from podyard.domain.principal import PLATFORM
from podyard.domain.queued_resource import NodeRequest, QueuedResource, QueuedResourceSpec
from podyard.loop.steps import Loop

T = TypeVar("T")
PROJECT, ZONE = "demo", "us-central1-a"
# Pods with room for four v2-8 or one v2-32, for one cube of v4, and for eight chips of v5e.
FLEET = """
zones:
  us-central1-a: {v2: {shape: 4x4}, v4: {shape: 4x4x4}, v5e: {shape: 2x4}}
timings: {create_seconds: 10, restart_seconds: 5, maintenance_seconds: 60}
"""


def node_spec(kind: str = "v2-8", **changes: Any) -> NodeSpec:
    topology = {"v2-8": "2x2", "v2-32": "4x4", "v4-8": "2x2x1", "v5litepod-1": "1x1", "v5litepod-8": "2x4"}[kind]
    fields = {"runtime_version": "tpu-ubuntu2204-base", "usage_class": UsageClass.ON_DEMAND, **changes}
    return NodeSpec(accelerator_type=kind, topology=topology, **fields)


def request(node_id: str = "n", count: int = 1, kind: str = "v2-8", **changes: Any) -> QueuedResourceSpec:
    """A queued resource of one node, or of a multislice with `count` slices."""
    spec = node_spec(kind)
    names = [node_id] if count == 1 else [f"{node_id}-{index}" for index in range(count)]
    made = tuple(NodeRequest(name, spec, index, count) for index, name in enumerate(names))
    return QueuedResourceSpec(**{"nodes": made, "usage_class": UsageClass.ON_DEMAND, **changes})


class Play:
    def __init__(self, database: Database, clock: ManualClock, fleet: str = FLEET) -> None:
        self.database = database
        self.clock = clock
        self.fleet: Fleet = load_fleet(fleet)
        database.run(lambda uow: identity.bootstrap(uow, "owner", "agent", "local"))
        self.loop = Loop(database, self.fleet, lambda *_: None, clock, "test")
        self.loop.round()

    def run(self, use_case: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """A use case that begins with (uow, fleet, principal, project, zone)."""
        return self.database.run(lambda u: use_case(u, self.fleet, PLATFORM, PROJECT, ZONE, *arguments, **options))

    def ask(self, use_case: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """A use case that needs no fleet."""
        return self.database.run(lambda u: use_case(u, PLATFORM, PROJECT, ZONE, *arguments, **options))

    def turn(self, seconds: float = 0.0) -> None:
        """Time passes, and the loop turns until it has nothing more to do at that moment."""
        self.clock.advance(seconds)
        for _ in range(6):
            self.loop.round()

    def queue(self, spec: QueuedResourceSpec | None = None, name: str = "q") -> Operation:
        return self.run(queued_resources.create, name, spec or request())

    def queued(self, name: str = "q") -> QueuedResource:
        return self.ask(queued_resources.get, name)

    def node(self, name: str = "n") -> Node:
        return self.ask(nodes.get, name)

    def create(self, name: str, kind: str = "v2-8", **changes: Any) -> Operation:
        """A plain node; the finished operation."""
        operation = self.run(nodes.create, name, node_spec(kind, **changes))
        self.turn()
        self.turn(10)
        return self.operation(operation)

    def operation(self, begun: Operation) -> Operation:
        return self.ask(operations.get, begun.operation_id)

    def states(self) -> dict[str, str]:
        found = self.run(nodes.list_nodes)
        return {node.node_id: node.state for node in found}

    def history(self, machine: str) -> list[str]:
        query = select(state_changes).where(state_changes.c.machine == machine).order_by(state_changes.c.seq)
        return [row["to_state"] for row in self.database.read(lambda uow: uow.all(query))]

    def late_event(self, state: str, at: str, name: str = "") -> None:
        """Usage that becomes known after it happened: the next event of the node `name` (of the one that has the last
        event), with whatever time, in a separate unit."""

        def body(uow: UnitOfWork) -> None:
            rows = uow.all(select(usage_events).order_by(usage_events.c.seq))
            last = [row for row in rows if row["resource_name"].endswith(f"/{name}" if name else "")][-1]
            changed = {"event_id": f"late-{last['seq']}", "resource_seq": last["resource_seq"] + 1, "state": state}
            row = {**last, **changed, "at": PlatformTime.from_rfc3339(at), "billable": state == "READY"}
            del row["seq"]
            uow.execute(insert(usage_events).values(**row))

        self.database.run(body)

    def held(self) -> Sequence[Mapping[str, Any]]:
        """Nodes that hold chips."""
        query = select(nodes_table).join(slices, slices.c.node_key == nodes_table.c.node_key)
        return self.database.read(lambda uow: uow.all(query))


def chips_of(row: Mapping[str, Any]) -> int:
    return kind_of(row["accelerator_type"], row["topology"]).chip_count
