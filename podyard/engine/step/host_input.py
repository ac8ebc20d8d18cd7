"""Host input: arguments that a program hands over as new host arrays at each step (infeed), and the
time to send them.

A module does not say where its arguments come from: parameters that were trained a step ago lie on
the devices, and so do those of a decoder. So an argument is host input only where the program was
seen to hand over a new host array at each step, or where a user names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from podyard.base.errors import invalid
from podyard.hardware.accelerator_types import AcceleratorType

# The argument of a recipe's step that the host sends at each step: a batch of examples that it has
# read and augmented.
HOST_INPUT = ("batch",)
# From the memory of a host to all its chips. Unverified: about what one PCIe 3.0 x8 link per chip
# pair carries.
HOST_FEED_BYTES_PER_SECOND = 8e9
# Arguments that an error lists: a model has thousands.
_NAMES_SHOWN = 8
# Where the path to a leaf goes on behind the name of a tree: `batch['image']`, `state.params`.
_PATH_STEP = re.compile(r"[\[.]")


def feed_seconds(kind: AcceleratorType, device_bytes: float) -> float:
    """Return the time in seconds that a host of `kind` takes to send `device_bytes` to each of its
    devices.

    Hosts send at the same time, and a step waits only for the part that is longer than the devices'
    work.
    """
    return device_bytes * kind.device_count / kind.host_count / HOST_FEED_BYTES_PER_SECOND


def arguments_named(asked: Iterable[str | int], names: Sequence[Sequence[str]]) -> frozenset[int]:
    """Return the indexes of the arguments that `asked` names.

    `names`: for each argument, all its names, the index among them. A name of a tree (`batch`)
    stands for all of its leaves. Raises PodyardError INVALID_ARGUMENT for a name that no argument
    has.
    """
    chosen: set[int] = set()
    for one in map(str, asked):
        matches = {
            place for place, own in enumerate(names) if any(_covers(one, name) for name in own)
        }
        if not matches:
            raise invalid(
                f"infeed {one!r} names no argument of the program, which has {_listing(names)};"
                " use the index or the name of an argument",
                "infeed",
            )
        chosen |= matches
    return frozenset(chosen)


def _covers(asked: str, name: str) -> bool:
    return name == asked or (
        name.startswith(asked) and _PATH_STEP.match(name, len(asked)) is not None
    )


def _listing(names: Sequence[Sequence[str]]) -> str:
    if not names:
        return "no arguments"
    shown = ", ".join("=".join(own) for own in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
