"""Uses of kernels in a program: operands that are its constants (block masks and tables that a
kernel gets ahead of its grid, by scalar prefetch), and in which pass.

A trainer builds them from the shape of its mask, so the program that is lowered holds their
numbers. Small arrays of integers are followed from there, through calls and loops that do not
change them, to the kernels.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.programs.modules.locations import REMATTED

SIZE_MAX = 1 << 20  # numbers of an array that is followed: a table of pages has fewer
Known = NDArray[Any] | None


@dataclasses.dataclass(frozen=True, slots=True)
class KernelUse:
    """`operands`: the leading ones (bounds of the grid, then what is prefetched), as far as they
    are known. `is_backward`: the backward pass alone calls it."""

    operands: tuple[Known, ...] = ()
    is_backward: bool = False


# in the name stack of an operation of the backward pass, as JAX's autodiff writes it
_TRANSPOSED = "transpose("
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_UNCHANGED = frozenset({
    "copy", "copy_p", "device_put", "layout_constraint", "mesh_cast", "name", "pcast",
    "optimization_barrier", "pvary", "reshard", "sharding_constraint", "stop_gradient",
})  # fmt: skip
_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert,
    "neg": np.negative, "sign": np.sign,
}  # fmt: skip


def kernel_uses(program: Any) -> Mapping[int, KernelUse]:
    """Return how a closed jaxpr uses each kernel, by the identity of the kernel's jaxpr."""
    follower = _Follower()
    follower.run(program, [None] * len(getattr(program, "jaxpr", program).invars))
    return follower.kernels


class _Follower:
    def __init__(self) -> None:
        self.kernels: dict[int, KernelUse] = {}
        self._stack: list[str] = []  # names of the equations around

    def run(self, program: Any, inputs: Sequence[Known]) -> list[Known]:
        jaxpr = getattr(program, "jaxpr", program)
        values: dict[Any, Known] = dict(
            zip(jaxpr.constvars, map(_small, getattr(program, "consts", ())), strict=False)
        )
        values |= dict(zip(jaxpr.invars, inputs, strict=False))
        for equation in jaxpr.eqns:
            inputs = [_read(atom, values) for atom in equation.invars]
            self._stack.append(str(equation.source_info.name_stack))
            results = self._results(equation, inputs)
            self._stack.pop()
            values |= {
                variable: value
                for variable, value in zip(equation.outvars, results, strict=False)
                if value is not None
            }
        return [_read(atom, values) for atom in jaxpr.outvars]

    def _results(self, equation: Any, inputs: Sequence[Known]) -> Sequence[Known]:
        name, params = equation.primitive.name, equation.params
        if name == "pallas_call":
            self._kernel(params, inputs)
            return ()
        if name == "shard_map":
            self.run(params["jaxpr"], _shards(params, inputs))
            return ()
        if name == "scan":
            return self._loop(params["jaxpr"], inputs, params["num_consts"], params["num_carry"])
        if name == "while":
            first = params["cond_nconsts"]
            return self._loop(params["body_jaxpr"], inputs[first:], params["body_nconsts"])
        if name == "cond":
            for branch in params["branches"]:
                self.run(branch, inputs[1:])
            return ()
        body = next((params[key] for key in _BODIES if key in params), None)
        if body is not None:
            return self.run(body, inputs)
        if name in _UNCHANGED:
            return inputs
        return [_integers_of(equation, inputs)]

    def _kernel(self, params: Mapping[str, Any], inputs: Sequence[Known]) -> None:
        """Operands that differ between calls are not known."""
        mapping, kernel = params["grid_mapping"], id(params["jaxpr"])
        own = tuple(inputs[: mapping.num_dynamic_grid_bounds + mapping.num_index_operands])
        names = "/".join(self._stack)
        is_backward = _TRANSPOSED in names and REMATTED not in names
        before = self.kernels.get(kernel)
        if before is not None:
            pairs = zip(before.operands, own, strict=True)
            own = tuple(one if _are_equal(one, other) else None for one, other in pairs)
            is_backward = is_backward and before.is_backward
        self.kernels[kernel] = KernelUse(own, is_backward)

    def _loop(
        self, body: Any, inputs: Sequence[Known], constants: int, carries: int | None = None
    ) -> Sequence[Known]:
        """Constants stay, and so does what each turn hands on as it got it. `carries`: how many
        values are carried; None: all others."""
        inner = body.jaxpr
        end = len(inputs) if carries is None else constants + carries
        carried = [
            value if inner.invars[constants + place] is inner.outvars[place] else None
            for place, value in enumerate(inputs[constants:end])
        ]
        rest = [None] * (len(inner.invars) - end)
        self.run(body, [*inputs[:constants], *carried, *rest])
        return carried


def _are_equal(one: Known, other: Known) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)


def _read(atom: Any, values: Mapping[Any, Known]) -> Known:
    return _small(atom.val) if hasattr(atom, "val") else values.get(atom)


def _small(value: Any) -> Known:
    """Return a constant of the program as an array, if it is of few integers."""
    if not _is_small(np.shape(value), getattr(value, "dtype", np.dtype(type(value)))):
        return None
    return np.asarray(value)


def _is_small(shape: Sequence[int], dtype: Any) -> bool:
    """`dtype`: NumPy's, or one of JAX's own, as of keys."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biu" and math.prod(shape) <= SIZE_MAX


def _shards(params: Mapping[str, Any], inputs: Sequence[Known]) -> list[Known]:
    """Return what each device has of its operands, where all have the same."""
    sizes = dict(params["mesh"].shape)
    return [
        None if value is None else _shard(value, spec, sizes)
        for value, spec in zip(inputs, params["in_specs"], strict=True)
    ]


def _shard(value: NDArray[Any], spec: Any, sizes: Mapping[Any, int]) -> Known:
    for axis, names in enumerate(spec):
        of_axis = names if isinstance(names, tuple) else (names,)
        count = math.prod(sizes[name] for name in of_axis if name is not None)
        if count == 1:
            continue
        first, *others = np.split(value, count, axis)
        if not all(np.array_equal(first, one) for one in others):
            return None
        value = first
    return value


def _integers_of(equation: Any, inputs: Sequence[Known]) -> Known:
    """Return the result of an operation on few integers; None: it is not known."""
    arrays = [value for value in inputs if value is not None]
    if not arrays or len(arrays) < len(inputs) or len(equation.outvars) != 1:
        return None
    name, result = equation.primitive.name, equation.outvars[0].aval
    shape = tuple(result.shape)
    if not _is_small(shape, result.dtype):
        return None
    if name in _ELEMENTWISE:
        value = _ELEMENTWISE[name](*arrays)
    elif name in _MOVES:
        value = _MOVES[name](arrays, equation.params, shape)
    else:
        return None
    return np.asarray(value, result.dtype) if value.shape == shape else None


def _broadcast(
    arrays: Sequence[NDArray[Any]], params: Mapping[str, Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    own = [1] * len(shape)
    for place, axis in enumerate(params["broadcast_dimensions"]):
        own[axis] = arrays[0].shape[place]
    return np.broadcast_to(arrays[0].reshape(own), shape)


def _slice(
    arrays: Sequence[NDArray[Any]], params: Mapping[str, Any], _: tuple[int, ...]
) -> NDArray[Any]:
    starts, ends = params["start_indices"], params["limit_indices"]
    steps = params["strides"] or [1] * len(starts)
    return arrays[0][tuple(map(slice, starts, ends, steps))]


def _dynamic_slice(
    arrays: Sequence[NDArray[Any]], params: Mapping[str, Any], _: tuple[int, ...]
) -> NDArray[Any]:
    """As XLA does it: a start is moved until the slice lies inside."""
    value, *starts = arrays
    firsts = [
        min(max(int(start), 0), extent - size)
        for start, size, extent in zip(starts, params["slice_sizes"], value.shape, strict=True)
    ]
    ends = [first + size for first, size in zip(firsts, params["slice_sizes"], strict=True)]
    return value[tuple(map(slice, firsts, ends))]


def _reshape(
    arrays: Sequence[NDArray[Any]], _: Mapping[str, Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    return arrays[0].reshape(shape)


_MOVES: Mapping[str, Callable[[Sequence[NDArray[Any]], Mapping[str, Any], Any], NDArray[Any]]] = {
    "convert_element_type": _reshape,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": lambda arrays, params, _: arrays[0].transpose(params["permutation"]),
    "concatenate": lambda arrays, params, _: np.concatenate(arrays, params["dimension"]),
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
}
