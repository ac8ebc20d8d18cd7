"""The work of a Pallas kernel over its grid, from its traced body and block specs.

Scalars that follow from the place in the grid are computed for all steps at once. So a branch
(`pl.when`) counts for the steps that take it, a loop for its turns there, and a block is copied
when its index changes. So do masks and tables that are constants of the program
(`kernel_uses.py`). What depends on other values is not known: branches count in full, blocks
change at each step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podyard.base.kernel_cost import KernelCost
from podyard.programs.kernels.kernel_sizes import (
    copied_bytes,
    is_float,
    itemsize_of,
    padded_bytes,
    product_flops,
    size_of,
    space_of,
    vmem_bytes,
)
from podyard.programs.kernels.kernel_uses import KernelUse, Known
from podyard.programs.kernels.kernel_values import (
    Number,
    Scalar,
    ScalarTable,
    numbers_of,
    orders_two_axes,
    positions_of,
)

STEPS_MAX = 1 << 20  # of a grid that is walked: more take seconds, and count by the first of them
BY_VALUES = "skips parts by values that are not known here: counted in full, which may be too much"
DYNAMIC_GRID = "has a grid that depends on values: its known extents count"
DYNAMIC_LOOP = "has a loop whose turns depend on values: counted as one"
LARGE_GRID = f"has a grid of more than {STEPS_MAX} steps: counted by the first of them"
BLOCKS_BY_VALUES = (
    "copies blocks by values that are not known here: one at each step, which may be too much"
)


def _select(which: Any, *cases: Any) -> Any:
    """The case that `which` says, at each step."""
    return np.choose(np.asarray(which, int), np.broadcast_arrays(*cases, which)[:-1])


_TRANSCENDENTAL = frozenset({
    "exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "sin", "cos", "tan", "sqrt",
    "rsqrt", "erf", "erf_inv",
    "pow", "div", "cbrt", "sinh", "cosh", "asinh", "acosh", "atanh", "atan2",
})  # fmt: skip
_FREE = frozenset({
    "get", "swap", "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "iota", "program_id",
    "num_programs",
    "tile", "dma_start", "dma_wait", "semaphore_signal", "semaphore_wait", "slice",
    "bitcast_convert_type",
    "concatenate",
})  # fmt: skip
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "neg": np.negative,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "sign": np.sign,
    "rem": np.fmod,
    "div": lambda a, b: np.trunc(np.divide(a, np.where(np.equal(b, 0), 1, b))),
    "select_n": _select,
    "convert_element_type": np.asarray, "copy": np.asarray, "squeeze": np.asarray,
    "reshape": np.asarray,
    "integer_pow": np.power, "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}  # fmt: skip


@dataclasses.dataclass(slots=True)
class Work:
    """Added up over all steps."""

    flops: float = 0.0
    matrix_flops: float = 0.0
    vector_operations: float = 0.0
    transcendentals: float = 0.0
    copied_bytes: float = 0.0
    scoped_bytes: float = 0.0
    is_causal: bool = False  # a mask orders two axes by position
    doubts: dict[str, None] = dataclasses.field(default_factory=dict)


def kernel_cost(name: str, params: Mapping[str, Any], use: KernelUse | None = None) -> KernelCost:
    """`params`: of JAX's primitive `pallas_call`; `use`: how the program uses it, where that is
    known. The author's `cost_estimate` wins where there is one."""
    mapping, estimate = params["grid_mapping"], params["cost_estimate"]
    use = use or KernelUse()
    bounds, tables = _split(use.operands, mapping)
    grid, work = _grid(mapping, bounds), Work()
    if len(grid.extents) != len(mapping.grid) or grid.is_dynamic:
        work.doubts[DYNAMIC_GRID] = None
    if grid.is_cut:
        work.doubts[LARGE_GRID] = None
    walk = _GridWalk(grid, work)
    jaxpr = params["jaxpr"]
    walk.run(jaxpr, dict(zip(jaxpr.invars, tables, strict=False)), 1.0)
    whole = Work()
    if work.is_causal:
        _GridWalk(grid, whole, is_whole=True).run(jaxpr, {}, 1.0)
    nbytes, buffers = 0.0, 0.0
    for block in mapping.block_mappings:
        moved, buffer = _block(block, grid, walk, tables)
        nbytes, buffers = nbytes + moved, buffers + buffer
    scratch = sum(vmem_bytes(aval) for aval in mapping.scratch_avals)
    limit = getattr(params["compiler_params"], "vmem_limit_bytes", None)
    cost = KernelCost(
        name=name,
        flops=work.flops,
        hbm_bytes=nbytes + work.copied_bytes,
        matrix_flops=work.matrix_flops,
        vector_operations=work.vector_operations,
        transcendentals=work.transcendentals,
        steps=float(grid.steps),
        vmem_bytes=buffers + scratch + work.scoped_bytes,
        vmem_limit_bytes=None if limit is None else float(limit),
        causal_flops=max(work.flops, whole.flops) if work.is_causal else 0.0,
        is_backward=use.is_backward,
        doubts=tuple(f"kernel {name} {doubt}" for doubt in work.doubts),
    )
    return cost if estimate is None else _by_author(cost, estimate)


def _by_author(cost: KernelCost, estimate: Any) -> KernelCost:
    """The author knows what the kernel skips: what the body does on the vector unit counts for as
    large a share."""
    flops = float(estimate.flops)
    share = min(1.0, flops / cost.flops) if cost.flops else 1.0
    return dataclasses.replace(
        cost,
        flops=flops,
        matrix_flops=flops,
        hbm_bytes=float(estimate.bytes_accessed),
        vector_operations=cost.vector_operations * share,
        transcendentals=float(estimate.transcendentals),
        causal_flops=max(flops, cost.causal_flops) if cost.causal_flops else 0.0,
        doubts=(),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Grid:
    """`places`: for each axis the index at each step, the last axis fastest. `local`: axes that the
    body sees."""

    extents: tuple[int, ...]
    steps: int
    places: tuple[NDArray[np.int64], ...]
    local: tuple[int, ...]
    is_dynamic: bool

    @property
    def is_cut(self) -> bool:
        return self.steps > STEPS_MAX

    @property
    def scale(self) -> float:
        """Steps that each walked one stands for."""
        return self.steps / min(self.steps, STEPS_MAX) if self.steps else 0.0


def _split(
    operands: Sequence[Known], mapping: Any
) -> tuple[Iterator[Known], Sequence[ScalarTable | None]]:
    """Return the bounds of the grid, and the tables that the body and the index maps read."""
    count = mapping.num_dynamic_grid_bounds
    tables = [None if one is None else ScalarTable(one) for one in operands[count:]]
    return iter(operands[:count]), tables or [None] * mapping.num_index_operands


def _grid(mapping: Any, bounds: Iterator[Known]) -> _Grid:
    known = [
        extent if isinstance(extent, int) else _extent_of(next(bounds, None))
        for extent in mapping.grid
    ]
    extents = tuple(1 if extent is None else extent for extent in known)
    steps = math.prod(extents)
    walked = np.arange(min(steps, STEPS_MAX))
    places = []
    for axis, extent in enumerate(extents):
        after = math.prod(extents[axis + 1 :])
        places.append((walked // after) % max(extent, 1))
    local = tuple(axis for axis in range(len(extents)) if axis not in mapping.vmapped_dims)
    is_dynamic = any(extent is None for extent in known)
    return _Grid(extents, steps, tuple(places), local, is_dynamic)


def _extent_of(bound: Known) -> int | None:
    return None if bound is None or bound.size != 1 else int(bound.reshape(()))


@dataclasses.dataclass(frozen=True, slots=True)
class _GridWalk:
    """`is_whole`: as if no step left anything out."""

    grid: _Grid
    work: Work
    is_whole: bool = False

    def run(self, jaxpr: Any, known: Mapping[Any, Scalar], weight: Any) -> list[Scalar]:
        """Count the equations of `jaxpr`, whose scalar inputs are `known`; `weight`: how often each
        step does them. Return its scalar results."""
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        values = dict(known)
        for equation in jaxpr.eqns:
            inputs = [_read(atom, values) for atom in equation.invars]
            for variable, value in zip(
                equation.outvars, self._equation(equation, inputs, weight), strict=False
            ):
                values[variable] = value
        return [_read(atom, values) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: Sequence[Scalar], weight: Any) -> Sequence[Scalar]:
        name, params = equation.primitive.name, equation.params
        if name == "program_id":
            axis = (
                self.grid.local[params["axis"]] if params["axis"] < len(self.grid.local) else None
            )
            return [None if axis is None else self.grid.places[axis]]
        if name == "get" and isinstance(inputs[0], ScalarTable):
            return [inputs[0].at(params["tree"], inputs[1:])]
        if name == "num_programs":
            local = self.grid.local
            return [
                self.grid.extents[local[params["axis"]]] if params["axis"] < len(local) else None
            ]
        if name == "cond":
            return self._branches(params["branches"], inputs, weight)
        if name == "scan":
            return self._scan(params, inputs, weight)
        if name == "while":
            return self._while(params, inputs, weight)
        body = next((params[key] for key in _CALLS if key in params), None)
        if body is not None:
            inner = getattr(body, "jaxpr", body)
            if name == "run_scoped":
                own = (
                    inner.invars[len(inputs) :]
                    if len(inner.invars) >= len(inputs)
                    else inner.invars
                )
                self.work.scoped_bytes += sum(vmem_bytes(variable.aval) for variable in own)
                inputs = [*inputs, *(None for _ in own)]
            return self.run(inner, dict(zip(inner.invars, inputs, strict=False)), weight)
        self._count(equation, weight)
        self.work.is_causal |= orders_two_axes(equation, inputs)
        function, numbers = _FUNCTIONS.get(name), numbers_of(inputs)
        size = max((size_of(one) for one in equation.outvars), default=0)
        if function is None or numbers is None or size > 1:
            several = len(equation.outvars) != 1
            return (
                [None] * len(equation.outvars)
                if several
                else [positions_of(equation, inputs, size)]
            )
        return [_apply(function, name, params, numbers)]

    def _count(self, equation: Any, weight: Any) -> None:
        name, turns = equation.primitive.name, self._turns(weight)
        size = max((size_of(one) for one in equation.outvars), default=0)
        if name == "dot_general":
            flops, whole = product_flops(equation)
            self.work.flops += turns * flops
            self.work.matrix_flops += turns * whole
        elif name == "dma_start":
            self.work.copied_bytes += turns * copied_bytes(equation)
        elif name in _FREE or size <= 1:
            return
        elif name in _TRANSCENDENTAL and is_float(equation):
            self.work.transcendentals += turns * size
        else:
            read = max((size_of(one) for one in equation.invars), default=0)
            self.work.vector_operations += turns * (
                max(read, size) if name.startswith(("reduce_", "arg")) else size
            )

    def _turns(self, weight: Any) -> float:
        """Over all steps."""
        walked = min(self.grid.steps, STEPS_MAX)
        total = float(np.sum(weight)) if np.ndim(weight) else float(weight) * walked
        return total * self.grid.scale

    def _branches(
        self, branches: Sequence[Any], inputs: Sequence[Scalar], weight: Any
    ) -> Sequence[Scalar]:
        numbers, rest = numbers_of(inputs[:1]), inputs[1:]
        which = None if numbers is None or self.is_whole else numbers[0]
        results: list[list[Scalar]] = []
        if which is None:
            self.work.doubts[BY_VALUES] = None
            sizes = [_work_of(branch) for branch in branches]
            taken: list[Any] = [
                weight if place == int(np.argmax(sizes)) else 0.0 for place in range(len(branches))
            ]
        else:
            places = np.clip(np.asarray(which, int), 0, len(branches) - 1)
            taken = [np.where(places == place, weight, 0.0) for place in range(len(branches))]
        for branch, share in zip(branches, taken, strict=True):
            inner = getattr(branch, "jaxpr", branch)
            results.append(self.run(inner, dict(zip(inner.invars, rest, strict=False)), share))
        if which is None:
            return [None] * len(results[0])
        chosen = np.clip(np.asarray(which, int), 0, len(branches) - 1)
        return [_choose(chosen, cases) for cases in zip(*results, strict=True)]

    def _scan(
        self, params: Mapping[str, Any], inputs: Sequence[Scalar], weight: Any
    ) -> Sequence[Scalar]:
        """Bodies of few turns one after the other, so that counters are known; else all alike."""
        inner, length = params["jaxpr"].jaxpr, params["length"]
        constants, carries = params["num_consts"], params["num_carry"]
        fixed, carry = list(inputs[:constants]), list(inputs[constants : constants + carries])
        rest: list[Scalar] = [None] * (len(inner.invars) - constants - carries)
        if length > _TURNS_APART:
            carry = [None] * carries
        for _ in range(min(length, _TURNS_APART) if length <= _TURNS_APART else 1):
            own = dict(zip(inner.invars, [*fixed, *carry, *rest], strict=False))
            times = weight if length <= _TURNS_APART else np.multiply(weight, length)
            carry = self.run(inner, own, times)[:carries]
        return [*carry, *([None] * (len(params["jaxpr"].jaxpr.outvars) - carries))]

    def _while(
        self, params: Mapping[str, Any], inputs: Sequence[Scalar], weight: Any
    ) -> Sequence[Scalar]:
        """A loop that counts up to a bound; its other values are not known afterwards."""
        tests, bodies = params["cond_nconsts"], params["body_nconsts"]
        carry = list(inputs[tests + bodies :])
        turns = _bound(params["cond_jaxpr"].jaxpr, [*inputs[:tests], *carry])
        if turns is None:
            self.work.doubts[DYNAMIC_LOOP] = None
            turns = 1
        if self.is_whole:
            turns = np.max(turns)
        inner = params["body_jaxpr"].jaxpr
        known = dict(zip(inner.invars[:bodies], inputs[tests : tests + bodies], strict=False))
        self.run(inner, known, np.multiply(weight, turns))
        return [None] * len(carry)


_TURNS_APART = 16  # of a loop in a kernel that are walked one by one


def _bound(test: Any, inputs: Sequence[Scalar]) -> Any:
    """Turns of `for i in range(start, end)`, as JAX lowers it: the test is `i < end`."""
    if len(test.eqns) != 1 or test.eqns[0].primitive.name != "lt":
        return None
    values = dict(zip(test.invars, inputs, strict=False))
    ends = numbers_of([_read(atom, values) for atom in test.eqns[0].invars])
    return None if ends is None else np.maximum(np.subtract(ends[1], ends[0]), 0)


def _choose(which: Any, cases: Sequence[Scalar]) -> Scalar:
    numbers = numbers_of(cases)
    return None if numbers is None else np.asarray(_select(which, *numbers))


def _apply(
    function: Callable[..., Any], name: str, params: Mapping[str, Any], inputs: Sequence[Number]
) -> Scalar:
    if name == "integer_pow":
        return np.asarray(np.power(np.asarray(inputs[0]), params["y"]))
    try:
        return np.asarray(function(*inputs))
    except (TypeError, ValueError):
        return None


def _read(atom: Any, values: Mapping[Any, Scalar]) -> Scalar:
    if hasattr(atom, "val"):  # a literal
        value = atom.val
        return value if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf" else None
    return values.get(atom)


def _work_of(branch: Any) -> int:
    """A rough size, to tell the branch that does something."""
    inner = getattr(branch, "jaxpr", branch)
    total = 0
    for equation in inner.eqns:
        total += 1 + sum(size_of(one) for one in equation.outvars) * (
            128 if equation.primitive.name == "dot_general" else 1
        )
        for value in equation.params.values():
            for one in value if isinstance(value, tuple) else (value,):
                if hasattr(getattr(one, "jaxpr", one), "eqns"):
                    total += _work_of(one)
    return total


def _block(
    block: Any, grid: _Grid, walk: _GridWalk, tables: Sequence[ScalarTable | None]
) -> tuple[float, float]:
    """Bytes that are copied between HBM and VMEM over the grid, and those of the buffers there."""
    space = space_of(block.transformed_block_aval)
    if space not in ("vmem", "default", "none"):
        return 0.0, 0.0
    shape = [_extent(one) for one in block.block_shape]
    itemsize = itemsize_of(block.array_aval)
    nbytes = math.prod(shape) * itemsize
    index_map = block.index_map_jaxpr.jaxpr
    known = dict(zip(index_map.invars, [*grid.places, *tables], strict=False))
    places = _GridWalk(grid, Work()).run(index_map, known, 0.0)
    if numbers_of(places) is None:
        walk.work.doubts[BLOCKS_BY_VALUES] = None
    copies = _changes(places, min(grid.steps, STEPS_MAX)) * grid.scale
    mode = getattr(block, "pipeline_mode", None)
    count = getattr(mode, "buffer_count", 2) if grid.steps > 1 else 1
    return copies * nbytes, count * padded_bytes(shape, itemsize)


def _changes(places: Sequence[Scalar], steps: int) -> float:
    """Return the number of steps whose index differs from that of the step before; the first step
    counts."""
    numbers = numbers_of(places)
    if numbers is None:
        return float(steps)
    changed = np.zeros(max(steps - 1, 0), bool)
    for value in numbers:
        array = np.asarray(value)
        if array.ndim:
            changed |= array[1:] != array[:-1]
    return 1.0 + float(changed.sum()) if steps else 0.0


def _extent(dimension: Any) -> int:
    size = getattr(dimension, "block_size", 1)  # a squeezed dimension has one
    return int(size) if isinstance(size, int) else 1
