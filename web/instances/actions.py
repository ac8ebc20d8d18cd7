"""Actions on instances: buttons, confirmations and selected rows are made of this one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from podyard.control.compute.instances import life
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.instances.instance import Instance
from podyard.domain.node import NODE, NodeState
from podyard.domain.operation import Operation
from podyard.domain.principal import Principal

_Act = Callable[[UnitOfWork, Fleet, Principal, str, str, str], Operation]


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceAction:
    """`state`: of its row, in which an instance can be acted on; None: in every one that the row
    can be deleted in. `text`: what follows from it; `bulk_text`: from doing it to several; empty:
    it is done to one at a time. `under_way`: what is said after that."""

    verb: str
    label: str
    permission: str
    state: NodeState | None
    act: _Act
    text: str
    bulk_text: str = ""
    under_way: str = ""
    destroys: bool = False

    def is_open(self, instance: Instance, caller: Principal) -> bool:
        """Return whether the state of an instance and the caller's roles allow it; the use case
        decides once more."""
        node = instance.node
        if not caller.may(self.permission, node.project):
            return False
        if self.state is not None:
            return node.state is self.state
        return NODE.allows(node.state, "delete")


ACTIONS = (
    InstanceAction(
        "start",
        "Start",
        "compute.instances.start",
        NodeState.STOPPED,
        life.start,
        "It gets chips and a host again if there is room, and is billed from RUNNING on.",
        "They get chips and hosts again if there is room, and are billed from RUNNING on.",
        "starting",
    ),
    InstanceAction(
        "stop",
        "Stop",
        "compute.instances.stop",
        NodeState.READY,
        life.stop,
        "It gives its chips back, and is no longer billed. Its disks stay. What runs on it ends.",
        "They give their chips back, and are no longer billed. Their disks stay.",
        "stopping",
    ),
    InstanceAction(
        "reset",
        "Reset",
        "compute.instances.reset",
        NodeState.READY,
        life.reset,
        "Its host starts again with the same disks and addresses. What runs on it ends.",
    ),
    InstanceAction(
        "maintenance",
        "Simulate maintenance event",
        "compute.instances.simulateMaintenanceEvent",
        NodeState.READY,
        life.simulate_maintenance,
        "A spot or preemptible instance is preempted now. Any other is told of the event and "
        "goes on.",
        destroys=True,
    ),
    InstanceAction(
        "delete",
        "Delete",
        "compute.instances.delete",
        None,
        life.delete,
        "The instance is deleted, with the disks that are deleted automatically. What it has "
        "cost stays on the bill.",
        "The instances are deleted, with the disks that are deleted automatically. What they "
        "have cost stays on the bill.",
        "being deleted",
        destroys=True,
    ),
)
BY_VERB = {action.verb: action for action in ACTIONS}
