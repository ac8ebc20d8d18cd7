"""The chips of a host that a process uses, by the variables that libtpu reads.

A host's environment has the values of its type. A value that differs is the caller's, and is
obeyed: programs that share a host set one of two names for each (the first is libtpu's own, the
second is that of older releases, which Ray sets). Where only the visible chips are named, the
bounds follow from their number, as PyTorch/XLA documents it (pytorch/xla#3704).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from podyard.hardware.accelerator_types import AcceleratorType

Bounds = tuple[int, int, int]

PROCESS_BOUNDS = ("TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS")
CHIP_BOUNDS = ("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS")
VISIBLE_CHIPS = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")
TASK = "CLOUD_TPU_TASK_ID"
# By the number of visible chips: what Ray sets (python/ray/_private/accelerators/tpu.py), and the
# shapes of whole hosts.
_BOUNDS_OF_COUNT: Mapping[int, Bounds] = {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}


def process_bounds(environ: Mapping[str, str], kind: AcceleratorType) -> tuple[Bounds, Bounds]:
    """Return the processes of the slice and the chips of each, as x, y, z.

    Raises ValueError for bounds that are not three numbers, chips that the host does not have, and
    a number of visible chips that the bounds do not have.
    """
    processes = _bounds(_value(environ, PROCESS_BOUNDS, kind.host_bounds))
    text = _value(environ, CHIP_BOUNDS, kind.chips_per_host_bounds)
    chips = _bounds(text)
    visible = _visible_chips(environ, kind, max(kind.chips_per_host, math.prod(chips)))
    if visible is None or len(visible) == math.prod(chips):
        return processes, chips
    shape = (*kind.topology.shape, 1)[:3]
    # of the type, or of a process that has the whole slice
    is_default = text == kind.chips_per_host_bounds or chips == shape
    if not is_default or len(visible) not in _BOUNDS_OF_COUNT:
        raise ValueError(
            f"{VISIBLE_CHIPS[0]} names {len(visible)} chips, and {CHIP_BOUNDS[0]}={text} has "
            f"{math.prod(chips)}: set both to the same number of chips"
        )
    return processes, _BOUNDS_OF_COUNT[len(visible)]


def caller_bounds(environ: Mapping[str, str], host_kind: AcceleratorType | None) -> dict[str, str]:
    """Return the variables of `environ` with which a caller chooses chips, by libtpu's names.
    `host_kind`: the type whose host has set the environment, if one has: its values are not the
    caller's."""
    defaults = {PROCESS_BOUNDS: "", CHIP_BOUNDS: "", VISIBLE_CHIPS: ""}
    if host_kind is not None:
        defaults = {
            PROCESS_BOUNDS: host_kind.host_bounds,
            CHIP_BOUNDS: host_kind.chips_per_host_bounds,
            VISIBLE_CHIPS: _all_chips(host_kind),
        }
    values = {names[0]: _value(environ, names, default) for names, default in defaults.items()}
    chosen = {
        names[0]: values[names[0]]
        for names, default in defaults.items()
        if values[names[0]] != default
    }
    # processes of one host that form a slice are told apart by it
    if PROCESS_BOUNDS[0] in chosen and TASK in environ:
        chosen[TASK] = environ[TASK]
    return chosen


def _value(environ: Mapping[str, str], names: Sequence[str], default: str) -> str:
    """Return the first value that differs from the default: a variable that a host sets for all its
    programs does not hide the other name of it."""
    values = (environ.get(name) or default for name in names)
    return next((value for value in values if value != default), default)


def _visible_chips(
    environ: Mapping[str, str], kind: AcceleratorType, count: int
) -> list[int] | None:
    """Return the chips that are named, or None for all `count` of the host."""
    text = _value(environ, VISIBLE_CHIPS, _all_chips(kind))
    if text == _all_chips(kind):
        return None
    numbers = [part.strip() for part in text.split(",")]
    valid = all(part.isdecimal() and int(part) < count for part in numbers)
    if not valid or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{VISIBLE_CHIPS[0]}={text} is not a list of chips of a host of {kind.name}: use "
            f"different numbers from {','.join(map(str, range(count)))}"
        )
    return [int(part) for part in numbers]


def _all_chips(kind: AcceleratorType) -> str:
    return ",".join(map(str, range(kind.chips_per_host)))


def _bounds(text: str) -> Bounds:
    """A fourth number counts the cores of a chip (PyTorch/XLA on TPU7x): it changes nothing."""
    values = [int(part) for part in text.split(",")]
    if len(values) not in (3, 4) or min(values) < 1:
        raise ValueError(f"{text!r} are no bounds of a TPU: three numbers as in 2,2,1")
    return values[0], values[1], values[2]
