"""From events to billed seconds: rules R1 to R5 and R10 of the billing reference, as one pure
function.

R1  Billed seconds are the distinct whole UTC seconds in which the resource was billable at any
instant.
R2  Billable are the policy's states only (READY for TPU). TPU has no minimum; a VM has one per run,
once it has ended. R3  A first READY period that ends in PREEMPTED before `preempt_free_seconds` is
free, for preemptible and spot. A
    period of no length does not count as one.
R4  Order is by `seq`; a time before its predecessor's is clamped to it; a repeated state changes
nothing; the same id
    with the same body is a duplicate, with another body it is quarantined and the first one wins.
R10 A resource still in use is billed up to `as_of`, and what that gives is marked as estimated.

What is billed by its size (disks, buckets) has whole GiB in each second: those of the largest size
that it had in it. What is left over is added up, byte by second, for each UTC day, and charged in
the day's last second in which the resource was there, rounded up to a whole GiB-second. Nothing of
it depends on when it is computed: what a day leaves over is charged once the day, or the resource,
is over.

Operations are charged in the second of their event, from the moment on that follows it.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.intervals import Interval, union_of_seconds
from podyard.domain.node import BILLABLE_NODE_STATES, INTERRUPTIBLE, UsageClass
from podyard.domain.usage import EXISTS, GIB, UsageEvent

VM_MINIMUM_SECONDS = 60  # of each run of a VM (R2)
DAY_SECONDS = 86_400
# cloud.google.com/tpu/docs/preemptible; counted from READY (the reference's reading)
PREEMPT_FREE_SECONDS = 60


@dataclasses.dataclass(frozen=True, slots=True)
class MeterPolicy:
    """`preempt_free_seconds` 0: never free (on demand, reserved). `minimum_run_seconds` 0: no
    minimum. `sized`: the bytes of the events are billed. `counted`: their operations are."""

    billable_states: frozenset[str] = BILLABLE_NODE_STATES
    preempt_free_seconds: int = 0
    minimum_run_seconds: int = 0
    sized: bool = False
    counted: bool = False


SIZED = MeterPolicy(billable_states=frozenset({EXISTS}), sized=True)
COUNTED = MeterPolicy(billable_states=frozenset(), counted=True)


def node_policy(usage_class: UsageClass) -> MeterPolicy:
    """The policy of a TPU node of this usage class."""
    can_be_preempted = usage_class in INTERRUPTIBLE
    return MeterPolicy(preempt_free_seconds=PREEMPT_FREE_SECONDS if can_be_preempted else 0)


Part = tuple[range, int]  # POSIX seconds, and how many units the resource has in each of them


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """GiB, or operations, by the second. `settled`: before the last size; `last`: of the last one,
    up to `as_of`. `open`: that size, if the resource is still there: from which second on, its
    bytes, and the byte-seconds that its day has left over before."""

    settled: tuple[Part, ...]
    last: tuple[Part, ...] = ()
    open: tuple[int, int, int] | None = None

    def until(self, as_of: PlatformTime) -> Sizes:
        """The same if the last size stayed until then."""
        if self.open is None:
            return self
        start, size, rest = self.open
        last = [(range(start, -(-as_of.nanos // NANOS_PER_SECOND)), size)]
        parts, _ = _in_gib(last, rest, as_of.nanos // NANOS_PER_SECOND)
        return dataclasses.replace(self, last=tuple(parts))

    def within(self, spans: Sequence[range]) -> Sizes:
        def cut(parts: Sequence[Part]) -> tuple[Part, ...]:
            both = (
                (range(max(a.start, b.start), min(a.stop, b.stop)), units)
                for a, units in parts
                for b in spans
            )
            return tuple((part, units) for part, units in both if part)

        return dataclasses.replace(self, settled=cut(self.settled), last=cut(self.last))


@dataclasses.dataclass(frozen=True, slots=True)
class Metered:
    """The use of one resource up to `as_of`.

    `ranges` are disjoint, ascending ranges of billed POSIX seconds. `padding` are seconds that a
    minimum adds, priced as if they followed the run. `waived_seconds` were used and are free (R3):
    they are touched by a
    period of `waived_nanos`. `open_since`: the resource is billable
    since then and still was at `as_of`, so everything of that period is an estimate. `sizes`: of
    what is billed by its size, or by operations.
    """

    resource_id: str
    ranges: tuple[range, ...]
    padding: tuple[range, ...] = ()
    waived_seconds: int = 0
    waived_nanos: int = 0
    open_since: PlatformTime | None = None
    sizes: Sizes | None = None

    @property
    def seconds(self) -> int:
        return sum(map(len, self.ranges)) + sum(map(len, self.padding))

    def parts(self, quantity: int) -> Iterator[Part]:
        """Yield what is charged; `quantity`: the units of what has no size."""
        if self.sizes is not None:
            yield from self.sizes.settled
            yield from self.sizes.last
            return
        for seconds in (*self.ranges, *self.padding):
            yield seconds, quantity

    def after(self, start: PlatformTime) -> Metered:
        """The same without the seconds before `start`, a whole second."""
        first = start.nanos // NANOS_PER_SECOND

        def cut(parts: Sequence[range]) -> tuple[range, ...]:
            return tuple(
                range(max(part.start, first), part.stop) for part in parts if part.stop > first
            )

        sizes = None if self.sizes is None else self.sizes.within([range(first, sys.maxsize)])
        return dataclasses.replace(
            self, ranges=cut(self.ranges), padding=cut(self.padding), sizes=sizes
        )

    def within(self, spans: Sequence[range], as_of: PlatformTime) -> Metered:
        """The same as of the same moment, without the seconds that are not in these spans, which
        ascend."""

        def cut(parts: Sequence[range]) -> tuple[range, ...]:
            both = (range(max(a.start, b.start), min(a.stop, b.stop)) for a in parts for b in spans)
            return tuple(part for part in both if part)

        # what was used before that is certain
        is_over = spans[-1].stop * NANOS_PER_SECOND <= as_of.nanos
        return dataclasses.replace(
            self,
            ranges=cut(self.ranges),
            padding=cut(self.padding),
            open_since=None if is_over else self.open_since,
            sizes=None if self.sizes is None else self.sizes.within(spans),
        )

    @property
    def is_estimated(self) -> bool:
        return self.open_since is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Admitted:
    """Events per resource in order of `seq`, with clamped times; and the ids of events in
    conflict."""

    by_resource: Mapping[str, Sequence[UsageEvent]]
    quarantined: tuple[str, ...]


def admit(events: Iterable[UsageEvent]) -> Admitted:
    """R4. `events` come in order of arrival, which only matters between events in conflict: the
    first one wins."""
    by_id: dict[str, UsageEvent] = {}
    by_place: dict[tuple[str, int], UsageEvent] = {}
    quarantined: dict[str, None] = {}  # in order of arrival
    for event in events:
        place = (event.resource_id, event.seq)
        known = by_id.get(event.event_id) or by_place.get(place)
        if known is None:
            by_id[event.event_id] = by_place[place] = event
        elif known != event:
            quarantined[event.event_id] = None
    grouped: dict[str, list[UsageEvent]] = {}
    for event in sorted(by_id.values(), key=lambda e: (e.resource_id, e.seq)):
        grouped.setdefault(event.resource_id, []).append(event)
    return Admitted({key: clamp(found) for key, found in grouped.items()}, tuple(quarantined))


def clamp(events: Sequence[UsageEvent]) -> Sequence[UsageEvent]:
    """R4, for the events of one resource in order of `seq`: there is only something to do where
    times run backwards."""
    if all(a.at.nanos <= b.at.nanos for a, b in itertools.pairwise(events)):
        return events
    clamped: list[UsageEvent] = []
    latest: PlatformTime | None = None
    for event in events:
        if latest is not None and event.at.nanos < latest.nanos:
            event = dataclasses.replace(event, at=latest)
        latest = event.at
        clamped.append(event)
    return clamped


@dataclasses.dataclass(frozen=True, slots=True)
class _Period:
    """A longest run of billable states, `[start, end)`; `ended_by` is the state after it, None
    while it is open."""

    interval: Interval
    ended_by: str | None


def meter_resource(
    resource_id: str, events: Sequence[UsageEvent], policy: MeterPolicy, as_of: PlatformTime
) -> Metered:
    """Billed seconds of one resource up to `as_of`; `events` as `admit` orders them."""
    if policy.counted:
        parts = tuple(_operations(events, as_of))
        return Metered(resource_id, tuple(seconds for seconds, _ in parts), sizes=Sizes(parts))
    charged = _periods(events, policy, as_of)
    waived = nanos = 0
    first = next(
        (period for period in charged if period.interval.start != period.interval.end), None
    )
    if first is not None and _is_free(first, policy):
        waived = len(first.interval.touched_seconds())
        nanos = first.interval.end.nanos_since(first.interval.start)
        charged.remove(first)
    last = charged[-1] if charged else None
    return Metered(
        resource_id=resource_id,
        ranges=tuple(union_of_seconds(period.interval.touched_seconds() for period in charged)),
        padding=tuple(_padding(charged, policy)) if policy.minimum_run_seconds else (),
        waived_seconds=waived,
        waived_nanos=nanos,
        open_since=last.interval.start if last is not None and last.ended_by is None else None,
        sizes=_sizes(events, policy, as_of) if policy.sized else None,
    )


def _periods(
    events: Sequence[UsageEvent], policy: MeterPolicy, as_of: PlatformTime
) -> list[_Period]:
    periods: list[_Period] = []
    start: PlatformTime | None = None
    for event in events:
        if event.at.nanos > as_of.nanos:
            break
        billable = event.state in policy.billable_states
        if billable and start is None:
            start = event.at
        elif not billable and start is not None:
            periods.append(_Period(Interval(start, event.at), event.state))
            start = None
    if start is not None:
        periods.append(_Period(Interval(start, as_of), None))
    return periods


def _is_free(first: _Period, policy: MeterPolicy) -> bool:
    length_nanos = first.interval.end.nanos_since(first.interval.start)
    return (
        first.ended_by == "PREEMPTED"
        and length_nanos < policy.preempt_free_seconds * NANOS_PER_SECOND
    )


def _padding(periods: Sequence[_Period], policy: MeterPolicy) -> list[range]:
    """Seconds up to the minimum of each run that has ended. A second that two runs touch is the
    first one's, so that each run has at least the minimum."""
    padding = []
    before = range(0)
    for period in periods:
        touched = period.interval.touched_seconds()
        if not touched:
            continue
        missing = policy.minimum_run_seconds - len(touched) + (touched.start in before)
        if period.ended_by is not None and missing > 0:
            padding.append(range(touched.stop, touched.stop + missing))
        before = touched
    return padding


def _operations(events: Sequence[UsageEvent], as_of: PlatformTime) -> Iterator[Part]:
    """Operations by the second."""
    until = -(-as_of.nanos // NANOS_PER_SECOND)
    known = (
        event for event in events if event.operations and event.at.nanos < until * NANOS_PER_SECOND
    )
    for second, found in itertools.groupby(
        known, key=lambda event: event.at.nanos // NANOS_PER_SECOND
    ):
        yield range(second, second + 1), sum(event.operations for event in found)


def _sizes(events: Sequence[UsageEvent], policy: MeterPolicy, as_of: PlatformTime) -> Sizes:
    """GiB by the second: those of the largest size that the resource had in it, and what each UTC
    day has left over."""
    known = [event for event in events if event.at.nanos <= as_of.nanos]
    runs: list[Part] = []
    for event, after in itertools.pairwise(known):
        seconds = Interval(event.at, after.at).touched_seconds()
        if event.state in policy.billable_states and seconds:
            start = _begin_run(runs, seconds.start, event.bytes)
            _add_part(runs, range(start, seconds.stop), event.bytes)
    last = known[-1] if known else None
    if last is None or last.state not in policy.billable_states:
        parts, _ = _in_gib(runs, 0, sys.maxsize)
        return Sizes(tuple(parts))
    start = _begin_run(runs, last.at.nanos // NANOS_PER_SECOND, last.bytes)
    settled, rest = _in_gib(runs, 0, start)
    return Sizes(tuple(settled), open=(start, last.bytes, rest)).until(as_of)


def _begin_run(runs: list[Part], start: int, size: int) -> int:
    """The first second of a size. It may touch the last second of the one before: the larger one
    has that."""
    if not runs or runs[-1][0].stop <= start:
        return start
    before, other = runs[-1]
    if other > size:
        return before.stop
    runs[-1] = range(before.start, start), other
    if not runs[-1][0]:
        runs.pop()
    return start


def _in_gib(runs: Sequence[Part], rest: int, until: int) -> tuple[list[Part], int]:
    """Runs of bytes as parts of whole GiB; `rest`: byte-seconds that the first run's day has left
    over before. A day that is not over at second `until`, or is in use by the next run, keeps its
    rest, which is returned."""
    parts: list[Part] = []
    for place, (seconds, size) in enumerate(runs):
        whole, odd = divmod(size, GIB)
        at = seconds.start
        while at < seconds.stop:
            day_ends = at - at % DAY_SECONDS + DAY_SECONDS
            stop = min(seconds.stop, day_ends) if odd or rest else seconds.stop
            rest += odd * (stop - at)
            later = place + 1 < len(runs) and runs[place + 1][0].start < day_ends
            is_last = until >= day_ends and (stop >= day_ends or not later)
            charged = -(-rest // GIB) if is_last else 0
            if whole:
                _add_part(parts, range(at, stop - bool(charged)), whole)
            if charged:
                _add_part(parts, range(stop - 1, stop), whole + charged)
            rest = 0 if is_last else rest
            at = stop
    return parts, rest


def _add_part(parts: list[Part], seconds: range, units: int) -> None:
    if not seconds:
        return
    if parts and parts[-1] == (range(parts[-1][0].start, seconds.start), units):
        seconds = range(parts.pop()[0].start, seconds.stop)
    parts.append((seconds, units))
