"""Whose seconds they were: rule R12 of the billing reference.

A second of a resource belongs to the first job that touches it, else it is idle. So the parts of
all jobs and the idle part sum to what the resource costs, exactly, whatever prices, months and
commitments did meanwhile.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import invalid
from podyard.base.intervals import Interval
from podyard.base.money import Amount
from podyard.domain.invoice import JobSpan
from podyard.domain.usage import UsageRecord
from podyard.pricing.amounts import parts_per_second

IDLE = "idle"


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """Billed seconds of one resource, and what they cost net of what commitments cover."""

    seconds: int
    amount: Amount

    def __add__(self, other: Share) -> Share:
        return Share(self.seconds + other.seconds, self.amount + other.amount)


@dataclasses.dataclass(frozen=True, slots=True)
class Owned:
    seconds: range
    job_id: str


def attribute(
    charges: Iterable[UsageRecord], spans: Iterable[JobSpan], as_of: PlatformTime
) -> Mapping[str, Mapping[str, Share]]:
    """Shares by resource, then by job (idle last, where there is any). A span without an end lasts
    until `as_of`.

    Raises INVALID_ARGUMENT for a span that ends before it starts.
    """
    by_resource: dict[str, list[JobSpan]] = {}
    for span in spans:
        by_resource.setdefault(span.resource_id, []).append(span)
    owners = {resource_id: ownership(found, as_of) for resource_id, found in by_resource.items()}
    sums: dict[str, dict[str, list[int]]] = {}
    for charge in charges:
        of_resource = sums.setdefault(charge.resource_id, {})
        rate = parts_per_second(charge)
        for job_id, seconds in _parts(charge, owners.get(charge.resource_id, ())):
            found = of_resource.setdefault(job_id, [0, 0])
            found[0] += seconds
            found[1] += seconds * rate
    return {
        resource_id: {
            job_id: Share(found[job_id][0], Amount(found[job_id][1]))
            for job_id in sorted(found, key=lambda job_id: (job_id == IDLE, job_id))
        }
        for resource_id, found in sorted(sums.items())
    }


def ownership(spans: Sequence[JobSpan], as_of: PlatformTime) -> list[Owned]:
    """Disjoint ascending ranges of one resource's seconds, each with the job that touched them
    first (the earliest start; of two that start together, the lower id)."""
    found: list[Owned] = []
    taken_until = None
    for span in sorted(spans, key=lambda s: (s.start.nanos, s.job_id)):
        end = max(as_of, span.start) if span.end is None else span.end
        if end < span.start:
            raise invalid(f"job {span.job_id} ends on {span.resource_id} before it starts", "jobs")
        touched = Interval(span.start, end).touched_seconds()
        # Spans come by their start, so whatever an earlier one has beyond this start lies in one
        # piece.
        start = touched.start if taken_until is None else max(touched.start, taken_until)
        if start < touched.stop:
            found.append(Owned(range(start, touched.stop), span.job_id))
            taken_until = touched.stop
    return found


def _parts(charge: UsageRecord, owners: Sequence[Owned]) -> Iterator[tuple[str, int]]:
    at, stop = charge.start_second, charge.start_second + charge.seconds
    index = bisect.bisect_right(owners, at, key=lambda o: o.seconds.stop)
    while at < stop:
        owner = owners[index] if index < len(owners) else None
        if owner is None or owner.seconds.start >= stop:
            yield IDLE, stop - at
            return
        if at < owner.seconds.start:
            yield IDLE, owner.seconds.start - at
        end = min(stop, owner.seconds.stop)
        yield owner.job_id, end - max(at, owner.seconds.start)
        at, index = end, index + 1
