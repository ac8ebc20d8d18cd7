"""Which operations become one kernel, as the TPU compiler groups them.

Every matrix product, pooling window and reduction starts a kernel. Element-wise work on its result joins it;
element-wise work that waits for nothing but finished kernels floats, and is done again inside every kernel that needs
it. What crosses from one kernel to another is written to memory once and read by every reader.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from podyard.engine.program.ir import Body, Operation, Program, TensorType
from podyard.engine.timing.layout import Tiling, compact_layout

KernelKind = Literal["matrix", "window", "reduce", "loop", "copy", "opaque", "collective", "control"]

MATRIX = frozenset({"dot_general", "convolution"})
COLLECTIVES = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"})
CONTROL = frozenset({"while", "case", "if"})
# Kernels of their own that the compiler gives no cycles.
OPAQUE = frozenset({
    "gather", "scatter", "sort", "select_and_scatter", "custom_call", "fft", "cholesky", "triangular_solve",
    "dynamic_update_slice", "rng", "rng_bit_generator", "dynamic_gather", "top_k",
})  # fmt: skip
ALIASES = frozenset({"shard", "unshard", "optimization_barrier", "get_tuple_element", "tuple"})
# Their operands are in memory before they start, their results when they end.
_UNFUSED = ("opaque", "collective", "control", "copy")
# What only names or orders numbers anew.
_REORDERING = ("reshape", "transpose", "convert", "reverse", "pad", "bitcast_convert")
# Arrays below this many numbers are not worth a decision.
_SMALL_SIZE = 4096
# Masks that are kept for the backward pass are packed into words.
_MASK_BITS = 32
LEAVES = frozenset({"constant", "iota", "create_token", "after_all", "partition_id", "replica_id"})
ELEMENTWISE = frozenset({
    "abs", "add", "and", "atan2", "bitcast_convert", "broadcast_in_dim", "cbrt", "ceil", "clamp", "compare",
    "complex", "concatenate", "convert", "cosine", "count_leading_zeros", "divide", "dynamic_slice", "exponential",
    "exponential_minus_one", "floor", "imag", "is_finite", "log", "log_plus_one", "logistic", "maximum", "minimum",
    "multiply", "negate", "not", "or", "pad", "popcnt", "power", "real", "reduce_precision", "remainder", "reshape",
    "reverse", "round_nearest_afz", "round_nearest_even", "rsqrt", "select", "shift_left", "shift_right_arithmetic",
    "shift_right_logical", "sign", "sine", "slice", "sqrt", "square", "subtract", "tan", "tanh", "transpose", "xor",
    "erf", "erf_inv", "stop_gradient", "copy", "broadcast", "map", "next_after",
})  # fmt: skip


@dataclasses.dataclass(slots=True)
class Kernel:
    """`anchor` is what it was started for (None: element-wise work only). `operations` are done in it, once each;
    `inputs` and `outputs` are values in memory. `after`: how many kernels come before its last input."""

    index: int
    kind: KernelKind
    anchor: Operation | None
    operations: list[Operation] = dataclasses.field(default_factory=list)
    inputs: list[int] = dataclasses.field(default_factory=list)
    outputs: list[int] = dataclasses.field(default_factory=list)
    reductions: list[Operation] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Fused:
    """Kernels in the order they run. `stored[value]`: the type a value has in memory, where that is narrower than the
    program's (operands of matrix products are kept in bfloat16). `aliases`: values that are others by another name."""

    kernels: list[Kernel]
    stored: dict[int, TensorType]
    aliases: dict[int, int]
    unknown: list[Operation]


def fuse(program: Program, body: Body, tiling: Tiling) -> Fused:
    """Groups the operations of one body (bodies inside of it are kernels of kind `control`)."""
    return _Fusion(program, body, tiling).run()


class _Fusion:
    def __init__(self, program: Program, body: Body, tiling: Tiling) -> None:
        self.program = program
        self.body = body
        self.tiling = tiling
        self.kernels: list[Kernel] = []
        self.aliases: dict[int, int] = {}
        self.unknown: list[Operation] = []
        # Where a value comes from: in the flow of a kernel, or floating (after that many kernels are complete).
        self.home: dict[int, int] = {}
        self.after: dict[int, int] = dict.fromkeys(body.parameters, -1)
        self.floating: dict[int, Operation] = {}
        self.reduced: set[int] = set()
        # Floating values that a kernel of their own puts into memory.
        self.materialised: set[int] = set()
        # Reshapes that move nothing: the array that they are another view of.
        self.view_of: dict[int, int] = {}
        self.users: dict[int, list[Operation]] = {}
        self._seen: dict[object, tuple[int, ...]] = {}
        self._results: set[int] = set()
        self._stored_results: set[int] = set()

    def run(self) -> Fused:
        live = _live_operations(self.body)
        operations = [operation for operation in self.body.operations if id(operation) in live]
        for operation in operations:
            for value in operation.operands:
                self.users.setdefault(value, []).append(operation)
        for operation in operations:
            if not self._is_repetition(operation):
                self._place(operation)
        self._results = {self.resolve(value) for value in self.body.results}
        self._keep_roots()
        self._store_results()
        self._connect()
        return Fused(
            [kernel for kernel in self.kernels if kernel.outputs or kernel.anchor], self._stored_types(), self.aliases,
            self.unknown,
        )  # fmt: skip

    def resolve(self, value: int) -> int:
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def _operands(self, operation: Operation) -> list[int]:
        return [self.resolve(value) for value in operation.operands]

    def _is_repetition(self, operation: Operation) -> bool:
        """Whether the same operation on the same operands has been placed: its results are the other's then."""
        if operation.bodies and operation.opcode != "reduce":
            return False
        attributes = tuple(sorted((name, str(value)) for name, value in operation.attributes.items()))
        inner = tuple(step.opcode for body in operation.bodies for step in body.operations)
        types = tuple(self.program.types[value] for value in operation.results)
        key = (operation.opcode, tuple(self._operands(operation)), attributes, inner, types)
        if operation.opcode == "constant" and "value" not in operation.attributes:
            return False
        first = self._seen.setdefault(key, operation.results)
        if first is operation.results:
            return False
        self.aliases.update(zip(operation.results, first, strict=True))
        return True

    # --- placing operations

    def _place(self, operation: Operation) -> None:
        opcode = operation.opcode
        if opcode in ALIASES and operation.operands:
            for result, operand in zip(operation.results, operation.operands, strict=False):
                self.aliases[result] = operand
        elif opcode in LEAVES:
            self._float(operation, -1)
        elif opcode in MATRIX:
            self._start("matrix", operation)
        elif opcode == "reduce_window":
            self._start("window", operation)
        elif opcode in ("reduce", "argmax", "argmin", "reduce_and", "cumsum"):
            self._reduce(operation)
        elif opcode in COLLECTIVES:
            self._start("collective", operation, in_flow=False)
        elif opcode in CONTROL:
            self._start("control", operation, in_flow=False)
        elif opcode in OPAQUE:
            self._start("opaque", operation, in_flow=False)
        elif opcode == "reshape" and self._changes_last_axis(operation):
            self._reshape(operation)
        elif opcode == "compare" and self._is_mask_of_pooled(operation):
            self._start("reduce", operation).reductions.append(operation)
        elif opcode in ELEMENTWISE:
            self._elementwise(operation)
        else:
            self.unknown.append(operation)
            self._start("opaque", operation, in_flow=False)

    def _start(self, kind: KernelKind, operation: Operation | None, in_flow: bool = True) -> Kernel:
        kernel = Kernel(len(self.kernels), kind, operation)
        self.kernels.append(kernel)
        if operation is not None:
            for value in operation.results:
                if in_flow:
                    self.home[value] = kernel.index
                else:
                    self.after[value] = kernel.index
        return kernel

    def _float(self, operation: Operation, after: int) -> None:
        for value in operation.results:
            self.floating[value] = operation
            self.after[value] = after

    def _elementwise(self, operation: Operation) -> None:
        operands = self._operands(operation)
        homes = [self.home[value] for value in operands if value in self.home]
        waits = [self.after[value] for value in operands if value in self.after]
        if not homes:
            self._float(operation, max(waits, default=-1))
            return
        latest = max(homes)
        if self.kernels[latest].kind == "window" and any(
            len(self.users.get(value, ())) > 1 for value in operands if self.home.get(value) == latest
        ):
            self._float(operation, max([latest, *waits]))
            return
        # A value that a reduction of this very kernel feeds is complete only when the kernel is.
        spreads = any(value in self.reduced for value in operands) and self._grows(operation, operands)
        if spreads or any(wait >= latest for wait in waits):
            self._float(operation, max([latest, *waits]))
            return
        self.kernels[latest].operations.append(operation)
        for value in operation.results:
            self.home[value] = latest
            if any(operand in self.reduced and self.home.get(operand) == latest for operand in operands):
                self.reduced.add(value)

    def _changes_last_axis(self, operation: Operation) -> bool:
        source, result = (self.program.types[value] for value in (operation.operands[0], operation.results[0]))
        if source.size < _SMALL_SIZE or len(source.shape) < 2 or source.shape[-1:] == result.shape[-1:]:
            return False
        value = self.resolve(operation.operands[0])
        return value not in self.floating or self._large_leaves(value)

    def _reshape(self, operation: Operation) -> None:
        """Ends the flow: what comes before is in memory. If the axis in lanes stays whole, the result is another view
        of the same tiles, else they are moved."""
        value, result = self.resolve(operation.operands[0]), operation.results[0]
        if value in self.floating and value not in self.materialised and self._computes(value):
            self._materialise(value, self._start("loop", None))
        if self._moves_lanes(self.program.types[value], self.program.types[result]):
            self._start("copy", operation, in_flow=False)
            return
        self.view_of[result] = value
        self.after[result] = self.home.get(value, self.after.get(value, -1))

    def _computes(self, value: int) -> bool:
        done: dict[int, Operation] = {}
        self._leaves(value, done)
        return any(operation.opcode not in _REORDERING for operation in done.values())

    def _materialise(self, value: int, kernel: Kernel) -> None:
        self.home[value] = kernel.index
        self.materialised.add(value)
        kernel.outputs.append(value)

    def _moves_lanes(self, source: TensorType, result: TensorType) -> bool:
        lane, other = (compact_layout(type_, self.tiling).lane_axis or 0 for type_ in (source, result))
        same_place = math.prod(source.shape[:lane]) == math.prod(result.shape[:other])
        return not same_place or source.shape[lane] != result.shape[other]

    def _large_leaves(self, value: int) -> bool:
        return any(self.program.types[leaf].size >= _SMALL_SIZE for leaf in self._leaves(value, {}))

    def _is_mask_of_pooled(self, operation: Operation) -> bool:
        """A mask of values that are pooled, too, is packed into bits by a kernel of its own."""
        source = self.resolve(operation.operands[0])
        home = self.home.get(source)
        if home is None or self.kernels[home].kind != "matrix" or self.program.types[source].size < _SMALL_SIZE:
            return False
        pooled = [
            user
            for sibling in self.users.get(source, ())
            for value in sibling.results
            for user in self.users.get(value, ())
        ]
        return any(user.opcode in ("reduce_window", "select_and_scatter") for user in pooled)

    def _grows(self, operation: Operation, operands: list[int]) -> bool:
        largest = max(self.program.types[value].size for value in operation.results)
        return any(value in self.reduced and largest > 2 * self.program.types[value].size for value in operands)

    def _reduce(self, operation: Operation) -> None:
        """Fused into the matrix product whose result it sums up, else a kernel of its own."""
        operands = self._operands(operation)
        homes = [self.home[value] for value in operands if value in self.home]
        waits = [self.after[value] for value in operands if value in self.after]
        if homes:
            latest = max(homes)
            if (
                self.kernels[latest].kind == "matrix"
                and not any(wait >= latest for wait in waits)
                and not any(value in self.reduced for value in operands)
            ):
                self.kernels[latest].reductions.append(operation)
                for value in operation.results:
                    self.home[value] = latest
                    self.reduced.add(value)
                return
        kernel = self._start("reduce", operation)
        kernel.reductions.append(operation)
        self.reduced.update(operation.results)

    # --- what crosses memory

    def _store_results(self) -> None:
        """Floating values that leave the program are computed by loops of their own; loops over equal shapes that read
        the same arrays are one."""
        loops: dict[tuple[tuple[int, ...], int, frozenset[int]], Kernel] = {}
        for value in map(self.resolve, self._needed_in_memory()):
            if value not in self.floating or value in self.materialised or self.floating[value].opcode == "constant":
                continue
            type_, after = self.program.types[value], self.after[value]
            leaves = self._leaves(value, {})
            if all(self._is_constant(leaf) for leaf in leaves):
                continue
            read = frozenset(leaf for leaf in leaves if self.program.types[leaf].size >= type_.size > 1)
            key = next((key for key in loops if key[:2] == (type_.shape, after) and (key[2] & read or not read)), None)
            if key is None:
                key = (type_.shape, after, read)
                loops[key] = self._start("loop", None)
            self._materialise(value, loops[key])

    def _needed_in_memory(self) -> list[int]:
        needed = list(self.body.results)
        for kernel in self.kernels:
            if kernel.kind in _UNFUSED and kernel.anchor is not None:
                needed += kernel.anchor.operands
        return list(dict.fromkeys(needed))

    def _leaves(self, value: int, done: dict[int, Operation], computed: int = -1) -> list[int]:
        """The values in memory that a floating value is computed from; the operations on the way go into `done`.
        `computed`: a value that is put into memory here, and therefore is no leaf."""
        leaves: list[int] = []
        stack, seen = [value], set()
        while stack:
            current = self.resolve(stack.pop())
            if current in seen:
                continue
            seen.add(current)
            if current in self.view_of:
                leaves.append(self.resolve(self.view_of[current]))
                continue
            operation = self.floating.get(current)
            if operation is None or (current in self.materialised and current != computed):
                leaves.append(current)
                continue
            done[id(operation)] = operation
            stack += operation.operands
        return leaves

    def _keep_roots(self) -> None:
        """What a dot's result is turned into is done again by its readers, if one value in memory is enough for all:
        the last one that all of them come from, or a narrower one before it."""
        for kernel in self.kernels:
            if kernel.kind != "matrix" or kernel.anchor is None or kernel.anchor.opcode != "dot_general":
                continue
            inside = {id(operation) for operation in [*kernel.operations, *kernel.reductions, kernel.anchor]}
            crossing = [
                value for operation in kernel.operations for value in operation.results if self._crosses(value, inside)
            ]
            crossing = [value for value in crossing if value not in self.reduced]
            raw = kernel.anchor.results[0]
            paths = [self._path(value, kernel) for value in crossing]
            if (
                not crossing
                or any(path is None for path in paths)
                or (len(crossing) == 1 and not self._narrower(paths[0]))
            ):
                continue
            common = [value for value in (paths[0] or []) if all(value in (path or ()) for path in paths)]
            if self._crosses(raw, inside):
                common = [raw]
            if not common:
                continue
            root = min(common, key=lambda value: (self.program.types[value].itemsize, common.index(value)))
            producers = {value: operation for operation in kernel.operations for value in operation.results}
            for path in paths:
                for value in path or []:
                    if value == root:
                        break
                    self.floating[value] = producers[value]
                    self.after[value] = kernel.index
                    self.home.pop(value, None)

    def _crosses(self, value: int, inside: set[int]) -> bool:
        """Whether anything but the operations `inside` a kernel reads the value."""
        return value in self._results or any(id(user) not in inside for user in self.users.get(value, ()))

    def _narrower(self, path: list[int] | None) -> bool:
        sizes = [self.program.types[value].itemsize for value in path or ()]
        return bool(sizes) and min(sizes) < sizes[0]

    def _path(self, value: int, kernel: Kernel) -> list[int] | None:
        """From a value back to the anchor's result, as long as each step has one operand in the flow of the kernel and
        no other large array from memory; None for a result of the program, which is stored itself."""
        if value in self._results:
            return None
        producers = {result: operation for operation in kernel.operations for result in operation.results}
        path = [value]
        while value in producers:
            flow, large = [], False
            for operand in self._operands(producers[value]):
                if self.home.get(operand) == kernel.index:
                    flow.append(operand)
                elif operand in self.floating and operand not in self.materialised:
                    large = large or self._large_leaves_like(operand, value)
                else:
                    large = large or self.program.types[operand].size >= self.program.types[value].size
            if large or len(set(flow)) != 1:
                break
            value = flow[0]
            path.append(value)
        return path

    def _large_leaves_like(self, operand: int, value: int) -> bool:
        size = self.program.types[value].size
        return any(self.program.types[leaf].size >= size for leaf in self._leaves(operand, {}))

    def _connect(self) -> None:
        """Inputs and outputs of every kernel, and the floating work done in it."""
        read: dict[int, None] = {}
        self._stored_results = {leaf for value in self._results for leaf in [self.view_of.get(value, value)]}
        for kernel in self.kernels:
            done: dict[int, Operation] = {}
            inputs: dict[int, None] = {}
            work = [*kernel.operations, *kernel.reductions]
            if kernel.anchor is not None and kernel.anchor not in kernel.reductions:
                work.append(kernel.anchor)
            wanted = [(value, -1) for operation in work for value in self._operands(operation)]
            wanted += [(value, value) for value in kernel.outputs if value in self.materialised]
            for value, computed in wanted:
                leaves = self._leaves(value, done, computed)
                inputs.update(dict.fromkeys(leaf for leaf in leaves if self.home.get(leaf) != kernel.index))
            own = {id(operation) for operation in kernel.operations}
            kernel.operations += [operation for operation in done.values() if id(operation) not in own]
            kernel.inputs = [value for value in inputs if not self._is_constant(value)]
            read.update(inputs)
        for kernel in self.kernels:
            own_values = [value for value, home in self.home.items() if home == kernel.index]
            if kernel.anchor is not None and kernel.kind in _UNFUSED:
                own_values += kernel.anchor.results
            kernel.outputs = [value for value in own_values if value in read or value in self._stored_results]

    def _is_constant(self, value: int) -> bool:
        return value in self.floating and self.floating[value].opcode in LEAVES

    def _stored_types(self) -> dict[int, TensorType]:
        """float32 values that only matrix products read are kept in bfloat16, which is what the products multiply."""
        readers: dict[int, list[Kernel]] = {}
        for kernel in self.kernels:
            for value in kernel.inputs:
                readers.setdefault(value, []).append(kernel)
        stored: dict[int, TensorType] = {}
        for kernel in self.kernels:
            for value in kernel.outputs:
                type_ = self.program.types[value]
                if type_.dtype == "pred" and kernel.kind == "reduce" and type_.shape:
                    stored[value] = TensorType((-(-type_.size // _MASK_BITS),), "u32")
                if type_.dtype != "f32" or value in self._results or not readers.get(value):
                    continue
                if all(self._only_multiplied(reader, value) for reader in readers[value]):
                    stored[value] = TensorType(type_.shape, "bf16")
        return stored

    def _only_multiplied(self, reader: Kernel, value: int) -> bool:
        """Whether `reader` uses `value` for nothing but an operand of its matrix product (by another view of it)."""
        if reader.kind == "copy":
            later = [kernel for kernel in self.kernels if any(out in kernel.inputs for out in reader.outputs)]
            return bool(later) and all(self._only_multiplied(kernel, out) for kernel in later for out in reader.outputs)
        if reader.kind != "matrix" or reader.anchor is None or reader.anchor.text("precision") not in ("", "DEFAULT"):
            return False
        views = {value, *(view for view, source in self.view_of.items() if self.resolve(source) == value)}
        for operation in reader.operations:
            if any(self.resolve(operand) in views for operand in operation.operands):
                if operation.opcode not in _REORDERING:
                    return False
                views.update(operation.results)
        return True


def _live_operations(body: Body) -> set[int]:
    """Operations (by identity) whose results reach a result of the body."""
    producer = {value: operation for operation in body.operations for value in operation.results}
    live: set[int] = set()
    stack = list(body.results)
    for operation in body.operations:
        if operation.opcode in ("custom_call", "while", "send", "outfeed"):
            stack += operation.results
    while stack:
        made_by = producer.get(stack.pop())
        if made_by is None or id(made_by) in live:
            continue
        live.add(id(made_by))
        stack += made_by.operands
        for inner in made_by.bodies:
            stack += _outer_values(inner)
    return live


def _outer_values(body: Body) -> list[int]:
    """Values that a body takes from outside."""
    own = set(body.parameters)
    outer: list[int] = []
    for operation in body.operations:
        outer += [value for value in operation.operands if value not in own]
        own.update(operation.results)
        for inner in operation.bodies:
            outer += [value for value in _outer_values(inner) if value not in own]
    return outer + [value for value in body.results if value not in own]
