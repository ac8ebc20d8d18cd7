"""A process that compiles StableHLO for a TPU that is not there, with the real compiler (libtpu),
ahead of time.

`python -m podyard.engine.exact.worker` answers requests until its input ends, then ends. A message
is `MAGIC`, the length of what follows as four bytes (big endian), and a JSON object. libtpu prints
to the standard streams: the protocol therefore moves to a separate descriptor, and everything
printed goes to the error stream. It is a separate process because the compiler can crash, hang, or
keep memory.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from podyard.base.errors import PodyardError, failed_precondition, invalid
from podyard.engine.exact import hlo

MAGIC = b"PYX1"
HEADER = struct.Struct(">4sI")
# Text of a large model; beyond it a length is taken for a broken stream.
MESSAGE_BYTES_MAX = 256 * 2**20

# No hardware and no metadata server; several processes of a machine may load the compiler.
ENVIRONMENT: Mapping[str, str] = {
    "TPU_SKIP_MDS_QUERY": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_ACCELERATOR_TYPE": "",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    # on a host of a node, Podyard's topologies would stand in for libtpu's
    "PODYARD_TPU": "off",
}
_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Ran out of memory")


@dataclasses.dataclass(frozen=True, slots=True)
class CompileTarget:
    """A slice as libtpu names it, e.g. `v4:4x4x8_twisted`. `host_bounds`: chips of one host as (x,
    y, z). `chip_config` "megacore" makes the two cores of a v4 chip one device; elsewhere it is
    "default"."""

    topology: str
    host_bounds: tuple[int, int, int]
    chip_config: str


def pack(message: Mapping[str, object]) -> bytes:
    """Raises PodyardError INVALID_ARGUMENT for a message that is too long."""
    body = json.dumps(message).encode()
    if len(body) > MESSAGE_BYTES_MAX:
        raise invalid(
            f"a message of {len(body)} bytes is more than the {MESSAGE_BYTES_MAX} that the "
            "compiler takes"
        )
    return HEADER.pack(MAGIC, len(body)) + body


def unpack(read: Callable[[int], bytes]) -> dict[str, Any] | None:
    """The next message; `read(n)` gives n bytes, fewer only at the end. None at the end of the
    stream.

    Raises ValueError when what arrives is not a message.
    """
    header = read(HEADER.size)
    if not header:
        return None
    if len(header) < HEADER.size:
        raise ValueError("the stream ends within a header")
    magic, length = HEADER.unpack(header)
    if magic != MAGIC or length > MESSAGE_BYTES_MAX:
        raise ValueError("the stream holds something that is not a message")
    body = read(length)
    if len(body) < length:
        raise ValueError("the stream ends within a message")
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError("the message is not a JSON object")
    return message


class _Compiler:
    """JAX's private ways to libtpu, all in this class; each that moves with a version of JAX is
    named in the error."""

    def __init__(self) -> None:
        try:
            import jax
            import numpy as np
            from jax._src import compiler
            from jax._src.interpreters import mlir
            from jax.experimental import topologies
            from jaxlib import _jax
            from jaxlib.mlir import ir
        except ImportError as error:
            raise _translate(error) from error
        self._jax_version = str(jax.__version__)
        self.refusal: type[Exception] = jax.errors.JaxRuntimeError
        self._array = np.array
        self._get_compile_options: Any = compiler.get_compile_options
        self._make_context: Any = mlir.make_ir_context
        self._get_topology: Any = topologies.get_topology_desc
        self._device_list: Any = _jax.DeviceList
        self._parse: Any = ir.Module.parse
        self._mlir_error: type[Exception] = ir.MLIRError
        self._devices: dict[CompileTarget, Sequence[Any]] = {}

    def devices(self, target: CompileTarget) -> Sequence[Any]:
        if target not in self._devices:
            described = self._get_topology(
                platform="tpu",
                topology_name=target.topology,
                chips_per_host_bounds=target.host_bounds,
                chip_config_name=target.chip_config,
                # libtpu knows which slices wrap around, but for a twisted one it wants to be told.
                **({"wrap": (True, True, True)} if target.topology.endswith("_twisted") else {}),
            )
            self._devices[target] = described.devices
        return self._devices[target]

    def version(self, device: Any) -> str:
        build = " ".join(str(device.client.platform_version).split())
        return f"libtpu {importlib.metadata.version('libtpu')}, jax {self._jax_version}, {build}"

    def compile(self, text: str, devices: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """The executable of one program split over `devices`; raises whatever the compiler says."""
        with self._make_context():
            try:
                module = self._parse(text)
            except self._mlir_error as error:
                raise invalid(f"this is not a StableHLO module: {error}", "stablehlo") from error
            try:
                settings = self._get_compile_options(
                    num_replicas=1,
                    num_partitions=len(devices),
                    device_assignment=self._array([[device.id for device in devices]]),
                    env_options_overrides=dict(options),
                )
                build = settings.executable_build_options
                build.use_spmd_partitioning = len(devices) > 1
                build.use_shardy_partitioner = "sdy." in text
                # As JAX asks for it: what the module says nothing about is split as it suits the
                # compiler.
                build.allow_spmd_sharding_propagation_to_parameters = _without_shardings(
                    module, "arg_attrs"
                )
                build.allow_spmd_sharding_propagation_to_output = _without_shardings(
                    module, "res_attrs"
                )
                return devices[0].client.compile(
                    module, self._device_list(tuple(devices)), settings
                )
            except (TypeError, AttributeError) as error:
                raise _translate(error) from error


def _without_shardings(module: Any, attributes: str) -> list[bool]:
    """Return which arguments or results of the module's main function say nothing of how they are
    split."""
    main = next(
        op
        for op in module.body.operations
        if getattr(op, "sym_name", None) and op.sym_name.value == "main"
    )
    values = main.type.inputs if attributes == "arg_attrs" else main.type.results
    if attributes not in main.attributes:
        return [True] * len(values)
    said = [str(one) for one in main.attributes[attributes]]
    return ["mhlo.sharding" not in text and "sdy.sharding" not in text for text in said]


def _translate(error: Exception) -> PodyardError:
    return failed_precondition(
        "this version of JAX does not offer the TPU compiler as known here (tested with jax "
        f"0.10.2): {error}"
    )


def answer(compiler: _Compiler, request: Mapping[str, Any]) -> dict[str, object]:
    """Return what the compiler says to one request `{stablehlo, topology, host_bounds, chip_config,
    partitions, options}`.

    Either `{verdict: {...}}`, or with `out_of_memory_text` in place of figures, or `{error: {code,
    message}}`.
    """
    try:
        return {"verdict": _verdict(compiler, request)}
    except PodyardError as error:
        return _error(error)
    except compiler.refusal as error:
        return _error(invalid(f"the TPU compiler refuses: {error}"))


def _error(error: PodyardError) -> dict[str, object]:
    return {"error": {"code": int(error.code), "message": error.message}}


def _verdict(compiler: _Compiler, request: Mapping[str, Any]) -> dict[str, object]:
    x, y, z = request["host_bounds"]
    devices = compiler.devices(
        CompileTarget(request["topology"], (x, y, z), request["chip_config"])
    )
    partitions = request["partitions"]
    if partitions > len(devices):
        raise invalid(f"{partitions} partitions on a slice of {len(devices)} devices", "partitions")
    version = compiler.version(devices[0])
    try:
        executable = compiler.compile(
            request["stablehlo"], devices[:partitions], request["options"]
        )
    except compiler.refusal as error:
        if not all(mark in str(error) for mark in _OUT_OF_MEMORY):
            raise
        return {"out_of_memory_text": str(error), "compiler_version": version}
    memory, (module,) = executable.get_compiled_memory_stats(), executable.hlo_modules()
    cost = executable.cost_analysis()
    summary = hlo.summarise(module.to_string())
    return {
        **dataclasses.asdict(summary),
        "cycles": summary.cycles,
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        "peak_bytes": memory.peak_memory_in_bytes,
        "flops": cost.get("flops", 0.0),
        "bytes_accessed": cost.get("bytes accessed", 0.0),
        "out_of_memory_text": "",
        "compiler_version": version,
    }


def resident_bytes() -> int:
    """Memory that this process occupies now (Linux: the compiler exists for nothing else)."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _read_requests(source: BinaryIO, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Ends the process when its client is gone, even during a compilation."""
    while True:
        try:
            request = unpack(source.read)
        except ValueError as error:
            print(f"request: {error}", file=sys.stderr, flush=True)
            os._exit(2)
        if request is None:
            os._exit(0)
        requests.put(request)


def main() -> None:
    """Never returns: the thread that reads ends the process."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.environ.update(ENVIRONMENT)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(source, requests), daemon=True).start()
    compiler: _Compiler | None = None
    while True:
        request = requests.get()
        try:
            compiler = compiler or _Compiler()
            reply = pack({**answer(compiler, request), "resident_bytes": resident_bytes()})
        except PodyardError as error:
            reply = pack({**_error(error), "resident_bytes": resident_bytes()})
        sink.write(reply)
        sink.flush()


if __name__ == "__main__":
    main()
