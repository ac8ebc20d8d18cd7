"""The figures of the billing pages: month to date, idle time, preemptions, use of commitments,
budgets.

All come from one `Snapshot`, so that no two figures of a page are of two moments.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.intervals import union_of_seconds
from podyard.base.money import Amount
from podyard.control.billing import explorer, spending
from podyard.control.billing.snapshots import Snapshot, rates
from podyard.control.billing.spending import BudgetState
from podyard.db.billing import budgets, cost_dimensions, usage_events
from podyard.db.platform import state_changes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.budget import Budget, BudgetScope
from podyard.domain.usage import BilledResource, UsageRecord, node_key_of
from podyard.pricing import budgets as pure
from podyard.pricing import commitments, explore
from podyard.pricing.amounts import parts_per_second, total
from podyard.pricing.attribution import IDLE, Owned
from podyard.pricing.bill import extend_to_hosts
from podyard.pricing.explore import Cells, CostBucket

# With more charges than this the forecast is made once a minute: it looks at all of them.
FORECAST_EXACT_CHARGES = 5_000
FORECAST_SECONDS = 60


@dataclasses.dataclass(frozen=True, slots=True)
class NodeMonth:
    """The cost of one node in the month, before commitments and credits; `rate`: what it costs now,
    in parts per second."""

    key: str
    facts: BilledResource
    amount: Amount
    rate: int


@dataclasses.dataclass(frozen=True, slots=True)
class MonthToDate:
    """The month so far: exact, net of what commitments cover and with their own charges, before
    credits.

    `estimated`: the part of nodes that are still in use. `before`: the whole last month, and
    `before_then` the same time of it. `rate`: parts per second now. `days`: by local day, of the
    last of which the part `today` is over.
    """

    month: str
    spent: Amount
    credits: Fraction
    estimated: Amount
    before: Amount
    before_then: Amount
    forecast: pure.Forecast
    rate: int
    days: Sequence[tuple[str, Amount]]
    today: float
    nodes: Sequence[NodeMonth]
    budgets: Sequence[BudgetState]


def month_to_date(uow: UnitOfWork, found: Snapshot) -> MonthToDate:
    zone, month = found.account.time_zone, found.month
    seconds = found.month_seconds()
    now = commitments.seconds_until(found.as_of)
    last = months.index_of(month) - 1
    earlier = months.seconds_of(f"{last // 12:04d}-{last % 12 + 1:02d}", zone)
    then = min(earlier.stop, earlier.start + now - seconds.start)
    first, today = explore.local(seconds.start, zone).date(), explore.local(now - 1, zone).date()
    days = explore.edges(CostBucket.DAY, first, max(first, today), zone)
    by_day = _sums(found, days)
    before_then, rest = _sums(found, [earlier.start, then, earlier.stop])
    spent = sum(by_day)
    of_now = rates(found)
    of_open = found.open if found.plain else found.charges
    return MonthToDate(
        month=month,
        spent=Amount(spent),
        credits=-explorer.paid_shares(found).get(month, Fraction(0)) * spent,
        estimated=Amount(sum(_sums_of(of_open, [seconds.start, seconds.stop], estimated=True))),
        before=Amount(before_then + rest),
        before_then=Amount(before_then),
        forecast=_forecast(found),
        rate=sum(of_now.values()),
        days=[
            (explore.label(start, CostBucket.DAY, zone), Amount(parts))
            for start, parts in zip(days, by_day, strict=False)
        ],
        today=(now - days[-2]) / (days[-1] - days[-2]),
        nodes=_nodes(found, [seconds.start, seconds.stop], of_now),
        budgets=budgets_of(uow, found),
    )


def _sums(found: Snapshot, spans: Sequence[int]) -> list[int]:
    """Return what the project pays in each span."""
    key = ("sums", tuple(spans))
    if not found.plain:
        return found.keep((*key, *found.moment), lambda: _sums_of(found.charges, spans))
    closed = found.keep(key, lambda: _sums_of(found.closed, spans))
    return [a + b for a, b in zip(closed, _sums_of(found.open, spans), strict=True)]


def _sums_of(
    charges: Iterable[UsageRecord], spans: Sequence[int], *, estimated: bool = False
) -> list[int]:
    named = (("", charge) for charge in charges if charge.estimated or not estimated)
    return list(explore.cells(named, spans).groups.get("", [0] * (len(spans) - 1)))


def _nodes(found: Snapshot, spans: Sequence[int], of_now: Mapping[str, int]) -> list[NodeMonth]:
    """Those that cost something in the month or do now, by cost: the highest first."""

    def by_resource(records: Sequence[UsageRecord]) -> Cells:
        return explore.cells(
            ((node_key_of(record.resource_id), record) for record in records), spans
        )

    def make_closed() -> list[NodeMonth]:
        sums = by_resource(found.closed).totals
        return in_order(
            [NodeMonth(key, found.facts[key], Amount(parts), 0) for key, parts in sums.items()]
        )

    def in_order(rows: list[NodeMonth]) -> list[NodeMonth]:
        return sorted(rows, key=_by_cost)

    sums = by_resource(found.open).totals
    now = [
        NodeMonth(k, found.facts[k], Amount(sums.get(k, 0)), of_now.get(k, 0))
        for k in dict.fromkeys((*of_now, *sums))
    ]
    return list(
        heapq.merge(in_order(now), found.keep(("nodes", tuple(spans)), make_closed), key=_by_cost)
    )


def node_costs(found: Snapshot) -> Mapping[str, int]:
    """Return the cost so far of each node at its prices, by its key, in parts of a nano."""
    costs = Counter(found.keep("node costs", lambda: _cost_by_node(found.closed)))
    costs.update(_cost_by_node(found.open))
    return costs


def _cost_by_node(records: Iterable[UsageRecord]) -> Counter[str]:
    costs: Counter[str] = Counter()
    for record in records:
        costs[node_key_of(record.resource_id)] += parts_per_second(record) * record.seconds
    return costs


def _by_cost(row: NodeMonth) -> tuple[int, int, str]:
    return (-row.amount.parts, -row.rate, row.key)


def _forecast(found: Snapshot) -> pure.Forecast:
    since = min(
        found.month_seconds().start,
        commitments.seconds_until(found.as_of) - pure.FORECAST_DAYS * 86_400,
    )

    def make() -> pure.Forecast:
        recent = [
            charge for charge in found.charges if charge.start_second + charge.seconds > since
        ]
        return pure.forecast(recent, found.month, found.account.time_zone, found.as_of)

    if len(found.charges) <= FORECAST_EXACT_CHARGES:
        return make()
    minute = found.as_of.nanos // NANOS_PER_SECOND // FORECAST_SECONDS
    return found.keep(("forecast", minute, repr(found.terms)), make)


def budgets_of(uow: UnitOfWork, found: Snapshot) -> list[BudgetState]:
    """By name. They count what `spending.charges` counts; out of the snapshot, if its account has
    this project only."""
    made = []
    for budget in budgets.of_project(uow, found.project):
        if not found.account.is_alone:
            made.append(spending.state_of(uow, found.account, budget))
            continue
        period = spending.period_of(found.account, budget.period, found.as_of)
        spans = [period.seconds.start, period.seconds.stop]
        whole = budget.scope in (BudgetScope.PROJECT, BudgetScope.ACCOUNT)
        parts = _sums(found, spans) if whole else _sums_of(_scope(uow, found, budget), spans)
        made.append(BudgetState(budget, period.name, Amount(sum(parts))))
    return made


def _scope(uow: UnitOfWork, found: Snapshot, budget: Budget) -> Iterable[UsageRecord]:
    """The records of a label's, user's, node's or job's budget."""
    records = itertools.chain(found.closed, found.open)
    if budget.scope is not BudgetScope.JOB:
        return spending.count_use(budget, found.facts, records)
    keys = budgets.node_keys(uow, budget)
    mine = (record for record in records if node_key_of(record.resource_id) in keys)
    own = budgets.job_keys(uow, budget)
    owners = _owners(uow, found)
    cut = (
        part
        for record in mine
        for part in explore.by_job(record, owners.get(record.resource_id, ()))
    )
    return (part for job, part in cut if job in own)


def _owners(uow: UnitOfWork, found: Snapshot) -> Mapping[str, Sequence[Owned]]:
    """Whose the seconds of nodes and their hosts are."""
    spans = [span for project in found.projects for span in cost_dimensions.job_spans(uow, project)]
    return explore.owners(extend_to_hosts(found.resources, spans), found.as_of)


# on the way to READY: not billed, and nothing trains
STARTING = ("CREATING", "STARTING", "RESTARTING")
IDLE_HINT_SECONDS = 3_600  # a node that no job has used for so long may have been forgotten
PREEMPTIONS_MAX = 1_000  # the newest of a month, of which a page shows a part


@dataclasses.dataclass(frozen=True, slots=True)
class Efficiency:
    """One node's billed seconds within a month: those that jobs have used, and the others with what
    they cost with its hosts, before commitments. `idle_since`: a POSIX second, of a node that is in
    use by nobody now."""

    key: str
    facts: BilledResource
    busy: int
    idle: int
    amount: Amount
    idle_amount: Amount
    rate: int
    idle_since: int | None


def efficiency(uow: UnitOfWork, found: Snapshot, month: str) -> list[Efficiency]:
    """The nodes that were in use in the month, those with the dearest idle time first."""
    window = found.month_seconds(month)
    owners = _owners(uow, found)
    sums: dict[str, list[int]] = {}
    for part in (found.closed, found.open):
        for record in part:
            start, stop = record.start_second, record.start_second + record.seconds
            if start >= window.stop or stop <= window.start:
                continue
            key = node_key_of(record.resource_id)
            if found.facts[key].kind.is_storage:
                continue
            row = sums.setdefault(key, [0, 0, 0, 0])
            rate = parts_per_second(record)
            for job, piece in explore.by_job(record, owners.get(record.resource_id, ())):
                within = range(
                    max(piece.start_second, window.start), min(_stop(piece), window.stop)
                )
                idle = job == IDLE
                # its hosts have no seconds of their own
                row[idle] += len(within) if key == record.resource_id else 0
                row[2 + idle] += len(within) * rate
    of_now = rates(found)
    rows = [
        Efficiency(
            key,
            found.facts[key],
            busy,
            idle,
            Amount(paid_for + wasted),
            Amount(wasted),
            of_now.get(key, 0),
            _idle_since(found, key, owners.get(key, ())),
        )
        for key, (busy, idle, paid_for, wasted) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.idle_amount.parts, row.key))


def _stop(record: UsageRecord) -> int:
    return record.start_second + record.seconds


def _idle_since(found: Snapshot, key: str, mine: Sequence[Owned]) -> int | None:
    since = found.open_since.get(key)
    if since is None:
        return None
    start = since.nanos // NANOS_PER_SECOND
    last = mine[-1].seconds.stop if mine else start
    now = commitments.seconds_until(found.as_of)
    return None if last >= now else max(last, start)


def starting_seconds(
    uow: UnitOfWork, found: Snapshot, keys: Sequence[str], month: str
) -> Mapping[str, int]:
    """Whole seconds within the month in which these nodes were on their way to READY, rounded
    down."""
    window = found.month_seconds(month)
    first, last = window.start * NANOS_PER_SECOND, window.stop * NANOS_PER_SECOND
    nanos = dict.fromkeys(keys, 0)
    before: dict[str, tuple[str, int]] = {}
    for key, entered, at in state_changes.states_entered(uow, keys):
        state, since = before.get(key, ("", 0))
        if state in STARTING:
            nanos[key] += max(0, min(at.nanos, last) - max(since, first))
        before[key] = (entered, at.nanos)
    for key, (state, since) in before.items():
        if state in STARTING:
            nanos[key] += max(0, min(found.as_of.nanos, last) - max(since, first))
    return {key: value // NANOS_PER_SECOND for key, value in nanos.items()}


def preemptions(
    uow: UnitOfWork, found: Snapshot, month: str
) -> list[tuple[PlatformTime, str, str]]:
    """(when, zone, name) of the month's preemptions, the newest first, at most
    `PREEMPTIONS_MAX`."""
    window = found.month_seconds(month)
    start, stop = (
        PlatformTime(second * NANOS_PER_SECOND) for second in (window.start, window.stop)
    )
    return usage_events.preemptions(uow, found.project, start, stop, PREEMPTIONS_MAX)


@dataclasses.dataclass(frozen=True, slots=True)
class Covered:
    """The commitments to one SKU up to now, in unit-seconds: committed, used of it, and all use of
    the SKU within their terms. `own`: what they cost; `instead`: what they cover at its price."""

    sku_id: str
    committed: int
    covered: int
    used: int
    own: Amount
    instead: Amount


def coverage(found: Snapshot) -> list[Covered]:
    """By SKU. Commitments of one SKU add up, so the use of a single one is not asked for."""
    rows = []
    for sku_id in sorted({one.sku_id for one in found.terms.commitments}):
        mine = [one for one in found.terms.commitments if one.sku_id == sku_id]
        terms = [commitments.term(one, found.as_of) for one in mine]
        union = union_of_seconds(terms)
        gross = [r for part in (found.closed, found.open) for r in part if r.sku_id == sku_id]
        net = [charge for charge in found.charges if charge.sku_id == sku_id]
        ids = frozenset(commitments.OWN + one.commitment_id for one in mine)
        inside = (
            max(0, min(_stop(r), term.stop) - max(r.start_second, term.start)) * r.quantity
            for r in gross
            for term in union
        )
        rows.append(
            Covered(
                sku_id,
                sum(len(term) * one.quantity for term, one in zip(terms, mine, strict=True)),
                sum(r.unit_seconds for r in gross) - sum(r.unit_seconds for r in net),
                sum(inside),
                total(charge for charge in found.charges if charge.resource_id in ids),
                total(gross) - total(net),
            )
        )
    return rows
