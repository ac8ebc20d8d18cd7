"""torch_xla._internal.tpu: what Lightning asks of the host's chips."""

from __future__ import annotations

from torch_xla import _process
from torch_xla.runtime import get_tpu_chip_count


def num_available_chips() -> int:
    return int(get_tpu_chip_count())


def num_available_devices() -> int:
    return len(_process.host_devices())


def version() -> int:
    """The generation's number."""
    return int(_process.generation().device_kind.split()[1][1:2])


def num_tpu_workers() -> int:
    return int(_process.slice_of().process_count)
