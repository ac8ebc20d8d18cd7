"""`torch.distributed` with the backend `xla`: gloo between the processes that torch_xla has
started."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch_xla import _collectives, _process


def _make_group(prefix_store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=_process.place().address)]
    options._timeout = timeout
    return dist.ProcessGroupGloo(prefix_store, rank, size, options)


def _meet(
    _url: str,
    rank: int = -1,  # noqa: ARG001
    world_size: int = -1,  # noqa: ARG001
    **_options: Any,
) -> Iterator[tuple[Any, int, int]]:
    """`init_method="xla://"`: ranks are the ordinals."""
    place = _process.place()
    store = _collectives.meeting_store() if place.world > 1 else dist.HashStore()
    yield store, place.ordinal, place.world


dist.Backend.register_backend("xla", _make_group, devices=["cpu", "xla"])
dist.register_rendezvous_handler("xla", _meet)
