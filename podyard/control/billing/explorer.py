"""The explorer's answer: charges by time and by what they were for, out of one snapshot of the
bill."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from fractions import Fraction

from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid
from podyard.control.billing.snapshots import Snapshot
from podyard.db.billing import cost_dimensions
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.invoice import JobSpan
from podyard.domain.usage import BilledKind, BilledResource, UsageRecord, by_labels
from podyard.hardware.machine_types import billed_kind
from podyard.pricing import commitments, explore, invoicing
from podyard.pricing.bill import extend_to_hosts
from podyard.pricing.explore import Cells, CostBucket, Row

DIMENSIONS = (
    *("project", "region", "zone", "generation", "type", "usage", "sku", "label", "user"),
    *("resource", "node", "job"),
)
COMMITMENT = "commitment"  # the group of what commitments cost themselves, which belongs to no node
NONE = "(none)"
UNKNOWN = "(unknown)"  # who created a node
WHERE_MAX = 10  # filters of one question
VALUE_LENGTH_MAX = 256
# in which month a charge counts: in that of its seconds, or of its invoice
BY_USE, BY_INVOICE = "use", "invoice"


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question to the explorer: these local days of the account, grouped by a dimension; `where`:
    of these values of dimensions only. A label is `label:KEY`. By invoice it is all of the days'
    months."""

    first: date
    last: date
    bucket: CostBucket
    group: str
    where: tuple[tuple[str, str], ...] = ()
    by: str = BY_USE

    @property
    def dimensions(self) -> tuple[str, ...]:
        return (self.group, *(dimension for dimension, _ in self.where))


@dataclasses.dataclass(frozen=True, slots=True)
class Explored:
    """`spans`: the POSIX seconds between which the bars lie; `rows`: the groups, the dearest first;
    `total`: all."""

    spans: Sequence[int]
    rows: Sequence[Row]
    total: Row


def to_question(
    account: Account, as_of: PlatformTime, fields: Mapping[str, str], where: Sequence[str]
) -> Question:
    """Return what texts ask: `from`, `to`, `bucket`, `group` and `by`, where what is left out is
    the present month by day and type; `where` are filters, `DIMENSION=VALUE`. Raises
    INVALID_ARGUMENT for a text that says nothing of the kind."""
    zone = account.time_zone
    first = explore.local(months.seconds_of(account.month_of(as_of), zone).start, zone).date()
    last = max(first, explore.local(commitments.seconds_until(as_of) - 1, zone).date())
    by = fields.get("by", BY_USE)
    if by not in (BY_USE, BY_INVOICE):
        raise invalid(f"unknown grouping {by[:40]!r}: use {BY_USE} or {BY_INVOICE}", "by")
    bucket = fields.get("bucket", CostBucket.DAY)
    if bucket not in tuple(CostBucket):
        raise invalid(f"unknown bucket {bucket[:40]!r}: use {', '.join(CostBucket)}", "bucket")
    pairs = dict.fromkeys(_filter(text) for text in where)
    if len(pairs) > WHERE_MAX or any(
        len(part) > VALUE_LENGTH_MAX for pair in pairs for part in pair
    ):
        raise invalid(f"at most {WHERE_MAX} filters, of {VALUE_LENGTH_MAX} characters", "where")
    return Question(
        _day(fields.get("from"), first, "from"),
        _day(fields.get("to"), last, "to"),
        CostBucket.MONTH if by == BY_INVOICE else CostBucket(bucket),
        fields.get("group", "type"),
        tuple(pairs),
        by,
    )


def _filter(text: str) -> tuple[str, str]:
    dimension, equals, value = text.partition("=")
    if not equals:
        raise invalid(f"{text[:80]!r} is not a filter such as type=v2-8", "where")
    return dimension, value


def _day(text: str | None, usual: date, field: str) -> date:
    if text is None:
        return usual
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = date.min
    if not 1970 <= found.year < 9000:
        raise invalid(f"{text[:40]!r} is not a day such as 2026-03-08", field)
    return found


def ask(uow: UnitOfWork, found: Snapshot, asked: Question) -> Explored:
    """The charges of some days. Raises what `spans_of` does."""
    zone = found.account.time_zone
    spans = spans_of(asked, zone)
    groups = Groups(uow, found, asked)
    of_moment = (*found.moment, asked)
    credited = paid_shares(found)
    if not (found.plain and groups.lasting and not credited):
        net = found.keep(("net", of_moment), lambda: explore.cells(groups.of(found.charges), spans))
        gross = (
            net
            if found.plain
            else found.keep(("gross", of_moment), lambda: _gross(found, groups, spans))
        )
        names = dict.fromkeys((*gross.totals, *net.totals))
        made = explore.rows(gross, net, spans, credited, zone, names)
        return Explored(spans, made, explore.whole(gross, net, spans, credited, zone))
    closed = found.keep(asked, lambda: explore.cells(groups.of(found.closed), spans))
    before = found.keep(
        ("rows", asked), lambda: explore.rows(closed, closed, spans, credited, zone, closed.totals)
    )
    now = explore.cells(groups.of(found.open), spans)
    both = closed.plus(now)
    changed = explore.rows(both, both, spans, credited, zone, now.totals)
    made = explore.in_order([*(row for row in before if row.name not in now.totals), *changed])
    return Explored(spans, made, explore.whole(both, both, spans, credited, zone))


def spans_of(asked: Question, zone: str) -> Sequence[int]:
    """The POSIX seconds between which the bars lie. Raises INVALID_ARGUMENT for days that are none,
    for too many bars and for an unknown dimension."""
    check_dimensions(asked)
    return explore.edges(asked.bucket, asked.first, asked.last, zone)


def check_dimensions(asked: Question) -> None:
    for dimension in asked.dimensions:
        if dimension.partition(":")[0] not in DIMENSIONS or (
            dimension.partition(":")[0] == "label"
        ) != (":" in dimension):
            raise invalid(
                f"unknown dimension {dimension[:80]!r}: use {', '.join(DIMENSIONS)}, or label:KEY",
                "group",
            )


def _gross(found: Snapshot, groups: Groups, spans: Sequence[int]) -> Cells:
    """Use at its prices, and what commitments cost themselves."""
    own = [charge for charge in found.charges if charge.resource_id.startswith(commitments.OWN)]
    return explore.cells(groups.of([*own, *found.closed, *found.open]), spans)


def paid_shares(found: Snapshot) -> Mapping[str, Fraction]:
    """By month, which share of the charges credits pay."""
    if not found.terms.credits:
        return {}
    policy, credits = found.account.policy, found.terms.credits
    key = ("paid", *found.moment)
    return found.keep(
        key, lambda: explore.paid_by_credits(invoicing.invoices(found.charges, policy, credits))
    )


class Groups:
    """The group of a charge, and the filter that lets it in."""

    def __init__(self, uow: UnitOfWork, found: Snapshot, asked: Question) -> None:
        self._found = found
        self._asked = asked
        self._names: dict[str, str | None] = {}
        self._by_label = any(dimension.startswith("label:") for dimension in asked.dimensions)
        self._job_names: dict[str, str] = {}
        spans: list[JobSpan] = []
        for project in found.projects if "job" in asked.dimensions else ():
            names = cost_dimensions.job_labels(uow, project)
            self._job_names |= {key: name_in(found, project, name) for key, name in names.items()}
            spans += cost_dimensions.job_spans(uow, project)
        self._owners = explore.owners(extend_to_hosts(found.resources, spans), found.as_of)
        # Jobs may become others without a usage event.
        self.lasting = "job" not in asked.dimensions

    def of(self, charges: Iterable[UsageRecord]) -> Iterator[tuple[str, UsageRecord]]:
        named = self._with_groups(charges)
        return self._jobs(named) if "job" in self._asked.dimensions else named

    def _with_groups(self, charges: Iterable[UsageRecord]) -> Iterator[tuple[str, UsageRecord]]:
        for charge in charges:
            node = self._found.facts.get(charge.resource_id) if self._by_label else None
            if node is not None and len(node.labels) > 1:
                for labels, part in by_labels(charge, node):
                    if (name := self._group_at(charge.resource_id, labels)) is not None:
                        yield name, part
            elif (name := self._name(charge.resource_id)) is not None:
                yield name, charge

    def _jobs(self, named: Iterable[tuple[str, UsageRecord]]) -> Iterator[tuple[str, UsageRecord]]:
        wanted = frozenset(value for dimension, value in self._asked.where if dimension == "job")
        for name, charge in named:
            if charge.resource_id.startswith(commitments.OWN):
                parts: Iterable[tuple[str, UsageRecord]] = [(COMMITMENT, charge)]
            else:
                parts = explore.by_job(charge, self._owners.get(charge.resource_id, ()))
            for key, part in parts:
                job = self._job_names.get(key, key)
                if not wanted or wanted == {job}:
                    yield (job if self._asked.group == "job" else name), part

    def _name(self, resource: str) -> str | None:
        """The group of a resource's charges; None: they are not asked for. Jobs are looked at
        later."""
        if resource not in self._names:
            node = self._found.facts.get(resource)
            self._names[resource] = self._group_at(
                resource, node.labels[0].labels if node and node.labels else {}
            )
        return self._names[resource]

    def _group_at(self, resource: str, labels: Mapping[str, str]) -> str | None:
        """As `_name`, while it has these labels."""
        values = (self._value(resource, labels, d) == v for d, v in self._asked.where if d != "job")
        return self._value(resource, labels, self._asked.group) if all(values) else None

    def _value(self, resource: str, labels: Mapping[str, str], dimension: str) -> str:
        facts, sold = self._found.facts.get(resource), self._found.resources.get(resource)
        if dimension == "project":
            return self._found.project if facts is None else facts.project
        if facts is None or sold is None:
            return resource if dimension == "sku" else COMMITMENT
        if dimension.startswith("label:"):
            return labels.get(dimension.partition(":")[2], NONE)
        return {
            "region": facts.region,
            "zone": facts.zone,
            "generation": facts.kind
            if facts.kind.is_storage
            else billed_kind(facts.type).generation.name,
            "type": facts.type,
            "usage": str(facts.usage_class),
            "sku": NONE if sold.sku is None else sold.sku.sku_id,
            "resource": name_in(self._found, facts.project, label_of(facts)),
            "node": NONE
            if facts.kind.is_storage
            else name_in(self._found, facts.project, label_of(facts)),
            "user": facts.created_by or UNKNOWN,
            "job": "",
        }[dimension]


def label_keys(found: Snapshot) -> list[str]:
    """The keys of all labels that its nodes have had."""
    sets = {
        id(period.labels): period.labels for node in found.facts.values() for period in node.labels
    }
    return sorted({key for labels in sets.values() for key in labels})


def name_in(found: Snapshot, project: str, name: str) -> str:
    """The name of a node or job, with its project where there are several."""
    return name if len(found.projects) == 1 else f"{project}/{name}"


def label_of(facts: BilledResource) -> str:
    """`ZONE/ID` of a node, with `disk` or `bucket` before it of others: short, and of one at a
    time. Operations are their bucket's."""
    label = f"{facts.zone}/{facts.short_name}"
    if not facts.kind.is_storage:
        return label
    return f"{BilledKind.DISK if facts.kind is BilledKind.DISK else BilledKind.BUCKET} {label}"
