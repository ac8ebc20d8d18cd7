"""All-reduce on a torus: colours that each take a share of the vector their own way round, in
phases of one dimension.

A colour visits the dimensions in its own order: it scatters sums along its first one, then along
the next one within the part that is left, and gathers back in reverse. Along a dimension of k chips
that wraps round, sums come to each owner from both sides at once, so that k // 2 steps are enough;
along one that does not, they come along the line, which takes k - 1. Either way a chip sends (k -
1) / k of what it has.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from podyard.base.errors import invalid
from podyard.engine.collectives.schedule import CollectiveKind, Move, Op, Schedule


@dataclasses.dataclass(frozen=True, slots=True)
class TorusPhase:
    """Sums along `extent` chips: `share` of the vector is what every chip has of it before the
    phase."""

    dimension: int
    extent: int
    wraps: bool
    share: float

    @property
    def steps(self) -> int:
        """Hops of the longest way."""
        return self.extent // 2 if self.wraps else self.extent - 1

    @property
    def sent_share(self) -> float:
        """Of the vector, what a chip sends on average."""
        return self.share * (self.extent - 1) / self.extent


def phases_of(
    shape: Sequence[int], wrap: Sequence[bool], order: Sequence[int], share: float
) -> tuple[TorusPhase, ...]:
    """The phases of one colour that scatters along the dimensions in `order`; those of one chip
    have none."""
    phases = []
    for dimension in order:
        if shape[dimension] > 1:
            phases.append(TorusPhase(dimension, shape[dimension], wrap[dimension], share))
            share /= shape[dimension]
    return tuple(phases)


def colour_orders(shape: Sequence[int], wrap: Sequence[bool]) -> list[tuple[int, ...]]:
    """One order of the dimensions per colour. Each dimension of more than one chip is first once,
    and twice where it wraps round, because there both links of a chip carry a share."""
    dimensions = [dimension for dimension, extent in enumerate(shape) if extent > 1]
    orders: list[tuple[int, ...]] = []
    for turn, first in enumerate(dimensions):
        orders += [tuple(dimensions[turn:] + dimensions[:turn])] * (2 if wrap[first] else 1)
    return orders or [()]


def torus_all_reduce(shape: Sequence[int], wrap: Sequence[bool]) -> Schedule:
    """An all-reduce on a torus of `shape`, a rank per chip in row-major order, see `colour_orders`.

    Every colour's share is cut into as many chunks as there are chips. Source: the multi-phase,
    multi-colour rings that the TPU compiler names; the steps are ours. Raises PodyardError
    INVALID_ARGUMENT for a shape without chips.
    """
    if not shape or min(shape) < 1 or len(shape) != len(wrap):
        raise invalid(f"{tuple(shape)} is not a shape of a torus with {len(wrap)} dimensions")
    chips = math.prod(shape)
    orders = colour_orders(shape, wrap)
    # Of two colours of one order, the second is the mirror image: where a dimension has an even
    # extent, one way round is longer, and each link must carry as much as the other.
    twins = [index > 0 and orders[index - 1] == order for index, order in enumerate(orders)]
    colours = [
        _colour(shape, wrap, order, index * chips, is_mirrored)
        for index, (order, is_mirrored) in enumerate(zip(orders, twins, strict=True))
    ]
    steps = itertools.zip_longest(*colours, fillvalue=())
    return Schedule(
        CollectiveKind.ALL_REDUCE,
        chips,
        chips * len(orders),
        tuple(tuple(itertools.chain(*step)) for step in steps),
    )


def _colour(
    shape: Sequence[int], wrap: Sequence[bool], order: Sequence[int], base: int, is_mirrored: bool
) -> list[tuple[Move, ...]]:
    """The steps of one colour, whose chunks begin at `base` and are numbered in the order of its
    dimensions, so that what a phase sends is one range."""
    forward: list[tuple[Move, ...]] = []
    phases = phases_of(shape, wrap, order, 1.0)
    size = math.prod(shape)
    starts = dict.fromkeys(itertools.product(*map(range, shape)), base)
    for phase in phases:
        size //= phase.extent
        for step in range(phase.steps):
            moves: list[Move] = []
            for coordinates, start in starts.items():
                for owner, towards in _sends(
                    phase, coordinates[phase.dimension], step, is_mirrored
                ):
                    receiver = _move(coordinates, phase.dimension, towards)
                    first = start + owner * size
                    moves.append(
                        Move(
                            _rank(shape, coordinates),
                            _rank(shape, receiver),
                            first,
                            first + size,
                            Op.ADD,
                            first,
                        )
                    )
            forward.append(tuple(moves))
        starts = {where: start + where[phase.dimension] * size for where, start in starts.items()}
    back = [
        tuple(
            Move(move.receiver, move.sender, move.first, move.stop, Op.COPY, move.into)
            for move in step
        )
        for step in reversed(forward)
    ]
    return forward + back


def _sends(
    phase: TorusPhase, position: int, step: int, is_mirrored: bool
) -> Iterator[tuple[int, int]]:
    """(owner of the part that is sent, position that it is sent to), for the chip at `position`.

    A part comes to its owner from both sides; the farthest chips of a side begin, so that all of it
    arrives in the last step. A chip `far` hops away sends when `far` more steps are left.
    """
    far = phase.steps - step
    if phase.wraps:
        up, down = phase.extent // 2, (phase.extent - 1) // 2
        ahead = -1 if is_mirrored else 1
        if far <= up:
            yield (position + ahead * far) % phase.extent, (position + ahead) % phase.extent
        if far <= down:
            yield (position - ahead * far) % phase.extent, (position - ahead) % phase.extent
        return
    if position + far < phase.extent:
        yield position + far, position + 1
    if position - far >= 0:
        yield position - far, position - 1


def _move(coordinates: tuple[int, ...], dimension: int, position: int) -> tuple[int, ...]:
    return (*coordinates[:dimension], position, *coordinates[dimension + 1 :])


def _rank(shape: Sequence[int], coordinates: Sequence[int]) -> int:
    rank = 0
    for extent, position in zip(shape, coordinates, strict=True):
        rank = rank * extent + position
    return rank
