"""Budgets: what they are set to, when they look, and what they do.

`look` computes what the scope will cost until the end of the period if everything goes on as it is,
and knows from that the exact second at which each threshold is reached. It sets one timer, for the
first thing that is to be done; `follow` looks again whenever nodes or jobs of the project have
changed. So a threshold that is due has been reached, to the second, whatever has come and gone
meanwhile, and a node is stopped at the end of that second (R13).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid, not_found
from podyard.base.ids import check_resource_id, row_id
from podyard.base.money import NANOS_PER_UNIT, money_text
from podyard.base.rng import secret_token
from podyard.base.sealing import seal
from podyard.control.access import identity
from podyard.control.billing import accounts, ports, spending
from podyard.control.billing.commitments import usd
from podyard.control.billing.spending import (
    LOOK_TIMER,
    MONTH,
    REFUSE,
    STOP,
    TOTAL,
    BudgetState,
    Period,
)
from podyard.control.platform import webhook_urls, webhooks
from podyard.db.billing import budgets
from podyard.db.compute import nodes as node_rows
from podyard.db.platform import webhooks as webhook_rows
from podyard.db.store import timers
from podyard.db.store.timers import Timer
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.account import Account
from podyard.domain.budget import BUDGET_EVENTS, Budget, BudgetLogEntry, BudgetScope
from podyard.domain.fleet import Fleet
from podyard.domain.node import NodeRecord
from podyard.domain.principal import Principal
from podyard.domain.usage import UsageRecord
from podyard.domain.webhook import WebhookRequest
from podyard.pricing import budgets as pure
from podyard.scheduler.jobs import YIELD_SECONDS_MAX

NOTIFY = "notify:"
AMOUNT_NANOS_MAX = 10**9 * NANOS_PER_UNIT  # a billion dollars
BUDGETS_MAX = 100  # of a project: each is computed again when something changes
THRESHOLDS_MAX = 10
SHARE_MAX = 10  # of the amount
URLS_MAX = 5
SCOPES = "account, project, label:KEY=VALUE, user:EMAIL, job:ID or node:ID"
SCOPE_VALUE_LENGTH_MAX = 256
# of platform time: as long as a gang may take to save and to leave
NOTICE_SECONDS = YIELD_SECONDS_MAX
FORECAST_LOOK_SECONDS = 86_400.0  # expectations change by the day also when nothing happens

# What a request says of a budget.
_ASKED = ("scope", "scope_value", "amount", "period", "thresholds", "forecasts", "actions")

Event = tuple[BudgetLogEntry, Sequence[WebhookRequest]]


@dataclasses.dataclass(frozen=True, slots=True)
class BudgetRequest:
    """The terms of a budget. `scope` is `account`, `project`, `label:KEY=VALUE`, `user:EMAIL`,
    `job:ID` or `node:ID`; `thresholds` and `forecasts` are shares of the amount; `actions` are
    `notify:URL`, `refuse-new-nodes` and `stop`."""

    amount: str
    scope: str = "project"
    period: str = MONTH
    thresholds: Sequence[str] = ("1",)
    forecasts: Sequence[str] = ()
    actions: Sequence[str] = ()


def set_budget(
    uow: UnitOfWork,
    fleet: Fleet,
    principal: Principal,
    project: str,
    name: str,
    request: BudgetRequest,
) -> tuple[Budget, bool]:
    """The budget as it stands now, and whether it was changed: an equal one stays as it is. A new
    one has its secret (shown here only), and acts from now on on what its period has cost so far.

    Raises INVALID_ARGUMENT for an invalid budget.
    """
    accounts.require_to_edit(uow, principal, project, f"budgets/{name}")
    check_resource_id(name, "name")
    account = accounts.of(uow, project)
    wanted = _to_budget(uow, project, name, request)
    before = budgets.find(uow, project, name)
    if before is not None and all(
        getattr(before, field) == getattr(wanted, field) for field in _ASKED
    ):
        return before, False
    if before is None and len(budgets.of_project(uow, project)) >= BUDGETS_MAX:
        raise invalid(f"a project can have at most {BUDGETS_MAX} budgets", "name")
    if before is not None:
        _remove(uow, account, before)
    key = row_id(uow.streams.stream("budgets"), "budget")
    secret = seal(secret_token(24)) if before is None else before.secret
    wanted = dataclasses.replace(wanted, budget_key=key, secret=secret)
    budgets.add(uow, wanted)
    look(uow, fleet, wanted)
    spending.wake_queue(uow, account)
    return _find(uow, project, name), True


def list_budgets(uow: UnitOfWork, principal: Principal, project: str) -> list[BudgetState]:
    """By name."""
    accounts.require_to_view(uow, principal, project, "budgets")
    account = accounts.of(uow, project)
    return [spending.state_of(uow, account, budget) for budget in budgets.of_project(uow, project)]


def get(uow: UnitOfWork, principal: Principal, project: str, name: str) -> BudgetState:
    accounts.require_to_view(uow, principal, project, f"budgets/{name}")
    return spending.state_of(uow, accounts.of(uow, project), _find(uow, project, name))


def remove(uow: UnitOfWork, principal: Principal, project: str, name: str) -> None:
    """Remove it; what it was about to do is not done."""
    accounts.require_to_edit(uow, principal, project, f"budgets/{name}")
    account = accounts.of(uow, project)
    _remove(uow, account, _find(uow, project, name))
    spending.wake_queue(uow, account)


def events(
    uow: UnitOfWork, principal: Principal, project: str, after_seq: int, limit: int
) -> list[Event]:
    """Return what budgets have done, in order."""
    accounts.require_to_view(uow, principal, project, BUDGET_EVENTS)
    log = budgets.log(uow, project, after_seq, limit)
    return [(entry, webhook_rows.of_event(uow, entry.event_id)) for entry in log]


def _find(uow: UnitOfWork, project: str, name: str) -> Budget:
    budget = budgets.find(uow, project, name)
    if budget is None:
        raise not_found(f"projects/{project}/budgets/{name}")
    return budget


def _remove(uow: UnitOfWork, account: Account, budget: Budget) -> None:
    _withdraw_notice(uow, account, budget)
    timers.drop(uow, budget.budget_key)
    budgets.remove(uow, budget)


def _to_budget(uow: UnitOfWork, project: str, name: str, request: BudgetRequest) -> Budget:
    """Return what is asked for, without a key and a secret."""
    scope, _, value = request.scope.partition(":")
    whole = scope in (BudgetScope.ACCOUNT, BudgetScope.PROJECT)
    if (
        scope not in tuple(BudgetScope)
        or whole != (value == "")
        or len(value) > SCOPE_VALUE_LENGTH_MAX
    ):
        raise invalid(f"unknown scope {request.scope[:80]!r}: use {SCOPES}", "scope")
    if scope == "label" and "=" not in value:
        raise invalid(f"scope {request.scope[:80]!r} has no value: use label:KEY=VALUE", "scope")
    if request.period not in (MONTH, TOTAL):
        raise invalid(f"unknown period {request.period[:20]!r}: use {MONTH} or {TOTAL}", "period")
    if request.period == TOTAL and request.forecasts:
        raise invalid(f"forecasts require period {MONTH}: a {TOTAL} budget has no end", "forecasts")
    return Budget(
        budget_key="",
        project=project,
        name=name,
        scope=BudgetScope(scope),
        scope_value=value,
        amount=usd(request.amount, "amount", AMOUNT_NANOS_MAX, zero=True),
        period=request.period,
        thresholds=_shares(request.thresholds, "thresholds"),
        forecasts=_shares(request.forecasts, "forecasts"),
        actions=_actions(request.actions, public_only=identity.has_tenants(uow)),
        secret="",
        created=uow.now,
    )


def _shares(given: Sequence[str], field: str) -> list[str]:
    if len(given) > THRESHOLDS_MAX:
        raise invalid(f"{field} has {len(given)} fractions: the maximum is {THRESHOLDS_MAX}", field)
    exact = {text: accounts.positive_decimal(text, field) for text in given}
    if any(share > SHARE_MAX for share in exact.values()):
        raise invalid(f"{field}: a fraction of the amount must be at most {SHARE_MAX}", field)
    return sorted(exact, key=lambda text: (exact[text], text))


def _actions(given: Sequence[str], *, public_only: bool) -> list[str]:
    urls = [action.removeprefix(NOTIFY) for action in given if action.startswith(NOTIFY)]
    if len(urls) > URLS_MAX:
        raise invalid(
            f"actions have {len(urls)} {NOTIFY} addresses: the maximum is {URLS_MAX}", "actions"
        )
    for action in given:
        if action not in (REFUSE, STOP) and not action.startswith(NOTIFY):
            raise invalid(
                f"unknown action {action[:80]!r}: use {NOTIFY}URL, {REFUSE} or {STOP}", "actions"
            )
    for url in urls:
        webhook_urls.check(url, "actions", public_only=public_only)
    return sorted(set(given))


def follow(uow: UnitOfWork, fleet: Fleet) -> None:
    """Looks again where nodes or jobs of a project have changed since its budgets have looked."""
    for budget in budgets.to_look_at(uow):
        look(uow, fleet, budget)


def on_timer(uow: UnitOfWork, fleet: Fleet, timer: Timer) -> None:
    budget = budgets.find_by_key(uow, timer.resource_key)
    if budget is not None:
        look(uow, fleet, budget)


@dataclasses.dataclass(frozen=True, slots=True)
class _Looked:
    """The figures of one look at a budget."""

    account: Account
    budget: Budget
    period: Period
    charges: Sequence[UsageRecord]


def look(uow: UnitOfWork, fleet: Fleet, budget: Budget) -> None:
    """Does what is due, and sets the timer for what is due next."""
    account = accounts.of(uow, budget.project)
    period = spending.period_of(account, budget.period, uow.now)
    charges = spending.charges(uow, account, budget, period, period.end)
    looked = _Looked(account, budget, period, charges)
    notice_for = budget.notice_for
    reached = pure.stop_at(charges, budget.amount)
    if budget.scope is BudgetScope.JOB and notice_for is not None and period.has_before(notice_for):
        # The job has left its node when it was told to, and would come back to what is left: the
        # notice stands.
        reached = notice_for if reached is None else min(reached, notice_for)
    due = [period.end, *spending.storage_looks(uow.now)]
    due += _thresholds(uow, looked)
    due += _forecasts(uow, looked)
    if STOP in budget.actions:
        if notice_for is not None and notice_for != reached:
            _withdraw_notice(uow, account, budget)
            notice_for = None
        if reached is not None and reached <= uow.now:
            _stop(uow, fleet, looked, reached)
        elif reached is not None:
            notice = max(uow.now, reached.plus_seconds(-NOTICE_SECONDS))
            if notice == uow.now:
                _give_notice(uow, looked, reached)
                notice_for = reached
            due += [reached, reached if notice == uow.now else notice]
    budgets.keep_look(uow, budget, spending.projects_of(account, budget), reached, notice_for)
    timers.drop(uow, budget.budget_key)
    timers.put(uow, LOOK_TIMER, budget.budget_key, 0, min(due))


def _thresholds(uow: UnitOfWork, looked: _Looked) -> list[PlatformTime]:
    """Records those that have been reached; when the others will be."""
    later = []
    for share in looked.budget.thresholds:
        at = pure.stop_at(looked.charges, spending.share_of(looked.budget.amount, share))
        if at is not None and at > uow.now:
            later.append(at)
        elif at is not None:
            _record(uow, looked, "threshold", share, at, f"{_part_text(looked, share)} was reached")
    return later


def _forecasts(uow: UnitOfWork, looked: _Looked) -> list[PlatformTime]:
    shares = looked.budget.forecasts
    if not shares:
        return []
    forecast = pure.forecast(looked.charges, looked.period.name, looked.account.time_zone, uow.now)
    for share in shares:
        if forecast.expected >= spending.share_of(looked.budget.amount, share):
            text = (
                f"{_part_text(looked, share)} will be reached: "
                f"{money_text(forecast.expected)} is expected"
            )
            _record(uow, looked, "forecast", share, uow.now, text)
    return [uow.now.plus_seconds(FORECAST_LOOK_SECONDS)]


def _part_text(looked: _Looked, share: str) -> str:
    return f"{float(Fraction(share) * 100):g} % of {money_text(looked.budget.amount)}"


def _record(
    uow: UnitOfWork, looked: _Looked, kind: str, detail: str, at: PlatformTime, text: str
) -> None:
    """Once per period: an event, and who is to be told of it."""
    budget, cost = looked.budget, spending.cost_until(looked.charges, min(at, uow.now))
    entry = spending.keep_in_log(uow, budget, looked.period, kind, detail, at, cost, text)
    if entry is None:
        return
    message = {
        "event": entry.event_id,
        "project": budget.project,
        "budget": budget.name,
        "period": entry.period,
        "kind": kind,
        "detail": detail,
        "at": at.rfc3339(),
        "cost": cost.text(9),
        "amount": budget.amount.text(9),
        "currency": accounts.USD,
        "text": text,
    }
    for action in budget.actions:
        if action.startswith(NOTIFY):
            webhooks.put(uow, budget, entry.event_id, action.removeprefix(NOTIFY), message)


def _ready_nodes(uow: UnitOfWork, looked: _Looked) -> list[NodeRecord]:
    """The nodes of the scope that cost something now. Of a job: those that it is on, or was
    last."""
    budget = looked.budget
    if budget.scope is BudgetScope.ACCOUNT:
        paid = [one.project for one in looked.account.projects if one.is_paid_now]
        return [node for project in paid for node in node_rows.ready_in(uow, project)]
    found = node_rows.ready_in(uow, budget.project)
    if budget.scope is BudgetScope.JOB:
        mine = budgets.node_keys(uow, budget)
        return [node for node in found if node.node_key in mine]
    return [
        node for node in found if budget.counts(node.node_id, node.created_by, node.spec.labels)
    ]


def _give_notice(uow: UnitOfWork, looked: _Looked, reached: PlatformTime) -> None:
    told = [node for node in _ready_nodes(uow, looked) if node.reclaim_at is None]
    for node in told:
        ports.give_notice(uow, node, reached, f"budget {looked.budget.name} will be used up")
    if told:
        names = _node_names(looked, told)
        _record(
            uow,
            looked,
            "notice",
            reached.rfc3339(),
            uow.now,
            f"stops at {reached.rfc3339()}: {names}",
        )


def _withdraw_notice(uow: UnitOfWork, account: Account, budget: Budget) -> None:
    """The amount will not be used up then after all: jobs may start on the nodes again."""
    if budget.notice_for is not None:
        for project in spending.projects_of(account, budget):
            node_rows.withdraw_notice(uow, project, budget.notice_for)


def _stop(uow: UnitOfWork, fleet: Fleet, looked: _Looked, reached: PlatformTime) -> None:
    """Ends what costs: a node with one host is stopped, any other is deleted. Its billing ends at
    this moment."""
    found = _ready_nodes(uow, looked)
    if not found:
        return
    reason = f"budget {looked.budget.name} is used up since {reached.rfc3339()}"
    for node in found:
        ports.retire(uow, fleet, node, reason)
    detail = f"{uow.now.rfc3339()} {found[0].node_key}"
    _record(uow, looked, "stop", detail, uow.now, f"{reason}: {_node_names(looked, found)}")


def _node_names(looked: _Looked, found: Sequence[NodeRecord]) -> str:
    own = looked.budget.project
    return spending.name_nodes(
        [n.node_id if n.project == own else f"{n.project}/{n.node_id}" for n in found]
    )
