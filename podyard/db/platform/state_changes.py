"""Changes of states, as records. Only `transition` writes them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, func, or_, select

from podyard.base.clock import PlatformTime
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import state_changes
from podyard.domain.operation import OPERATION, OperationState
from podyard.domain.state_change import StateChange

_C = state_changes.c
_AFTER = select(state_changes).where(_C.seq > bindparam("after")).order_by(_C.seq)
_OF_PROJECT = (
    select(state_changes)
    .where(_C.project == bindparam("project"), _C.seq > bindparam("after"))
    .order_by(_C.seq)
    .limit(bindparam("most"))
)
_OF_PROJECT_BEFORE = (
    select(state_changes)
    .where(_C.project == bindparam("project"), _C.seq < bindparam("before"))
    .order_by(_C.seq.desc())
    .limit(bindparam("most"))
)
_ENTERED = (
    select(_C.resource_key, _C.to_state, _C.at)
    .where(_C.resource_key.in_(bindparam("keys", expanding=True)))
    .order_by(_C.resource_key, _C.version)
)
_NEWEST = (
    select(state_changes)
    .where(_C.resource_key == bindparam("key"))
    .order_by(_C.seq.desc())
    .limit(bindparam("most"))
)
# An operation that succeeded says nothing that the change of its resource does not.
_NEWEST_OF_PROJECT = (
    select(state_changes)
    .where(
        _C.project == bindparam("project"),
        or_(_C.machine != OPERATION.name, _C.to_state == OperationState.FAILED),
    )
    .order_by(_C.seq.desc())
    .limit(bindparam("most"))
)
_STATE_AT = (
    select(_C.to_state)
    .where(_C.resource_key == bindparam("key"), bindparam("then", type_=_C.at.type) >= _C.at)
    .order_by(_C.version.desc())
    .limit(1)
)
_CREATOR = select(_C.actor).where(_C.resource_key == bindparam("key"), _C.version == 1)
_LAST_SEQ = select(func.max(_C.seq))


def after(uow: UnitOfWork, seq: int) -> list[StateChange]:
    """Those of all resources since the one with this number, in their order."""
    return [StateChange(**row) for row in uow.all(_AFTER, {"after": seq})]


def of_project(uow: UnitOfWork, project: str, after_seq: int, limit: int) -> list[StateChange]:
    """Those of a project after this number, in their order."""
    rows = uow.all(_OF_PROJECT, {"project": project, "after": after_seq, "most": limit})
    return [StateChange(**row) for row in rows]


def of_project_before(
    uow: UnitOfWork, project: str, before_seq: int, limit: int
) -> list[StateChange]:
    """Those of a project before this number, the newest first."""
    rows = uow.all(_OF_PROJECT_BEFORE, {"project": project, "before": before_seq, "most": limit})
    return [StateChange(**row) for row in rows]


def states_entered(
    uow: UnitOfWork, resource_keys: Sequence[str]
) -> list[tuple[str, str, PlatformTime]]:
    """(resource, state, when it was entered) of these, resource by resource, in their order."""
    rows = uow.execute(_ENTERED, {"keys": list(resource_keys)})
    return [(row.resource_key, row.to_state, row.at) for row in rows]


def newest(uow: UnitOfWork, resource_key: str, most: int) -> list[StateChange]:
    """Of one resource, the newest first."""
    return [StateChange(**row) for row in uow.all(_NEWEST, {"key": resource_key, "most": most})]


def newest_of_project(uow: UnitOfWork, project: str, most: int) -> list[StateChange]:
    """The newest first, without operations that go on or succeeded."""
    return [
        StateChange(**row)
        for row in uow.all(_NEWEST_OF_PROJECT, {"project": project, "most": most})
    ]


def state_at(uow: UnitOfWork, resource_key: str, then: PlatformTime) -> str | None:
    """The state that a resource had at that moment; None: it was not there yet."""
    state: str | None = uow.execute(_STATE_AT, {"key": resource_key, "then": then}).scalar()
    return state


def creator(uow: UnitOfWork, resource_key: str) -> str:
    """Return who created a resource; empty: nobody knows any more."""
    return str(uow.execute(_CREATOR, {"key": resource_key}).scalar() or "")


def last_seq(uow: UnitOfWork) -> int:
    """The number of the newest one; 0: there is none."""
    return int(uow.execute(_LAST_SEQ).scalar() or 0)
