"""Which kernel each operation belongs to, in the order of the program.

Every matrix product, pooling window and reduction starts a kernel. Element-wise work on its result
joins it; element-wise work that waits for nothing but finished kernels floats, and is done again
inside every kernel that needs it.
"""

from __future__ import annotations

import math

from podyard.engine.program.ir import Body, HloOperation, TensorType
from podyard.engine.timing.convolutions import Convolution, ConvolutionGroups
from podyard.engine.timing.few_examples import is_uncertain
from podyard.engine.timing.graph import (
    ALIASES,
    COLLECTIVES,
    CONTROL,
    ELEMENTWISE,
    JUST_AFTER,
    LEAVES,
    MATRIX,
    OPAQUE,
    SMALL_SIZE,
    Kernel,
)
from podyard.engine.timing.layout import LANES, compact_layout
from podyard.engine.timing.masks import Masks
from podyard.engine.timing.swapped import REVERSED
from podyard.engine.timing.touched import (
    UPDATES,
    fills_itself,
    is_one_slice,
    lies_across,
    row_count,
)
from podyard.hardware.cost_model import SUBLANES

# From so many rows on, an array is turned before the largest of each are looked for.
_ROWS_TO_TURN = 64
# Places to look up come in chunks of so many.
_CHUNK_OF_PLACES = 1024


class Placement(Masks):
    """Places the operations of one body, one after the other."""

    def _name(self, value: int) -> int:
        """`resolve`, but for barriers: what is recomputed behind one (a checkpoint) is not a
        repetition."""
        while value in self.aliases and value not in self._barred:
            value = self.aliases[value]
        return value

    def _is_repetition(self, operation: HloOperation) -> bool:
        """Return whether the same operation on the same operands has been placed: its results are
        the other's then."""
        if operation.opcode in COLLECTIVES or (operation.bodies and operation.opcode != "reduce"):
            return False
        # Numbers that are written into are not those that others read.
        users = (user for value in operation.results for user in self.users.get(value, ()))
        if any(user.opcode in UPDATES and user.operands[0] in operation.results for user in users):
            return False
        attributes = tuple(
            sorted((name, str(value)) for name, value in operation.attributes.items())
        )
        inner = tuple(step.opcode for body in operation.bodies for step in body.operations)
        types = tuple(self.program.types[value] for value in operation.results)
        key = (
            operation.opcode,
            tuple(self._name(value) for value in operation.operands),
            attributes,
            inner,
            types,
        )
        if operation.opcode == "constant" and "value" not in operation.attributes:
            return False
        first = self._seen.setdefault(key, operation.results)
        if first is operation.results:
            return False
        self.aliases.update(zip(operation.results, first, strict=True))
        self.first_of.update(zip(operation.results, first, strict=True))
        return True

    def _place(self, operation: HloOperation) -> None:  # noqa: C901, PLR0912, PLR0915
        opcode = operation.opcode
        if opcode in ALIASES and operation.operands:
            for result, operand in zip(operation.results, operation.operands, strict=False):
                self.aliases[result] = operand
                if opcode == "optimization_barrier":
                    self._barred.add(result)
            self._cut_before(operation)
        elif opcode in LEAVES:
            self._float(operation, -1)
        elif operation.text("step"):
            self._put_in(operation)
        elif opcode in MATRIX:
            self._matrix(operation)
        elif opcode == "reduce_window":
            if self._is_folded(operation):
                self._float(operation, -1)
            else:
                self._start("window", operation)
        elif opcode in ("reduce", "argmax", "argmin", "reduce_and", "cumsum"):
            self._reduce(operation)
        elif opcode in COLLECTIVES:
            if opcode == "all_reduce" and self._look_up(operation.operands[0]):
                rows = self.program.types[operation.operands[0]]
                self._start("loop", None).laid_out = TensorType(rows.shape[:-1], "pred")
                self._start("copy", None).laid_out = rows
            self._start("collective", operation, in_flow=False)
            for result, operand in zip(operation.results, operation.operands, strict=False):
                self._sent[result] = operand
                # A collective takes and gives any layout.
                self.across |= {result} if self.resolve(operand) in self.across else set()
            if self._is_copied_out(operation):
                self._start("copy", None).laid_out = self.program.types[operation.results[0]]
        elif opcode in CONTROL:
            self._enter(operation)
        elif opcode == "transpose" and self._turns(operation):
            self._turn(operation)
        elif opcode in ("sort", "top_k"):
            self._sort(operation)
        elif (
            opcode == "slice" and any(step > 1 for step in operation.ints("strides"))
        ) or opcode == "pad":
            self._space_out(operation)
        elif opcode == "scatter" and self._is_one_hot(operation):
            self._elementwise(operation)
        elif opcode == "dynamic_update_slice" or (opcode == "scatter" and operation.ints("sizes")):
            self._update(operation)
        elif opcode == "gather" and is_one_slice(self.program, operation):
            self._elementwise(operation)
        elif opcode in OPAQUE:
            if opcode == "gather":
                self._fill_up(operation)
            for value in (*operation.operands, *operation.results) if opcode == "attention" else ():
                self._turn_for_rows(self.resolve(value))
            if opcode == "select_and_scatter":
                self._unpool(operation)
                return
            self._start("opaque", operation, in_flow=False)
        elif opcode == "reshape" and self._changes_last_axis(operation):
            self._reshape(operation)
        elif opcode == "compare" and self._is_mask_of_pooled(operation):
            self._mask(operation)
        elif opcode == "maximum" and self._is_least(operation.operands[0]):
            self.aliases[operation.results[0]] = operation.operands[1]
        elif opcode == "broadcast_in_dim" and self._is_repeated(operation):
            self._repeat(operation)
        elif self._is_gate(operation):
            self._cut_gate(operation)
        elif opcode in ELEMENTWISE:
            self._cut_out(operation)
            if opcode != "concatenate" or not self._join_pieces(operation):
                self._elementwise(operation)
        else:
            self.unknown.append(operation)
            self._start("opaque", operation, in_flow=False)

    def _is_folded(self, operation: HloOperation) -> bool:
        """Return whether the compiler works it out itself: a few numbers that are made of
        constants."""
        size = sum(self.program.types[value].size for value in operation.results)
        leaves = (leaf for value in self._operands(operation) for leaf in self._leaves(value, {}))
        return size < SMALL_SIZE and all(map(self._is_constant, leaves))

    def _matrix(self, operation: HloOperation) -> None:
        """A convolution reads with examples or features in lanes, and writes with both in the two
        minor axes; what enters or leaves the program in another layout is copied."""
        if operation.opcode != "convolution":
            self._convert_before(operation)
            batched = self._batch_minor_tiles(operation)
            self._start("matrix", operation).layouts = batched
            return
        groups = ConvolutionGroups.of(self.program, operation, self.tiling)
        conv = Convolution.of(self.program, operation, self.tiling)
        is_cut, types = conv.is_cut(self.tiling), self.program.types
        layouts: dict[int, tuple[int, ...]] = {}
        operands = list(zip(operation.operands, ("lhs_dims", "kernel_dims"), strict=False))
        if groups is not None:
            # What is smaller is copied first: what is larger can be fetched meanwhile.
            operands.sort(key=lambda pair: types[pair[0]].size)
        for value, dims in operands:
            minor = operation.ints(dims)[:2]
            if groups is not None and value in groups.turned:
                self._relayout(value, minor, layouts, lane=groups.turned[value])
                if value in groups.padded and not self._from_outside(value):
                    self._turn_whole(groups.padded[value])
            elif groups is not None and value in groups.crossed:
                self._cross(groups.crossed[value], self.resolve(value))
            elif (
                groups is None
                and not is_cut
                and (self._from_outside(value) or value in self.turned_around)
            ):
                self._relayout(value, minor, layouts, lanes_only=True)
        if is_cut:
            self._cut(types[operation.operands[0]], operation.ints("lhs_dims")[1])
        kernel = self._start("matrix", operation)
        kernel.layouts, is_parted = layouts, bool(operation.int("parted"))
        kernel.is_cut = is_cut or is_parted or is_uncertain(conv, self.tiling)
        if is_cut and operation.results[0] in self.body.results:
            self._cut(types[operation.results[0]], operation.ints("out_dims")[1])
        result, minor = operation.results[0], operation.ints("out_dims")[:2]
        if groups is not None and result in groups.turned:
            self._relayout(result, minor, layouts, lane=groups.turned[result], leaves=True)
        elif groups is not None and result in groups.crossed:
            self._cross(groups.crossed[result])
        elif groups is not None and groups.apart is not None:
            copy = self._start("copy", None)
            copy.moved, copy.regroups = groups.apart, conv.groups
        elif groups is None and not is_cut:
            for value in self._leaving(result):
                self._relayout(value, minor, layouts, leaves=True)

    def _is_copied_out(self, operation: HloOperation) -> bool:
        """On v2 and v3 a scattered sum is a slice of a whole one, and a gather is not written into
        a result."""
        result = operation.results[0]
        names = {
            result,
            *(
                one
                for user in self.users.get(result, ())
                if user.opcode in ALIASES
                for one in user.results
            ),
        }
        gathered = operation.opcode == "all_gather" and bool(names & self._results)
        whole = self.program.types[operation.operands[0]].size
        scattered = (
            operation.opcode in ("all_reduce", "reduce_scatter")
            and self.program.types[result].size < whole
        )
        return self.tiling.min_sublanes > 1 and (gathered or scattered)

    def _look_up(self, value: int) -> bool:
        """Return whether a sum is of rows of a table that is split: those of other devices are made
        zero before."""
        maker = (
            self.kernels[int(self.after[value])].anchor
            if self.after.get(value, -1.0) >= 0
            else None
        )
        return maker is not None and maker.opcode == "gather" and value in maker.results

    def _turns(self, operation: HloOperation) -> bool:
        """A transposition that changes the axis in lanes. Matrix products read either way."""
        source, result = (
            self.program.types[value] for value in (operation.operands[0], operation.results[0])
        )
        value = self.resolve(operation.operands[0])
        while value in self._sent:  # a collective takes and gives any layout
            value = self.resolve(self._sent[value])
        home = self.home.get(value)
        of_product = home is not None and self.kernels[home].kind == "matrix"
        users = self.users.get(operation.results[0], ())
        if (
            source.size < SMALL_SIZE
            or of_product
            or (users and all(user.opcode in MATRIX for user in users))
        ):
            return False
        lane, turned_lane = (
            compact_layout(type_, self.tiling).lane_axis for type_ in (source, result)
        )
        return turned_lane is None or operation.ints("dims")[turned_lane] != lane

    def _turn(self, operation: HloOperation) -> None:
        """The arrays that a value is made from are turned, one by one; what is in flow, when it is
        complete."""
        value = self.resolve(operation.operands[0])
        if value in self.home:
            self._start("copy", operation, in_flow=False)
            return
        for leaf in self._leaves(value, {}):
            if self.program.types[leaf].size >= self.program.types[value].size:
                self._turn_whole(self.program.types[leaf])
        self._elementwise(operation)

    def _sort(self, operation: HloOperation) -> None:
        """Sorted together with the numbers of their places; across lanes only where there are few
        rows. From v4 on
        those numbers never leave the chip."""
        type_, is_sort = self.program.types[operation.operands[0]], operation.opcode == "sort"
        if type_.shape:
            axis = operation.int("dim", len(type_.shape) - 1)
            rows = type_.size // max(1, type_.shape[axis])
            across = compact_layout(type_, self.tiling).lane_axis == axis
            if across and rows >= (LANES if is_sort else _ROWS_TO_TURN):
                read = [
                    value for value in self._operands(operation) if not self._is_constant(value)
                ]
                used = [
                    value
                    for value in operation.results
                    if self.users.get(value) or value in self.body.results
                ]
                for value in [*read, *used] if is_sort else read:
                    self._turn_whole(self.program.types[value])
            elif not is_sort and (rows > SUBLANES or type_.shape[axis] % LANES):
                self._start("loop", None).laid_out = TensorType(
                    (type_.shape[axis], LANES), type_.dtype
                )
            # a row is filled up to the lanes, and cut again
            if is_sort and type_.shape[axis] < LANES:
                for _ in range(2):
                    self._start("loop", None).laid_out = type_
            if is_sort and self.tiling.min_sublanes > 1:
                self._start("loop", None).moved = TensorType(type_.shape, "s32")
        self._start("opaque", operation, in_flow=False)

    def _space_out(self, operation: HloOperation) -> None:
        """Every second number, or zeros in between, are kernels of their own, to which the compiler
        gives no cycles; what a border is put around is in memory."""
        value = self.resolve(operation.operands[0])
        inside = operation.opcode == "slice" or any(operation.ints("interior"))
        large = self.program.types[operation.results[0]].size >= SMALL_SIZE
        if inside:
            self._start("opaque", operation, in_flow=False)
            return
        if (
            large
            and value in self.floating
            and value not in self.materialised
            and self._computes(value)
        ):
            if self._join_pieces(operation):
                return
            kernel = self._start("loop", None)
            self.order[kernel.index] = self.after[value] + JUST_AFTER
            self._materialise(value, kernel)
        self._elementwise(operation)

    # --- arrays that are written in part

    def _update(self, operation: HloOperation) -> None:
        """Writes a part of an array in its place, by the kernel that makes the part; of an array
        that others still
        read, or that is not the program's to change, a copy is made first."""
        target, part = (
            self.resolve(operation.operands[place]) for place in (0, UPDATES[operation.opcode])
        )
        if target in self.floating and target not in self.materialised:
            empty = all(self._is_constant(leaf) for leaf in self._leaves(target, {}))
            if empty:
                self.filled.add(target)
            made = self._start(
                "opaque" if empty and fills_itself(self.program, operation) else "loop", None
            )
            self.order[made.index] = self.after[target] + JUST_AFTER
            self._materialise(target, made)
        ready = self._ready(target)
        if self._is_own(target, operation):
            self.in_place[operation.results[0]] = target
        else:
            copy = self._start("copy", None)
            copy.laid_out = self.program.types[target]
            ready = self.order[copy.index] = ready + JUST_AFTER
        self._targets.add(target)
        if operation.opcode == "scatter" and not is_one_slice(self.program, operation):
            turned = lies_across(self.program.types[target], operation.ints("sizes"), self.tiling)
            for _ in range(turned * (1 if target in self.filled else 2)):
                self._turn_table(self.program.types[target])
            if turned and target in self.filled:
                self.across |= {operation.results[0], target}
            self._put_one_by_one(operation)
            if part in self.body.parameters and self._lies_across_rows(part, operation):
                self._turn_table(self.program.types[part], ahead=True, turns=part)
            kernel = self._start("opaque", operation, in_flow=False)
        else:
            others = [
                self._ready(value)
                for value in self._operands(operation)
                if value not in (target, part)
            ]
            kernel = self._writer(part, max([ready, *others]))
            kernel.operations.append(operation)
            self.home[operation.results[0]] = kernel.index
            self.updated.add(operation.results[0])
        kernel.updates.append(operation)

    def _fill_up(self, operation: HloOperation) -> None:
        """Places to look up come in whole chunks: others are added by another kernel."""
        sizes = operation.ints("sizes")
        count = row_count(self.program, operation) if sizes else 0
        table = self.program.types[operation.operands[0]]
        if sizes and lies_across(table, sizes, self.tiling):
            own = self.resolve(operation.operands[0])
            self._turn_table(table, ahead=own in self.body.parameters, turns=own)
        if count % _CHUNK_OF_PLACES:
            self._start("loop", None).laid_out = TensorType(
                (-(-count // _CHUNK_OF_PLACES) * _CHUNK_OF_PLACES,), "s32"
            )

    def _writer(self, part: int, ready: float) -> Kernel:
        """The kernel that makes `part` and can write it at once, or one for just that."""
        home = self.home.get(part)
        if home is not None and part not in self.updated and ready < self.order[home]:
            return self.kernels[home]
        kernel = self._start("loop", None)
        self.order[kernel.index] = max(ready, self._ready(part)) + JUST_AFTER
        while part in self.floating and part not in self._writers:
            self._writers[part] = kernel
            source = self.floating[part].operands[:1]
            if self.floating[part].opcode not in ("reshape", "broadcast_in_dim") or not source:
                break
            if self.program.types[source[0]].size != self.program.types[part].size:
                break
            part = self.resolve(source[0])
        return kernel

    def _is_own(self, target: int, operation: HloOperation) -> bool:
        """Return whether an update may destroy what was there: nothing later reads it, and it is
        not a kept argument."""
        if self._is_kept(target) or target in self._results:
            return False
        # what a turn of a loop carries is read before it is changed
        if self.body is not self.program.body:
            return True
        here = self._places[id(operation)]
        return all(self._places[id(user)] <= here for user in self.users.get(target, ()))

    def _is_kept(self, value: int) -> bool:
        """Arguments of the whole program that it does not take over."""
        is_own = value in self.body.parameters and value not in self.program.donated
        return is_own and self.body is self.program.body

    def _enter(self, operation: HloOperation) -> None:
        """What a loop changes is its own: a copy of what is kept, and of numbers that stand for
        nothing yet only where the compiler does not see that all of them are written."""
        if operation.opcode == "while":
            body = operation.bodies[-1]
            for operand, own, result in zip(
                operation.operands, body.parameters, body.results, strict=False
            ):
                value = self.resolve(operand)
                if own == result or not self.program.types[value].shape:
                    continue
                copied = value not in self.floating and (
                    self._is_kept(value) or len(self.users.get(operand, ())) > 1
                )
                if copied or (value in self.floating and self._is_filled(value, own, result, body)):
                    start = self._start("copy" if copied else "loop", None)
                    start.laid_out = self.program.types[value]
        self._start("control", operation, in_flow=False)

    def _is_filled(self, value: int, own: int, result: int, body: Body) -> bool:
        """Return whether a constant that a loop writes slices into is really written before: not if
        a slice is put at each place in turn."""
        made = next((step for step in body.operations if result in step.results), None)
        if made is None or made.opcode not in UPDATES or made.operands[0] != own:
            return False
        in_turn = made.opcode == "dynamic_update_slice" and any(
            at in body.parameters for at in made.operands[2:]
        )
        return not in_turn and all(self._is_constant(leaf) for leaf in self._leaves(value, {}))

    def _elementwise(self, operation: HloOperation) -> None:
        operands = self._operands(operation)
        homes, waits = self._homes_and_waits(operands)
        if not homes:
            self._float(operation, max(waits, default=-1.0))
            return
        latest = max(homes, key=lambda index: self.order[index])
        kernel, now = self.kernels[latest], self.order[latest]
        if kernel.kind == "matrix" and self._begins_pieces(operation):
            self.cut.update(in_flow for in_flow in operands if in_flow in self.home)
            self._float(operation, max([now, *waits]))
            return
        in_flow = [value for value in operands if self.home.get(value) == latest]
        ends = kernel.kind == "window" and any(
            len(self.users.get(value, ())) > 1 for value in in_flow
        )
        # A value that a reduction of this very kernel feeds is complete only when the kernel is, or
        # its rows whole.
        grows = any(value in self.reduced for value in operands) and self._grows(
            operation, operands
        )
        in_rows = any(operand in self.row_values for operand in in_flow)
        spreads = grows and not in_rows
        late = max(waits, default=-1.0)
        if late >= now and not ends and not spreads and self._can_wait(kernel, operation):
            now = self.order[latest] = late + JUST_AFTER
        if ends or spreads or late >= now or self._is_of_sums(operation, in_flow):
            self._float(operation, max([now, *waits]))
            return
        kernel.operations.append(operation)
        for value in operation.results:
            self.home[value] = latest
            if any(operand in self.reduced for operand in in_flow) and not (grows and in_rows):
                self.reduced.add(value)
                self.row_values |= {value} if in_rows else set()

    def _can_wait(self, kernel: Kernel, operation: HloOperation) -> bool:
        """Return whether nothing but `operation` reads what the kernel makes."""
        if kernel.kind != "matrix" or kernel.anchor is None:
            return False
        own = [*kernel.operations, *kernel.reductions]
        inside = {id(one) for one in [*own, operation]}
        flow = (
            value
            for one in [kernel.anchor, *own]
            for value in one.results
            if self.home.get(value) == kernel.index
        )
        return all(id(user) in inside for value in flow for user in self.users.get(value, ()))

    def _is_one_hot(self, operation: HloOperation) -> bool:
        """One number put into every row of a constant: a comparison with the column's number does
        it."""
        result, updates = (
            self.program.types[operation.results[0]],
            self.program.types[operation.operands[-1]],
        )
        rows = math.prod(result.shape[:-1])
        target = self.resolve(operation.operands[0])
        constant = target in self.floating and all(
            self._is_constant(leaf) for leaf in self._leaves(target, {})
        )
        return constant and len(result.shape) >= 2 and updates.size == rows

    def _changes_last_axis(self, operation: HloOperation) -> bool:
        source, result = (
            self.program.types[value] for value in (operation.operands[0], operation.results[0])
        )
        value = self.resolve(operation.operands[0])
        if source.size < SMALL_SIZE or len(source.shape) < 2:
            return False
        if source.shape[-1:] == result.shape[-1:]:
            # Images that are cut into patches: no convolution writes them so.
            anchor = self.kernels[self.home[value]].anchor if value in self.home else None
            cut = [extent for extent in source.shape if extent > 1] != [
                extent for extent in result.shape if extent > 1
            ]
            return cut and anchor is not None and anchor.opcode == "convolution"
        return value not in self.floating or self._large_leaves(value)

    def _reshape(self, operation: HloOperation) -> None:
        """Ends the flow: what comes before is in memory. If the axis in lanes stays whole, the
        result is another view
        of the same tiles, else they are moved."""
        value, result = self.resolve(operation.operands[0]), operation.results[0]
        if value in self.floating and value not in self.materialised and self._computes(value):
            self._materialise(value, self._start("loop", None))
        if self._moves_lanes(self.program.types[value], self.program.types[result]):
            self._start("copy", operation, in_flow=False)
            return
        self.view_of[result] = value
        self.after[result] = (
            self.order[self.home[value]] if value in self.home else self.after.get(value, -1.0)
        )

    def _put_in(self, operation: HloOperation) -> None:
        """What `regrouped` has put in: a copy, and a cut that the compiler gives no cycles or that
        is a name. What `few_examples` has put in is made by a kernel that does nothing else, and so
        is what `swapped` has."""
        value, step = self.resolve(operation.operands[0]), operation.text("step")
        if step == "made":
            self._repeat(operation)
            return
        if step == "named":
            self.aliases[operation.results[0]] = value
            return
        if value in self.floating and value not in self.materialised and self._computes(value):
            self._materialise(value, self._start("loop", None))
        if step == REVERSED and value in self.body.parameters:
            self.turned_around.update(operation.results)
        self._start("opaque" if step in ("cut", REVERSED) else "copy", operation, in_flow=False)

    def _moves_lanes(self, source: TensorType, result: TensorType) -> bool:
        lane, other = (
            compact_layout(type_, self.tiling).lane_axis or 0 for type_ in (source, result)
        )
        same_place = math.prod(source.shape[:lane]) == math.prod(result.shape[:other])
        return not same_place or source.shape[lane] != result.shape[other]

    def _grows(self, operation: HloOperation, operands: list[int]) -> bool:
        largest = max(self.program.types[value].size for value in operation.results)
        return any(
            value in self.reduced and largest > 2 * self.program.types[value].size
            for value in operands
        )

    def _reduce(self, operation: HloOperation) -> None:
        """Fused into the matrix product whose result it sums up, else a separate kernel."""
        operands = self._operands(operation)
        homes, waits = self._homes_and_waits(operands)
        in_rows = self._is_taken_from_rows(operation)
        self.row_values |= set(operation.results) if in_rows else set()
        if homes and not any(value in self.reduced for value in operands):
            latest = max(homes, key=lambda index: self.order[index])
            own = self.kernels[latest]
            own_sums = {value for one in own.reductions for value in one.results}
            joins = own.kind == "matrix" or bool(own_sums & self.row_values)
            if joins and all(wait < self.order[latest] for wait in waits):
                own.reductions.append(operation)
                for value in operation.results:
                    self.home[value] = latest
                    self.reduced.add(value)
                return
        kernel = self._reads_the_same(operation) or self._start("reduce", operation)
        kernel.reductions.append(operation)
        self.home.update(dict.fromkeys(operation.results, kernel.index))
        self.reduced.update(operation.results)
