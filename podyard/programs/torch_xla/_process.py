"""The place of this process among those of its program, and the slice that they are on."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from podyard.hardware.generation import Generation
from podyard.programs import slice as slices
from podyard.programs.slice import Slice, TpuDevice

# as torch_xla reads it: cores of this host that the program uses
COUNT_VARIABLE = "TPU_NUM_DEVICES"
SPMD_VARIABLE = "XLA_USE_SPMD"  # torch_xla reads it, too
_TRUE = ("1", "TRUE", "ON", "YES", "Y")
# torchrun sets them; the group's store is then where MASTER_ADDR says.
_OF_TORCHRUN = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)


class CorePlace(NamedTuple):
    """One of `world` processes, `local_world` of them on this host. `store` (address:port) is where
    they meet, and `address` where this one listens; no store: torchrun's, or a program that was not
    spawned."""

    ordinal: int = 0
    local_ordinal: int = 0
    world: int = 1
    local_world: int = 1
    store: str = ""
    address: str = "127.0.0.1"
    spawned: bool = False


_place: list[CorePlace] = []


def is_spmd() -> bool:
    """One process for each host, and tensors that are split over all devices."""
    return os.environ.get(SPMD_VARIABLE, "").upper() in _TRUE


def place() -> CorePlace:
    if not _place:
        if all(name in os.environ for name in _OF_TORCHRUN):
            rank, local, world, local_world = (int(os.environ[name]) for name in _OF_TORCHRUN[:4])
            _place.append(CorePlace(rank, local, world, local_world, spawned=True))
        else:
            _place.append(CorePlace())
    return _place[0]


def set_place(found: CorePlace) -> None:
    _place[:] = [found]


def slice_of() -> Slice:
    found = slices.from_environment()
    if found is None:
        raise RuntimeError(f"no TPU: {slices.TYPE_VARIABLE} names no type")
    return found


def generation() -> Generation:
    return slice_of().generation


def host_devices() -> list[TpuDevice]:
    """The devices of this host that the program uses."""
    of = slice_of()
    own = [device for device in slices.devices_of(of) if device.process_index == of.process_index]
    asked = os.environ.get(COUNT_VARIABLE)
    if not asked:
        return own
    if not asked.isdigit() or not 0 < int(asked) <= len(own):
        raise ValueError(f"{COUNT_VARIABLE} is {asked!r}: this host has {len(own)} devices")
    return own[: int(asked)]


def device(number: int = 0) -> torch.device:
    return torch.device("xla", number)
