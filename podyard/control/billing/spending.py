"""The spending in a budget's scope, and the decision on new nodes. Acting on it: budgets.py.

A budget of the account counts what the account pays: net of what its commitments cover, and with
their own charges. So does one of a project that has an account for itself. Where an account pays
for several projects, a project's budget counts the seconds of its nodes at their prices, whatever
commitments cover: these belong to the account. Those of a label, a user, a node or a job always do.
A label's seconds are those that were used under it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import Code, PodyardError, QuotaFailure
from podyard.base.ids import row_id
from podyard.base.money import Amount
from podyard.control.billing import accounts, bills
from podyard.db.billing import budgets, cost_dimensions, usage_events
from podyard.db.compute import queued_resources as queue_rows
from podyard.db.platform import state_changes
from podyard.db.store import timers
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.budget import Budget, BudgetLogEntry, BudgetScope
from podyard.domain.fleet import region_of
from podyard.domain.invoice import JobSpan
from podyard.domain.node import TPU_NODE_VERSIONS, NodeSpec
from podyard.domain.queued_resource import QueuedResourceRecord
from podyard.domain.usage import BilledResource, UsageRecord, by_labels, parts_within
from podyard.pricing import attribution
from podyard.pricing.amounts import total
from podyard.pricing.bill import Resource, Terms, extend_to_hosts, resources_of
from podyard.pricing.current_card import default_rate_card

LOOK_TIMER = "budget.look"
REFUSE, STOP = "refuse-new-nodes", "stop"
REFUSED = "refuse"  # the kind of the events of requests that were refused
STORAGE_LOOK_SECONDS = 3_600.0  # what is stored costs little by the hour
NAMED_MAX = 10  # nodes, in the text of an event
DETAIL_LENGTH_MAX = 256  # of an event, as its column
_MINUTE_NANOS = 60 * NANOS_PER_SECOND
MONTH, TOTAL = "month", "total"
SHOWN_DECIMALS = 2
# how far ahead a budget without an end looks: it looks again every month
TOTAL_HORIZON_SECONDS = 366 * 86_400


@dataclasses.dataclass(frozen=True, slots=True)
class Period:
    """The period that a budget counts: the charges of these POSIX seconds. `name` is the month, or
    "total"."""

    name: str
    seconds: range

    @property
    def end(self) -> PlatformTime:
        return PlatformTime(self.seconds.stop * NANOS_PER_SECOND)

    def has_before(self, moment: PlatformTime) -> bool:
        """Return whether the last whole second before the moment is of the period."""
        return moment.nanos // NANOS_PER_SECOND - 1 in self.seconds


def period_of(account: Account, kind: str, now: PlatformTime) -> Period:
    """The period that `now` is in. One that never ends ends, for looking ahead, at its horizon."""
    if kind == TOTAL:
        return Period(TOTAL, range(now.nanos // NANOS_PER_SECOND + TOTAL_HORIZON_SECONDS))
    month = account.month_of(now)
    return Period(month, months.seconds_of(month, account.time_zone))


def price_warning(uow: UnitOfWork, zone: str, spec: NodeSpec) -> str:
    """The warning for a node that has no price; empty if it has one."""
    card = default_rate_card()
    try:
        card.price(spec.accelerator_type, region_of(zone), spec.usage_class, uow.now)
        if spec.api_version in TPU_NODE_VERSIONS and card.hosts_from is not None:
            card.host_sku(region_of(zone), spec.usage_class)
    except PodyardError as error:
        return (
            f"{error.message}. Usage of the node is metered, and its cost is held until "
            "there is a price"
        )
    return ""


def charges(
    uow: UnitOfWork, account: Account, budget: Budget, period: Period, as_of: PlatformTime
) -> list[UsageRecord]:
    """Return what the scope pays within the period up to `as_of`, if until then everything goes on
    as it is now."""
    card = default_rate_card()
    everything = budget.scope in (BudgetScope.ACCOUNT, BudgetScope.PROJECT)
    of_account = everything and (budget.scope is BudgetScope.ACCOUNT or account.is_alone)
    names = projects_of(account, budget)
    wanted = [key for name in names for key in node_keys_in(uow, name, period)]
    of_job = budget.scope is BudgetScope.JOB
    if of_job:
        mine = budgets.node_keys(uow, budget)
        wanted = [key for key in wanted if key in mine]
    facts = bills.billed_resources(uow, card, names, wanted)
    if not (everything or of_job):
        facts = {key: node for key, node in facts.items() if can_count(budget, node)}
    resources = (
        bills.paid_resources(card, account, facts) if of_account else resources_of(card, facts)
    )
    terms = bills.terms_of(uow, account) if of_account else Terms()
    found: Sequence[UsageRecord] = bills.compute(
        uow, names, resources, terms, as_of, few=True
    ).charges
    if of_job:
        found = _of_job(uow, budget, resources, found, as_of)
    elif not everything:
        found = count_use(budget, facts, found)
    return list(parts_within(found, period.seconds))


def storage_looks(now: PlatformTime) -> list[PlatformTime]:
    """When a budget looks again for the sake of buckets, which are filled outside of the loop's
    units, and of disks."""
    return [now.plus_seconds(STORAGE_LOOK_SECONDS)] if default_rate_card().charges_storage else []


def projects_of(account: Account, budget: Budget) -> list[str]:
    """The projects whose use a budget counts; `account` is that of its project."""
    return account.names if budget.scope is BudgetScope.ACCOUNT else [budget.project]


def state_of(uow: UnitOfWork, account: Account, budget: Budget) -> BudgetState:
    """Return what it has spent up to now."""
    period = period_of(account, budget.period, uow.now)
    return BudgetState(
        budget, period.name, cost_until(charges(uow, account, budget, period, uow.now), uow.now)
    )


def can_count(budget: Budget, node: BilledResource) -> bool:
    """Return whether the scope has a node at any time. Not of a job's budget."""
    return any(
        budget.counts(node.node_id, node.created_by, period.labels) for period in node.labels
    )


def count_use(
    budget: Budget, facts: Mapping[str, BilledResource], found: Iterable[UsageRecord]
) -> list[UsageRecord]:
    """The parts of these nodes' records that the scope has, by the labels of the time. Not of a
    job's budget."""
    return [
        part
        for record in found
        if (node := facts.get(record.resource_id)) is not None
        for labels, part in by_labels(record, node)
        if budget.counts(node.node_id, node.created_by, labels)
    ]


def node_keys_in(uow: UnitOfWork, project: str, period: Period) -> list[str]:
    """The nodes that can have used any second of the period, in order of their keys: those that
    have changed in it, and those that are READY now, since before it perhaps. All that others have
    used is older."""
    start = PlatformTime(period.seconds.start * NANOS_PER_SECOND)
    return usage_events.keys_used_since(uow, project, start)


def _of_job(
    uow: UnitOfWork,
    budget: Budget,
    resources: Mapping[str, Resource],
    found: Sequence[UsageRecord],
    as_of: PlatformTime,
) -> list[UsageRecord]:
    """The seconds that are attributed to the job."""
    keys = budgets.job_keys(uow, budget)
    spans: dict[str, list[JobSpan]] = {}
    for span in extend_to_hosts(resources, cost_dimensions.job_spans(uow, budget.project)):
        spans.setdefault(span.resource_id, []).append(span)
    owned = {
        key: [part.seconds for part in attribution.ownership(on_node, as_of) if part.job_id in keys]
        for key, on_node in spans.items()
    }
    return [
        part
        for charge in found
        for mine in owned.get(charge.resource_id, ())
        for part in parts_within([charge], mine)
    ]


def cost_until(found: Sequence[UsageRecord], until: PlatformTime) -> Amount:
    """The exact cost of the charges up to a moment; a second that it touches counts."""
    seconds = range(-(-until.nanos // NANOS_PER_SECOND))
    return total(parts_within(found, seconds))


def share_of(amount: Amount, share: str) -> Amount:
    """A share of an amount, rounded up to a whole part: reached when it is."""
    exact = Fraction(share) * amount.parts
    return Amount(-(-exact.numerator // exact.denominator))


@dataclasses.dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget, the name of the period that it is in, and what that has cost so far."""

    budget: Budget
    period: str
    spent: Amount


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """The budget that refuses nodes of these names, and what its period had cost by then."""

    budget: Budget
    period: Period
    nodes: Sequence[str]
    cost: Amount

    @property
    def why(self) -> str:
        of = f"{self.cost.text(SHOWN_DECIMALS)} of {self.budget.amount.text(SHOWN_DECIMALS)} USD"
        when = "" if self.period.name == TOTAL else f" in {self.period.name}"
        return f"budget {self.budget.name} of projects/{self.budget.project} is used up: {of}{when}"


class Refused(PodyardError):
    """RESOURCE_EXHAUSTED. The request is rolled back; `keep_refusal` records the refusal in another
    unit."""

    def __init__(self, refusal: Refusal) -> None:
        detail = QuotaFailure(f"projects/{refusal.budget.project}", refusal.why)
        super().__init__(Code.RESOURCE_EXHAUSTED, refusal.why, [detail])
        self.refusal = refusal

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.refusal,))


def admit(
    uow: UnitOfWork,
    project: str,
    creator: str,
    wanted: Sequence[tuple[str, NodeSpec]],
    *,
    of_job: bool = False,
) -> None:
    """Asked before nodes (id, spec) are accepted. Raises RESOURCE_EXHAUSTED when a budget that
    refuses new nodes, or stops what runs, is used up; it names the budget. The caller holds the
    project's row."""
    accounts.open_for(uow, project)
    found = refusal(uow, project, creator, wanted, of_job=of_job)
    if found is not None:
        raise Refused(found)


def keep_refusal(uow: UnitOfWork, refused: PodyardError) -> None:
    """Puts on record that a budget refused the actor of this unit: once for each budget, actor and
    minute, so that who tries again and again fills nothing. A budget that is gone meanwhile refuses
    nobody, and other refusals have no budget."""
    if not isinstance(refused, Refused):
        return
    found = refused.refusal
    if budgets.find_by_key(uow, found.budget.budget_key, locked=True) is None:
        return
    minute = PlatformTime(uow.now.nanos // _MINUTE_NANOS * _MINUTE_NANOS).rfc3339()
    detail = f"{minute} {uow.actor}"[:DETAIL_LENGTH_MAX]
    text = f"{uow.actor} was refused {name_nodes(found.nodes)}: {found.why}"
    keep_in_log(uow, found.budget, found.period, REFUSED, detail, uow.now, found.cost, text)


def keep_in_log(  # noqa: PLR0913
    uow: UnitOfWork,
    budget: Budget,
    period: Period,
    kind: str,
    detail: str,
    at: PlatformTime,
    cost: Amount,
    text: str,
) -> BudgetLogEntry | None:
    """Return what a budget has done, once per period: None when it is on record already."""
    if budgets.is_logged(uow, budget, period.name, kind, detail):
        return None
    entry = BudgetLogEntry(
        event_id=row_id(uow.streams.stream("budget_events"), "budget-event"),
        budget_key=budget.budget_key,
        project=budget.project,
        name=budget.name,
        period=period.name,
        kind=kind,
        detail=detail,
        at=at,
        cost=cost,
        amount=budget.amount,
        text=text,
    )
    budgets.add_to_log(uow, entry)
    return entry


def name_nodes(names: Sequence[str]) -> str:
    """The names of nodes in the text of an event: the first ones, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def refusal(
    uow: UnitOfWork,
    project: str,
    creator: str,
    wanted: Sequence[tuple[str, NodeSpec]],
    *,
    of_job: bool = False,
) -> Refusal | None:
    """Why nodes are not let in now, if they are not."""
    for budget in budgets.with_known_end(uow, project):
        reached = budget.reached_at
        if (
            reached is None
            or reached > uow.now
            or not (REFUSE in budget.actions or STOP in budget.actions)
        ):
            continue
        account = accounts.of(uow, budget.project)
        period = period_of(account, budget.period, uow.now)
        mine = [
            node_id
            for node_id, spec in wanted
            if _counts(budget, node_id, creator, spec, of_job=of_job)
        ]
        if mine and period.has_before(reached):
            cost = cost_until(charges(uow, account, budget, period, uow.now), uow.now)
            return Refusal(budget, period, mine, cost)
    return None


def _counts(budget: Budget, node_id: str, creator: str, spec: NodeSpec, *, of_job: bool) -> bool:
    """Return whether a new node would be of the scope. One that is made for a job has the job's
    id."""
    if budget.scope is BudgetScope.JOB:
        return of_job and node_id == budget.scope_value
    return budget.counts(node_id, creator, spec.labels)


def hold_in_queue(uow: UnitOfWork, queued: QueuedResourceRecord) -> tuple[str, PlatformTime] | None:
    """Why a queued resource's nodes are not let in now, and until when that is so if nobody changes
    a budget."""
    creator = state_changes.creator(uow, queued.queued_resource_key)
    found = refusal(
        uow, queued.project, creator, [(node.node_id, node.spec) for node in queued.spec.nodes]
    )
    if found is None:
        return None
    account = accounts.of(uow, queued.project)
    return found.why, period_of(account, MONTH, uow.now).end


def on_relabel(uow: UnitOfWork, project: str) -> None:
    """A node has other labels: the budgets of labels look as of this moment, whenever the loop
    comes to it."""
    for budget in budgets.of_project(uow, project):
        if budget.scope is BudgetScope.LABEL:
            timers.put(uow, LOOK_TIMER, budget.budget_key, 0, uow.now)


def wake_queue(uow: UnitOfWork, account: Account) -> None:
    """A budget was changed: what waited for it is looked at again."""
    for project in account.names:
        queue_rows.let_in_again(uow, project, "budget %")
