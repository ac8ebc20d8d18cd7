"""Budgets: what they are set to, when they look, and what they do.

`look` computes what the scope will cost until the end of the period if everything goes on as it is, and knows from that
the exact second at which each threshold is reached. It sets one timer, for the first thing that is to be done; `follow`
looks again whenever nodes or jobs of the project have changed. So a threshold that is due has been reached, to the
second, whatever has come and gone meanwhile, and a node is stopped at the end of that second (R13).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, func, select

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, invalid, not_found
from podyard.base.ids import check_resource_id, row_id
from podyard.base.money import NANOS_PER_UNIT
from podyard.base.rng import secret_token
from podyard.control import access, accounts, operations, preemption, queue_states, spending, webhook_urls, webhooks
from podyard.control.commitments import usd
from podyard.control.nodes import pass_into
from podyard.control.spending import MONTH, REFUSE, STOP, TOTAL, Period
from podyard.db import nodes as node_rows
from podyard.db import timers
from podyard.db.tables import state_changes
from podyard.db.tables_billing import budget_events, budgets
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.account import Account
from podyard.domain.fleet import Fleet
from podyard.domain.node import NodeRecord
from podyard.domain.principal import Principal
from podyard.domain.usage import UsageRecord
from podyard.pricing import budgets as pure
from podyard.scheduler.jobs import YIELD_SECONDS_MAX

LOOK_TIMER = "budget.look"
NOTIFY = "notify:"
SCOPES = ("project", "label", "job", "node")
AMOUNT_NANOS_MAX = 10**9 * NANOS_PER_UNIT  # a billion dollars
BUDGETS_MAX = 100  # of a project: each is computed anew when something changes
THRESHOLDS_MAX = 10
SHARE_MAX = 10  # of the amount
URLS_MAX = 5
SCOPE_VALUE_LENGTH_MAX = 256
NOTICE_SECONDS = YIELD_SECONDS_MAX  # of platform time: as long as a gang may take to save and to leave
FORECAST_LOOK_SECONDS = 86_400.0  # expectations change by the day also when nothing happens

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What a budget is set to. `scope` is `project`, `label:KEY=VALUE`, `job:ID` or `node:ID`; `thresholds` and
    `forecasts` are shares of the amount; `actions` are `notify:URL`, `refuse-new-nodes` and `stop`."""

    amount: str
    scope: str = "project"
    period: str = MONTH
    thresholds: Sequence[str] = ("1",)
    forecasts: Sequence[str] = ()
    actions: Sequence[str] = ()


def set_budget(
    uow: UnitOfWork, fleet: Fleet, principal: Principal, project: str, name: str, request: Request
) -> tuple[Row, bool]:
    """The budget as it stands now, and whether it was set anew: one that says the same already stays as it is. A new
    one has its secret (shown here only), and acts from now on on what its period has cost so far.

    Raises INVALID_ARGUMENT for what is no budget.
    """
    principal.require("podyard.billing.edit", project, f"projects/{project}/budgets/{name}")
    access.project_row(uow, project)
    check_resource_id(name, "name")
    accounts.of(uow, project)
    values = _checked(request)
    before = uow.first(_ONE, {"project": project, "name": name})
    if before is not None and all(before[column] == value for column, value in values.items()):
        return before, False
    if before is None and len(uow.all(_ALL, {"project": project})) >= BUDGETS_MAX:
        raise invalid(f"a project has {BUDGETS_MAX} budgets at most", "name")
    if before is not None:
        _remove(uow, before)
    row = {
        "budget_key": row_id(uow.streams.stream("budgets"), "budget"),
        "project": project,
        "name": name,
        **values,
        "secret": secret_token(24) if before is None else before["secret"],
        "created": uow.now,
        "looked_seq": 0,
        "reached_at": None,
        "notice_for": None,
    }
    uow.insert(budgets, row)
    look(uow, fleet, row)
    spending.wake_queue(uow, project)
    found = uow.first(_ONE, {"project": project, "name": name})
    assert found is not None
    return found, True


def list_budgets(uow: UnitOfWork, principal: Principal, project: str) -> list[Row]:
    """By name, each with `spent` and `period_name` of the period that it is in."""
    principal.require("podyard.billing.view", project, f"projects/{project}/budgets")
    access.project_row(uow, project)
    return [seen(uow, row) for row in uow.all(_ALL, {"project": project})]


def get(uow: UnitOfWork, principal: Principal, project: str, name: str) -> Row:
    principal.require("podyard.billing.view", project, f"projects/{project}/budgets/{name}")
    access.project_row(uow, project)
    return seen(uow, _row(uow, project, name))


def seen(uow: UnitOfWork, row: Row) -> Row:
    account = accounts.of(uow, row["project"])
    period = spending.period_of(account, row["period"], uow.now)
    spent = spending.spent(spending.charges(uow, account, row, period, uow.now), uow.now)
    return {**row, "spent": spent, "period_name": period.name}


def remove(uow: UnitOfWork, principal: Principal, project: str, name: str) -> None:
    """What it has done stays on record; what it was about to do is not done."""
    principal.require("podyard.billing.edit", project, f"projects/{project}/budgets/{name}")
    access.project_row(uow, project)
    _remove(uow, _row(uow, project, name))
    spending.wake_queue(uow, project)


def events(uow: UnitOfWork, principal: Principal, project: str, after_seq: int, limit: int) -> list[Row]:
    """What budgets have done, in order, each with its `webhooks`."""
    principal.require("podyard.billing.view", project, f"projects/{project}/budgetEvents")
    access.project_row(uow, project)
    rows = uow.all(_EVENTS, {"project": project, "after": after_seq, "most": limit})
    return [{**row, "webhooks": webhooks.of_event(uow, row["event_id"])} for row in rows]


_ALL = select(budgets).where(budgets.c.project == bindparam("project")).order_by(budgets.c.name)
_ONE = _ALL.where(budgets.c.name == bindparam("name"))
_EVENTS = (
    select(budget_events)
    .where(budget_events.c.project == bindparam("project"), budget_events.c.seq > bindparam("after"))
    .order_by(budget_events.c.seq)
    .limit(bindparam("most"))
)


def _row(uow: UnitOfWork, project: str, name: str) -> Row:
    row = uow.first(_ONE, {"project": project, "name": name})
    if row is None:
        raise not_found(f"projects/{project}/budgets/{name}")
    return row


def _remove(uow: UnitOfWork, row: Row) -> None:
    _withdraw_notice(uow, row)
    timers.drop(uow, row["budget_key"])
    uow.execute(delete(budgets).where(budgets.c.budget_key == row["budget_key"]))


def _checked(request: Request) -> dict[str, Any]:
    scope, _, value = request.scope.partition(":")
    if scope not in SCOPES or (scope == "project") != (value == "") or len(value) > SCOPE_VALUE_LENGTH_MAX:
        raise invalid(f"scope {request.scope[:80]!r} is none of project, label:KEY=VALUE, job:ID, node:ID", "scope")
    if scope == "label" and "=" not in value:
        raise invalid(f"scope {request.scope[:80]!r} has no KEY=VALUE", "scope")
    if request.period not in (MONTH, TOTAL):
        raise invalid(f"period {request.period[:20]!r} is neither {MONTH} nor {TOTAL}", "period")
    if request.period == TOTAL and request.forecasts:
        raise invalid("only what a month will cost is forecast: a total has no end", "forecasts")
    return {
        "scope": scope,
        "scope_value": value,
        "amount": usd(request.amount, "amount", AMOUNT_NANOS_MAX),
        "period": request.period,
        "thresholds": _shares(request.thresholds, "thresholds"),
        "forecasts": _shares(request.forecasts, "forecasts"),
        "actions": _actions(request.actions),
    }


def _shares(given: Sequence[str], field: str) -> list[str]:
    if len(given) > THRESHOLDS_MAX:
        raise invalid(f"{field} has {len(given)} shares: at most {THRESHOLDS_MAX}", field)
    exact = {text: accounts.positive_decimal(text, field) for text in given}
    if any(share > SHARE_MAX for share in exact.values()):
        raise invalid(f"{field}: a share of the amount is {SHARE_MAX} at most", field)
    return sorted(exact, key=lambda text: (exact[text], text))


def _actions(given: Sequence[str]) -> list[str]:
    urls = [action.removeprefix(NOTIFY) for action in given if action.startswith(NOTIFY)]
    if len(urls) > URLS_MAX:
        raise invalid(f"actions notify {len(urls)} addresses: at most {URLS_MAX}", "actions")
    for action in given:
        if action not in (REFUSE, STOP) and not action.startswith(NOTIFY):
            raise invalid(f"action {action[:80]!r} is none of {NOTIFY}URL, {REFUSE}, {STOP}", "actions")
    for url in urls:
        webhook_urls.check(url, "actions")
    return sorted(set(given))


def follow(uow: UnitOfWork, fleet: Fleet) -> None:
    """Looks again where nodes or jobs of a project have changed since its budgets have looked."""
    for row in uow.all(_CHANGED):
        look(uow, fleet, row)


def anything_to_follow(uow: UnitOfWork) -> bool:
    return uow.first(_ANY_CHANGED) is not None


_CHANGED = (
    select(budgets)
    .where(
        select(state_changes.c.seq)
        .where(
            state_changes.c.project == budgets.c.project,
            state_changes.c.seq > budgets.c.looked_seq,
            state_changes.c.machine.in_(("node", "job")),
        )
        .exists()
    )
    .order_by(budgets.c.budget_key)
)
_ANY_CHANGED = _CHANGED.limit(1)


def on_timer(uow: UnitOfWork, fleet: Fleet, timer: Row) -> None:
    row = uow.first(select(budgets).where(budgets.c.budget_key == timer["resource_key"]))
    if row is not None:
        look(uow, fleet, row)


@dataclasses.dataclass(frozen=True, slots=True)
class _Looked:
    """What one look at a budget goes by."""

    account: Account
    row: Row
    period: Period
    charges: Sequence[UsageRecord]


def look(uow: UnitOfWork, fleet: Fleet, row: Row) -> None:
    """Does what is due, and sets the timer for what is due next."""
    account = accounts.of(uow, row["project"])
    period = spending.period_of(account, row["period"], uow.now)
    charges = spending.charges(uow, account, row, period, period.end)
    looked = _Looked(account, row, period, charges)
    notice_for = row["notice_for"]
    reached = pure.stop_at(charges, row["amount"])
    if row["scope"] == "job" and notice_for is not None and period.has_before(notice_for):
        # The job has left its node when it was told to, and would come back to what is left: the notice stands.
        reached = notice_for if reached is None else min(reached, notice_for)
    due = [period.end]
    due += _thresholds(uow, looked)
    due += _forecasts(uow, looked)
    if STOP in row["actions"]:
        if notice_for is not None and notice_for != reached:
            _withdraw_notice(uow, row)
            notice_for = None
        if reached is not None and reached <= uow.now:
            _stop(uow, fleet, looked, reached)
        elif reached is not None:
            notice = max(uow.now, reached.plus_seconds(-NOTICE_SECONDS))
            if notice == uow.now:
                _give_notice(uow, looked, reached)
                notice_for = reached
            due += [reached, reached if notice == uow.now else notice]
    seq = uow.execute(_LAST_CHANGE, {"project": row["project"]}).scalar() or 0
    values = {"looked_seq": seq, "reached_at": reached, "notice_for": notice_for}
    uow.update(budgets, {"budget_key": row["budget_key"]}, values)
    timers.drop(uow, row["budget_key"])
    timers.put(uow, LOOK_TIMER, row["budget_key"], 0, min(due))


_LAST_CHANGE = select(func.max(state_changes.c.seq)).where(state_changes.c.project == bindparam("project"))


def _thresholds(uow: UnitOfWork, looked: _Looked) -> list[PlatformTime]:
    """Records those that have been reached; when the others will be."""
    later = []
    for share in looked.row["thresholds"]:
        at = pure.stop_at(looked.charges, spending.share_of(looked.row["amount"], share))
        if at is not None and at > uow.now:
            later.append(at)
        elif at is not None:
            _record(uow, looked, "threshold", share, at, f"{share} of the amount was reached at {at.rfc3339()}")
    return later


def _forecasts(uow: UnitOfWork, looked: _Looked) -> list[PlatformTime]:
    shares = looked.row["forecasts"]
    if not shares:
        return []
    forecast = pure.forecast(looked.charges, looked.period.name, looked.account.time_zone, uow.now)
    for share in shares:
        if forecast.expected >= spending.share_of(looked.row["amount"], share):
            text = f"{share} of the amount is expected: {forecast.expected.text(spending.SHOWN_DECIMALS)} USD"
            _record(uow, looked, "forecast", share, uow.now, text)
    return [uow.now.plus_seconds(FORECAST_LOOK_SECONDS)]


def _record(uow: UnitOfWork, looked: _Looked, kind: str, detail: str, at: PlatformTime, text: str) -> None:
    """Once per period: an event, and who is to be told of it."""
    row = looked.row
    event = {"budget_key": row["budget_key"], "period": looked.period.name, "kind": kind, "detail": detail}
    if uow.first(select(budget_events.c.seq).filter_by(**event)) is not None:
        return
    event_id = row_id(uow.streams.stream("budget_events"), "budget-event")
    cost = spending.spent(looked.charges, min(at, uow.now))
    more = {"project": row["project"], "name": row["name"], "at": at, "cost": cost, "amount": row["amount"]}
    uow.insert(budget_events, {**event, **more, "event_id": event_id, "text": text})
    message = {
        "event": event_id,
        "project": row["project"],
        "budget": row["name"],
        "period": looked.period.name,
        "kind": kind,
        "detail": detail,
        "at": at.rfc3339(),
        "cost": cost.text(9),
        "amount": row["amount"].text(9),
        "currency": accounts.USD,
        "text": text,
    }
    for action in row["actions"]:
        if action.startswith(NOTIFY):
            webhooks.put(uow, row, event_id, action.removeprefix(NOTIFY), message)


def _ready_nodes(uow: UnitOfWork, row: Row) -> list[NodeRecord]:
    """The nodes of the scope that cost something now. Of a job: those that it is on, or was last."""
    found = node_rows.ready_in(uow, row["project"])
    if row["scope"] == "project":
        return found
    mine = frozenset(spending.node_keys(uow, row))
    return [node for node in found if node.node_key in mine]


def _give_notice(uow: UnitOfWork, looked: _Looked, reached: PlatformTime) -> None:
    told = [node for node in _ready_nodes(uow, looked.row) if node.reclaim_at is None]
    for node in told:
        preemption.give_notice(uow, node, reached, f"budget {looked.row['name']} will be used up")
    if told:
        names = _named(told)
        _record(uow, looked, "notice", reached.rfc3339(), uow.now, f"stops at {reached.rfc3339()}: {names}")


def _withdraw_notice(uow: UnitOfWork, row: Row) -> None:
    """The amount will not be used up then after all: jobs may start on the nodes again."""
    if row["notice_for"] is not None:
        node_rows.withdraw_notice(uow, row["project"], row["notice_for"])


def _stop(uow: UnitOfWork, fleet: Fleet, looked: _Looked, reached: PlatformTime) -> None:
    """Ends what costs: a node with one host is stopped, any other is deleted. Its billing ends at this moment."""
    found = _ready_nodes(uow, looked.row)
    if not found:
        return
    reason = f"budget {looked.row['name']} is used up since {reached.rfc3339()}"
    for node in found:
        alone = node.host_count == 1 and node.queued_resource_key is None
        verb, end = ("stop", "stopped") if alone else ("delete", "deleted")
        seconds = fleet.timings.stop_seconds if alone else fleet.timings.delete_seconds
        operations.fail(uow, node.pending_operation, Code.CANCELLED, f"The operation was cancelled: {reason}")
        pending = operations.begin(uow, operations.of_node(node), verb).operation_id
        changed = dataclasses.replace(node, pending_operation=pending, state_reason=reason)
        pass_into(uow, node, verb, end, seconds, reason, changed)
        if node.queued_resource_key is not None:
            queue_states.settle(uow, node.queued_resource_key)
    detail = f"{uow.now.rfc3339()} {found[0].node_key}"
    _record(uow, looked, "stop", detail, uow.now, f"{reason}: {_named(found)}")


def _named(found: Sequence[NodeRecord]) -> str:
    return spending.named([node.node_id for node in found])
