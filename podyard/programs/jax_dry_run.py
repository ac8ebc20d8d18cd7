"""Runs a program for models that are larger than the machine: nothing large is computed.

Each module is lowered and handed over as in any run, but not compiled. Its results are arrays of
zeros that share one piece of memory that nobody has touched, so they take none; their shardings are
those that Shardy, JAX's own partitioner, finds. What depends on nothing of that and is small (keys,
schedules, whole small models) is computed. The program ends after some runs of its main step.
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

from podyard.programs import jax_internals as internals

SMALL_BYTES = 16 * 2**20  # arguments and results of a module that is computed
SMALL_DEVICES = 8  # XLA's devices for CPUs share the cores: a module on more is not computed
_SIZES = {"argument": "argument", "output": "result", "temp": "temporary"}
_DONATED = ("jax.buffer_donor", "tf.aliasing_output")
_SHARDING = re.compile(r"sharding<(?:@(\w+)|mesh<\[([^\]]*)\]>), \[(.*?)\](?:, |>)")
_MESH_AXIS = re.compile(r'"([^"]+)"=(\d+)')
_DIMENSION = re.compile(r"\{([^}]*)\}")
_AXIS = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')


@dataclasses.dataclass(slots=True)
class DryExecutable:
    """Stands for a compiled module. `compile_now` compiles it after all. `argument_shardings`,
    `result_shardings`: None for one device. `donated`: which arguments the module takes away.
    `estimate`: what Podyard says of it."""

    compile_now: Callable[[], Any]
    devices: tuple[Any, ...]
    argument_bytes: int
    result_bytes: int
    argument_shardings: list[Any] | None
    result_shardings: list[Any] | None
    donated: frozenset[int]
    estimate: Callable[[], Mapping[str, Any]]
    compiled: Any = None
    runs: int = 0

    @property
    def is_small(self) -> bool:
        return (
            self.argument_bytes + self.result_bytes <= SMALL_BYTES
            and len(self.devices) <= SMALL_DEVICES
        )

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
        found = self.estimate()
        sizes = {name: int(found.get(f"{own}_bytes", 0)) for name, own in _SIZES.items()}
        on_host = {f"host_{name}_size_in_bytes": 0 for name in (*_SIZES, "alias", "generated_code")}
        on_device = {f"{name}_size_in_bytes": size for name, size in sizes.items()}
        rest = {"alias_size_in_bytes": 0, "generated_code_size_in_bytes": 0}
        return SimpleNamespace(
            **on_host, **on_device, **rest, peak_memory_in_bytes=int(found.get("peak_bytes", 0))
        )

    def cost_analysis(self) -> dict[str, float]:
        found = self.estimate()
        return {
            "flops": float(found.get("flops", 0)),
            "optimal_seconds": float(found.get("seconds") or 0.0),
        }

    def hlo_modules(self) -> Any:
        raise NotImplementedError(
            "a dry run compiles nothing: there is no text of a compiled module"
        )

    def get_output_shardings(self) -> list[Any] | None:
        return self.result_shardings


_current: list[DryRun] = []


def current() -> DryRun | None:
    """The dry run that this process is in."""
    return _current[-1] if _current else None


class DryRun:
    """`steps`: runs of the main step after which the program ends; `finish` is called before
    that."""

    def __init__(self, steps: int, finish: Callable[[], None]) -> None:
        self._steps = steps
        self._finish = finish
        self._made: dict[int, weakref.ref[Any]] = {}
        self._zeros: NDArray[np.uint8] | None = None
        self._largest_bytes = 0
        self._lock = threading.Lock()
        _current.append(self)

    def compile(
        self, compile_now: Callable[[], Any], module: Any, devices: Sequence[Any],
        estimate: Callable[[], Mapping[str, Any]],
    ) -> DryExecutable:  # fmt: skip
        """`estimate` gives the fields of `estimator.ModuleEstimate`, or nothing.

        Raises NotImplementedError for modules in which JAX left the shardings to XLA's older
        partitioner.
        """
        main = _main(module)
        types = main.type
        arguments = [_nbytes(one) for one in types.inputs]
        results = [_nbytes(one) for one in types.results]
        donated = frozenset(
            place
            for place, attributes in enumerate(main.arg_attrs if arguments else [])
            if any(name in attributes for name in _DONATED)
        )
        found = None
        if len(devices) > 1:
            if not internals.uses_partitioner():
                raise NotImplementedError(
                    "a dry run needs Shardy: JAX_USE_SHARDY_PARTITIONER must not be 0"
                )
            found = _shardings(internals.propagate_shardings(module), len(devices))
        return DryExecutable(
            compile_now,
            tuple(devices),
            sum(arguments),
            sum(results),
            found and found[0],
            found and found[1],
            donated,
            estimate,
        )

    def call(self, run: Callable[..., Any], call: Any, args: tuple[Any, ...]) -> Any:
        executable = call.xla_executable
        if not isinstance(executable, DryExecutable):
            return run(call, *args)
        given = internals.module_arguments(call, args)
        self._count(executable)
        if executable.is_small and not any(map(self.is_made, given)):
            if executable.compiled is None:
                executable.compiled = executable.compile_now()
            return run(internals.call_of(call, executable.compiled), *args)
        results = internals.results_of(call, self.make)
        for result in results:  # JAX makes new arrays of those that it gets
            self._mark(result)
        for place in executable.donated:
            index = place - internals.token_count(call)
            if 0 <= index < len(given):
                internals.array_of(given[index]).delete()
        return results

    def put(self, put: Callable[[], Any], values: Sequence[Any], aval: Any, sharding: Any) -> Any:
        if sharding is not None and any(map(self.is_made, values)):
            return self.make(aval, sharding)
        return put()

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
            self._made[id(one)] = weakref.ref(one, self._forget(id(one)))

    def is_made(self, value: Any) -> bool:
        """Whether a value is none that was computed."""
        return id(internals.array_of(value)) in self._made

    def _forget(self, key: int) -> Callable[[Any], None]:
        def forget(_: Any) -> None:
            self._made.pop(key, None)

        return forget

    def _view(self, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        with self._lock:
            if self._zeros is None or self._zeros.size < nbytes:
                self._zeros = _without_touch(max(nbytes, 2**20))
            zeros = self._zeros
        view: NDArray[Any] = zeros[:nbytes].view(dtype).reshape(shape)
        view.flags.writeable = False
        return view

    def _count(self, executable: DryExecutable) -> None:
        """The main step is what has the largest arguments of all that has run."""
        if executable.runs >= self._steps and executable.argument_bytes >= self._largest_bytes:
            self._finish()
            if threading.current_thread() is not threading.main_thread():
                sys.stdout.flush()
                os._exit(0)  # an exception would end this thread only
            raise SystemExit(0)
        executable.runs += 1
        self._largest_bytes = max(self._largest_bytes, executable.argument_bytes)


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
    try:
        shaped = internals.ir.RankedTensorType(type_)
    except (ValueError, TypeError):
        return 0
    name = re.sub(r"\D*(\d+).*", r"\1", str(shaped.element_type).removeprefix("f8"))
    bits = int(name) if name.isdecimal() else 8
    return int(math.prod(shaped.shape)) * max(1, bits // 8)


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
