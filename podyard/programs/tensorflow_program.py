"""What a program that imports TensorFlow sees where a TPU is asked for: resolver, system, strategy, devices.

Two ways to run replicas. *mirrored*: each has a logical CPU device, as MirroredStrategy has it, and their values are
summed on one, in a fixed order. *fused*: the whole global batch runs on one device, as one replica; outside of it, the
strategy says how many replicas the slice has. Mirrored is right for what differs between replicas (batch normalization
per replica, replica ids); fused is for slices of more devices than a machine runs well. PODYARD_TF_REPLICAS chooses.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from podyard.programs import slice as slices
from podyard.programs.slice import Slice, TpuDevice, devices_of

MODE_VARIABLE = "PODYARD_TF_REPLICAS"  # mirrored or fused
MIRRORED_MAX = 8  # replicas that are mirrored if nothing else is said
_PORT = 8470


def apply(tensorflow: Any) -> None:
    """Raises what goes wrong, for the hook's line."""
    of = slices.from_environment()
    if of is None:
        return
    system = _System(tensorflow, of)
    system.set_devices()
    strategy, resolver = system.strategy_class(), system.resolver_class()
    distribute = tensorflow.distribute
    for owner in (distribute.cluster_resolver, tensorflow.compat.v1.distribute.cluster_resolver):
        owner.TPUClusterResolver = resolver
    distribute.TPUStrategy = strategy
    distribute.experimental.TPUStrategy = strategy
    config, experimental = tensorflow.config, tensorflow.tpu.experimental
    config.experimental_connect_to_cluster = system.connect
    config.experimental_connect_to_host = system.connect
    experimental.initialize_tpu_system = system.initialize
    experimental.shutdown_tpu_system = lambda cluster_resolver=None: None  # noqa: ARG005
    for name in ("list_logical_devices", "list_physical_devices"):
        setattr(config, name, system.list_devices(getattr(config, name)))
    config.experimental.list_logical_devices = config.list_logical_devices
    config.experimental.list_physical_devices = config.list_physical_devices
    tensorflow.device = system.device(tensorflow.device)


class _System:
    def __init__(self, tf: Any, of: Slice) -> None:
        self.tf = tf
        self.of = of
        self.devices: list[TpuDevice] = devices_of(of)
        count = len(self.devices)
        mode = os.environ.get(MODE_VARIABLE) or ("mirrored" if count <= MIRRORED_MAX else "fused")
        if mode not in ("mirrored", "fused"):
            raise ValueError(f"{MODE_VARIABLE} is mirrored or fused, not {mode!r}")
        self.is_mirrored = mode == "mirrored"

    @property
    def workers(self) -> list[str]:
        """Where TensorFlow's clients would reach the hosts."""
        names = [name for name in os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",") if name] or ["10.128.0.2"]
        return [f"{name}:{_PORT}" for name in names]

    @property
    def cores_per_host(self) -> int:
        return len(self.devices) // len(self.workers)

    def set_devices(self) -> None:
        """One logical CPU for each replica, after the host's own: before anything runs on it."""
        config = self.tf.config
        (cpu, *_) = config.list_physical_devices("CPU")
        count = 1 + (len(self.devices) if self.is_mirrored else 1)
        config.set_logical_device_configuration(cpu, [config.LogicalDeviceConfiguration()] * count)

    def cpu_of(self, replica: int) -> str:
        return f"/CPU:{1 + (replica if self.is_mirrored else 0)}"

    def connect(self, *_args: Any, **_named: Any) -> None:
        """The slice is here."""

    def initialize(self, cluster_resolver: Any = None) -> Any:
        log = self.tf.get_logger()
        address = cluster_resolver.master() if cluster_resolver is not None else ""
        log.info("Initializing the TPU system: %s", address or "local")
        log.info("Finished initializing TPU system.")
        coordinates = [[*one.coords, one.core_on_chip] for one in self.devices]
        by_task = [
            coordinates[first : first + self.cores_per_host]
            for first in range(0, len(coordinates), self.cores_per_host)
        ]  # fmt: skip
        mesh = (*self.of.shape, self.of.generation.devices_per_chip)
        return self.tf.tpu.experimental.Topology(mesh_shape=mesh, device_coordinates=by_task)

    def say_what_was_found(self) -> None:
        log, count, hosts = self.tf.get_logger(), len(self.devices), len(self.workers)
        for line in (
            "Found TPU system:",
            f"*** Num TPU Cores: {count}",
            f"*** Num TPU Workers: {hosts}",
            f"*** Num TPU Cores Per Worker: {count // hosts}",
        ):
            log.info(line)

    def list_devices(self, inner: Any) -> Any:
        logical = "logical" in inner.__name__

        def list_devices(device_type: str | None = None) -> Any:
            names = [f"/device:TPU:{place}" for place in range(len(self.devices))]
            make = self.tf.config.LogicalDevice if logical else self.tf.config.PhysicalDevice
            tpus = [make(name if logical else name.replace("device", "physical_device"), "TPU") for name in names]
            if device_type == "TPU":
                return tpus
            found = inner(device_type)
            cpus = [one for one in found if one.device_type == "CPU"][:1]
            others = [one for one in found if one.device_type != "CPU"]
            return cpus + others + (tpus if device_type is None else [])

        return list_devices

    def device(self, inner: Any) -> Any:
        def device(name: Any) -> Any:
            if isinstance(name, str) and "TPU:" in name.upper():
                name = self.cpu_of(int(name.upper().rpartition("TPU:")[2]))
            return inner(name)

        return device

    def resolver_class(self) -> Any:
        tf, system = self.tf, self
        base: Any = tf.distribute.cluster_resolver.ClusterResolver

        class TPUClusterResolver(base):  # type: ignore[misc]
            """Finds the slice around this program, by whatever name it is asked for."""

            def __init__(self, tpu: str | None = None, *_args: Any, job_name: str = "worker", **_named: Any) -> None:
                self._tpu = tpu or os.environ.get("TPU_NAME") or "local"
                self.task_type, self.task_id = job_name, 0
                self.rpc_layer = "grpc"

            @staticmethod
            def connect(tpu: str | None = None, *_args: Any, **_named: Any) -> Any:
                found = TPUClusterResolver(tpu)
                system.initialize(found)
                return found

            def master(self, *_args: Any, **_named: Any) -> str:
                if self._tpu == "local":
                    return ""
                return self._tpu if "://" in self._tpu else f"grpc://{system.workers[0]}"

            get_master = master

            def cluster_spec(self) -> Any:
                return tf.train.ClusterSpec({self.task_type: system.workers})

            def num_accelerators(self, *_args: Any, **_named: Any) -> dict[str, int]:
                return {"TPU": system.cores_per_host}

            def get_job_name(self) -> str:
                return str(self.task_type)

            def get_tpu_system_metadata(self) -> Any:
                module = __import__("tensorflow.python.tpu.tpu_system_metadata", fromlist=["TPUSystemMetadata"])
                return module.TPUSystemMetadata(
                    num_cores=len(system.devices),
                    num_hosts=len(system.workers),
                    num_of_cores_per_host=system.cores_per_host,
                    topology=None,
                    devices=tf.config.list_logical_devices("TPU"),
                )

            @property
            def environment(self) -> str:
                return "google"

        return TPUClusterResolver

    def strategy_class(self) -> Any:
        tf, system = self.tf, self
        distribute_lib: Any = __import__("tensorflow.python.distribute.distribute_lib", fromlist=["x"])
        base: Any = tf.distribute.MirroredStrategy if self.is_mirrored else tf.distribute.OneDeviceStrategy

        class TPUStrategy(base):  # type: ignore[misc]
            """All cores of the slice, under one program."""

            def __init__(self, tpu_cluster_resolver: Any = None, *_args: Any, **_named: Any) -> None:
                self._resolver = tpu_cluster_resolver
                system.say_what_was_found()
                if system.is_mirrored:
                    devices: Sequence[str] = [system.cpu_of(place) for place in range(len(system.devices))]
                    super().__init__(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())
                else:
                    super().__init__(system.cpu_of(0))
                self.extended.num_hosts = len(system.workers)
                self.extended.num_replicas_per_host = system.cores_per_host

            @property
            def cluster_resolver(self) -> Any:
                return self._resolver

            @property
            def num_replicas_in_sync(self) -> int:
                """Of the slice; 1 inside of a fused replica, which is alone with the global batch."""
                if system.is_mirrored:
                    return int(super().num_replicas_in_sync)
                context = distribute_lib.get_replica_context()
                inside = context is not None and context.strategy is self
                return 1 if inside else len(system.devices)

        return TPUStrategy
