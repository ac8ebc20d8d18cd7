"""I6 of storage: the usage events of a bucket or disk say what its row does, and the bill counts
its bytes, here added up day by day from the events alone, and each operation once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from podyard.base.clock import NANOS_PER_SECOND
from podyard.control.billing import usages
from podyard.control.checks.fsck_violation import Violation
from podyard.db.billing import usage_events
from podyard.db.compute import disks
from podyard.db.storage import storage
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.views.fsck import Records
from podyard.domain.usage import EXISTS, GIB, BilledKind, UsageEvent
from podyard.pricing.sku import RateCard

_DAY_SECONDS = 86_400


def check_storage(uow: UnitOfWork, records: Records) -> Iterator[Violation]:
    """Buckets and disks as their rows, their objects and their usage events have them."""
    histories = _histories(records)
    facts = {}
    for project in sorted(set(records.stored.values())):
        facts.update(usage_events.facts(uow, project))
    for bucket, number, size in storage.all_buckets(uow):
        if (bucket.objects, bucket.bytes) != (number, size):
            text = (
                f"its row counts {bucket.objects} objects of {bucket.bytes} bytes, and it has "
                f"{number} of {size}"
            )
            yield Violation("I6", records.now, bucket.name, text)
        events = histories.pop(bucket.usage_key, [])
        last = (events[-1].state, events[-1].seq, events[-1].bytes) if events else None
        if last != (EXISTS, bucket.usage_version, bucket.bytes):
            text = (
                f"its usage events end with {last}, and it has {bucket.bytes} bytes after "
                f"{bucket.usage_version}"
            )
            yield Violation("I6", records.now, bucket.name, text)
        fact = facts.get(bucket.usage_key)
        if fact is None or (fact.created_by, fact.labels[-1].labels) != (
            bucket.created_by,
            bucket.labels,
        ):
            text = "its usage events name another creator, or other labels, than it has"
            yield Violation("I6", records.now, bucket.name, text)
    for disk in disks.list_all(uow):
        events = histories.pop(disk.disk_key, [])
        last = (events[-1].state, events[-1].seq, events[-1].bytes) if events else None
        if last != (EXISTS, disk.usage_version, disk.size_gb * GIB):
            text = (
                f"its usage events end with {last}, and it has {disk.size_gb} GB after "
                f"{disk.usage_version}"
            )
            yield Violation("I6", records.now, disk.path, text)
        fact = facts.get(disk.disk_key)
        if fact is None or (fact.created_by, fact.labels[-1].labels) != (
            disk.created_by,
            disk.labels,
        ):
            text = "its usage events name another creator, or other labels, than it has"
            yield Violation("I6", records.now, disk.path, text)
    for key, events in sorted(histories.items()):
        if events[-1].state == EXISTS:
            yield Violation(
                "I6", records.now, key, "its usage events do not end, and there is no such resource"
            )
    for key, events in sorted(_histories(records).items()):
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            yield Violation("I6", records.now, key, "its usage events have gaps")


def check_sizes(records: Records, card: RateCard, bill: usages.ProjectUsage) -> Iterator[Violation]:
    """The GiB-seconds of a bill, those without a price included."""
    histories = _histories(records)
    for line in bill.storage:
        since = card.charge_start(line.kind)
        if since is None or line.resource_key not in histories:
            continue
        events = histories[line.resource_key]
        if line.kind is BilledKind.OPERATION:
            until = -(-records.now.nanos // NANOS_PER_SECOND) * NANOS_PER_SECOND
            # none runs backwards (R4)
            times = itertools.accumulate((event.at.nanos for event in events), max)
            done = sum(
                event.operations
                for event, at in zip(events, times, strict=True)
                if since.nanos <= at < until
            )
            if line.operations != done:
                text = f"{line.operations} operations are billed, instead of {done}"
                yield Violation("I6", records.now, line.name, text)
            continue
        counted = gib_seconds(events, since.nanos, records.now.nanos)
        if line.gib_seconds != counted:
            text = f"{line.gib_seconds} GiB-seconds are billed, instead of {counted}"
            yield Violation("I6", records.now, line.name, text)


def _histories(records: Records) -> dict[str, list[UsageEvent]]:
    found: dict[str, list[UsageEvent]] = {}
    for event in records.usage:
        if event.resource_id in records.stored:
            found.setdefault(event.resource_id, []).append(event)
    return {key: sorted(events, key=lambda event: event.seq) for key, events in found.items()}


def gib_seconds(events: Sequence[UsageEvent], since: int, now: int) -> int:
    """Whole GiB by the second, and of each day that is over what is left of its bytes, rounded
    up."""
    days, is_there = _byte_seconds(events, since, now)
    whole = sum(gib for gib, _ in days.values())
    for day, (_, odd) in days.items():
        if not is_there or now >= (day + 1) * _DAY_SECONDS * NANOS_PER_SECOND:
            whole += -(-odd // GIB)
    return whole


def _byte_seconds(
    events: Sequence[UsageEvent], since: int, now: int
) -> tuple[Mapping[int, tuple[int, int]], bool]:
    """By UTC day (GiB-seconds of whole GiB, byte-seconds of the rest), and whether the resource is
    still there."""
    size, at, is_there = 0, since, False
    inside: Counter[int] = Counter()  # of seconds that hold an event: the largest size
    gib: Counter[int] = Counter()
    odd: Counter[int] = Counter()

    def count(second: int, seconds: int, held: int) -> None:
        gib[second // _DAY_SECONDS] += held // GIB * seconds
        odd[second // _DAY_SECONDS] += held % GIB * seconds

    for moment, then, there in [
        *((max(e.at.nanos, since), e.bytes, e.state == EXISTS) for e in events),
        (now, 0, False),
    ]:
        moment = max(at, min(moment, now))
        if moment > at and is_there:
            first, last = at // NANOS_PER_SECOND, (moment - 1) // NANOS_PER_SECOND
            for second in {first, last}:
                inside[second] = max(inside[second], size)
            second = first + 1
            while second < last:
                stop = min(last, second // _DAY_SECONDS * _DAY_SECONDS + _DAY_SECONDS)
                count(second, stop - second, size)
                second = stop
        size, at, is_there = then, moment, there
    for second, held in inside.items():
        count(second, 1, held)
    known = [event for event in events if event.at.nanos <= now]
    return {day: (gib[day], odd[day]) for day in gib.keys() | odd.keys()}, bool(known) and known[
        -1
    ].state == EXISTS
