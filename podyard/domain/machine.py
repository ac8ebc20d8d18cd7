"""State tables. Everything that decides which state may follow which lives in the tables of this
package.

A table maps state -> event -> next state. `db/transition.move` is the only writer of a state and
asks the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum

from podyard.base.errors import failed_precondition


class ResourceKind(StrEnum):
    """A kind of thing that users ask for and wait for; also the owner of its timers."""

    NODE = "node"
    QUEUED_RESOURCE = "queuedResource"
    JOB = "job"
    PROJECT = "project"
    DISK = "disk"
    NETWORK = "network"
    SUBNETWORK = "subnetwork"
    FIREWALL = "firewall"
    ADDRESS = "address"
    INSTANCE = "instance"
    INSTANCE_TEMPLATE = "instanceTemplate"
    INSTANCE_GROUP_MANAGER = "instanceGroupManager"
    RESOURCE_POLICY = "resourcePolicy"
    RESIZE_REQUEST = "resizeRequest"

    @property
    def is_of_compute(self) -> bool:
        """Return whether Compute Engine's API changes it, and lists the operations on it."""
        return self not in (ResourceKind.NODE, ResourceKind.QUEUED_RESOURCE, ResourceKind.JOB)


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """One kind of resource: its name, first state, and table. States without a row are final."""

    name: str
    initial: str
    table: Mapping[str, Mapping[str, str]]

    def next_state(self, state: str, event: str) -> str:
        """The state after `event`; raises FAILED_PRECONDITION when the table has no such edge."""
        following = self.table.get(state, {}).get(event)
        if following is None:
            raise failed_precondition(
                f"{self.name} is {state}: {event} is not possible in this state"
            )
        return following

    def allows(self, state: str, event: str) -> bool:
        return event in self.table.get(state, {})

    def is_final(self, state: str) -> bool:
        return not self.table.get(state)

    def states(self) -> frozenset[str]:
        targets = {target for edges in self.table.values() for target in edges.values()}
        return frozenset(targets | set(self.table) | {self.initial})

    def edges(self) -> list[tuple[str, str, str]]:
        """Every (state, event, next state), in the order of the table: documents draw their
        diagrams from it."""
        return [
            (s, event, target) for s, edges in self.table.items() for event, target in edges.items()
        ]
