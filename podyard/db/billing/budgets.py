"""Budgets and their log, as records, and what is in a budget's scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, or_, select, union_all, update

from podyard.base.clock import PlatformTime
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.base import state_changes
from podyard.db.tables.billing import billing_links, budget_events, budgets
from podyard.db.tables.compute import nodes
from podyard.db.tables.jobs import jobs
from podyard.domain.budget import Budget, BudgetLogEntry, BudgetScope

_B, _E, _L = budgets.c, budget_events.c, billing_links.c
_OF_PROJECT = select(budgets).where(_B.project == bindparam("project")).order_by(_B.name)
_ONE = _OF_PROJECT.where(_B.name == bindparam("name"))
_PAYER = (
    select(_L.account)
    .where(_L.project == bindparam("project"))
    .order_by(_L.from_second.desc())
    .limit(1)
)
# Of the project, and of the account that pays for it.
_OF_ACCOUNT = and_(
    _B.scope == BudgetScope.ACCOUNT.value,
    _B.project == func.coalesce(_PAYER.scalar_subquery(), bindparam("project")),
)
_REACHED = (
    select(budgets)
    .where(
        _B.reached_at.is_not(None),
        or_(
            and_(_B.project == bindparam("project"), _B.scope != BudgetScope.ACCOUNT.value),
            _OF_ACCOUNT,
        ),
    )
    .order_by(_B.name, _B.project)
)
_BY_KEY = select(budgets).where(_B.budget_key == bindparam("key"))
_BY_KEY_LOCKED = _BY_KEY.with_for_update()
_REMOVE = delete(budgets).where(_B.budget_key == bindparam("key"))
_LOOK_AGAIN = update(budgets).where(_B.project == bindparam("of")).values(looked_seq=0)
_LAST_CHANGE = select(func.max(state_changes.c.seq)).where(
    state_changes.c.project.in_(bindparam("projects", expanding=True))
)
_NEW = select(state_changes.c.seq).where(
    state_changes.c.seq > _B.looked_seq, state_changes.c.machine.in_(("node", "job"))
)
_LINKED = select(_L.project).where(_L.account == _B.project)
_CHANGED = (
    select(budgets)
    .where(
        or_(
            _NEW.where(state_changes.c.project == _B.project).exists(),
            and_(
                _B.scope == BudgetScope.ACCOUNT.value,
                _NEW.where(state_changes.c.project.in_(_LINKED.correlate(budgets))).exists(),
            ),
        )
    )
    .order_by(_B.budget_key)
)
_ANY_CHANGED = _CHANGED.limit(1)
_LOG = (
    select(budget_events)
    .where(_E.project == bindparam("project"), _E.seq > bindparam("after"))
    .order_by(_E.seq)
    .limit(bindparam("most"))
)
_LOGGED = select(_E.seq).where(
    _E.budget_key == bindparam("key"),
    _E.period == bindparam("period"),
    _E.kind == bindparam("kind"),
    _E.detail == bindparam("detail"),
)
_THE_JOB = (jobs.c.project == bindparam("project"), jobs.c.job_id == bindparam("value"))
_JOB_KEYS = select(jobs.c.job_key).where(*_THE_JOB)
_NODE_KEYS = union_all(
    select(jobs.c.node_key).where(*_THE_JOB),
    select(nodes.c.node_key).join(jobs, jobs.c.job_key == nodes.c.job_key).where(*_THE_JOB),
)


def find(uow: UnitOfWork, project: str, name: str) -> Budget | None:
    return _maybe(uow.first(_ONE, {"project": project, "name": name}))


def find_by_key(uow: UnitOfWork, budget_key: str, *, locked: bool = False) -> Budget | None:
    """`locked`: until the unit ends."""
    return _maybe(uow.first(_BY_KEY_LOCKED if locked else _BY_KEY, {"key": budget_key}))


def of_project(uow: UnitOfWork, project: str) -> list[Budget]:
    """By name."""
    return [_record(row) for row in uow.all(_OF_PROJECT, {"project": project})]


def with_known_end(uow: UnitOfWork, project: str) -> list[Budget]:
    """Those that a new node of the project counts in and of which it is known when they are used
    up, by name."""
    return [_record(row) for row in uow.all(_REACHED, {"project": project})]


def to_look_at(uow: UnitOfWork) -> list[Budget]:
    """Those that count a project in which nodes or jobs have changed since they have looked."""
    return [_record(row) for row in uow.all(_CHANGED)]


def any_to_look_at(uow: UnitOfWork) -> bool:
    return uow.first(_ANY_CHANGED) is not None


def add(uow: UnitOfWork, budget: Budget) -> None:
    uow.insert(budgets, columns(budget))


def keep_look(
    uow: UnitOfWork,
    budget: Budget,
    projects: Sequence[str],
    reached: PlatformTime | None,
    notice_for: PlatformTime | None,
) -> None:
    """It has looked at all that has changed in these projects up to now."""
    seq = uow.execute(_LAST_CHANGE, {"projects": list(projects)}).scalar() or 0
    values = {"looked_seq": seq, "reached_at": reached, "notice_for": notice_for}
    uow.update(budgets, {"budget_key": budget.budget_key}, values)


def look_again(uow: UnitOfWork, project: str) -> None:
    """All budgets of the project look again."""
    uow.execute(_LOOK_AGAIN, {"of": project})


def remove(uow: UnitOfWork, budget: Budget) -> None:
    uow.execute(_REMOVE, {"key": budget.budget_key})


def log(uow: UnitOfWork, project: str, after_seq: int, limit: int) -> list[BudgetLogEntry]:
    """Return what the project's budgets have done, in order."""
    found = uow.all(_LOG, {"project": project, "after": after_seq, "most": limit})
    return [BudgetLogEntry(**row) for row in found]


def is_logged(uow: UnitOfWork, budget: Budget, period: str, kind: str, detail: str) -> bool:
    """Return whether the budget has done this in the period."""
    named = {"key": budget.budget_key, "period": period, "kind": kind, "detail": detail}
    return uow.first(_LOGGED, named) is not None


def add_to_log(uow: UnitOfWork, entry: BudgetLogEntry) -> None:
    row = columns(entry)
    del row["seq"]
    uow.insert(budget_events, row)


def node_keys(uow: UnitOfWork, budget: Budget) -> frozenset[str]:
    """The nodes of a job's budget, gone ones included."""
    rows = uow.execute(_NODE_KEYS, {"project": budget.project, "value": budget.scope_value})
    return frozenset(row.node_key for row in rows)


def job_keys(uow: UnitOfWork, budget: Budget) -> frozenset[str]:
    """The jobs of a job's budget: one of the name in each zone."""
    rows = uow.execute(_JOB_KEYS, {"project": budget.project, "value": budget.scope_value})
    return frozenset(row.job_key for row in rows)


def _maybe(row: Mapping[str, Any] | None) -> Budget | None:
    return None if row is None else _record(row)


def _record(row: Mapping[str, Any]) -> Budget:
    return Budget(**{**row, "scope": BudgetScope(row["scope"])})
