"""Slices of whole cubes in a pod with optical switches: any free cubes form one, so only their
number counts.

Slices below a cube never leave it, in either kind of pod (podyard.scheduler.scoring).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from podyard.hardware.torus import chips_of


def lowest_cubes(whole: int, count: int) -> int | None:
    """The `count` lowest of the free cubes; None when there are fewer."""
    if whole.bit_count() < count:
        return None
    # The shortest low part that holds so many, by halving.
    low, high = count, whole.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (whole & ((1 << middle) - 1)).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return whole & ((1 << low) - 1)


def cheapest_cubes(
    usable: int, holders: Sequence[tuple[int, int]], count: int
) -> tuple[int, int] | None:
    """`count` of the `usable` cubes, and who must go for them, as a bit set of positions in
    `holders`; None when there are too few cubes.

    A holder is (the cubes that it is in, what its going costs); a cube is free when all of its
    holders are gone. Exact when each holder is in one cube. Else greedy: again and again those go
    that together free cubes at the lowest cost for each cube, and in the end each, dearest first,
    stays after all when the cubes suffice without its going. Exact would be a knapsack with shared
    parts. A round frees a cube, so there are at most as many as cubes.
    """
    if usable.bit_count() < count:
        return None
    owners = {cube: _owners(holders, cube) for cube in chips_of(usable)}
    gone = 0
    while (missing := count - len(_free(owners, gone))) > 0:
        groups = dict.fromkeys(group for owned in owners.values() if (group := owned & ~gone))
        gone |= min(groups, key=lambda group: _price(holders, owners, gone, group, missing))
    for position in sorted(chips_of(gone), key=lambda i: (-holders[i][1], i)):
        if len(_free(owners, gone & ~(1 << position))) >= count:
            gone &= ~(1 << position)
    # Nobody in `gone` can stay, so whichever cubes are taken, each of them is in one.
    return sum(1 << cube for cube in _free(owners, gone)[:count]), gone


def _owners(holders: Sequence[tuple[int, int]], cube: int) -> int:
    return sum(1 << position for position, (cubes, _) in enumerate(holders) if cubes >> cube & 1)


def _free(owners: dict[int, int], gone: int) -> list[int]:
    return [cube for cube, owned in owners.items() if not owned & ~gone]


def _price(
    holders: Sequence[tuple[int, int]], owners: dict[int, int], gone: int, group: int, missing: int
) -> tuple[Fraction, int]:
    """Return what one cube costs when `group` goes too, counting only cubes that are still missing;
    then the lowest group."""
    gained = sum(1 for owned in owners.values() if owned & ~gone and not owned & ~(gone | group))
    return Fraction(
        sum(holders[position][1] for position in chips_of(group)), min(gained, missing)
    ), group
