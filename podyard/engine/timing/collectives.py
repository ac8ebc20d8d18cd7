"""How the compiler sums over a slice, and how long that takes on its links.

The choice of family, colours, phases and ring sizes is learned from all-reduces that the TPU
compiler (libtpu) compiled for every slice shape, and equal on all of them. A colour is a share of
the bytes that goes its own way round; a phase is one dimension; a ring size counts devices (two
cores per chip on v2 and v3). The time is not the compiler's, which gives none: it is link
bandwidth, hops and wrap-around.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

from podyard.base.errors import invalid
from podyard.engine.collectives.torus import TorusPhase, colour_orders, phases_of
from podyard.hardware.accelerator_types import AcceleratorType, parse
from podyard.hardware.places import place_of

# Source: jax-ml/scaling-book, tpus.md: about 1 us per hop of the inter-chip interconnect.
ICI_HOP_SECONDS = 1e-6
# Starting a collective and the barrier that ends it, both on the devices. Unverified: about ten
# hops' time.
COLLECTIVE_START_SECONDS = 10e-6
# Arrays up to this size are summed by the emitter for short ones, from v5e on.
SHORT_BYTES = 2 * 2**20
# Up to the first size, and below the second, slices that are one ring use simpler ways.
_SINGLE_PHASE_BYTES = 8 * 2**10
_TWO_DIRECTIONS_BYTES = 2**20
# Longer rings than this are run in both directions at once instead of one colour per direction.
_ONE_DIRECTION_RING = 8
_NO_STRATEGY = "SinglePhaseRingSum"


@dataclasses.dataclass(frozen=True, slots=True)
class AllReducePlan:
    """`family`, `ring_sizes` as the compiler prints them: one brace per colour, one number per
    phase."""

    family: str
    colours: int
    phases: int
    ring_sizes: str
    seconds: float


def all_reduce_plan(accelerator_type: str, nbytes: int) -> AllReducePlan:
    """Return how `nbytes` per device are summed over all devices of a slice.

    Raises PodyardError INVALID_ARGUMENT for a type that does not exist or a negative size.
    """
    if nbytes < 0:
        raise invalid(f"an array has no negative size, not {nbytes}", "nbytes")
    return plan_for(parse(accelerator_type), nbytes)


def plan_for(kind: AcceleratorType, nbytes: int) -> AllReducePlan:
    """`all_reduce_plan` also for a slice without a name."""
    family, rings = _strategy(kind, nbytes)
    text = ",".join("{" + " ".join(map(str, ring)) + "}" for ring in rings)
    phases = len(rings[0]) if rings else 0
    return AllReducePlan(family, len(rings), phases, text, all_reduce_seconds(kind, nbytes))


def _strategy(kind: AcceleratorType, nbytes: int) -> tuple[str, list[tuple[int, ...]]]:
    cores = kind.generation.devices_per_chip
    dims = _dimensions(kind.topology.shape)
    if not dims and cores == 1:
        return "None", []
    if not dims:
        return "UniDirection1DRingStrategy", [(cores,)] * 2
    short = kind.generation.has_short_all_reduce and nbytes <= SHORT_BYTES
    if is_one_ring(kind):
        return _one_ring(kind.chip_count, nbytes)
    if kind.topology.twisted:
        ring = tuple(sorted(dims, reverse=True))
        one_direction = max(ring) <= _ONE_DIRECTION_RING and not short
        return (
            ("UniDirectionNDRingStrategy", [ring] * 6)
            if one_direction
            else ("TwistedTorusND", [ring] * 3)
        )
    equal = len(set(dims)) == 1
    longest = max(dims) * cores
    if equal and longest <= _ONE_DIRECTION_RING and not short:
        return "UniDirectionNDRingStrategy", [_with_cores(dims, cores)] * (2 * len(dims))
    if short and not equal:
        # The equal extents first, and one colour less.
        ordered = tuple(sorted(dims, key=lambda extent: (-dims.count(extent), -extent)))
        return "StrategyND", [ordered] * (len(dims) - 1)
    if short or equal or max(dims) == 2 * min(dims):
        turns = [dims[index:] + dims[:index] for index in range(len(dims))]
        return "StrategyND", [_with_cores(turn, cores) for turn in turns]
    # Uneven boxes: one colour for each direction of two of the dimensions.
    return "UniDirectionNDRingStrategy", [_with_cores(dims, cores)] * 4


def is_one_ring(kind: AcceleratorType) -> bool:
    """Return whether the compiler takes all chips of a slice as one ring."""
    dims = _dimensions(kind.topology.shape)
    return (
        kind.generation.dimensions == 2
        and kind.generation.cores_per_chip == 1
        and min(dims, default=0) == 2
    )


def _one_ring(chips: int, nbytes: int) -> tuple[str, list[tuple[int, ...]]]:
    if nbytes <= _SINGLE_PHASE_BYTES:
        return _NO_STRATEGY, [(chips,)]
    if nbytes < _TWO_DIRECTIONS_BYTES:
        return "StrategyRing", [(chips,)]
    return "UniDirection1DRingStrategy", [(chips,)] * 2


def _dimensions(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extents above one in the compiler's order: descending in the plane; of a box n x 2n x 2n the
    short one second."""
    dims = tuple(extent for extent in shape if extent > 1)
    if len(dims) == 2:
        return tuple(sorted(dims, reverse=True))
    if len(dims) == 3:
        low, middle, high = sorted(dims)
        return (high, low, high) if middle == high != low else (low, middle, high)
    return dims


def _with_cores(ring: tuple[int, ...], cores: int) -> tuple[int, ...]:
    return (ring[0] * cores, *ring[1:])


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceGroup:
    """The devices of one group on the torus: `shape` and `wrap` of the chips that they take part
    on, in each dimension; `load`: groups that share the busiest link of a dimension; `copies`:
    groups that send from the same chip."""

    shape: tuple[int, ...]
    wrap: tuple[bool, ...]
    load: tuple[int, ...]
    copies: int = 1

    @property
    def chips(self) -> int:
        return math.prod(self.shape)


def whole_slice(kind: AcceleratorType) -> DeviceGroup:
    """All devices; the two cores of a chip send its bytes once."""
    return DeviceGroup(kind.topology.shape, kind.topology.wrap, (1,) * len(kind.topology.shape))


def group_of(kind: AcceleratorType, positions: Sequence[int]) -> DeviceGroup:
    """The group of the devices at these places of the slice's list; all others are groups like
    it."""
    places = [place_of(kind, position) for position in positions]
    if len(positions) == kind.device_count:
        return whole_slice(kind)
    shape, wrap, load = list[int](), list[bool](), list[int]()
    for dimension, extent in enumerate(kind.topology.shape):
        taken = sorted({place[dimension + 1] for place in places})
        count, span = len(taken), taken[-1] - taken[0]
        shape.append(count)
        wrap.append(kind.topology.wrap[dimension] and count == extent)
        load.append(
            max(1, math.ceil(extent / count * span / max(1, extent - 1))) if count < extent else 1
        )
    cores = len({place[0] for place in places})
    return DeviceGroup(
        tuple(shape), tuple(wrap), tuple(load), kind.generation.devices_per_chip // cores
    )


def all_reduce_bytes_per_chip(
    kind: AcceleratorType, nbytes: int, group: DeviceGroup | None = None
) -> int:
    """Return what each chip sends: 2 (n - 1) / n of the array, once for all its cores that are in
    the same group."""
    group = group or whole_slice(kind)
    return round(
        2 * nbytes * group.copies * sum(p.sent_share for colour in _colours(group) for p in colour)
    )


def all_reduce_seconds(
    kind: AcceleratorType, nbytes: int, group: DeviceGroup | None = None
) -> float:
    """All links of a chip at once: each colour of the torus' schedule (`collectives.torus`) goes
    its own way with its share of the bytes, once to scatter sums and once to gather them."""
    group = group or whole_slice(kind)
    if group.chips == 1:
        return 0.0
    return COLLECTIVE_START_SECONDS + 2 * _one_way_seconds(kind, nbytes, group)


def all_gather_seconds(
    kind: AcceleratorType, nbytes: int, group: DeviceGroup | None = None
) -> float:
    """Half of an all-reduce: `nbytes` is what every chip has at the end. A scatter of sums takes as
    long."""
    group = group or whole_slice(kind)
    if group.chips == 1:
        return 0.0
    return COLLECTIVE_START_SECONDS + _one_way_seconds(kind, nbytes, group)


def all_to_all_seconds(
    kind: AcceleratorType, nbytes: int, group: DeviceGroup | None = None
) -> float:
    """Every chip sends an equal part of its `nbytes` to every other: bound by the links that cut
    the group in two."""
    group = group or whole_slice(kind)
    if group.chips == 1:
        return 0.0
    longest, wraps, load = max(
        zip(group.shape, group.wrap, group.load, strict=True), key=lambda entry: entry[0]
    )
    cut_links = group.chips // longest * (2 if wraps else 1)
    across = nbytes * group.copies * group.chips / 4 * load
    hops = sum(phase.steps for phase in _colours(group)[0])
    return (
        COLLECTIVE_START_SECONDS
        + across / (cut_links * kind.generation.ici_link_bytes_per_second)
        + hops * ICI_HOP_SECONDS
    )


def permute_seconds(kind: AcceleratorType, nbytes: int, pairs: Sequence[tuple[int, int]]) -> float:
    """Every device sends `nbytes` to another, dimension by dimension: as long as the busiest link
    carries."""
    busy, far, shape = Counter[tuple[object, ...]](), 0, kind.topology.shape
    for source, target in pairs:
        here, there = place_of(kind, source), place_of(kind, target)
        at, hops = list(here[1:]), 0
        for dimension, extent in enumerate(shape):
            way = (there[dimension + 1] - at[dimension]) % extent
            if not kind.topology.wrap[dimension]:
                step = 1 if there[dimension + 1] > at[dimension] else -1
            else:
                step = 1 if way <= extent // 2 else -1
            while at[dimension] != there[dimension + 1]:
                busy[(*at, dimension, step)] += 1
                at[dimension] = (at[dimension] + step) % extent
                hops += 1
        far = max(far, hops)
    if not far:
        return 0.0
    most = max(busy.values())
    return (
        COLLECTIVE_START_SECONDS
        + nbytes * most / kind.generation.ici_link_bytes_per_second
        + far * ICI_HOP_SECONDS
    )


def colours_of(kind: AcceleratorType) -> list[tuple[TorusPhase, ...]]:
    """The phases of each colour that scatter sums; they gather in reverse. Colours that go the same
    way, over the same links, are one with the share of both."""
    return _colours(whole_slice(kind))


def _colours(group: DeviceGroup) -> list[tuple[TorusPhase, ...]]:
    orders = colour_orders(group.shape, group.wrap)
    return [
        phases_of(group.shape, group.wrap, order, count / len(orders))
        for order, count in Counter(orders).items()
    ]


def phase_seconds(kind: AcceleratorType, phase: TorusPhase, nbytes: int, load: int = 1) -> float:
    """Of an all-reduce of `nbytes`. In a dimension that wraps round, both links of a chip carry
    half; in one that does not, the link at the end of the line carries all. `load` groups share a
    link."""
    links = 2 if phase.wraps else 1
    sent = nbytes * phase.sent_share * load
    return (
        sent / (kind.generation.ici_link_bytes_per_second * links) + phase.steps * ICI_HOP_SECONDS
    )


def _one_way_seconds(kind: AcceleratorType, nbytes: int, group: DeviceGroup) -> float:
    """To scatter or to gather: the slowest colour."""
    sent = nbytes * group.copies
    return max(
        sum(phase_seconds(kind, phase, sent, group.load[phase.dimension]) for phase in colour)
        for colour in _colours(group)
    )
