"""Ports through which compute asks other rooms, without importing them.
`podyard/control/__init__.py` wires it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.node import NodeRecord, NodeSpec
from podyard.domain.queued_resource import QueuedResourceRecord


class SpendingGuard(Protocol):
    """Budgets, asked before nodes are accepted or placed."""

    def admit(
        self,
        uow: UnitOfWork,
        project: str,
        creator: str,
        wanted: Sequence[tuple[str, NodeSpec]],
        *,
        of_job: bool = False,
    ) -> None:
        """`creator`: whose nodes they would be; `wanted`: (node id, spec). Raises
        RESOURCE_EXHAUSTED when a budget that refuses new nodes is used up."""

    def keep_refusal(self, uow: UnitOfWork, refused: PodyardError) -> None:
        """Puts a budget's refusal on record; other refusals are not the budgets' business."""

    def on_relabel(self, uow: UnitOfWork, project: str) -> None:
        """A node of the project has other labels from now on."""

    def price_warning(self, uow: UnitOfWork, zone: str, spec: NodeSpec) -> str:
        """A warning when the node has no price; "" when it has one."""

    def hold_in_queue(
        self, uow: UnitOfWork, queued: QueuedResourceRecord
    ) -> tuple[str, PlatformTime] | None:
        """Why the request must wait, and until when; None when it may be placed."""


spending: SpendingGuard
# (project): gives it a billing account, unless it has one.
open_account: Callable[[UnitOfWork, str], None]
# (node, as it stands now): does what instances ask for that have become READY, or are gone.
follow_node: Callable[[UnitOfWork, NodeRecord], None]
# (node key, reason): ends the gangs that are on a node.
end_gangs: Callable[[UnitOfWork, str, str], None]
