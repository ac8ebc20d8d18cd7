"""I6: a bill is the READY seconds times the price, counted here from the audit lines alone; the
ledger sums to zero; an issued invoice is what it was, and what it is computed to again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import invoices, usages
from podyard.control.checks.fsck_storage import check_sizes, check_storage
from podyard.control.checks.fsck_violation import Violation
from podyard.db.billing import invoices as invoice_rows
from podyard.db.billing import usage_events
from podyard.db.store import ledger
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views.fsck import Records
from podyard.domain.fleet import region_of
from podyard.domain.node import NodeRecord
from podyard.domain.principal import PLATFORM
from podyard.domain.state_change import StateChange
from podyard.domain.usage import BilledResource, UsageEvent
from podyard.hardware.accelerator_types import parse
from podyard.pricing.sku import RateCard

_FREE_NANOS = 60 * NANOS_PER_SECOND  # of a first READY that ends in PREEMPTED (docs/preemptible)
_VM_SECONDS = 60  # of each run of a host VM, at least
_CAN_BE_FREE = ("preemptible", "spot")


def check_bill(uow: UnitOfWork, records: Records, card: RateCard) -> Iterator[Violation]:
    histories: dict[str, list[StateChange]] = {}
    for change in records.changes:
        if change.machine == "node":
            histories.setdefault(change.resource_key, []).append(change)
    told: dict[str, list[UsageEvent]] = {}
    for event in records.usage:
        if event.resource_id in records.stored:
            continue
        told.setdefault(event.resource_id, []).append(event)
    for key, history in histories.items():
        lines = [
            (change.event_id, change.version, change.to_state, change.at) for change in history
        ]
        usage = [(item.event_id, item.seq, item.state, item.at) for item in told.pop(key, [])]
        if sorted(usage, key=lambda item: item[1]) != lines:
            text = (
                f"{len(usage)} usage events stand for {len(lines)} changes, or say something else"
            )
            yield Violation("I6", records.now, history[0].resource_name, text)
    for key, events in sorted(told.items()):
        if not records.after_seq:
            yield Violation(
                "I6", records.now, key, f"{len(events)} usage events of a node without a history"
            )
    yield from _amounts(uow, records, card, histories)
    if not records.after_seq:
        yield from _facts(uow, records)
        yield from check_storage(uow, records)
        yield from _ledger(uow, records)
        yield from _invoices(uow, records, card)


def _facts(uow: UnitOfWork, records: Records) -> Iterator[Violation]:
    """The first usage event of a node says who created it, and the last labels that they say are
    its own."""
    told: dict[str, BilledResource] = {}
    for project in sorted({node.project for node in records.nodes.values()}):
        told.update(usage_events.facts(uow, project))
    for key, node in records.nodes.items():
        fact = told.get(key)
        if fact is None:
            yield Violation(
                "I6", records.now, node.name, "its first usage event does not say what it is"
            )
        elif (fact.created_by, fact.labels[-1].labels) != (node.created_by, node.spec.labels):
            text = "its usage events name another creator, or other labels, than it has"
            yield Violation("I6", records.now, node.name, text)


def _ledger(uow: UnitOfWork, records: Records) -> Iterator[Violation]:
    for source_id, currency, rest in ledger.find_unbalanced(uow):
        text = f"its entries in {currency} sum to {rest} parts instead of zero"
        yield Violation("I6", records.now, source_id, text)


def _invoices(uow: UnitOfWork, records: Records, card: RateCard) -> Iterator[Violation]:
    for invoice in invoice_rows.of_all(uow):
        if hashlib.sha256(invoice.document).hexdigest() != invoice.sha256:
            yield Violation(
                "I6",
                records.now,
                invoice.number,
                "its document is not the one whose digest was kept",
            )
        try:
            is_reproduced = invoices.is_reproduced(uow, card, invoice)
        except PodyardError as error:
            if error.code is not Code.DATA_LOSS:
                raise
            yield Violation("I6", records.now, invoice.number, error.message)
            continue
        if not is_reproduced:
            text = "computed again from what it knew of, it or its records are others"
            yield Violation("I6", records.now, invoice.number, text)


def _amounts(
    uow: UnitOfWork, records: Records, card: RateCard, histories: Mapping[str, list[StateChange]]
) -> Iterator[Violation]:
    for bill in _bills(uow, records, card, histories):
        for line in bill.nodes:
            history = histories.get(line.resource_key)
            node = records.nodes.get(line.resource_key)
            if history is None or node is None:
                continue  # a node of the same name that has not changed
            ranges, free = seconds_of(history, node.usage_class, records.now)
            seconds = sum(map(len, ranges))
            if (line.seconds, line.waived_seconds) != (seconds, free):
                text = (
                    f"{line.seconds} s are billed and {line.waived_seconds} s free, instead of "
                    f"{seconds} s and {free} s"
                )
                yield Violation("I6", records.now, node.name, text)
            amount, held = amount_of(card, node, ranges)
            own = line.amount - line.host_amount
            if own != amount:
                text = f"{own.text(9)} are billed, instead of {amount.text(9)}"
                yield Violation("I6", records.now, node.name, text)
            if (held > 0) != (line.held_because is not None):
                text = (
                    f"{held} s have no price, and the bill says: "
                    f"{line.held_because or 'all of it has one'}"
                )
                yield Violation("I6", records.now, node.name, text)
            if line.host_sku_id is not None:
                hosts = hosts_amount(card, line.host_sku_id, node, _runs(history, records.now))
                if line.host_amount != hosts:
                    text = (
                        f"{line.host_amount.text(9)} are billed for its hosts, instead of "
                        f"{hosts.text(9)}"
                    )
                    yield Violation("I6", records.now, node.name, text)
        yield from check_sizes(records, card, bill)
        lines = (
            *(line.amount.parts for line in bill.nodes),
            *(line.amount.parts for line in bill.storage),
        )
        if bill.amount.parts != sum(lines) or bill.amount.parts < 0:
            text = f"the sum of the bill is {bill.amount.text(9)}, which its lines are not"
            yield Violation("I6", records.now, "bill", text)


def _bills(
    uow: UnitOfWork, records: Records, card: RateCard, histories: Mapping[str, list[StateChange]]
) -> Iterator[usages.ProjectUsage]:
    if not records.after_seq:
        for project in sorted(
            {node.project for node in records.nodes.values()} | set(records.stored.values())
        ):
            yield usages.usage(uow, card, PLATFORM, project)
        return
    keys: dict[str, list[str]] = {}
    for key, history in histories.items():
        keys.setdefault(history[0].project, []).append(key)
    for project, of_project in sorted(keys.items()):
        yield usages.usage(uow, card, PLATFORM, project, resource_keys=of_project)


def seconds_of(
    history: Sequence[StateChange], usage_class: str, now: PlatformTime
) -> tuple[list[range], int]:
    """(disjoint ranges of whole POSIX seconds in which the node was READY at any instant, seconds
    that are free)."""
    runs = _runs(history, now)
    free = 0
    if (
        runs
        and usage_class in _CAN_BE_FREE
        and runs[0][2] == "PREEMPTED"
        and runs[0][1] - runs[0][0] < _FREE_NANOS
    ):
        begin, end, _ = runs.pop(0)
        free = len(_touched_seconds(begin, end, 0))
    ranges: list[range] = []
    for begin, end, _ in runs:
        ranges.append(_touched_seconds(begin, end, ranges[-1].stop if ranges else 0))
    return ranges, free


def _runs(history: Sequence[StateChange], now: PlatformTime) -> list[tuple[int, int, str]]:
    """The times in which the node was READY, and the state after each; no state: it still is."""
    runs: list[tuple[int, int, str]] = []
    since: int | None = None
    for change in history:
        ready = change.to_state == "READY"
        if ready and since is None:
            since = change.at.nanos
        elif not ready and since is not None:
            if since < change.at.nanos:
                runs.append((since, change.at.nanos, change.to_state))
            since = None
    if since is not None:
        runs.append((since, now.nanos, ""))
    return runs


def hosts_amount(
    card: RateCard, sku_id: str, node: NodeRecord, runs: Sequence[tuple[int, int, str]]
) -> Amount:
    """Return what a VM for each host costs: at least a minute for each run that has ended, second
    by second of each change of price, and nothing before hosts are charged."""
    versions, hosts = card.skus[sku_id].versions, parse(node.accelerator_type).host_count
    total, known_until = Amount(), 0
    for begin, end, ended_by in runs:
        used = _touched_seconds(begin, end, known_until)
        known_until = used.stop
        charged = range(
            used.start, max(used.stop, used.start + _VM_SECONDS) if ended_by else used.stop
        )
        for place, version in enumerate(versions):
            first = version.effective_from.nanos // NANOS_PER_SECOND
            last = (
                versions[place + 1].effective_from.nanos // NANOS_PER_SECOND
                if versions[place + 1 :]
                else charged.stop
            )
            inside = max(0, min(charged.stop, last) - max(charged.start, first))
            total += Amount.of_hourly(version.nanos, inside * hosts)
    return total


def _touched_seconds(begin: int, end: int, after: int) -> range:
    """Whole seconds from `after` on that [begin, end) of nanoseconds touches."""
    if begin == end:
        return range(after, after)
    first = max(begin // NANOS_PER_SECOND, after)
    return range(first, max(first, (end + NANOS_PER_SECOND - 1) // NANOS_PER_SECOND))


def amount_of(card: RateCard, node: NodeRecord, ranges: Sequence[range]) -> tuple[Amount, int]:
    """(cost, seconds that have no price). Prices are per hour, from the version in force at each
    second."""
    held = sum(map(len, ranges))
    try:
        sku, quantity = card.sku_for(node.accelerator_type, region_of(node.zone), node.usage_class)
    except PodyardError:
        return Amount(), held
    total = Amount()
    starts = [version.effective_from.nanos // NANOS_PER_SECOND for version in sku.versions]
    for seconds in ranges:
        for version, begin, end in zip(
            sku.versions, starts, [*starts[1:], seconds.stop], strict=True
        ):
            inside = min(seconds.stop, end) - max(seconds.start, begin)
            if inside > 0:
                total += Amount.of_hourly(version.nanos, inside * quantity)
                held -= inside
    return total, held
