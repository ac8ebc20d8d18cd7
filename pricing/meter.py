"""From events to billed seconds: rules R1 to R5 and R10 of the billing reference, as one pure function.

R1  Billed seconds are the distinct whole UTC seconds in which the resource was billable at any instant.
R2  Billable are the policy's states only (READY for TPU). TPU has no minimum; a VM has one per run, once it has ended.
R3  A first READY period that ends in PREEMPTED before `preempt_free_seconds` is free, for preemptible and spot. A
    period of no length does not count as one.
R4  Order is by `seq`; a time before its predecessor's is clamped to it; a repeated state changes nothing; the same id
    with the same body is a duplicate, with another body it is quarantined and the first one wins.
R10 A resource still in use is billed up to `as_of`, and what that gives is marked as estimated.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.intervals import Interval, union_of_seconds
from podyard.domain.node import BILLABLE_NODE_STATES, INTERRUPTIBLE, UsageClass
from podyard.domain.usage import UsageEvent

VM_MINIMUM_SECONDS = 60  # of each run of a VM (R2)
PREEMPT_FREE_SECONDS = 60  # cloud.google.com/tpu/docs/preemptible; counted from READY (the reference's reading)


@dataclasses.dataclass(frozen=True, slots=True)
class MeterPolicy:
    """`preempt_free_seconds` 0: never free (on demand, reserved). `minimum_run_seconds` 0: no minimum."""

    billable_states: frozenset[str] = BILLABLE_NODE_STATES
    preempt_free_seconds: int = 0
    minimum_run_seconds: int = 0


def node_policy(usage_class: UsageClass) -> MeterPolicy:
    """The policy of a TPU node of this usage class."""
    can_be_preempted = usage_class in INTERRUPTIBLE
    return MeterPolicy(preempt_free_seconds=PREEMPT_FREE_SECONDS if can_be_preempted else 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Metered:
    """What one resource used up to `as_of`.

    `ranges` are disjoint, ascending ranges of billed POSIX seconds. `padding` are seconds that a minimum adds, priced
    as if they followed the run. `waived_seconds` were used and are free (R3): they are touched by a
    period of `waived_nanos`. `open_since`: the resource is billable
    since then and still was at `as_of`, so everything of that period is an estimate.
    """

    resource_id: str
    ranges: tuple[range, ...]
    padding: tuple[range, ...] = ()
    waived_seconds: int = 0
    waived_nanos: int = 0
    open_since: PlatformTime | None = None

    @property
    def seconds(self) -> int:
        return sum(map(len, self.ranges)) + sum(map(len, self.padding))

    def after(self, start: PlatformTime) -> Metered:
        """The same without the seconds before `start`, a whole second."""
        first = start.nanos // NANOS_PER_SECOND

        def cut(parts: Sequence[range]) -> tuple[range, ...]:
            return tuple(range(max(part.start, first), part.stop) for part in parts if part.stop > first)

        return dataclasses.replace(self, ranges=cut(self.ranges), padding=cut(self.padding))

    def within(self, spans: Sequence[range], as_of: PlatformTime) -> Metered:
        """The same as of the same moment, without the seconds that are not in these spans, which ascend."""

        def cut(parts: Sequence[range]) -> tuple[range, ...]:
            both = (range(max(a.start, b.start), min(a.stop, b.stop)) for a in parts for b in spans)
            return tuple(part for part in both if part)

        is_over = spans[-1].stop * NANOS_PER_SECOND <= as_of.nanos  # what was used before that is certain
        return dataclasses.replace(
            self,
            ranges=cut(self.ranges),
            padding=cut(self.padding),
            open_since=None if is_over else self.open_since,
        )

    @property
    def is_estimated(self) -> bool:
        return self.open_since is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Admitted:
    """Events per resource in order of `seq`, with clamped times; and the ids of events in conflict."""

    by_resource: Mapping[str, Sequence[UsageEvent]]
    quarantined: tuple[str, ...]


def admit(events: Iterable[UsageEvent]) -> Admitted:
    """R4. `events` come in order of arrival, which only matters between events in conflict: the first one wins."""
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
    """R4, for the events of one resource in order of `seq`: there is only something to do where times run backwards."""
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
    """A longest run of billable states, `[start, end)`; `ended_by` is the state after it, None while it is open."""

    interval: Interval
    ended_by: str | None


def meter_resource(resource_id: str, events: Sequence[UsageEvent], policy: MeterPolicy, as_of: PlatformTime) -> Metered:
    """Billed seconds of one resource up to `as_of`; `events` as `admit` orders them."""
    charged = _periods(events, policy, as_of)
    waived = nanos = 0
    first = next((period for period in charged if period.interval.start != period.interval.end), None)
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
    )


def _periods(events: Sequence[UsageEvent], policy: MeterPolicy, as_of: PlatformTime) -> list[_Period]:
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
    return first.ended_by == "PREEMPTED" and length_nanos < policy.preempt_free_seconds * NANOS_PER_SECOND


def _padding(periods: Sequence[_Period], policy: MeterPolicy) -> list[range]:
    """Seconds up to the minimum of each run that has ended. A second that two runs touch is the first one's, so that
    each run has at least the minimum."""
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
