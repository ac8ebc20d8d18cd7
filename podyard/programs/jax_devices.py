"""XLA's CPU devices, shown to a JAX program as the TPU devices of a slice.

The backend `tpu` is XLA's own client for CPUs, with one device for each TPU device of the host.
What a program can ask a device or the client about is answered for the TPU; what runs stays XLA's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.generation import Generation
from podyard.hardware.places import list_places
from podyard.programs import jax_internals as internals
from podyard.programs.arrays.jax_memory import DeviceMemory
from podyard.programs.lowering.host_placements import keep_host_placements
from podyard.programs.slice import Slice, TpuDevice, devices_of, own_kind
from podyard.programs.topology.description import kind_of_topology, slice_of_topology

PLATFORM = "tpu"
# A version in the form of libtpu's, whose date JAX reads: that of the libtpu that JAX 0.10.2 is
# made for.
_BUILD = "Built on Jun 17 2026 11:08:48 (1781719728) cl/933746096"


class TpuBackend:
    """The client, once it is made, and what each of its devices stands for. `described`: clients
    of topologies, which compile and run nothing, with their types."""

    def __init__(self, of: Slice, memory: DeviceMemory) -> None:
        self.of = of
        self.memory = memory
        self.client: Any = None
        self.devices: dict[Any, TpuDevice] = {}
        self.described: dict[Any, AcceleratorType] = {}

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
        self.devices |= zip(self.client.devices(), described, strict=True)
        self.memory.attach(self.client, lambda device: self.devices[device].hbm_text)
        return self.client

    def places(self, client: Any, devices: Sequence[Any]) -> list[int]:
        """Return the places of devices in the list of their slices; none where one is not of the
        slice as its type has it."""
        if len(devices) == 1:
            return []
        kind = self.described.get(client) or own_kind()
        places = list_places(kind)
        known = [self.devices[device] for device in devices if device in self.devices]
        if len(known) < len(devices) or any(one.number not in places for one in known):
            return []
        return [(one.slice_index or 0) * kind.device_count + places[one.number] for one in known]

    def generation_of(self, client: Any) -> Generation | None:
        """Return the generation that a client stands for; None: it is not a TPU's."""
        if client is self.client:
            return self.of.generation
        kind = self.described.get(client)
        return None if kind is None else kind.generation

    def describe(self, name: str, **options: object) -> Sequence[Any]:
        """Return the devices of a topology; without a name, of the slice's. Raises ValueError for
        one that does not exist."""
        kind = kind_of_topology(name) if name else own_kind()
        devices = devices_of(slice_of_topology(kind, **options))
        client = internals.make_client_alone(len(devices))
        self.described[client] = kind
        own: Sequence[Any] = client.devices()
        self.devices |= zip(own, devices, strict=True)
        return own


def install(of: Slice, memory: DeviceMemory) -> TpuBackend:
    """Registers the backend `tpu` and lets its devices answer as TPU devices."""
    backend = TpuBackend(of, memory)

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

    def answer_client(name: str, value: Callable[[Generation], str]) -> None:
        def make(inner: Any) -> Any:
            def get(self: Any) -> Any:
                generation = backend.generation_of(self)
                return inner.__get__(self) if generation is None else value(generation)

            return property(get)

        internals.replace_on("Client", name, make)

    for name in ("id", "process_index", "core_on_chip", "device_kind", "num_cores"):
        answer(name, operator.attrgetter(name))
    answer("host_id", operator.attrgetter("process_index"))
    answer("slice_index", lambda one: one.slice_index or 0)
    answer("coords", lambda one: list(one.coords))
    answer("platform", lambda _: PLATFORM)
    answer_call("memory_stats", memory.stats)
    answer_call("__repr__", lambda device: backend.devices[device].long_text)
    answer_call("__str__", lambda device: backend.devices[device].short_text)
    answer_client("platform", lambda _: PLATFORM)
    answer_client("platform_version", lambda of: f"PJRT C API\nTFRT {of.device_kind}\n{_BUILD}")
    internals.make_cpus_local()
    internals.lower_callbacks_for_cpu()
    internals.choose_branches_for_tpu()
    keep_host_placements()
    internals.register_tpu(backend.make)
    internals.describe_topologies(backend.describe)
    return backend
