"""Resharding of an array: the collectives, in their order, that XLA's SPMD partitioner makes.

Source: openxla/xla, xla/service/spmd/spmd_partitioner.cc (PartitionedHlo::ReshardNoCache): a
permutation where the parts are as large, an all-to-all where axes change their dimension, slices
where a part of a part is wanted, an all-gather for the rest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal

from podyard.engine.program.factors import Rule
from podyard.engine.program.propagation import dimension_axes
from podyard.engine.program.shardings import Axes, Mesh

Dims = tuple[Axes, ...]
FactorAxes = dict[int, Axes]
StepKind = Literal["all_gather", "all_to_all", "collective_permute", "dynamic_slice"]


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """One step to `dims`; `axes`: along which devices exchange; `dimension` is gathered, or split
    by an all-to-all."""

    kind: StepKind
    dims: Dims
    axes: Axes
    dimension: int


def moves(mesh: Mesh, start: Sequence[Axes], end: Sequence[Axes]) -> list[Transfer]:
    now, wanted, found = list(start), tuple(end), list[Transfer]()

    def step(kind: StepKind, axes: Axes, dimension: int, **changes: Axes) -> None:
        for place, own in changes.items():
            now[int(place[1:])] = own
        found.append(Transfer(kind, tuple(now), axes, dimension))

    if tuple(now) != wanted and all(
        mesh.extent(a) == mesh.extent(b) for a, b in zip(now, wanted, strict=True)
    ):
        return [Transfer("collective_permute", wanted, _differing(now, wanted), 0)]
    if _replace_axes(mesh, now, wanted, step):
        return found
    _slice(now, wanted, step)
    kept_axes = {axis for axes in wanted for axis in axes}
    for dimension, axes in enumerate(wanted):  # what is split along nothing any more, and hinders
        kept = _common(now[dimension], axes)
        if (
            len(kept) < len(now[dimension])
            and kept_axes.isdisjoint(now[dimension][len(kept) :])
            and len(axes) > len(kept)
        ):
            step("all_gather", now[dimension][len(kept) :], dimension, **{f"d{dimension}": kept})
    _exchange_all(now, wanted, step)
    _exchange_as_many(mesh, now, wanted, step)
    if tuple(now) == wanted:
        return found
    _slice(now, wanted, step)
    for dimension, axes in enumerate(wanted):
        kept = _common(now[dimension], axes)
        if len(kept) < len(now[dimension]):
            step("all_gather", now[dimension][len(kept) :], dimension, **{f"d{dimension}": kept})
    _slice(now, wanted, step)
    return found


def _replace_axes(mesh: Mesh, now: list[Axes], wanted: Dims, step: Callable[..., None]) -> bool:
    """Replace the axes of the one dimension that differs; return True if nothing is left."""
    odd = [place for place, (a, b) in enumerate(zip(now, wanted, strict=True)) if a != b]
    if len(odd) == 1 and now[odd[0]] and set(now[odd[0]]).isdisjoint(wanted[odd[0]]):
        place = odd[0]
        has, axes = now[place], wanted[place]
        more = mesh.extent(has) // max(1, mesh.extent(axes))
        fill = has[: next((n for n in range(len(has)) if mesh.extent(has[:n]) == more), 0)]
        if axes and fill and mesh.extent(has) == more * mesh.extent(axes):
            step("collective_permute", (*has, *axes), place, **{f"d{place}": axes + fill})
        less = mesh.extent(axes) // mesh.extent(has)
        fill = axes[: next((n for n in range(len(axes)) if mesh.extent(axes[:n]) == less), 0)]
        if axes and fill and mesh.extent(axes) == less * mesh.extent(has):
            step("dynamic_slice", (), place, **{f"d{place}": has + fill})
            step("collective_permute", (*has, *axes), place, **{f"d{place}": axes})
            return True
    return False


def _exchange_all(now: list[Axes], wanted: Dims, step: Callable[..., None]) -> None:
    """Add the all-to-alls of axes that change their dimension."""
    for target, axes in enumerate(wanted):
        extra = axes[len(now[target]) :]
        if axes[: len(now[target])] != now[target] or not extra:
            continue
        for source, own in enumerate(now):
            kept = own[: len(own) - len(extra)]
            if (
                source != target
                and own[len(kept) :] == extra
                and wanted[source][: len(kept)] == kept
            ):
                step("all_to_all", extra, target, **{f"d{source}": kept, f"d{target}": axes})
                break
    for target in range(len(wanted)):
        for source in range(len(now)):
            if source != target:
                _exchange(now, wanted, source, target, step)


def _exchange(
    now: list[Axes], wanted: Dims, source: int, target: int, step: Callable[..., None]
) -> None:
    """Add an all-to-all of axes that are not the minor ones of their dimension, before or after:
    devices change places around it (GetReshardAllToAllSourceTargetDims)."""
    moved = tuple(axis for axis in now[source] if axis in wanted[target])
    rest = tuple(axis for axis in now[source] if axis not in moved)
    there = (*now[target], *moved)
    if not moved or rest != wanted[source][: len(rest)] or set(there) != set(wanted[target]):
        return
    if (*rest, *moved) != now[source]:
        step("collective_permute", now[source], source, **{f"d{source}": (*rest, *moved)})
    step("all_to_all", moved, target, **{f"d{source}": rest, f"d{target}": there})
    if there != wanted[target]:
        step("collective_permute", there, target, **{f"d{target}": wanted[target]})


def _exchange_as_many(mesh: Mesh, now: list[Axes], wanted: Dims, step: Callable[..., None]) -> None:
    """Add the all-to-all between a dimension that is split too often and one that is split too
    rarely by the same factor, whatever the axes; devices change places after it
    (GetReshardAllToAllSourceTargetDims, then a permutation where all parts are as large)."""
    has, wants = [mesh.extent(axes) for axes in now], [mesh.extent(axes) for axes in wanted]
    odd = [d for d in range(len(has)) if has[d] != wants[d]]
    if len(odd) != 2 or has[odd[0]] * has[odd[1]] != wants[odd[0]] * wants[odd[1]]:
        return
    source, target = sorted(odd, key=lambda d: wants[d] > has[d])
    own = now[source]
    place = next((n for n in range(len(own)) if mesh.extent(own[:n]) == wants[source]), None)
    if place is None:
        return
    moved = own[place:]
    step(
        "all_to_all",
        moved,
        target,
        **{f"d{source}": own[:place], f"d{target}": now[target] + moved},
    )
    if tuple(now) != wanted:
        changes = {f"d{d}": axes for d, axes in enumerate(wanted)}
        step("collective_permute", _differing(now, wanted), target, **changes)


def _slice(now: list[Axes], wanted: Dims, step: object) -> None:
    for dimension, axes in enumerate(wanted):
        used = {axis for own in now for axis in own}
        extra = axes[len(now[dimension]) :]
        if (
            extra
            and axes[: len(now[dimension])] == now[dimension]
            and used.isdisjoint(extra)
            and callable(step)
        ):
            step("dynamic_slice", (), dimension, **{f"d{dimension}": axes})


def _common(one: Axes, other: Axes) -> Axes:
    length = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    return one[:length]


def loses_split(
    mesh: Mesh, rule: Rule, dims: Dims, of_result: FactorAxes, of_operand: FactorAxes
) -> bool:
    """Return True where the operand of a reshape, split along `dims`, would be made whole for the
    sharding of the result, and need not be for its own."""
    needs = (
        [dimension_axes(mesh, factors, rule.sizes, axes) for factors in rule.tensors[tensor]]
        for tensor, axes in ((0, of_result), (1, of_operand))
    )
    whole, split, own = (math.prod(map(mesh.extent, one)) for one in (*needs, dims))
    return whole < split == own


def shared_axes(splits: Sequence[Axes]) -> Axes:
    """Return the shortest of several splits, if all others go on from it; else none: sides that are
    split along others have nothing in common."""
    shortest = min(splits, key=len)
    return shortest if all(one[: len(shortest)] == shortest for one in splits) else ()


def _differing(now: Sequence[Axes], wanted: Sequence[Axes]) -> Axes:
    axes = [axis for a, b in zip(now, wanted, strict=True) if a != b for axis in (*a, *b)]
    return tuple(sorted(set(axes)))
