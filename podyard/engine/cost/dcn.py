"""The time of collectives over several slices, which the data-centre network joins.

Each chip has a share of its host's network. A collective goes through a slice by its links, and
between slices in parts: a sum is scattered in the slice, each chip sums its part with the chips at
the same place of the other slices, and the slice gathers the parts (hierarchical all-reduce, as
libtpu's MegaScale does it).
"""

from __future__ import annotations

from collections.abc import Sequence

from podyard.hardware.accelerator_types import AcceleratorType

# One way through the hosts and switches. A rough figure: no measured one was found.
DCN_START_SECONDS = 100e-6


def in_first_slice(positions: Sequence[int], devices: int) -> tuple[list[int], int]:
    """Return the places of a group's devices in one slice of `devices`, and how many slices it
    spans. Devices are listed slice by slice."""
    slices = {position // devices for position in positions}
    first = min(slices, default=0)
    own = [position % devices for position in positions if position // devices == first]
    return own, max(1, len(slices))


def dcn_seconds(
    collective: str, nbytes: int, chips: int, slices: int, kind: AcceleratorType
) -> float:
    """Return what a collective of `nbytes` takes between `slices` slices with `chips` chips of its
    group each. `nbytes`: as for the links of a slice, the whole that each chip has at the end (of
    an all-gather or all-reduce) or at the beginning."""
    rate = kind.generation.dcn_bytes_per_second
    if slices == 1 or not rate:
        return 0.0
    share = {
        "all-reduce": 2 * (slices - 1) / slices / chips,
        "all-gather": (slices - 1) / slices / chips,
        "reduce-scatter": (slices - 1) / slices / chips,
        "all-to-all": (slices - 1) / slices,
    }.get(collective, 1.0)
    return DCN_START_SECONDS + nbytes * share / rate
