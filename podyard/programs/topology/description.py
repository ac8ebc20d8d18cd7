"""The slice that `jax.experimental.topologies.get_topology_desc` is asked for: its name and its
options, as callers of libtpu spell them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from podyard.base.errors import PodyardError
from podyard.hardware.accelerator_types import AcceleratorType, from_topology, parse
from podyard.hardware.generations import GENERATIONS
from podyard.hardware.process_bounds import Bounds
from podyard.programs.slice import Slice

# XLA's client has a thread for each device; a pod of v5p has 8,960 chips.
DEVICES_MAX = 10_000
_NAME = re.compile(r"([a-z0-9]+):(\d+(?:x\d+)*)", re.IGNORECASE)
_OPTIONS = ("num_slices", "chips_per_host_bounds", "chip_config_name", "wrap")


def kind_of_topology(name: str) -> AcceleratorType:
    """Return the type of a topology's name: `v5e:4x4` or `v5p:2x2x1`, or an accelerator type such
    as `v5p-128`. Raises ValueError for one that does not exist."""
    # libtpu marks twisted tori, whose devices are the same
    match = _NAME.fullmatch(name.removesuffix("_twisted"))
    generation, _, number = name.partition("-")
    prefixes = {one.name: one for one in GENERATIONS.values() if one.shapes}
    for one in tuple(prefixes.values()):
        # libtpu's word for v5p is v5, as in its device kind
        short = one.device_kind.removeprefix("TPU ").replace(" ", "")
        prefixes |= {one.name_prefix: one, short: one}
    known = prefixes.get(match[1].lower() if match is not None else generation)
    if known is None or not known.shapes:
        names = ", ".join(one.name for one in GENERATIONS.values() if one.shapes)
        raise ValueError(
            f"unknown topology {name!r}: use a generation and a shape as in v5e:4x4 or v5p:2x2x1; "
            f"generations are {names}"
        )
    try:
        if match is None:
            return parse(f"{known.name_prefix}-{number}")
        shape = match[2].split("x")
        if known.dimensions == 2 and shape[2:] == ["1"]:
            shape = shape[:2]
        shape += ["1"] * (known.dimensions - len(shape))
        return from_topology(known, "x".join(shape))
    except PodyardError as error:
        raise ValueError(f"unknown topology {name!r}: {error.message}") from error


def slice_of_topology(kind: AcceleratorType, **options: object) -> Slice:
    """Return the slice of a topology. Raises ValueError for options that libtpu does not have, and
    values that the slice cannot have."""
    if unknown := [name for name in options if name not in _OPTIONS]:
        raise ValueError(f"unknown option {unknown[0]!r} of a topology: use {', '.join(_OPTIONS)}")
    slices = options.get("num_slices")
    count = 1 if slices is None else int(str(slices))
    most = DEVICES_MAX // kind.device_count
    if not 1 <= count <= most:
        raise ValueError(f"num_slices must be from 1 to {most} for {kind.name}, got {count}")
    x, y, z = (*kind.topology.shape, 1)[:3]
    text = kind.chips_per_host_bounds
    host_x, host_y, host_z = _bounds(options.get("chips_per_host_bounds") or text)
    if x % host_x or y % host_y or z % host_z:
        raise ValueError(
            f"chips_per_host_bounds {host_x},{host_y},{host_z} do not divide {x}x{y}x{z}: "
            f"use {text}"
        )
    config, own = options.get("chip_config_name"), kind.generation.chip_config
    # callers name the cores of v4 and v5p as one device, which is all that libtpu has there
    if config not in (None, "", own, "megacore" if kind.generation.devices_per_chip == 1 else own):
        raise ValueError(f"unknown chip_config_name {config!r} for {kind.name}: use {own!r}")
    hosts = (x // host_x, y // host_y, z // host_z)
    return Slice(kind.generation, hosts, (host_x, host_y, host_z), 0, 0, count)


def _bounds(value: object) -> Bounds:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or len(parts) not in (2, 3):
        raise ValueError(
            f"chips_per_host_bounds must be three numbers as in (2, 2, 1), got {value}"
        )
    x, y, z = (*(int(part) for part in parts), 1)[:3]
    if min(x, y, z) < 1:
        raise ValueError(f"chips_per_host_bounds must be 1 or more, got {value}")
    return x, y, z
