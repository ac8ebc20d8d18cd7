"""Watts per generation, the energy of a run, and performance per watt.

Of a generation whose power between idle and busy is not published, no energy is given:
`energy_joules` says None and `power_note` says why. Hosts, network and cooling are in none of these
numbers.
"""

from __future__ import annotations

import dataclasses

from podyard.base.errors import invalid, not_found
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.generation import Power
from podyard.hardware.generations import GENERATIONS


def power_of(generation: str) -> Power:
    """Raises PodyardError NOT_FOUND for a generation that does not exist."""
    if generation not in GENERATIONS:
        raise not_found(f"TPU generation {generation}")
    return GENERATIONS[generation].power


def energy_joules(generation: str, chips: int, seconds: float, busy_share: float) -> float | None:
    """chips x seconds x (idle + (busy - idle) x busy_share): a straight line from the least to the
    most that a chip was seen to draw. None where one of the two is not published.

    `busy_share`: of the time, what the chip works, 0 to 1. Raises PodyardError INVALID_ARGUMENT for
    a share outside that, for less than one chip and for negative time; NOT_FOUND for an unknown
    generation.
    """
    power = power_of(generation)
    if chips < 1:
        raise invalid(f"energy is that of at least one chip, not {chips}", "chips")
    if not 0 <= seconds < float("inf"):
        raise invalid(f"a run takes no time or some, not {seconds} s", "seconds")
    if not 0 <= busy_share <= 1:
        raise invalid(f"the busy share is 0 to 1, not {busy_share}", "busy_share")
    if power.idle is None or power.busy is None:
        return None
    return chips * seconds * (power.idle + (power.busy - power.idle) * busy_share)


def device_joules(
    kind: AcceleratorType, devices: int, seconds: float, busy_share: float
) -> float | None:
    """`energy_joules` of a slice, an equal share for each of its devices."""
    joules = energy_joules(kind.generation.name, kind.chip_count, seconds, busy_share)
    return None if joules is None else joules / devices


def power_note(generation: str) -> str:
    """The note of a report about the energy of `generation`. Raises PodyardError NOT_FOUND."""
    power = power_of(generation)
    if power.idle is None or power.busy is None:
        return (
            f"no energy for {generation}: its power between idle and busy is not published "
            f"({power.source})"
        )
    checked = "" if power.verified else " (unverified)"
    return (
        f"{generation}: {power.idle:g} W idle to {power.busy:g} W busy per chip{checked}; "
        f"{power.source}"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PeakEfficiency:
    """Peak operations per second and watt of one chip, at the most that it draws: what it could do,
    not what it does. `operations` is bf16 or int8. `verified` is that of the watts."""

    generation: str
    operations: str
    ops_per_second_per_watt: float
    verified: bool


def efficiencies() -> tuple[PeakEfficiency, ...]:
    """A row per generation whose busy power is known, oldest first; int8 for v1, which has nothing
    else, else bf16."""
    rows = []
    for name, generation in GENERATIONS.items():
        power = generation.power
        if power.busy is None:
            continue
        bf16, int8 = generation.peak_bf16_flops_per_second, generation.peak_int8_ops_per_second
        operations, peak = ("bf16", bf16) if bf16 or int8 is None else ("int8", int8)
        rows.append(PeakEfficiency(name, operations, peak / power.busy, power.verified))
    return tuple(rows)


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """Published: how many times the second system's value the first one reaches, from `low` to
    `high`."""

    system: str
    against: str
    what: str
    low: float
    high: float
    source: str
    verified: bool


_V1_ABSTRACT = "abstract of arXiv 1704.04760"
# The abstract gives one range for the GPU and the CPU together. The speeds of the single
# applications, from which the ranges could be computed, were found in no text that can be checked.
_BOTH = "; one range for CPU and GPU together"
_CPU, _GPU = "Intel Haswell E5-2699 v3 server", "Nvidia K80"
_MODELS = "; the CPU's model number from memory"

COMPARISONS: tuple[Comparison, ...] = (
    Comparison("TPU v1", _CPU, "speed", 15, 30, _V1_ABSTRACT + _BOTH + _MODELS, True),
    Comparison("TPU v1", _GPU, "speed", 15, 30, _V1_ABSTRACT + _BOTH, True),
    Comparison(
        "TPU v1", _CPU, "performance per watt", 30, 80, _V1_ABSTRACT + _BOTH + _MODELS, True
    ),
    Comparison("TPU v1", _GPU, "performance per watt", 30, 80, _V1_ABSTRACT + _BOTH, True),
    Comparison(
        "TPU v1 with GDDR5", _CPU, "performance per watt", 200, 200, _V1_ABSTRACT + _MODELS, True
    ),
    Comparison(
        "TPU v1 with GDDR5",
        _GPU,
        "performance per watt",
        70,
        70,
        _V1_ABSTRACT + ": nearly 70",
        True,
    ),
    Comparison("TPU v1 with GDDR5", "TPU v1", "speed", 3, 3, _V1_ABSTRACT + ": would triple", True),
    Comparison(
        "TPU v4", "TPU v3", "speed", 2.1, 2.1, "ISCA 2023, as told by a secondary source", False
    ),
    Comparison(
        "TPU v4",
        "TPU v3",
        "performance per watt",
        2.7,
        2.7,
        "ISCA 2023, as told by a secondary source",
        False,
    ),
)
