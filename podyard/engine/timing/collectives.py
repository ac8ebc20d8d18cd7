"""How the compiler sums over a slice, and how long that takes on its links.

The choice of family, colours, phases and ring sizes is learned from all-reduces that the TPU compiler (libtpu) compiled
for every slice shape, and equal on all of them. A colour is a share of the bytes that goes its own way round; a phase
is one dimension; a ring size counts devices (two cores per chip on v2 and v3). The time is not the compiler's, which
gives none: it is link bandwidth, hops and wrap-around.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from podyard.base.errors import invalid
from podyard.engine.collectives.torus import TorusPhase, colour_orders, phases_of
from podyard.hardware.accelerator_types import AcceleratorType, parse

# Source: jax-ml/scaling-book, tpus.md: about 1 us per hop of the inter-chip interconnect.
ICI_HOP_SECONDS = 1e-6
# Starting a collective and the barrier that ends it, both on the devices. Unverified: about ten hops' time.
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
    """`family`, `ring_sizes` as the compiler prints them: one brace per colour, one number per phase."""

    family: str
    colours: int
    phases: int
    ring_sizes: str
    seconds: float


def all_reduce_plan(accelerator_type: str, nbytes: int) -> AllReducePlan:
    """How `nbytes` per device are summed over all devices of a slice.

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
    if kind.generation.dimensions == 2 and kind.generation.cores_per_chip == 1 and min(dims) == 2:
        return _one_ring(kind.chip_count, nbytes)
    if kind.topology.twisted:
        ring = tuple(sorted(dims, reverse=True))
        one_direction = max(ring) <= _ONE_DIRECTION_RING and not short
        return ("UniDirectionNDRingStrategy", [ring] * 6) if one_direction else ("TwistedTorusND", [ring] * 3)
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


def _one_ring(chips: int, nbytes: int) -> tuple[str, list[tuple[int, ...]]]:
    if nbytes <= _SINGLE_PHASE_BYTES:
        return _NO_STRATEGY, [(chips,)]
    if nbytes < _TWO_DIRECTIONS_BYTES:
        return "StrategyRing", [(chips,)]
    return "UniDirection1DRingStrategy", [(chips,)] * 2


def _dimensions(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extents above one in the compiler's order: descending in the plane; of a box n x 2n x 2n the short one second."""
    dims = tuple(extent for extent in shape if extent > 1)
    if len(dims) == 2:
        return tuple(sorted(dims, reverse=True))
    if len(dims) == 3:
        low, middle, high = sorted(dims)
        return (high, low, high) if middle == high != low else (low, middle, high)
    return dims


def _with_cores(ring: tuple[int, ...], cores: int) -> tuple[int, ...]:
    return (ring[0] * cores, *ring[1:])


def all_reduce_bytes_per_chip(kind: AcceleratorType, nbytes: int) -> int:
    """What each chip sends: 2 (n - 1) / n of the array, once for all its cores."""
    return round(2 * nbytes * sum(phase.sent_share for colour in colours_of(kind) for phase in colour))


def all_reduce_seconds(kind: AcceleratorType, nbytes: int) -> float:
    """All links of a chip at once: each colour of the torus' schedule (`collectives.torus`) goes its own way with its
    share of the bytes, once to scatter sums and once to gather them."""
    if kind.chip_count == 1:
        return 0.0
    return COLLECTIVE_START_SECONDS + 2 * _one_way_seconds(kind, nbytes)


def all_gather_seconds(kind: AcceleratorType, nbytes: int) -> float:
    """Half of an all-reduce: `nbytes` is what every chip has at the end."""
    if kind.chip_count == 1:
        return 0.0
    return COLLECTIVE_START_SECONDS + _one_way_seconds(kind, nbytes)


def all_to_all_seconds(kind: AcceleratorType, nbytes: int) -> float:
    """Every chip sends an equal part of its `nbytes` to every other: bound by the links that cut the slice in two."""
    if kind.chip_count == 1:
        return 0.0
    pairs = zip(kind.topology.shape, kind.topology.wrap, strict=True)
    longest, wraps = max(pairs, key=lambda pair: pair[0])
    cut_links = kind.chip_count // longest * (2 if wraps else 1)
    across = nbytes * kind.chip_count / 4
    hops = sum(phase.steps for phase in colours_of(kind)[0])
    return (
        COLLECTIVE_START_SECONDS
        + across / (cut_links * kind.generation.ici_link_bytes_per_second)
        + hops * ICI_HOP_SECONDS
    )


def colours_of(kind: AcceleratorType) -> list[tuple[TorusPhase, ...]]:
    """The phases of each colour that scatter sums; they gather in reverse. Colours that go the same way, over the same
    links, are one with the share of both."""
    shape, wrap = kind.topology.shape, kind.topology.wrap
    orders = colour_orders(shape, wrap)
    return [phases_of(shape, wrap, order, count / len(orders)) for order, count in Counter(orders).items()]


def phase_seconds(kind: AcceleratorType, phase: TorusPhase, nbytes: int) -> float:
    """Of an all-reduce of `nbytes`. In a dimension that wraps round, both links of a chip carry half; in one that does
    not, the link at the end of the line carries all."""
    links = 2 if phase.wraps else 1
    sent = nbytes * phase.sent_share
    return sent / (kind.generation.ici_link_bytes_per_second * links) + phase.steps * ICI_HOP_SECONDS


def _one_way_seconds(kind: AcceleratorType, nbytes: int) -> float:
    """To scatter or to gather: the slowest colour."""
    return max(sum(phase_seconds(kind, phase, nbytes) for phase in colour) for colour in colours_of(kind))
