"""Which operations become one kernel, as the TPU compiler groups them, and what crosses from one to
another.

What crosses is written to memory once and read by every reader, in the narrowest form that all of
them can start from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType, live_operations
from podyard.engine.timing.apart import smallest_first
from podyard.engine.timing.attention import with_attention
from podyard.engine.timing.gates import Uses, gates_last
from podyard.engine.timing.graph import (
    ALIASES,
    COLLECTIVES,
    JUST_AFTER,
    LEAVES,
    LEAVES_PROGRAM,
    MASK_BITS,
    OPAQUE,
    READERS_TO_SHARE,
    REORDERING,
    SMALL_SIZE,
    UNFUSED,
    Fused,
    Kernel,
)
from podyard.engine.timing.headed import headed_weights
from podyard.engine.timing.kernels import INSTRUCTIONS
from podyard.engine.timing.layout import LANES, compact_layout
from podyard.engine.timing.placement import Placement
from podyard.hardware.cost_model import CostModel

# What a reader makes again rather than that it is kept.
_CHEAP = frozenset({"multiply", "add", "subtract", "negate", "convert"})
# What makes no numbers.
_ONLY_MOVED = frozenset({*REORDERING, *LEAVES, "broadcast_in_dim"})


def fuse(program: Program, body: Body, costs: CostModel) -> Fused:
    """Groups the operations of one body (bodies inside of it are kernels of kind `control`)."""
    return _Fusion(program, with_attention(program, body, costs.own_softmax), costs).run()


class _Fusion(Placement):
    def __init__(self, program: Program, body: Body, costs: CostModel) -> None:
        super().__init__(program, body, costs.tiling)
        self._keeps_costly = costs.keeps_costly
        self.headed |= headed_weights(program, body, costs.tiling) if costs.copies_heads else set()
        # See `_is_image`.
        self._writes_images = costs.results_stay and costs.vector_cores > 1

    def run(self) -> Fused:
        live = live_operations(self.body)
        operations = [operation for operation in self.body.operations if id(operation) in live]
        self._places = {id(operation): place for place, operation in enumerate(operations)}
        self._results = set(self.body.results)
        self._note_users(operations)
        once = [operation for operation in operations if not self._is_repetition(operation)]
        self._note_users(once)
        if self._keeps_costly:
            once = gates_last(once, Uses(self.program, once, self.body.results, self.aliases))
            self._places |= {id(operation): place for place, operation in enumerate(once)}
        for operation in once:
            self._place(operation)
        self._results = {self.resolve(value) for value in self.body.results}
        self._keep_roots()
        self._make_again()
        self._share()
        self._store_results()
        self._keep_costly()
        self._connect()
        for kernel in [
            one
            for one in self.kernels
            if one.anchor is not None and one.anchor.opcode == "convolution"
        ]:
            self._copy_beside(kernel)
        self._delay_masks()
        ordered = sorted(self.kernels, key=lambda kernel: self.order[kernel.index])
        kernels = [
            kernel
            for kernel in ordered
            if kernel.outputs or kernel.anchor or kernel.moved or kernel.laid_out
        ]
        kernels = smallest_first(kernels, self.program.types)
        return Fused(
            kernels, self._stored_types(), self.aliases, self.unknown, self.in_place, self.filled
        )

    def _note_users(self, operations: list[HloOperation]) -> None:
        """Which operations use a value; what is repeated has the users of what it repeats."""
        self.users = {}
        for operation in operations:
            for value in operation.operands:
                self.users.setdefault(self.resolve(value), []).append(operation)
        self.users |= {
            value: self.users[own]
            for value in self.aliases
            if (own := self.resolve(value)) in self.users
        }

    def _keep_roots(self) -> None:
        """What a product's result is turned into is done again by its readers, if one value in
        memory is enough for all of them: the last one that all come from, or a narrower one before
        it."""
        for kernel in self.kernels:
            if kernel.kind != "matrix" or kernel.anchor is None:
                continue
            inside = {
                id(operation)
                for operation in [*kernel.operations, *kernel.reductions, kernel.anchor]
            }
            flow = [
                kernel.anchor.results[0],
                *(value for operation in kernel.operations for value in operation.results),
            ]
            flow = [value for value in flow if value not in self.reduced]
            crossing = [value for value in flow if self._crosses(value, inside)]
            if not crossing or any(
                value in self._results | self.cut or self._is_sent(value) for value in crossing
            ):
                continue
            producers = {
                value: operation for operation in kernel.operations for value in operation.results
            }
            roots = [
                value
                for value in flow
                if all(self._comes_from(one, value, producers, kernel) for one in crossing)
            ]
            if not roots:
                continue
            root = min(roots, key=lambda value: (self._bytes(value), -flow.index(value)))
            narrowest = min(
                self.program.types[value].itemsize
                for value in crossing
                if value != root or len(crossing) == 1
            )
            is_product = kernel.anchor.opcode == "dot_general"
            keeps = len(crossing) > 1 and (
                is_product or not any(map(self._is_read_whole, crossing))
            )
            if not keeps and self.program.types[root].itemsize >= narrowest:
                continue
            for value in flow[flow.index(root) + 1 :]:
                if value in producers and not (
                    self._writes_images and self._is_image(value, kernel)
                ):
                    self.floating[value] = producers[value]
                    self.after[value] = self.order[kernel.index]
                    self.home.pop(value, None)

    def _make_again(self) -> None:
        """Where functions are kept (see `CostModel`): of a product's results those that follow from
        one of them, and from what other products keep, without a function are made by their
        readers."""
        for kernel in self.kernels if self._keeps_costly else ():
            anchor = kernel.anchor
            if anchor is None or anchor.opcode != "dot_general":
                continue
            inside = {
                id(operation) for operation in [*kernel.operations, *kernel.reductions, anchor]
            }
            made = {
                value: operation
                for operation in [anchor, *kernel.operations]
                for value in operation.results
            }
            flow = [
                one
                for one in made
                if one not in self.reduced and self.home.get(one) == kernel.index
            ]
            crossing = [value for value in flow if self._crosses(value, inside)]
            if len(crossing) < 2 or any(
                value in self._results or self._is_sent(value) for value in crossing
            ):
                continue
            ends = {
                root: [value for value in crossing if self._is_cheap(value, root, made)]
                for root in flow
            }
            root = max(flow, key=lambda value: (len(ends[value]), flow.index(value)))
            if len(ends[root]) > 1 and self._bytes(root) <= sum(map(self._bytes, ends[root])):
                for value in ends[root]:
                    self._let_go(value, root, made, kernel)

    def _is_cheap(self, value: int, root: int, made: Mapping[int, HloOperation]) -> bool:
        """Return whether `value` follows from `root`, from small arrays and what other products
        keep, without a function."""
        stack, seen, size = [value], set[int](), self.program.types[value].size
        is_from = False
        while stack:
            current = self.resolve(stack.pop())
            is_from |= current == root
            if current == root or current in seen or self.program.types[current].size < size:
                continue
            seen.add(current)
            maker = made.get(current) or self.floating.get(current)
            if maker is None:
                if not self._is_kept_product(current):
                    return False
            elif maker.opcode in _CHEAP:
                stack += maker.operands
            elif maker.opcode != "broadcast_in_dim":
                return False
        return is_from

    def _is_kept_product(self, value: int) -> bool:
        """Return whether a value is a product's own, and more than one kernel reads it."""
        anchor = self.kernels[self.home[value]].anchor if value in self.home else None
        is_product = (
            anchor is not None and anchor.opcode == "dot_general" and value == anchor.results[0]
        )
        return is_product and len(self._users_by_any_name(value)) > 1

    def _let_go(
        self, value: int, root: int, made: Mapping[int, HloOperation], kernel: Kernel
    ) -> None:
        """A value, and what is on the way to it from `root`, is made by its readers."""
        stack = [value]
        while stack:
            current = self.resolve(stack.pop())
            maker = made.get(current)
            if current == root or maker is None or self.home.get(current) != kernel.index:
                continue
            self.floating[current] = maker
            self.after[current] = self.order[kernel.index]
            del self.home[current]
            kernel.operations.remove(maker)
            stack += maker.operands

    def _is_image(self, value: int, kernel: Kernel) -> bool:
        """Return whether others read what a convolution is turned into by polynomials. On v4 that
        is written next to the result of the convolution itself."""
        is_dear = any(operation.opcode in INSTRUCTIONS for operation in kernel.operations)
        if kernel.anchor is None or kernel.anchor.opcode != "convolution" or not is_dear:
            return False
        return any(user.opcode == "convolution" for user in self._users_by_any_name(value))

    def _is_read_whole(self, value: int) -> bool:
        """Return whether a kernel reads the value that does nothing with it before, or another view
        of it is read."""
        users = self._users_by_any_name(value)
        return any(user.opcode in OPAQUE for user in users) or value in map(
            self.resolve, self.view_of.values()
        )

    def _is_sent(self, value: int) -> bool:
        """Return whether a collective reads the value, or a scatter starts from it: it is in memory
        as it is then."""
        return any(
            user.opcode in (*COLLECTIVES, "scatter") for user in self._users_by_any_name(value)
        )

    def _crosses(self, value: int, inside: set[int]) -> bool:
        """Return whether anything but the operations `inside` a kernel reads the value."""
        return value in self._results or any(
            id(user) not in inside for user in self.users.get(value, ())
        )

    def _comes_from(
        self, value: int, root: int, producers: dict[int, HloOperation], kernel: Kernel
    ) -> bool:
        """Return whether `value` follows from `root` and small arrays alone."""
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
            elif self.program.types[current].size >= size and not self._is_kept_by_others(
                current, kernel
            ):
                return False
        return True

    def _is_kept_by_others(self, value: int, kernel: Kernel) -> bool:
        """Return whether a value is another product's, and more than one kernel reads it: it is in
        memory anyway (v2, v3)."""
        home = self.home.get(value)
        if home is None or self.kernels[home].kind != "matrix" or kernel.anchor is None:
            return False
        is_early = self.tiling.min_sublanes > 1
        return (
            is_early
            and kernel.anchor.opcode == "dot_general"
            and len(self._users_by_any_name(value)) > 1
        )

    def _share(self) -> None:
        """A floating value that several kernels make from several arrays is put into memory."""
        kernel_of = {
            id(operation): kernel
            for kernel in self.kernels
            for operation in [
                *kernel.operations,
                *kernel.reductions,
                *([kernel.anchor] if kernel.anchor else []),
            ]
        }
        readers: dict[int, set[int]] = {}
        for value in reversed(self.floating):
            found: set[int] = {LEAVES_PROGRAM} if value in self._results else set()
            for user in self._users_by_any_name(value):
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
                made_from |= (
                    {source}
                    if source in self.materialised
                    else leaves.get(source, frozenset({source}))
                )
            leaves[value] = frozenset(made_from)
            if len(readers[value]) >= READERS_TO_SHARE and self._is_worth_sharing(value, made_from):
                self._materialise(value, self._kernel_to_share_in(value, readers[value]))
                leaves[value] = frozenset({value})

    def _users_by_any_name(self, value: int) -> list[HloOperation]:
        """The operations that use a value, or another name of it."""
        found: list[HloOperation] = []
        for user in self.users.get(value, ()):
            operands = [self.first_of.get(operand, operand) for operand in user.operands]
            if user.opcode in ALIASES and value in operands:
                own = (
                    user.results[operands.index(value)]
                    if len(user.results) == len(operands)
                    else None
                )
                found += [user] if own is None else self._users_by_any_name(own)
            else:
                found.append(user)
        return found

    def _is_worth_sharing(self, value: int, made_from: set[int]) -> bool:
        users = self._users_by_any_name(value)
        type_ = self.program.types[value]
        if type_.size < SMALL_SIZE or value in self.materialised:
            return False
        if len(users) == 1 and users[0].results[0] in self.floating:
            return False
        large = [source for source in made_from if self.program.types[source].size >= type_.size]
        return len(large) > 1 and self._bytes(value) < sum(map(self._bytes, large))

    def _keep_costly(self) -> None:
        """What exponentials are made for is written once if several products multiply it (see
        `CostModel`)."""
        for value in list(self.floating) if self._keeps_costly else ():
            size = self.program.types[value].size
            if size < SMALL_SIZE or value in self.materialised:
                continue
            if len(
                {id(product) for product in self._products_of(value)}
            ) > 1 and self._has_exponentials(value):
                large = [
                    leaf
                    for leaf in self._leaves(value, {})
                    if self.program.types[leaf].size >= size
                ]
                if len(large) == 1:
                    self._materialise(value, self._kernel_to_share_in(value, set()))

    def _products_of(self, value: int) -> Iterator[HloOperation]:
        for user in self._users_by_any_name(value):
            if user.opcode == "dot_general":
                yield user
            elif user.opcode in REORDERING and user.results[0] in self.floating:
                yield from self._products_of(user.results[0])

    def _has_exponentials(self, value: int) -> bool:
        """Return whether a value takes an exponential for each of its numbers."""
        size, stack, seen = self.program.types[value].size, [value], set[int]()
        while stack:
            current = self.resolve(stack.pop())
            made = self.floating.get(current)
            if made is None or current in seen or current in self.materialised:
                continue
            seen.add(current)
            if made.opcode == "exponential" and self.program.types[current].size >= size:
                return True
            stack += self._operands(made)
        return False

    def _kernel_to_share_in(self, value: int, readers: set[int]) -> Kernel:
        """The first reader writes it, too, if it only sums it up; else a separate loop does."""
        inside = readers - {LEAVES_PROGRAM}
        first = self.kernels[min(inside, key=lambda index: self.order[index])] if inside else None
        if first is not None and first.kind == "reduce":
            return first
        kernel = self._start("loop", None)
        self.order[kernel.index] = self.after[value] + JUST_AFTER
        return kernel

    def _store_results(self) -> None:
        """Floating values that leave the program are computed by loops of their own; loops over
        equal shapes that read the same arrays are one."""
        loops: list[tuple[tuple[int, ...], frozenset[int], Kernel]] = []
        for value in map(self.resolve, self._needed_in_memory()):
            if (
                value not in self.floating
                or value in self.materialised
                or self.floating[value].opcode == "constant"
            ):
                continue
            type_, after = self.program.types[value], self.after[value]
            leaves = self._leaves(value, {})
            if all(self._is_constant(leaf) for leaf in leaves):
                continue
            source = None if value in self._results else self._in_same_tiles(value)
            if source is not None:
                self.aliases[value] = source
                continue
            if value in self._writers:
                self._materialise(value, self._writers[value])
                continue
            read = frozenset(
                leaf for leaf in leaves if self.program.types[leaf].size >= type_.size > 1
            )
            summing = self._sums_it_up(value)
            if summing is not None:
                self._materialise(value, summing)
                continue
            time = after + JUST_AFTER
            alike = [(others, one) for shape, others, one in loops if shape == type_.shape]
            near = [one for others, one in alike if not read or read & {*others, *one.outputs}]
            kernel = next((one for one in near if self.order[one.index] == time), None)
            if kernel is None and self._can_be_late(value, leaves):
                late = (
                    one
                    for one in near
                    if all(self._can_be_late(made, leaves) for made in one.outputs)
                )
                kernel = next(late, None)
            if kernel is None:
                kernel = self._start("loop", None)
                self.order[kernel.index] = time
                loops.append((type_.shape, read, kernel))
            self.order[kernel.index] = max(time, self.order[kernel.index])
            self._materialise(value, kernel)

    def _sums_it_up(self, value: int) -> Kernel | None:
        """A kernel that does nothing but sums and makes the value on the way: it can write it."""
        for kernel in self.kernels:
            is_there = kernel.kind == "reduce" and self.after[value] < self.order[kernel.index]
            if is_there and any(
                value == self.resolve(operation.operands[0]) for operation in kernel.reductions
            ):
                return kernel
        return None

    def _can_be_late(self, value: int, leaves: list[int]) -> bool:
        """Return whether a value that is made of sums has no reader but what is made again wherever
        it is needed."""
        of_sums = any(leaf in self.reduced for leaf in leaves)
        return of_sums and all(
            user.results[0] in self.floating for user in self._users_by_any_name(value)
        )

    def _needed_in_memory(self) -> list[int]:
        needed = [*self.body.results, *filter(self._is_spread, self.floating)]
        for kernel in self.kernels:
            if kernel.kind in UNFUSED and kernel.anchor is not None:
                is_lookup = kernel.anchor.opcode in ("gather", "scatter")
                needed += (
                    map(self._unspread, kernel.anchor.operands)
                    if is_lookup
                    else kernel.anchor.operands
                )
        return list(dict.fromkeys(needed))

    def _is_spread(self, value: int) -> bool:
        """Return whether a value is worked out from as many sums, and spread over lanes by what
        reads it."""
        made, type_ = self.floating[value], self.program.types[value]
        if made.opcode in _ONLY_MOVED or type_.size < 2 or value in self.materialised:
            return False
        leaves = self._leaves(value, {})
        sums = [leaf for leaf in leaves if leaf in self.reduced and leaf not in self.row_values]
        if any(self.program.types[leaf].size > type_.size for leaf in leaves) or all(
            self.program.types[leaf].size < type_.size for leaf in sums
        ):
            return False
        names, spread = [value], False
        while names and not spread:
            name = names.pop()
            for user in self._users_by_any_name(name):
                result = self.program.types[user.results[0]]
                larger = result.size > type_.size
                spread |= (
                    larger and user.opcode == "broadcast_in_dim" and self._spreads_lanes(user, name)
                )
                names += user.results if user.opcode in _ONLY_MOVED and not larger else ()
        return spread

    def _spreads_lanes(self, operation: HloOperation, value: int) -> bool:
        """Return whether a broadcast repeats numbers along the lanes of its result."""
        given, result = self.program.types[value].shape, self.program.types[operation.results[0]]
        lane = compact_layout(result, self.tiling).lane_axis
        dims = operation.ints("dims")
        return lane is not None and (
            lane not in dims or given[dims.index(lane)] < result.shape[lane]
        )

    def _unspread(self, value: int) -> int:
        """Of places to look up, as many numbers in one axis where they are those."""
        made = self.floating.get(self.resolve(value))
        if made is None or made.opcode not in ("reshape", "broadcast_in_dim") or not made.operands:
            return value
        source = self.program.types[made.operands[0]]
        return (
            made.operands[0]
            if source.size == self.program.types[value].size and len(source.shape) == 1
            else value
        )

    def _connect(self) -> None:
        """Inputs and outputs of every kernel, and the floating work done in it."""
        read: dict[int, None] = {}
        self._stored_results = {
            leaf for value in self._results for leaf in [self.view_of.get(value, value)]
        }
        for kernel in self.kernels:
            done: dict[int, HloOperation] = {}
            inputs: dict[int, None] = {}
            work = [*kernel.operations, *kernel.reductions]
            if kernel.anchor is not None and kernel.anchor not in kernel.reductions:
                work.append(kernel.anchor)
            wanted = [value for operation in work for value in self._operands(operation)]
            wanted += [value for value in kernel.outputs if value in self.materialised]
            for value in wanted:
                leaves = self._leaves(value, done, kernel)
                inputs.update(
                    dict.fromkeys(leaf for leaf in leaves if self.home.get(leaf) != kernel.index)
                )
            own = {id(operation) for operation in kernel.operations}
            kernel.operations += [
                operation for operation in done.values() if id(operation) not in own
            ]
            inputs.update(dict.fromkeys(kernel.inputs))
            kernel.inputs = [value for value in inputs if not self._is_constant(value)]
            read.update(inputs)
        made_in: dict[int, list[int]] = {}
        for value, home in self.home.items():
            made_in.setdefault(home, []).append(value)
        for kernel in self.kernels:
            own_values = list(made_in.get(kernel.index, ()))
            if kernel.anchor is not None and kernel.kind in UNFUSED:
                own_values += kernel.anchor.results
            kernel.outputs = [
                value for value in own_values if value in read or value in self._stored_results
            ]

    def _delay_masks(self) -> None:
        """Masks are packed when the backward pass is about to read them: until then what they are
        made of stays."""
        for kernel in self.kernels:
            if kernel.anchor is not None and kernel.anchor.opcode == "compare":
                readers = [
                    self.order[other.index]
                    for other in self.kernels
                    if set(other.inputs) & set(kernel.outputs)
                ]
                if readers:
                    self.order[kernel.index] = min(readers) - JUST_AFTER / 2

    def _stored_types(self) -> dict[int, TensorType]:
        """float32 values that only matrix products read are kept in bfloat16, which is what the
        products multiply."""
        readers: dict[int, list[Kernel]] = {}
        for kernel in self.kernels:
            for value in kernel.inputs:
                readers.setdefault(value, []).append(kernel)
        types = self.program.types
        stored = {
            value: TensorType(
                (*types[value].shape[:-1], -(-types[value].shape[-1] // LANES) * LANES),
                types[value].dtype,
            )
            for value in self.across - self._results
        } | {value: type_ for value, type_ in self.pieces.items() if value not in self._results}
        for kernel in self.kernels:
            for value in kernel.outputs:
                type_ = self.program.types[value]
                if type_.dtype == "pred" and kernel.kind == "reduce" and type_.shape:
                    stored[value] = TensorType((-(-type_.size // MASK_BITS),), "u32")
                if type_.dtype != "f32" or value in self._results or not readers.get(value):
                    continue
                if all(self._only_multiplied(reader, value) for reader in readers[value]):
                    stored[value] = TensorType(type_.shape, "bf16")
        return stored

    def _only_multiplied(self, reader: Kernel, value: int) -> bool:
        """Return whether `reader` uses `value` for nothing but an operand of its matrix product (by
        another view of it)."""
        if reader.kind == "copy":
            later = [
                kernel
                for kernel in self.kernels
                if any(out in kernel.inputs for out in reader.outputs)
            ]
            return bool(later) and all(
                self._only_multiplied(kernel, out) for kernel in later for out in reader.outputs
            )
        if (
            reader.kind != "matrix"
            or reader.anchor is None
            or reader.anchor.text("precision") not in ("", "DEFAULT")
        ):
            return False
        views = {
            value,
            *(view for view, source in self.view_of.items() if self.resolve(source) == value),
        }
        for operation in reader.operations:
            if any(self.resolve(operand) in views for operand in operation.operands):
                if operation.opcode not in REORDERING:
                    return False
                views.update(operation.results)
        return True
