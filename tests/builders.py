"""Builders of records with usual values, and a platform of use cases on a database: what tests of
the store share.

`tests/yard.py` is the same over HTTP, in one process; `tests/stack.py` is all of it, in real
processes.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import insert, select

from podyard.base.clock import ManualClock, PlatformTime, RealTime
from podyard.base.log_files import LogFiles
from podyard.control.access import identity
from podyard.control.compute import node_list, nodes, queued_resources
from podyard.control.jobs import jobs, reports
from podyard.control.jobs.reports import Progress
from podyard.control.platform import agents, operations
from podyard.db.jobs import replicas
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.base import state_changes
from podyard.db.tables.billing import usage_events
from podyard.db.tables.compute import nodes as nodes_table
from podyard.db.tables.compute import slices
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import load_fleet
from podyard.domain.job import JobRequest
from podyard.domain.job_history import CheckpointRecord, EvaluationRecord, MetricPoint
from podyard.domain.lists.pages import Order, RowQuery
from podyard.domain.log import WrittenLines, line_text
from podyard.domain.node import Node, NodeRecord, NodeSpec, NodeState, UsageClass, node_name
from podyard.domain.operation import Operation
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.queued_resource import NodeRequest, QueuedResource, QueuedResourceSpec
from podyard.domain.replica import Replica
from podyard.hardware.accelerator_types import kind_of
from podyard.loop.steps import Loop

T = TypeVar("T")
Figures = Sequence[Mapping[str, Any]]
PROJECT, ZONE = "demo", "us-central1-a"
AGENT = Principal("agent", {}, agent_id="local")
# Pods with room for four v2-8 or one v2-32, for one cube of v4, and for eight chips of v5e.
FLEET = """
zones:
  us-central1-a: {v2: {shape: 4x4}, v4: {shape: 4x4x4}, v5e: {shape: 2x4}}
timings: {create_seconds: 10, restart_seconds: 5, maintenance_seconds: 60}
"""


def node_record(
    node_id: str = "n",
    kind: str = "v2-8",
    topology: str = "2x2",
    *,
    project: str = "p",
    zone: str,
    **changes: Any,
) -> NodeRecord:
    """A node that has just been asked for."""
    spec = NodeSpec(kind, topology, "x", UsageClass.ON_DEMAND)
    record = NodeRecord(
        node_key=node_id,
        number=1,
        project=project,
        zone=zone,
        node_id=node_id,
        live_name=node_name(project, zone, node_id),
        state=NodeState.CREATING,
        version=1,
        accelerator_type=kind,
        topology=topology,
        usage_class=spec.usage_class,
        runtime_version=spec.runtime_version,
        spec=spec,
        created=PlatformTime(0),
        ready_since=None,
        state_reason="",
        wait_reason="",
        pending_operation=None,
        host_count=kind_of(kind, topology).host_count,
        first_address=0,
        job_key=None,
    )
    return dataclasses.replace(record, **changes)


def node_spec(kind: str = "v2-8", **changes: Any) -> NodeSpec:
    topology = {
        "v2-8": "2x2",
        "v2-32": "4x4",
        "v4-8": "2x2x1",
        "v5litepod-1": "1x1",
        "v5litepod-8": "2x4",
    }[kind]
    fields = {
        "runtime_version": "tpu-ubuntu2204-base",
        "usage_class": UsageClass.ON_DEMAND,
        **changes,
    }
    return NodeSpec(accelerator_type=kind, topology=topology, **fields)


def request(
    node_id: str = "n", count: int = 1, kind: str = "v2-8", **changes: Any
) -> QueuedResourceSpec:
    """A queued resource of one node, or of a multislice with `count` slices."""
    spec = node_spec(kind)
    names = [node_id] if count == 1 else [f"{node_id}-{index}" for index in range(count)]
    made = tuple(NodeRequest(name, spec, index, count) for index, name in enumerate(names))
    return QueuedResourceSpec(**{"nodes": made, "usage_class": UsageClass.ON_DEMAND, **changes})


def progress(
    database: Database,
    replica: Replica,
    state: str,
    *,
    points: Figures = (),
    evaluations: Figures = (),
    checkpoints: Figures = (),
    **fields: Any,
) -> Progress:
    number, now = replica.fence, database.read(lambda uow: uow.now)
    lines = fields.pop("lines", ())
    said = {"error": None, "pruned": [], "summary": {}, "written": written(lines), **fields}
    return Progress(
        fence=number,
        state=state,
        points=[MetricPoint(attempt=number, **_measured(point)) for point in points],
        evaluations=[EvaluationRecord(attempt=number, **measured) for measured in evaluations],
        checkpoints=[CheckpointRecord(attempt=number, at=now, **saved) for saved in checkpoints],
        **said,
    )


def _measured(point: Mapping[str, Any]) -> dict[str, Any]:
    if "metrics" in point:
        return dict(point)
    names = ("loss", "accuracy")
    others = {name: value for name, value in point.items() if name not in names}
    return {**others, "metrics": {name: point[name] for name in names}}


def written(lines: Sequence[tuple[int, RealTime, str]]) -> WrittenLines | None:
    """Return what a replica has written: (number, time, line)."""
    if not lines:
        return None
    (first, begin, _), (_, end, _) = lines[0], lines[-1]
    millis = end.nanos_since(begin) // 10**6
    text = "".join(
        line_text("stdout", at.nanos_since(begin) // 10**6, line) for _, at, line in lines
    )
    return WrittenLines(first, len(lines), begin, millis, text)


class Play:
    """The real loop on a database, a clock that is moved by hand, use cases by their names; once it
    is registered, the agent `local`, whose replicas say what they are told to say."""

    def __init__(self, database: Database, clock: ManualClock, fleet: str | Fleet = FLEET) -> None:
        self.database = database
        self.clock = clock
        self.fleet = load_fleet(fleet) if isinstance(fleet, str) else fleet
        self.fence = 0
        folder = Path(tempfile.mkdtemp(prefix="podyard-logs-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.files = LogFiles(folder)
        database.run(lambda uow: identity.bootstrap(uow, "owner", "agent", "local"))
        self.loop = Loop(database, self.fleet, lambda *_: None, clock, "test")
        self.loop.round()

    def run(self, use_case: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """A use case that begins with (uow, fleet, principal, project, zone)."""
        return self.database.run(
            lambda u: use_case(u, self.fleet, PLATFORM, PROJECT, ZONE, *arguments, **options)
        )

    def ask(self, use_case: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """A use case that needs no fleet."""
        return self.database.run(
            lambda u: use_case(u, PLATFORM, PROJECT, ZONE, *arguments, **options)
        )

    def turn(self, seconds: float = 0.0) -> None:
        """Time passes, the agent lives, and the loop turns until it has nothing more to do at that
        moment."""
        self.wait(seconds)
        for _ in range(6):
            self.loop.round()

    def wait(self, seconds: float) -> None:
        """Time passes; an agent that was registered lives."""
        self.clock.advance(seconds)
        if self.fence:
            self.sync([])

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
        return {node.node_id: node.state for node in self.nodes()}

    def nodes(self) -> list[Node]:
        """The live nodes of the zone."""
        return self.run(node_list.api_page, RowQuery(Order.NAME, 1000))

    def history(self, machine: str) -> list[str]:
        query = (
            select(state_changes)
            .where(state_changes.c.machine == machine)
            .order_by(state_changes.c.seq)
        )
        return [row["to_state"] for row in self.database.read(lambda uow: uow.all(query))]

    def late_event(self, state: str, at: str, name: str = "") -> None:
        """Usage that becomes known after it happened: the next event of the node `name` (of the one
        that has the last event), with whatever time, in a separate unit."""

        def body(uow: UnitOfWork) -> None:
            rows = uow.all(select(usage_events).order_by(usage_events.c.seq))
            last = [
                row for row in rows if row["resource_name"].endswith(f"/{name}" if name else "")
            ][-1]
            changed = {
                "event_id": f"late-{last['seq']}",
                "resource_seq": last["resource_seq"] + 1,
                "state": state,
            }
            row = {
                **last,
                **changed,
                "at": PlatformTime.from_rfc3339(at),
                "billable": state == "READY",
            }
            del row["seq"]
            uow.execute(insert(usage_events).values(**row))

        self.database.run(body)

    def held(self) -> Sequence[Mapping[str, Any]]:
        """Nodes that hold chips."""
        query = select(nodes_table).join(slices, slices.c.node_key == nodes_table.c.node_key)
        return self.database.read(lambda uow: uow.all(query))

    def register(self, replicas_max: int = 8, hosts_max: int = 4, agent_id: str = "local") -> None:
        caller = dataclasses.replace(AGENT, agent_id=agent_id)
        fence = self.database.run(
            lambda uow: agents.register(
                uow,
                caller,
                agent_id,
                agents.AskedRegistration(replicas_max, hosts_max, "127.0.0.1", 1),
            )
        )
        self.fence = fence if agent_id == AGENT.agent_id else self.fence

    def sync(self, said: Sequence[reports.ReplicaReport]) -> None:
        self.database.run(lambda uow: reports.sync(uow, AGENT, "local", self.fence, said))

    def exit(self, gone: Sequence[Replica]) -> None:
        self.sync([reports.ReplicaReport(r.replica_id, r.fence, "EXITED", "gone") for r in gone])

    def live(self) -> list[Replica]:
        """By rank."""
        return sorted(self.database.read(replicas.list_live), key=lambda replica: replica.rank)

    def say(self, replica: Replica, state: str = "RUNNING", **fields: Any) -> str:
        """Return what a replica reports; returns what it is told."""
        said = progress(self.database, replica, state, **fields)
        caller = Principal("replica", {}, attempt_id=replica.attempt_id)
        return self.database.run(
            lambda uow: reports.report(uow, caller, replica.replica_id, said, self.files)
        ).desired


def play_of_gang(database: Database, clock: ManualClock, logs: Path) -> Play:
    """A job on four hosts, whose replicas run; their logs are kept in a folder."""
    play = Play(database, clock)
    play.files = LogFiles(logs)
    play.register()
    play.run(
        jobs.create,
        "j",
        JobRequest(recipe="digits-cnn", steps=10, max_failures=0),
        node_spec("v2-32"),
    )
    play.turn()
    play.turn(10)
    assert len(play.live()) == 4
    return play


def chips_of(row: Mapping[str, Any]) -> int:
    return kind_of(row["accelerator_type"], row["topology"]).chip_count
