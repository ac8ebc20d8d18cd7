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
# Fewer kernels than this make a value that is made from several arrays anew, each for itself.
_READERS_TO_SHARE = 3
# A kernel that waits for another runs right after it.
_JUST_AFTER = 0.25
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
    `inputs` and `outputs` are values in memory. `moved`: what a copy into another layout moves."""

    index: int
    kind: KernelKind
    anchor: Operation | None
    operations: list[Operation] = dataclasses.field(default_factory=list)
    inputs: list[int] = dataclasses.field(default_factory=list)
    outputs: list[int] = dataclasses.field(default_factory=list)
    reductions: list[Operation] = dataclasses.field(default_factory=list)
    moved: TensorType | None = None


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
        # When each kernel runs; a kernel that nothing waits for yet may be moved to a later time.
        self.order: list[float] = []
        # Where a value comes from: in the flow of a kernel, or floating (complete when that time has come).
        self.home: dict[int, int] = {}
        self.after: dict[int, float] = dict.fromkeys(body.parameters, -1.0)
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
        self._share()
        self._store_results()
        self._connect()
        ordered = sorted(self.kernels, key=lambda kernel: self.order[kernel.index])
        return Fused(
            [kernel for kernel in ordered if kernel.outputs or kernel.anchor or kernel.moved], self._stored_types(), self.aliases,
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
            self._matrix(operation)
        elif opcode == "reduce_window":
            self._start("window", operation)
        elif opcode in ("reduce", "argmax", "argmin", "reduce_and", "cumsum"):
            self._reduce(operation)
        elif opcode in COLLECTIVES:
            self._start("collective", operation, in_flow=False)
        elif opcode in CONTROL:
            self._start("control", operation, in_flow=False)
        elif opcode == "scatter" and self._is_one_hot(operation):
            self._elementwise(operation)
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

    def _matrix(self, operation: Operation) -> None:
        """A convolution reads with examples or features in lanes, and writes with both in the two minor axes; what
        enters or leaves the program in another layout is copied."""
        convolution = operation.opcode == "convolution"
        if convolution and self._from_outside(operation.operands[0]):
            self._relayout(operation.operands[0], operation.ints("lhs_dims")[:2], lanes_only=True)
        self._start("matrix", operation)
        if convolution and operation.results[0] in self.body.results:
            self._relayout(operation.results[0], operation.ints("out_dims")[:2])

    def _from_outside(self, value: int) -> bool:
        value = self.resolve(value)
        leaves = self._leaves(value, {}) if value in self.floating else [value]
        return value not in self.home and len(leaves) == 1 and leaves[0] in self.body.parameters

    def _relayout(self, value: int, minor: tuple[int, ...], lanes_only: bool = False) -> None:
        type_ = self.program.types[self.resolve(value)]
        layout = compact_layout(type_, self.tiling)
        good = layout.lane_axis in minor and (lanes_only or layout.sublane_axis in minor)
        if type_.size >= _SMALL_SIZE and not good:
            self._start("copy", None).moved = type_

    def _start(self, kind: KernelKind, operation: Operation | None, in_flow: bool = True) -> Kernel:
        kernel = Kernel(len(self.kernels), kind, operation)
        self.kernels.append(kernel)
        self.order.append(float(kernel.index))
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
        waits = [self.after[value] for value in operands if value in self.after and value not in self.home]
        if not homes:
            self._float(operation, max(waits, default=-1.0))
            return
        latest = max(homes, key=lambda index: self.order[index])
        kernel, now = self.kernels[latest], self.order[latest]
        in_flow = [value for value in operands if self.home.get(value) == latest]
        ends = kernel.kind == "window" and any(len(self.users.get(value, ())) > 1 for value in in_flow)
        # A value that a reduction of this very kernel feeds is complete only when the kernel is.
        spreads = any(value in self.reduced for value in operands) and self._grows(operation, operands)
        late = max(waits, default=-1.0)
        if late >= now and not ends and not spreads and self._can_wait(kernel, operation):
            now = self.order[latest] = late + _JUST_AFTER
        if ends or spreads or late >= now:
            self._float(operation, max([now, *waits]))
            return
        kernel.operations.append(operation)
        for value in operation.results:
            self.home[value] = latest
            if any(operand in self.reduced for operand in in_flow):
                self.reduced.add(value)

    def _can_wait(self, kernel: Kernel, operation: Operation) -> bool:
        """Whether nothing but `operation` reads what the kernel makes."""
        inside = {id(own) for own in [*kernel.operations, *kernel.reductions, operation]}
        flow = [value for value, home in self.home.items() if home == kernel.index]
        return kernel.kind == "matrix" and all(
            id(user) in inside for value in flow for user in self.users.get(value, ())
        )

    def _is_one_hot(self, operation: Operation) -> bool:
        """One number put into every row of a constant: a comparison with the column's number does it."""
        result, updates = self.program.types[operation.results[0]], self.program.types[operation.operands[-1]]
        rows = math.prod(result.shape[:-1])
        target = self.resolve(operation.operands[0])
        constant = target in self.floating and all(self._is_constant(leaf) for leaf in self._leaves(target, {}))
        return constant and len(result.shape) >= 2 and updates.size == rows

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
        self.after[result] = self.order[self.home[value]] if value in self.home else self.after.get(value, -1.0)

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
        waits = [self.after[value] for value in operands if value in self.after and value not in self.home]
        if homes and not any(value in self.reduced for value in operands):
            latest = max(homes, key=lambda index: self.order[index])
            if self.kernels[latest].kind == "matrix" and all(wait < self.order[latest] for wait in waits):
                self.kernels[latest].reductions.append(operation)
                for value in operation.results:
                    self.home[value] = latest
                    self.reduced.add(value)
                return
        kernel = self._start("reduce", operation)
        kernel.reductions.append(operation)
        self.reduced.update(operation.results)

    # --- what crosses memory

    def _share(self) -> None:
        """A floating value that several kernels make from several arrays is put into memory."""
        kernel_of = {
            id(operation): kernel
            for kernel in self.kernels
            for operation in [*kernel.operations, *kernel.reductions, *([kernel.anchor] if kernel.anchor else [])]
        }
        readers: dict[int, set[int]] = {}
        for value in reversed(self.floating):
            found: set[int] = set()
            for user in self.users.get(value, ()):
                if id(user) in kernel_of:
                    found.add(kernel_of[id(user)].index)
                for result in user.results:
                    if result in self.floating:
                        found |= readers.get(self.resolve(result), set())
            readers[value] = found
        leaves: dict[int, frozenset[int]] = {}
        for value, operation in self.floating.items():
            if operation.opcode in LEAVES:
                leaves[value] = frozenset()
                continue
            made_from: set[int] = set()
            for operand in self._operands(operation):
                source = self.resolve(self.view_of.get(operand, operand))
                made_from |= {source} if source in self.materialised else leaves.get(source, frozenset({source}))
            leaves[value] = frozenset(made_from)
            if len(readers[value]) >= _READERS_TO_SHARE and self._is_worth_sharing(value, made_from):
                self._materialise(value, self._kernel_to_share_in(value, readers[value]))
                leaves[value] = frozenset({value})

    def _is_worth_sharing(self, value: int, made_from: set[int]) -> bool:
        users = self.users.get(value, ())
        type_ = self.program.types[value]
        if type_.size < _SMALL_SIZE or value in self.materialised:
            return False
        if len(users) == 1 and users[0].results[0] in self.floating:
            return False
        large = [source for source in made_from if self.program.types[source].size >= type_.size]
        return len(large) > 1 and self._bytes(value) < sum(map(self._bytes, large))

    def _kernel_to_share_in(self, value: int, readers: set[int]) -> Kernel:
        """The first reader writes it, too, if it only sums it up; else a loop of its own does."""
        first = self.kernels[min(readers, key=lambda index: self.order[index])]
        if first.kind == "reduce":
            return first
        kernel = self._start("loop", None)
        self.order[kernel.index] = self.after[value] + _JUST_AFTER
        return kernel

    def _store_results(self) -> None:
        """Floating values that leave the program are computed by loops of their own; loops over equal shapes that read
        the same arrays are one."""
        loops: dict[tuple[tuple[int, ...], float, frozenset[int]], Kernel] = {}
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
                self.order[loops[key].index] = after + _JUST_AFTER
            self._materialise(value, loops[key])

    def _needed_in_memory(self) -> list[int]:
        needed = list(self.body.results)
        for kernel in self.kernels:
            if kernel.kind in _UNFUSED and kernel.anchor is not None:
                needed += kernel.anchor.operands
        return list(dict.fromkeys(needed))

    def _leaves(self, value: int, done: dict[int, Operation], reader: Kernel | None = None) -> list[int]:
        """The values in memory that a floating value is computed from; the operations on the way go into `done`.
        `reader`: the kernel that needs it, which can only read what is in memory before it runs."""
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
            if operation is None or (current in self.materialised and self._reads(current, reader)):
                leaves.append(current)
                continue
            done[id(operation)] = operation
            stack += operation.operands
        return leaves

    def _keep_roots(self) -> None:
        """What a dot's result is turned into is done again by its readers, if one value in memory is enough for all of
        them: the last one that all come from, or a narrower one before it."""
        for kernel in self.kernels:
            if kernel.kind != "matrix" or kernel.anchor is None:
                continue
            inside = {id(operation) for operation in [*kernel.operations, *kernel.reductions, kernel.anchor]}
            flow = [kernel.anchor.results[0], *(value for operation in kernel.operations for value in operation.results)]
            flow = [value for value in flow if value not in self.reduced]
            crossing = [value for value in flow if self._crosses(value, inside)]
            if not crossing or any(value in self._results for value in crossing):
                continue
            producers = {value: operation for operation in kernel.operations for value in operation.results}
            roots = [value for value in flow if all(self._comes_from(one, value, producers, kernel) for one in crossing)]
            if not roots:
                continue
            root = min(roots, key=lambda value: (self.program.types[value].itemsize, -flow.index(value)))
            narrowest = min(self.program.types[value].itemsize for value in crossing if value != root or len(crossing) == 1)
            keeps = len(crossing) > 1 and kernel.anchor.opcode == "dot_general"
            if not keeps and self.program.types[root].itemsize >= narrowest:
                continue
            for value in flow[flow.index(root) + 1 :]:
                if value in producers:
                    self.floating[value] = producers[value]
                    self.after[value] = self.order[kernel.index]
                    self.home.pop(value, None)

    def _crosses(self, value: int, inside: set[int]) -> bool:
        """Whether anything but the operations `inside` a kernel reads the value."""
        return value in self._results or any(id(user) not in inside for user in self.users.get(value, ()))

    def _comes_from(self, value: int, root: int, producers: dict[int, Operation], kernel: Kernel) -> bool:
        """Whether `value` follows from `root` and small arrays alone."""
        stack, seen = [value], set()
        size = self.program.types[value].size
        while stack:
            current = stack.pop()
            if current == root or current in seen:
                continue
            seen.add(current)
            if self.home.get(current) == kernel.index:
                if current not in producers or current in self.reduced:
                    return False
                stack += self._operands(producers[current])
            elif current in self.floating:
                if any(self.program.types[leaf].size >= size for leaf in self._leaves(current, {})):
                    return False
            elif self.program.types[current].size >= size:
                return False
        return True

    def _reads(self, value: int, reader: Kernel | None) -> bool:
        """Whether a reader takes a materialised value from memory: it is there, and not larger than its sources."""
        if reader is None:
            return True
        home = self.home[value]
        if home == reader.index or self.order[home] >= self.order[reader.index]:
            return False
        if reader.anchor is not None and value in map(self.resolve, reader.anchor.operands) and reader.kind in _UNFUSED:
            return True
        sources = [leaf for operand in self.floating[value].operands for leaf in self._leaves(self.resolve(operand), {})]
        # What each source takes is counted once, as if it were read for this value alone.
        return self._bytes(value) <= sum(self._bytes(source) for source in set(sources))

    def _bytes(self, value: int) -> float:
        type_ = self.program.types[value]
        return type_.size * type_.itemsize

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
            wanted = [value for operation in work for value in self._operands(operation)]
            wanted += [value for value in kernel.outputs if value in self.materialised]
            for value in wanted:
                leaves = self._leaves(value, done, kernel)
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
