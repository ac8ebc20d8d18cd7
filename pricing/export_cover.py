"""Which commitment paid for what was covered: an order of ours, since all commitments of a SKU cover together.

In each second commitments stand by (start, id) and what is covered by resource: the first covered units are those of
the first commitment. The bill does not depend on it (commitments.py); an export that names the commitment does.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from podyard.domain.invoice import Commitment
from podyard.domain.usage import UsageRecord
from podyard.pricing.commitments import in_order

_Place = tuple[str, int, int]  # resource, first second, index: the order in which charges are covered


class _Part(NamedTuple):
    start: int
    stop: int
    commitment: str
    units: int


class Cover:
    """What commitments cover of charges, once `prepare` has seen all of them. It knows them as objects: one resource
    can have two of the same second."""

    def __init__(self, commitments: Sequence[Commitment]) -> None:
        self._of_sku: dict[str, list[Commitment]] = {}
        for commitment in in_order(commitments):
            self._of_sku.setdefault(commitment.sku_id, []).append(commitment)
        self._parts: dict[int, list[_Part]] = {}

    def prepare(self, charges: Sequence[UsageRecord], quantities: Mapping[str, int]) -> None:
        """`quantities`: the units of each resource before anything was covered."""
        covered: dict[str, list[UsageRecord]] = {}
        for charge in charges:
            if charge.quantity < quantities.get(charge.resource_id, 0):
                covered.setdefault(charge.sku_id, []).append(charge)
        for sku_id, found in covered.items():
            commitments = self._of_sku[sku_id]
            edges = sorted({edge for c in commitments for edge in (c.start_second, c.end_second)})
            for start, stop in itertools.pairwise(edges):
                active = [c for c in commitments if c.start_second <= start and stop <= c.end_second]
                if active:
                    self._allocate(range(start, stop), active, found, quantities)

    def of(self, charge: UsageRecord, piece: range) -> Iterator[tuple[str, int]]:
        """(commitment, covered unit-seconds) within a piece of a charge."""
        for part in self._parts.get(id(charge), ()):
            seconds = min(part.stop, piece.stop) - max(part.start, piece.start)
            if seconds > 0:
                yield part.commitment, seconds * part.units

    def _allocate(
        self,
        span: range,
        active: Sequence[Commitment],
        found: Sequence[UsageRecord],
        quantities: Mapping[str, int],
    ) -> None:
        """One stretch of time in which the same commitments hold."""
        inside = [c for c in found if c.start_second < span.stop and c.start_second + c.seconds > span.start]
        if len(active) == 1:
            for charge in inside:
                units = quantities[charge.resource_id] - charge.quantity
                stop = min(span.stop, charge.start_second + charge.seconds)
                self._put(charge, _Part(max(span.start, charge.start_second), stop, active[0].commitment_id, units))
            return
        changes: dict[int, list[_Place]] = {}
        for index, charge in enumerate(inside):
            for moment in (max(charge.start_second, span.start), min(charge.start_second + charge.seconds, span.stop)):
                changes.setdefault(moment, []).append((charge.resource_id, charge.start_second, index))
        now: list[_Place] = []
        for start, stop in itertools.pairwise(sorted(changes)):
            for place in changes[start]:
                _toggle(now, place)
            self._fill(start, stop, active, [inside[index] for _, _, index in now], quantities)

    def _fill(
        self,
        start: int,
        stop: int,
        active: Sequence[Commitment],
        now: Sequence[UsageRecord],
        quantities: Mapping[str, int],
    ) -> None:
        """Hands out the units of the commitments, one after the other, to what is covered, in order of resources."""
        place, left = 0, active[0].quantity
        for charge in now:
            wanted = quantities[charge.resource_id] - charge.quantity
            while wanted:
                taken = min(wanted, left)
                if taken:
                    self._put(charge, _Part(start, stop, active[place].commitment_id, taken))
                wanted, left = wanted - taken, left - taken
                if wanted:
                    place += 1
                    left = active[place].quantity

    def _put(self, charge: UsageRecord, part: _Part) -> None:
        self._parts.setdefault(id(charge), []).append(part)


def _toggle(now: list[_Place], place: _Place) -> None:
    """A charge begins, or the one that has begun ends."""
    at = bisect.bisect_left(now, place)
    if at < len(now) and now[at] == place:
        del now[at]
    else:
        now.insert(at, place)
