"""The HBM of the devices: which arrays are alive in it, and the errors of a TPU that has no room
for another one.

XLA's client knows each array that is alive, but asking it for all of them takes a millisecond for
each thousand. So what comes in is added up (`_added`), and the arrays are looked at when it may not
fit next to what was there before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from podyard.hardware.cost_model import Tiling
from podyard.hardware.generation import Generation
from podyard.hardware.layout import compact_layout_of
from podyard.programs import jax_internals as internals
from podyard.programs.arrays.memory_limits import size_text
from podyard.programs.records import ModuleRuns

HOST_MEMORY = ("pinned_host", "unpinned_host")
# Element types that XLA packs, and NumPy does not.
_PACKED_BYTES = {"int4": 0.5, "uint4": 0.5, "float4_e2m1fn": 0.5, "int2": 0.25, "uint2": 0.25}
# What a module has next to it is looked at when it has run 2, 4, 8, ... times, if its own arrays
# are as large as this.
_OTHERS_BYTES_MIN = 2**20

Buffer = tuple[Any, int]  # a device, and an address in it


class DeviceUsage(NamedTuple):
    """Of one device: arrays that are alive, their bytes in all, and those of the largest."""

    arrays: int = 0
    nbytes: int = 0
    largest: int = 0


class DeviceMemory:
    """Counts what is alive in the HBM of this process' devices. `attach` gives it the client."""

    def __init__(self, generation: Generation) -> None:
        self.limit = generation.hbm_usable_bytes_per_device
        self.tiling = generation.costs.tiling if generation.costs is not None else Tiling(1)
        self._client: Any = None
        self._name_of: Callable[[Any], str] = str
        self._peaks: dict[Any, int] = {}
        self._of_module: dict[int, int] = {}
        self._most = 0  # in use on the fullest device, at the last look
        self._added = 0  # since then, on each device
        self._lock = threading.Lock()

    def attach(self, client: Any, name_of: Callable[[Any], str]) -> None:
        """`name_of` a device: that of its HBM, `0x0x0_HBM0`."""
        self._client, self._name_of = client, name_of

    def stats(self, device: Any) -> dict[str, int]:
        """The answer of `device.memory_stats()`: what a compiled program needs in between is not in
        it."""
        usage = self._look(device).get(device, DeviceUsage())
        return {
            "num_allocs": usage.arrays,
            "bytes_in_use": usage.nbytes,
            "peak_bytes_in_use": self._peaks.get(device, 0),
            "largest_alloc_size": usage.largest,
            "bytes_limit": self.limit,
            "bytes_reserved": 0,
            "peak_bytes_reserved": 0,
            "bytes_reservable_limit": self.limit,
            "largest_free_block_bytes": max(0, self.limit - usage.nbytes),
        }

    def free_bytes(self) -> int:
        """On the fullest device."""
        self._look()
        return max(0, self.limit - self._most)

    def after_put(self, array: Any, _values: object = None) -> None:
        """An array was put on devices. Raises XlaRuntimeError where one of them has no room for
        it."""
        self._add(sum(map(self._shard_bytes, self._arrays_in(array))))

    def after_run(self, module: ModuleRuns, arguments: Any, results: Any) -> None:
        """A module has run, and was counted. Raises XlaRuntimeError where a device has no room for
        its results."""
        added = self._of_module.get(id(module))
        if added is None:
            added = sum(map(self._shard_bytes, self._arrays_in(results)))
            self._of_module[id(module)] = added
        self._add(added)
        runs = module.runs
        if runs > 1 and not runs & (runs - 1):
            own = self._arrays_in((arguments, results))
            if sum(map(self._shard_bytes, own)) >= _OTHERS_BYTES_MIN:
                module.other_bytes = max(module.other_bytes, self._others_bytes(own))

    def _add(self, nbytes: int) -> None:
        self._added += nbytes
        if self._most + self._added <= self.limit:
            return
        for device, usage in self._look().items():
            if usage.nbytes > self.limit:
                free = max(0, self.limit - usage.nbytes + nbytes)
                raise internals.XlaRuntimeError(
                    "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate "
                    f"{size_text(nbytes)}."
                    f" That was not possible. There are {size_text(free)} free.; "
                    f"({self._name_of(device)})"
                )

    def _look(self, only: Any = None) -> Mapping[Any, DeviceUsage]:
        """Return the arrays that are alive on each device now, or on the device `only`: programs
        ask for each of many devices."""
        arrays = self._client.live_arrays() if self._client is not None else ()
        buffers = self._buffers(arrays, only)
        usages: dict[Any, DeviceUsage] = {}
        for (device, _), nbytes in buffers.items():
            before = usages.get(device, DeviceUsage())
            usages[device] = DeviceUsage(
                before.arrays + 1, before.nbytes + nbytes, max(before.largest, nbytes)
            )
        with self._lock:
            if only is None:
                self._most, self._added = max((one.nbytes for one in usages.values()), default=0), 0
            for device, one in usages.items():
                self._peaks[device] = max(self._peaks.get(device, 0), min(one.nbytes, self.limit))
        return usages

    def _others_bytes(self, own: Iterable[Any]) -> int:
        """Return the bytes that are alive next to arguments and results of a run, on the device
        that has the most."""
        mine = self._buffers(own)
        others: dict[Any, int] = {}
        for buffer, nbytes in self._buffers(self._client.live_arrays()).items():
            if buffer not in mine:
                others[buffer[0]] = others.get(buffer[0], 0) + nbytes
        return max(others.values(), default=0)

    def _buffers(self, arrays: Iterable[Any], only: Any = None) -> dict[Buffer, int]:
        """Return bytes by place, on all devices or on `only`: arrays that share memory, as a
        sharded one with its parts, are counted once."""
        sizes: dict[Buffer, int] = {}
        for array in arrays:
            if array.is_deleted() or not array.size or not self._is_on_device(array):
                continue
            if only is not None and only not in array.sharding.device_set:
                continue
            nbytes = self._shard_bytes(array)
            try:
                parts = internals.parts_of(array, only)
                for part in parts:
                    (device,) = part.sharding.device_set
                    sizes[device, part.unsafe_buffer_pointer()] = nbytes
            except internals.XlaRuntimeError:  # another thread has given it away by now
                continue
        return sizes

    def _arrays_in(self, tree: Any) -> list[Any]:
        leaves = map(internals.array_of, jax.tree.leaves(tree))
        return [
            leaf
            for leaf in leaves
            if isinstance(leaf, internals.array.ArrayImpl) and self._is_on_device(leaf)
        ]

    def _is_on_device(self, array: Any) -> bool:
        return array.sharding.memory_kind not in HOST_MEMORY

    def _shard_bytes(self, array: Any) -> int:
        """Of the part on one device, padded as it lies there."""
        itemsize = _PACKED_BYTES.get(str(array.dtype), np.dtype(array.dtype).itemsize)
        shape = tuple(array.sharding.shard_shape(array.shape))
        return compact_layout_of(shape, itemsize, self.tiling).nbytes
