"""Budgets, and the log of what they have done."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import StrEnum

from podyard.base.clock import PlatformTime
from podyard.base.money import Amount

BUDGET_EVENTS = "budgetEvents"  # of a project: projects/P/budgetEvents


class BudgetScope(StrEnum):
    """The scope that a budget counts: all that its project's account pays for, all of the project,
    or the nodes of a label, a user, a job or an id in it."""

    ACCOUNT = "account"
    PROJECT = "project"
    LABEL = "label"
    USER = "user"
    JOB = "job"
    NODE = "node"


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """`amount` is in US dollars; `thresholds` and `forecasts` are shares of it, as decimal numbers
    in texts. `secret` signs what is sent to the owner's own address.

    `looked_seq`: the last change of the project that it has taken into account. `reached_at`: when
    the amount is used up in this period, as far as is known. `notice_for`: the moment for which its
    nodes have been given notice.
    """

    budget_key: str
    project: str
    name: str
    scope: BudgetScope
    scope_value: str
    amount: Amount
    period: str
    thresholds: Sequence[str]
    forecasts: Sequence[str]
    actions: Sequence[str]
    secret: str
    created: PlatformTime
    looked_seq: int = 0
    reached_at: PlatformTime | None = None
    notice_for: PlatformTime | None = None

    def counts(self, node_id: str, created_by: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node is of the scope while it has these labels; which nodes are a job's
        is not known here."""
        if self.scope is BudgetScope.LABEL:
            key, _, value = self.scope_value.partition("=")
            return labels.get(key) == value
        if self.scope in (BudgetScope.PROJECT, BudgetScope.ACCOUNT):
            return True
        return self.scope_value == {BudgetScope.USER: created_by, BudgetScope.NODE: node_id}.get(
            self.scope
        )


@dataclasses.dataclass(frozen=True, slots=True)
class BudgetLogEntry:
    """Something that a budget has done, once in a `period`. `detail`: the threshold, or what was
    acted on; `cost`: what the period had cost by then. `seq` 0: it is not stored yet."""

    event_id: str
    budget_key: str
    project: str
    name: str
    period: str
    kind: str
    detail: str
    at: PlatformTime
    cost: Amount
    amount: Amount
    text: str
    seq: int = 0
