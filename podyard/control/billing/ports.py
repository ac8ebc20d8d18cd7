"""Ports through which the actions of budgets reach other rooms. `podyard/control/__init__.py` wires
it."""

from __future__ import annotations

from collections.abc import Callable

from podyard.base.clock import PlatformTime
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.node import NodeRecord

# (node, when it will be taken back, reason): asks its jobs to save and to leave.
give_notice: Callable[[UnitOfWork, NodeRecord, PlatformTime, str], None]
# (fleet, node, reason): stops the node, or deletes one that cannot be stopped.
retire: Callable[[UnitOfWork, Fleet, NodeRecord, str], None]
