"""Commitments: what is paid for in advance, and what it covers (rule R11 of the billing reference).

A commitment is charged every second of its term up to `as_of`, used or not. In each of those
seconds it covers up to its quantity of the SKU's units, over all resources; commitments of one SKU
add up. They cover one after the other, by (start, id), and each of them resources in order of their
ids: so each resource's part is the same however the bill is computed, and it is known which
commitment has paid for it. The total depends on neither.
What is waived has no record, so it is never covered.

One that is paid upfront is charged once, in the first second of its term, for all units and seconds
of it; its other seconds have the price 0.

Covering is a sweep over the moments at which something changes, never over seconds. The resources
in use stand in order, those before a boundary are covered, and a change moves the boundary by as
many resources as it concerns.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.domain.invoice import Commitment
from podyard.domain.usage import UsageRecord

OWN = "commitment:"  # the SKU and the resource of a commitment's own charge: this and its id
PAYMENT = "/upfront-payment"  # what the SKU of its payment upfront has besides


def seconds_until(as_of: PlatformTime) -> int:
    """The end of the last second that time before `as_of` touches."""
    return -(-as_of.nanos // NANOS_PER_SECOND)


def in_order(commitments: Iterable[Commitment]) -> list[Commitment]:
    return sorted(commitments, key=lambda c: (c.start_second, c.commitment_id))


def term(commitment: Commitment, as_of: PlatformTime) -> range:
    """The seconds of the term that are charged at `as_of`."""
    return range(commitment.start_second, min(commitment.end_of_charges, seconds_until(as_of)))


def own_charges(commitments: Iterable[Commitment], as_of: PlatformTime) -> list[UsageRecord]:
    """Return what the commitments themselves cost, by (start, id); payments upfront before all else
    of their commitments."""
    charges = []
    for one in in_order(commitments):
        own, part = OWN + one.commitment_id, term(one, as_of)
        if part and one.upfront is not None:
            everything = one.quantity * (one.end_second - one.start_second)
            charges.append(
                UsageRecord(own, own + PAYMENT, one.unit, part.start, 1, everything, one.upfront)
            )
        if part:
            charges.append(
                UsageRecord(own, own, one.unit, part.start, len(part), one.quantity, one.price)
            )
    return charges


def is_payment(sku_id: str) -> bool:
    """Return whether a charge or a line is a payment upfront, by its SKU."""
    return sku_id.startswith(OWN) and sku_id.endswith(PAYMENT)


def cover(
    records: Sequence[UsageRecord], commitments: Iterable[Commitment], as_of: PlatformTime
) -> list[UsageRecord]:
    """The records with covered units taken off their quantity, and with whose they are, split where
    that changes.

    A piece that is covered whole stays, with quantity 0: its seconds were used.
    """
    of_sku: dict[str, list[Commitment]] = {}
    for commitment in in_order(commitments):
        of_sku.setdefault(commitment.sku_id, []).append(commitment)
    places: dict[str, list[int]] = {sku_id: [] for sku_id in of_sku}
    for index, record in enumerate(records):
        if record.sku_id in places:
            places[record.sku_id].append(index)
    pieces: dict[int, list[UsageRecord]] = {}
    for sku_id, found in of_sku.items():
        # Padding of one run may lie over the next one, so a resource can have two records of one
        # second.
        order = sorted(
            places[sku_id], key=lambda i: (records[i].resource_id, records[i].start_second, i)
        )
        rest = [(index, records[index]) for index in order]
        for commitment in found:
            rest = list(_cover_by(commitment, term(commitment, as_of), rest))
        for index, piece in rest:
            pieces.setdefault(index, []).append(piece)
    return [piece for index, record in enumerate(records) for piece in pieces.get(index, (record,))]


# the place of a record in the bill, and the record or a piece of it
_Ranked = tuple[int, UsageRecord]


def _cover_by(
    commitment: Commitment, seconds: range, ranked: Sequence[_Ranked]
) -> Iterator[_Ranked]:
    """Yield what one commitment covers of records in the order of covering."""

    def open_to_it(record: UsageRecord) -> bool:
        stop = record.start_second + record.seconds
        return record.quantity > 0 and record.start_second < seconds.stop and seconds.start < stop

    pieces = iter(
        _Sweep([record for _, record in ranked if open_to_it(record)]).run(
            seconds, commitment.quantity
        )
    )
    for place, record in ranked:
        covered = next(pieces) if open_to_it(record) else ()
        for part in _split(record, covered, commitment.commitment_id) if covered else (record,):
            yield place, part


class _Piece(NamedTuple):
    """`units` of a record are covered in `[start, stop)`; what no piece speaks of is not
    covered."""

    start: int
    stop: int
    units: int


def _split(
    record: UsageRecord, pieces: Sequence[_Piece], commitment_id: str
) -> Iterable[UsageRecord]:
    at, end = record.start_second, record.start_second + record.seconds
    for piece in (*pieces, _Piece(end, end, 0)):
        for start, stop, units in ((at, piece.start, 0), piece):
            if start < stop:
                yield UsageRecord(
                    resource_id=record.resource_id,
                    sku_id=record.sku_id,
                    unit=record.unit,
                    start_second=start,
                    seconds=stop - start,
                    quantity=record.quantity - units,
                    price=record.price,
                    estimated=record.estimated,
                    covered=(*record.covered, (commitment_id, units)) if units else record.covered,
                )
        at = piece.stop


class _Sweep:
    """The use that one commitment covers over time. A record's rank is its place in the order of
    covering."""

    def __init__(self, ranked: Sequence[UsageRecord]) -> None:
        self._ranked = ranked
        self._quantity = [record.quantity for record in ranked]
        self._units = [0] * len(ranked)  # that are covered now
        self._since = [0] * len(ranked)  # when that began
        self._pieces: list[list[_Piece]] = [[] for _ in ranked]
        # ranks in use, ascending; those before `_boundary` are covered whole
        self._active: list[int] = []
        self._boundary = 0
        self._before = 0  # units in use before the boundary
        self._capacity = 0

    def run(self, seconds: range, units: int) -> list[list[_Piece]]:
        """Covered pieces of each record, in order of time, by so many units in these seconds."""
        for second, changes in itertools.groupby(
            self._changes(seconds, units), key=lambda change: change[0]
        ):
            # Who is covered in part now may stand elsewhere afterwards.
            moved = self._active[self._boundary : self._boundary + 1]
            moved += self._apply(changes)
            self._move_boundary(moved)
            for rank in moved:
                self._settle(rank, second)
        return self._pieces

    def _changes(self, seconds: range, units: int) -> list[tuple[int, int, int]]:
        """(second, rank that comes or goes, change of capacity), in order of time; rank -1:
        capacity only."""
        found = [(seconds.start, -1, units), (seconds.stop, -1, -units)] if seconds else []
        for rank, record in enumerate(self._ranked):
            found += [
                (record.start_second, rank, 0),
                (record.start_second + record.seconds, rank, 0),
            ]
        return sorted(found)

    def _apply(self, changes: Iterable[tuple[int, int, int]]) -> list[int]:
        moved = []
        for _, rank, capacity in changes:
            self._capacity += capacity
            if rank >= 0:
                moved.append(rank)
                place = bisect.bisect_left(self._active, rank)
                gone = place < len(self._active) and self._active[place] == rank
                if gone:
                    del self._active[place]
                else:
                    self._active.insert(place, rank)
                if place < self._boundary:
                    self._boundary += -1 if gone else 1
                    self._before += -self._quantity[rank] if gone else self._quantity[rank]
        return moved

    def _move_boundary(self, moved: list[int]) -> None:
        """Puts it where capacity ends, and adds to `moved` every rank whose cover may have
        changed."""
        active, quantity = self._active, self._quantity
        moved += active[self._boundary : self._boundary + 1]
        while self._boundary and self._before > self._capacity:
            self._boundary -= 1
            self._before -= quantity[active[self._boundary]]
            moved.append(active[self._boundary])
        while (
            self._boundary < len(active)
            and self._before + quantity[active[self._boundary]] <= self._capacity
        ):
            self._before += quantity[active[self._boundary]]
            self._boundary += 1
            moved += active[self._boundary : self._boundary + 1]

    def _settle(self, rank: int, second: int) -> None:
        """Ends the rank's piece at this second if its cover changes now."""
        place = bisect.bisect_left(self._active, rank)
        units = 0
        if place < len(self._active) and self._active[place] == rank:
            whole, part = place < self._boundary, place == self._boundary
            units = self._quantity[rank] if whole else self._capacity - self._before if part else 0
        if units == self._units[rank]:
            return
        if self._units[rank] and self._since[rank] < second:
            self._pieces[rank].append(_Piece(self._since[rank], second, self._units[rank]))
        self._units[rank], self._since[rank] = units, second
