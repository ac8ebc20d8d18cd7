"""Simulated host servers: which hosts a machine runs, and what its host server says of them.

They call `control/compute/hosts.sync` in the order in which `workers/host/server.py` does. A host
takes one turn of its machine to start and one to stop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from podyard.base.rng import Streams
from podyard.control.compute import hosts
from podyard.control.compute.hosts import HostReport, HostWanted
from podyard.db.store.unit_of_work import Database
from podyard.domain.principal import Principal
from podyard.simulation.scenario import Event

HOSTS_MAX = 1024  # of one machine, as an agent's default
NODES_PART = 0.15  # of the plain nodes get a request for their hosts
LATEST_SECONDS = 6 * 3600.0  # after the node was asked for


def draw(streams: Streams, work: Sequence[Event]) -> Iterator[Event]:
    """Requests for the hosts of some nodes. They have their own stream, so that seeds keep their
    other events."""
    chance = streams.stream("hosts")
    for event in work:
        if event.do == "create" and chance.random() < NODES_PART:
            yield Event(
                round(event.at + chance.uniform(60.0, LATEST_SECONDS), 3), "materialise", event.name
            )


@dataclasses.dataclass(slots=True)
class SimHosts:
    """The host server of one machine. `states`: what it will say next of (host, generation)."""

    agent_id: str
    principal: Principal
    database: Database
    states: dict[tuple[str, int], str] = dataclasses.field(default_factory=dict)
    told: dict[tuple[str, int], str] = dataclasses.field(default_factory=dict)

    @property
    def has_news(self) -> bool:
        return self.states != self.told

    def die(self) -> None:
        """The machine's processes are gone; a new host server starts what is wanted."""
        self.states.clear()
        self.told.clear()

    def sync(self) -> None:
        """Reports the hosts, then starts and stops hosts as the answer says."""
        said = dict(self.states)
        reports = [
            _report(host_id, generation, state)
            for (host_id, generation), state in sorted(said.items())
        ]
        live, _ = self.database.run(
            lambda uow: hosts.sync(uow, self.principal, self.agent_id, reports, {}),
            actor=self.agent_id,
        )
        self.told = said
        self.states = {(item.host_id, item.generation): _next_state(item) for item in live}


def _next_state(wanted: HostWanted) -> str:
    return "RUNNING" if wanted.run else "EXITED"


def _report(host_id: str, generation: int, state: str) -> HostReport:
    return HostReport(
        host_id=host_id,
        generation=generation,
        state=state,
        address="127.0.0.1",
        metadata_address="",
        ports={},
        ssh_host_key="",
        scripts={},
        guest_attributes=None,
        problem="",
    )
