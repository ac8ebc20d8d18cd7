"""What programs have run on a host: modules, and what each would take on the slice."""

from __future__ import annotations

import dataclasses

MODULES_KEPT_MAX = 10  # of one host: those that take the most on the slice


@dataclasses.dataclass(frozen=True, slots=True)
class RanModule:
    """A module that JAX compiled there. `seconds` of one run on the slice, None where it is not
    priced (`note` says
    why, or what is not modelled); `wall_seconds` from one run's end to the next on this machine.
    `mfu`,
    `hfu`: model and hardware FLOPs utilization, 0 to 1."""

    name: str
    runs: int
    seconds: float | None
    wall_seconds: float | None
    mfu: float
    fits: bool
    verdict: str
    note: str
    hfu: float = 0.0
