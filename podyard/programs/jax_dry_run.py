"""Runs a program for models that are larger than the machine: nothing large is computed.

Each module is lowered and handed over as in any run, but not compiled. Its results are arrays of
zeros that share one piece of memory that nobody has touched, so they take none; their shardings are
those that Shardy, JAX's own partitioner, finds. What depends on nothing of that and is small (keys,
schedules, whole small models) is computed. The program ends after some runs of its training step
(`training_step.py`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import mmap
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.clock import OsClock
from podyard.programs import jax_internals as internals
from podyard.programs.arrays.memory_limits import largest_bytes
from podyard.programs.arrays.origins import ArrayOrigins, ResultOrigin, result_origins
from podyard.programs.records import MODULES_MAX, ModuleRuns, array_key
from podyard.programs.step.call_sites import call_site
from podyard.programs.step.training_step import ModuleUse, has_name, training_step

# The fields of a ModuleEstimate, after so many seconds at most, or nothing.
Estimates = Callable[..., Mapping[str, Any]]

SMALL_BYTES = 16 * 2**20  # arguments and results of a module that is computed
# of what it has in between; a product of two such matrices takes seconds
SMALL_ARRAY_BYTES = 64 * 2**20
SMALL_DEVICES = 8  # XLA's devices for CPUs share the cores: a module on more is not computed
# How long the choice between several candidates for the training step waits for the time of each: a
# large module takes the estimator a minute. Afterwards their bytes decide.
ESTIMATE_SECONDS = 60.0
_monotonic = OsClock().monotonic_seconds
# Arrays begin at different places of the memory that they share, as far as XLA takes them without a
# copy: arrays with the same address count once.
_PLACE_BYTES, _PLACES_BYTES = 64, 64 * 2**20
_SIZES = {"argument": "argument", "output": "result", "temp": "temporary"}
_DONATED = ("jax.buffer_donor", "tf.aliasing_output")
_SHARDING = re.compile(r"sharding<(?:@(\w+)|mesh<\[([^\]]*)\]>), \[(.*?)\](?:, |>)")
_MESH_AXIS = re.compile(r'"([^"]+)"=(\d+)')
_DIMENSION = re.compile(r"\{([^}]*)\}")
_AXIS = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')


@dataclasses.dataclass(slots=True)
class DryExecutable:
    """Stands for a compiled module. `compile_now` compiles it after all. `argument_shardings`,
    `result_shardings`: None for one device. `has_kernels`: of Pallas. `donated`: which arguments
    the module takes away, `donated_keys`: by `records.array_key`. `estimate`: what Podyard says of
    it. `topology`: the type that the module is compiled for, and cannot run on; empty: the
    slice's."""

    compile_now: Callable[[], Any]
    devices: tuple[Any, ...]
    argument_bytes: int
    result_bytes: int
    largest_bytes: float
    argument_shardings: list[Any] | None
    result_shardings: list[Any] | None
    donated: frozenset[int]
    record: ModuleRuns
    estimate: Estimates
    donated_keys: tuple[str, ...] = ()
    result_origins: tuple[ResultOrigin, ...] = ()
    has_kernels: bool = False
    topology: str = ""
    compiled: Any = None

    @property
    def is_small(self) -> bool:
        """Return True for a module that is computed. One with kernels is lowered for TPUs, and
        cannot be."""
        is_small = (
            not self.has_kernels
            and self.argument_bytes + self.result_bytes <= SMALL_BYTES
            and self.largest_bytes <= SMALL_ARRAY_BYTES
        )
        return is_small and len(self.devices) <= SMALL_DEVICES

    def local_devices(self) -> list[Any]:
        return [
            device
            for device in self.devices
            if device.process_index == device.client.process_index()
        ]

    def get_parameter_shardings(self) -> list[Any] | None:
        return self.argument_shardings

    def get_compiled_memory_stats(self) -> Any:
        """By Podyard's estimate, with the names of XLA's."""
        data = self._estimate_data()
        argument_sizes = data.get("argument_sizes", {})
        sizes = {name: int(data.get(f"{own}_bytes", 0)) for name, own in _SIZES.items()}
        sizes |= {
            "alias": sum(int(argument_sizes.get(key, 0)) for key in self.donated_keys),
            "generated_code": 0,
        }
        return SimpleNamespace(
            **{f"{name}_size_in_bytes": size for name, size in sizes.items()},
            **{f"host_{name}_size_in_bytes": 0 for name in sizes},
            peak_memory_in_bytes=int(data.get("peak_bytes", 0)),
        )

    def cost_analysis(self) -> dict[str, float]:
        data = self._estimate_data()
        return {
            "flops": float(data["flops"]),
            "bytes accessed": float(data["hbm_bytes"]),
            "optimal_seconds": float(data["seconds"]),
        }

    def execute_sharded(self, *_args: Any, **_named: Any) -> Any:
        raise NotImplementedError(
            f"{self.record.name} is compiled for the topology of a {self.topology}, whose devices "
            "are not here: use the devices of jax.devices() to run it"
        )

    def __reduce__(self) -> Any:
        raise NotImplementedError(
            f"{self.record.name} cannot be serialized: Podyard estimates modules of dry runs and "
            "topologies, and has no code for the TPU"
        )

    def _estimate_data(self) -> Mapping[str, Any]:
        """Raises NotImplementedError for a module that has no estimate."""
        data = self.estimate()
        if data.get("seconds") is None:
            why = data.get("error") or "use podyard run --tpu, which estimates modules"
            raise NotImplementedError(f"no estimate of {self.record.name}: {why}")
        return data

    def hlo_modules(self) -> Any:
        raise NotImplementedError(
            "a dry run compiles nothing: there is no text of a compiled module"
        )

    def get_output_shardings(self) -> list[Any] | None:
        return self.result_shardings


def executable_of(
    compile_now: Callable[[], Any], module: Any, devices: Sequence[Any],
    text: str, record: ModuleRuns, estimate: Estimates,
) -> DryExecutable:  # fmt: skip
    """Return what stands for a compiled module. Raises NotImplementedError for modules in which JAX
    left the shardings to XLA's older partitioner."""
    main = _main(module)
    types = main.type
    donated = frozenset(
        place
        for place, attributes in enumerate(main.arg_attrs if types.inputs else [])
        if any(name in attributes for name in _DONATED)
    )
    shardings = None
    if len(devices) > 1:
        if not internals.uses_partitioner():
            raise NotImplementedError(
                "a dry run needs Shardy: JAX_USE_SHARDY_PARTITIONER must not be 0"
            )
        shardings = _shardings(internals.propagate_shardings(module), len(devices))
    return DryExecutable(
        compile_now,
        tuple(devices),
        sum(map(_nbytes, types.inputs)),
        sum(map(_nbytes, types.results)),
        largest_bytes(text),
        shardings and shardings[0],
        shardings and shardings[1],
        donated,
        record,
        estimate,
        tuple(_key(types.inputs[place]) for place in sorted(donated)),
        result_origins(main),
    )


_current: list[DryRun] = []


def current() -> DryRun | None:
    """The dry run that this process is in."""
    return _current[-1] if _current else None


class DryRun:
    """`steps`: runs of the training step after which the program ends; `finish` is called before
    that. `step_name`:
    what the user takes for the training step, or None."""

    def __init__(self, steps: int, step_name: str | None, finish: Callable[[], None]) -> None:
        self._steps = steps
        self._step_name = step_name
        self._finish = finish
        self._made: dict[int, weakref.ref[Any]] = {}
        self._origins = ArrayOrigins()
        self._executables: list[DryExecutable] = []
        self._zeros: NDArray[np.uint8] | None = None
        self._places = itertools.cycle(range(0, _PLACES_BYTES, _PLACE_BYTES))
        self._lock = threading.Lock()
        _current.append(self)

    def add(self, executable: DryExecutable) -> None:
        """Adds a module that may be the training step."""
        if len(self._executables) < MODULES_MAX:
            self._executables.append(executable)

    def call(self, run: Callable[..., Any], call: Any, args: tuple[Any, ...]) -> Any:
        executable = call.xla_executable
        if not isinstance(executable, DryExecutable) or executable.topology:
            return run(call, *args)
        given = internals.module_arguments(call, args)
        executable.record.call(call_site())
        self._origins.call(executable.record, given)
        if self._is_end(executable):
            self._end()
        if executable.is_small and not any(map(self.is_made, given)):
            if executable.compiled is None:
                executable.compiled = executable.compile_now()
            results = run(internals.call_of(call, executable.compiled), *args)
            self._origins.results(executable.record, executable.result_origins, given, results)
            return results
        results = internals.results_of(call, self.make)
        for result in results:  # JAX makes new arrays of those that it gets
            self._mark(result)
        self._origins.results(executable.record, executable.result_origins, given, results)
        for place in executable.donated:
            index = place - internals.token_count(call)
            if 0 <= index < len(given):
                internals.array_of(given[index]).delete()
        return results

    def put(self, put: Callable[[], Any], values: Sequence[Any], aval: Any, sharding: Any) -> Any:
        if sharding is not None and any(map(self.is_made, values)):
            result = self.make(aval, sharding)
        else:
            result = put()
        for value in values:
            self._origins.copy(value, result)
        return result

    def value(self, read: Callable[[], Any], array: Any) -> Any:
        if self.is_made(array):
            return self._view(array.shape, array.dtype)
        return read()

    def make(self, aval: Any, sharding: Any) -> Any:
        """An array of zeros that takes no memory."""
        array = internals.array_from(
            aval, sharding, self._view(sharding.shard_shape(aval.shape), aval.dtype)
        )
        self._mark(array)
        return array

    def _mark(self, value: Any) -> None:
        array = internals.array_of(value)
        for one in (array, *internals.single_arrays(array)):
            self._made[id(one)] = weakref.ref(one, _forget(self._made, id(one)))

    def is_made(self, value: Any) -> bool:
        """Return whether a value is none that was computed."""
        return id(internals.array_of(value)) in self._made

    def _view(self, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        with self._lock:
            if self._zeros is None or self._zeros.size < nbytes + _PLACES_BYTES:
                self._zeros = _without_touch(nbytes + _PLACES_BYTES)
            zeros, start = self._zeros, next(self._places)
        view: NDArray[Any] = zeros[start : start + nbytes].view(dtype).reshape(shape)
        view.flags.writeable = False
        return view

    def _is_end(self, executable: DryExecutable) -> bool:
        """Return True if this call is of the training step, which has run often enough. Only a
        module that gets its own results back ends a program: initializers that are called
        repeatedly before the first step do not."""
        record = executable.record
        if self._step_name is not None:
            return record.runs >= self._steps and has_name(record.name, self._step_name)
        if not record.feeds_itself or not record.runs:
            return False
        turns = (
            1 if record.runs >= self._steps else max(1, int(executable.estimate(0).get("turns", 0)))
        )
        if record.runs * turns < self._steps:
            return False
        repeated = [
            one
            for one in self._executables
            if not one.record.is_library and (one.record.calls or 0) > 1
        ]
        choice = training_step(_uses(repeated))
        return choice is not None and repeated[choice.index].record.digest == record.digest

    def _end(self) -> None:
        self._finish()
        if threading.current_thread() is not threading.main_thread():
            sys.stdout.flush()
            os._exit(0)  # an exception would end this thread only
        raise SystemExit(0)


def _uses(executables: Sequence[DryExecutable]) -> list[ModuleUse]:
    """With the time of each, as soon as it is estimated; with its bytes instead if that takes too
    long."""
    until = _monotonic() + (ESTIMATE_SECONDS if len(executables) > 1 else 0.0)
    estimates = [one.estimate(max(0.0, until - _monotonic())) for one in executables]
    is_priced = all(estimates)
    uses = []
    for one, estimate in zip(executables, estimates, strict=True):
        record = one.record
        nbytes = float(one.argument_bytes + one.result_bytes)
        seconds = float(estimate["device_seconds"]) if is_priced else nbytes
        turns = int(estimate.get("turns", 0))
        waits = is_priced and seconds < float(estimate["seconds"] or 0.0)
        uses.append(
            ModuleUse(
                record.name,
                record.calls or 0,
                seconds,
                "",
                turns,
                False,
                record.feeds_itself,
                waits,
                record.is_eager_loop,
            )
        )
    return uses


def _forget(entries: dict[int, Any], key: int) -> Callable[[Any], None]:
    def forget(_: Any) -> None:
        entries.pop(key, None)

    return forget


def _without_touch(nbytes: int) -> NDArray[np.uint8]:
    """Zeros that the system provides when they are first touched, which nobody does."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), np.uint8)


def _main(module: Any) -> Any:
    for op in module.body.operations:
        if op.operation.name == "func.func" and str(op.attributes["sym_name"]) == '"main"':
            return op
    raise ValueError("the module has no main function")


def _nbytes(type_: Any) -> int:
    """Of all devices together; tokens have none."""
    shape, bits = _shape_and_bits(type_)
    return math.prod(shape) * max(1, bits // 8) if bits else 0


def _key(type_: Any) -> str:
    shape, bits = _shape_and_bits(type_)
    return array_key(shape, bits / 8)


def _shape_and_bits(type_: Any) -> tuple[list[int], int]:
    """Return the shape and the bits of an element; 0 bits for a token."""
    try:
        shaped = internals.ir.RankedTensorType(type_)
    except (ValueError, TypeError):
        return [], 0
    name = re.sub(r"\D*(\d+).*", r"\1", str(shaped.element_type).removeprefix("f8"))
    bits = int(name) if name.isdecimal() else 8
    return [int(extent) for extent in shaped.shape], bits


def _shardings(module: Any, device_count: int) -> tuple[list[Any], list[Any]]:
    """XLA's spelling of the shardings of main's arguments and results."""
    meshes = {
        str(op.attributes["sym_name"]).strip('"'): _mesh(str(op.attributes["mesh"]))
        for op in module.body.operations
        if op.operation.name == "sdy.mesh"
    }
    main = _main(module)
    return (
        [
            _op_sharding(main.arg_attrs, place, meshes, device_count)
            for place in range(len(main.type.inputs))
        ],
        [
            _op_sharding(main.res_attrs, place, meshes, device_count)
            for place in range(len(main.type.results))
        ],
    )


def _mesh(text: str) -> dict[str, int]:
    return {name: int(size) for name, size in _MESH_AXIS.findall(text)}


def _op_sharding(
    attributes: Any, place: int, meshes: dict[str, dict[str, int]], device_count: int
) -> Any:
    found = None
    own = attributes[place] if attributes is not None and place < len(attributes) else {}
    if "sdy.sharding" in own:
        found = _SHARDING.search(str(own["sdy.sharding"]))
    if found is None:
        return internals.op_sharding([], [device_count], [0], device_count)
    axes = meshes[found[1]] if found[1] else _mesh(found[2])
    dimensions = [_AXIS.findall(one) for one in _DIMENSION.findall(found[3])]
    return _tiles(dimensions, axes, device_count)


def _tiles(
    dimensions: list[list[tuple[str, str, str]]], axes: dict[str, int], device_count: int
) -> Any:
    """`dimensions`: for each of the value's, its axes as (name, what lies before a part of the
    axis, its size)."""
    cuts: dict[str, set[int]] = {name: {1, size} for name, size in axes.items()}
    for name, before, size in (axis for dimension in dimensions for axis in dimension):
        if before:
            cuts[name] |= {int(before), int(before) * int(size)}
    # of the mesh in its order: each axis in the pieces that anything needs
    parts: list[tuple[str, int]] = []
    sizes: list[int] = []
    for name in axes:
        bounds = sorted(cuts[name])
        for low, high in itertools.pairwise(bounds):
            parts.append((name, low))
            sizes.append(high // low)
    if not parts:
        parts, sizes = [("", 1)], [device_count]
    used: list[int] = []
    counts = []
    for dimension in dimensions:
        count = 1
        for name, before, size in dimension:
            low = int(before) if before else 1
            high = low * int(size) if before else axes[name]
            for place, (own, start) in enumerate(parts):
                if own == name and low <= start < high:
                    used.append(place)
                    count *= sizes[place]
        counts.append(count)
    rest = [place for place in range(len(parts)) if place not in used]
    return internals.op_sharding(
        counts, sizes, [*used, *rest], math.prod(sizes[place] for place in rest)
    )
