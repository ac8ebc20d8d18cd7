"""torch_xla.runtime: which devices and processes there are."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch_xla import _process, _refusals, _spmd


def device_type() -> str:
    return "TPU"


def set_device_type(pjrt_device: str) -> None:
    if pjrt_device != "TPU":
        raise ValueError(
            f"device type {pjrt_device!r}: this program runs on an emulated TPU; "
            "PODYARD_TPU=off ends that"
        )


def using_pjrt() -> bool:
    return True


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:  # noqa: ARG001
    _refusals.refuse_dry_run()
    return _process.device(n or 0)


def world_size() -> int:
    return int(_process.place().world)


def global_ordinal() -> int:
    return int(_process.place().ordinal)


def local_ordinal() -> int:
    return int(_process.place().local_ordinal)


def local_process_count() -> int:
    return int(_process.place().local_world)


def local_device_count() -> int:
    """Of this host."""
    return len(_process.host_devices())


def addressable_device_count() -> int:
    """Of this process."""
    return 1 if _process.place().spawned else local_device_count()


addressable_runtime_device_count = addressable_device_count


def global_device_count() -> int:
    return local_device_count() * int(_process.slice_of().process_count)


global_runtime_device_count = global_device_count


def process_count() -> int:
    return int(_process.slice_of().process_count) if is_spmd() else world_size()


def process_index() -> int:
    return host_index() if is_spmd() else global_ordinal()


def host_index() -> int:
    return int(_process.slice_of().process_index)


def global_runtime_device_attributes() -> list[dict[str, object]]:
    from podyard.programs.slice import devices_of

    return [
        {
            "coords": list(one.coords),
            "core_on_chip": one.core_on_chip,
            "num_cores": 1,
            "name": f"TPU:{place}",
            **({} if one.slice_index is None else {"slice_index": one.slice_index}),
        }
        for place, one in enumerate(devices_of(_process.slice_of()))
    ]


def runtime_device_attributes(device: str) -> dict[str, object]:
    return next(one for one in global_runtime_device_attributes() if one["name"] == device)


def get_master_ip() -> str:
    return str(_process.place().store).rpartition(":")[0] or "127.0.0.1"


def is_bf16_supported() -> bool:
    return True


def get_tpu_chip_count() -> int:
    return math.prod(_process.slice_of().host_shape)


def use_spmd(auto: bool = False, force_tpu_spmd: bool = False) -> None:  # noqa: ARG001
    """`auto`: XLA chooses the shardings."""
    if auto:
        raise NotImplementedError(
            "use_spmd(auto=True) is not emulated: nothing here searches for shardings. Mark them "
            "with torch_xla.distributed.spmd.mark_sharding"
        )
    _spmd.turn_on()


def is_spmd() -> bool:
    return bool(_process.is_spmd())


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Nothing is compiled here, and nothing is kept."""


def get_num_cached_compilation_graph() -> int:
    return 0


def requires_pjrt(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any, **named: Any) -> Any:
        return fn(*args, **named)

    return wrapper
