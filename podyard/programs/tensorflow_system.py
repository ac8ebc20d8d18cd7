"""The TPU system that TensorFlow programs meet: its devices, its resolver, and what TensorFlow logs
of it."""

from __future__ import annotations

import logging
import os
from typing import Any

from podyard.programs import slice as slices
from podyard.programs.free_memory import free_bytes
from podyard.programs.say import say
from podyard.programs.slice import Slice, TpuDevice, devices_of

MODE_VARIABLE = "PODYARD_TF_REPLICAS"  # mirrored or fused
MIRRORED_MAX = 8  # replicas that are mirrored if nothing else is said
REPLICA_BYTES = 128 * 2**20  # below this for each replica, a small model is in doubt
_PORT = 8470


_current: list[TpuSystem] = []


def current() -> TpuSystem | None:
    """Return the TPU system of this process, or None if no TPU is asked for."""
    return _current[0] if _current else None


def set_current(system: TpuSystem) -> None:
    _current.append(system)


class TpuSystem:
    def __init__(self, tf: Any, of: Slice) -> None:
        self.tf = tf
        self.of = of
        self.devices: list[TpuDevice] = devices_of(of)
        count = len(self.devices)
        mode = os.environ.get(MODE_VARIABLE) or ("mirrored" if count <= MIRRORED_MAX else "fused")
        if mode not in ("mirrored", "fused"):
            raise ValueError(f"{MODE_VARIABLE} is mirrored or fused, not {mode!r}")
        self.is_mirrored = mode == "mirrored"
        self._has_begun = False
        self._is_told = False
        self.steps: Any = None  # what steps the program runs

    @property
    def is_tracing(self) -> bool:
        """Return whether a step is being traced for its module, as one replica."""
        return self.steps is not None and bool(self.steps.is_tracing)

    @property
    def workers(self) -> list[str]:
        """Addresses at which TensorFlow's clients reach the hosts. A program that runs alone for a
        slice of several hosts knows its own address only."""
        listed = os.environ.get("TPU_WORKER_HOSTNAMES", "").split(",")
        names = [name for name in listed if name] or ["10.128.0.2"]
        kind = slices.own_kind()
        if len(names) == 1 and len(self.devices) == kind.device_count:
            names += [f"10.128.0.{2 + host}" for host in range(1, kind.host_count)]
        return [f"{name}:{_PORT}" for name in names]

    @property
    def cores_per_host(self) -> int:
        return len(self.devices) // len(self.workers)

    def begin(self) -> None:
        """The program asks for its TPU. What cannot be had is said now: programs import TensorFlow
        for other things."""
        if self._has_begun:
            return
        self._has_begun = True
        if int(os.environ.get(slices.DRY_RUN_VARIABLE) or 0):
            raise SystemExit(
                "podyard: a dry run needs JAX: steps of TensorFlow are computed; leave "
                "--dry-run away"
            )
        from podyard.programs.tensorflow_internals import TESTED

        version = self.tf.__version__
        if not version.startswith(TESTED):
            say(
                f"TensorFlow {version} was not tested: "
                f"{' and '.join(one.rstrip('.') for one in TESTED)} were"
            )

        needed = len(self.devices) * REPLICA_BYTES
        if self.is_mirrored and (free := free_bytes()) is not None and free < needed:
            say(
                f"{len(self.devices)} replicas have a copy of all variables each, and this "
                "machine has "
                f"{free / 2**30:.1f} GiB free: {MODE_VARIABLE}=fused needs one copy"
            )

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
        self.begin()
        address = cluster_resolver.master() if cluster_resolver is not None else ""
        self._log(f"Initializing the TPU system: {address or 'local'}")
        self._log("Finished initializing TPU system.")
        self.say_what_was_found()
        coordinates = [[*one.coords, one.core_on_chip] for one in self.devices]
        by_task = [
            coordinates[first : first + self.cores_per_host]
            for first in range(0, len(coordinates), self.cores_per_host)
        ]  # fmt: skip
        mesh = (*self.of.shape, self.of.generation.devices_per_chip)
        return self.tf.tpu.experimental.Topology(mesh_shape=mesh, device_coordinates=by_task)

    def say_what_was_found(self) -> None:
        """Log the slice in TensorFlow's words, once."""
        self.begin()
        if self._is_told:
            return
        self._is_told = True
        count, hosts = len(self.devices), len(self.workers)
        for line in (
            "Found TPU system:",
            f"*** Num TPU Cores: {count}",
            f"*** Num TPU Workers: {hosts}",
            f"*** Num TPU Cores Per Worker: {count // hosts}",
            *(
                "*** Available Device: "
                f"_DeviceAttributes(/job:worker/replica:0/task:{place // (count // hosts)}"
                f"/device:TPU:{place % (count // hosts)}, TPU, 0, 0)"
                for place in range(count)
            ),
        ):
            self._log(line)

    def _log(self, line: str) -> None:
        """Log a line of the TPU system. A script whose logger has no level would not show it, and
        people look for it."""
        log = self.tf.get_logger()
        level = log.level
        if level == logging.NOTSET:
            log.setLevel(logging.INFO)
        try:
            log.info(line)
        finally:
            log.setLevel(level)

    def list_devices(self, inner: Any) -> Any:
        logical = "logical" in inner.__name__

        def list_devices(device_type: str | None = None) -> Any:
            names = [f"/device:TPU:{place}" for place in range(len(self.devices))]
            make = self.tf.config.LogicalDevice if logical else self.tf.config.PhysicalDevice
            tpus = [
                make(name if logical else name.replace("device", "physical_device"), "TPU")
                for name in names
            ]
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

            def __init__(
                self, tpu: Any = None, *_args: Any, job_name: str = "worker", **_named: Any
            ) -> None:
                if isinstance(tpu, (list, tuple)):  # of one name, in TensorFlow 1
                    tpu = tpu[0] if tpu else None
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
                from podyard.programs.tensorflow_internals import TPUSystemMetadata

                return TPUSystemMetadata(
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
