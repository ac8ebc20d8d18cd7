"""XLA's CPU devices, shown to a JAX program as the TPU devices of a slice.

The backend `tpu` is XLA's own client for CPUs, with one device for each TPU device of the host.
What a program can ask a device or the client about is answered for the TPU; what runs stays XLA's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from podyard.programs import jax_internals as internals
from podyard.programs.arrays.jax_memory import DeviceMemory
from podyard.programs.slice import Slice, TpuDevice, devices_of

PLATFORM = "tpu"
# A version in the form of libtpu's, whose date JAX reads: that of the libtpu that JAX 0.10.2 is
# made for.
_BUILD = "Built on Jun 17 2026 11:08:48 (1781719728) cl/933746096"


class _Backend:
    """The client, once it is made, and what each of its devices stands for."""

    def __init__(self, of: Slice, memory: DeviceMemory) -> None:
        self.of = of
        self.memory = memory
        self.client: Any = None
        self.devices: dict[Any, TpuDevice] = {}

    def make(self) -> Any:
        if self.of.process_count > 1:
            internals.join_processes(self.of.process_count, self.of.process_index)
        count = internals.process_count()
        self.client = internals.make_client_of(self.of.devices_per_process)
        described = devices_of(self.of)
        # joined otherwise than the slice is: its own devices, as often as needed
        if count != self.of.process_count:
            own = self.of.devices_per_process
            described = [
                one._replace(number=process * own + place, host=process, process_index=process)
                for process in range(count)
                for place, one in enumerate(described[:own])
            ]
        self.devices = dict(zip(self.client.devices(), described, strict=True))
        self.memory.attach(self.client, lambda device: self.devices[device].hbm_text)
        return self.client


def install(of: Slice, memory: DeviceMemory) -> None:
    """Registers the backend `tpu` and lets its devices answer as TPU devices."""
    backend = _Backend(of, memory)

    def answer(name: str, value: Callable[[TpuDevice], Any]) -> None:
        def make(inner: Any) -> Any:
            def get(self: Any) -> Any:
                described = backend.devices.get(self)
                if described is not None:
                    return value(described)
                if inner is None:
                    raise AttributeError(
                        f"{type(self).__name__!r} object has no attribute {name!r}"
                    )
                return inner.__get__(self)

            return property(get)

        internals.replace_on("Device", name, make)

    def answer_call(name: str, value: Callable[[Any], Any]) -> None:
        def make(inner: Any) -> Any:
            def call(self: Any) -> Any:
                return value(self) if self in backend.devices else inner(self)

            return call

        internals.replace_on("Device", name, make)

    def answer_client(name: str, value: str) -> None:
        def make(inner: Any) -> Any:
            return property(lambda self: value if self is backend.client else inner.__get__(self))

        internals.replace_on("Client", name, make)

    for name in ("id", "process_index", "core_on_chip", "device_kind"):
        answer(name, operator.attrgetter(name))
    answer("host_id", operator.attrgetter("process_index"))
    answer("slice_index", lambda one: one.slice_index or 0)
    answer("coords", lambda one: list(one.coords))
    answer("platform", lambda _: PLATFORM)
    answer("num_cores", lambda _: of.generation.cores_per_chip // of.generation.devices_per_chip)
    answer_call("memory_stats", memory.stats)
    answer_call("__repr__", lambda device: backend.devices[device].long_text)
    answer_call("__str__", lambda device: backend.devices[device].short_text)
    answer_client("platform", PLATFORM)
    answer_client("platform_version", f"PJRT C API\nTFRT {of.generation.device_kind}\n{_BUILD}")
    internals.make_cpus_local()
    internals.lower_callbacks_for_cpu()
    internals.choose_branches_for_tpu()
    internals.keep_host_placements()
    internals.register_tpu(backend.make)
