"""The price of every kernel of a fused program."""

from __future__ import annotations

import collections
import dataclasses
import math

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType
from podyard.engine.timing.ahead import Ahead
from podyard.engine.timing.alone import kept_bytes, kept_in_loop, large_alone, without_room
from podyard.engine.timing.attention import attention_flops
from podyard.engine.timing.converted_images import converted_images_price
from podyard.engine.timing.convolutions import (
    depthwise_cycles,
    group_shares,
    product_of,
    row_cycles,
    rows_read,
)
from podyard.engine.timing.first_argument import first_arguments
from podyard.engine.timing.graph import Fused, Kernel, sources
from podyard.engine.timing.image_ends import ImageEnds
from podyard.engine.timing.image_room import ImageRoom
from podyard.engine.timing.kernels import (
    PASSES,
    KernelPrice,
    for_groups_price,
    is_laid_near,
    is_made_of_three,
    laid_bytes,
    matrix_price,
    moving_price,
    near_turn_price,
    read_before,
    regroup_price,
    relayout_price,
    result_bytes,
    single_price,
    sum_price,
    table_price,
    tile_bytes,
    tiles_of,
    transpose_price,
    vector_price,
    with_kept_sums,
    with_sum_windows,
    without_matrix_unit,
)
from podyard.engine.timing.layout import LANES, compact_layout, whole_rows
from podyard.engine.timing.one_query import vectors_price
from podyard.engine.timing.ring_prices import ring_price
from podyard.engine.timing.row_numbers import spread_rows
from podyard.engine.timing.running_sums import NEAR_KERNELS, WINDOW_OF_POOLING, passes_of_window
from podyard.engine.timing.single import is_single
from podyard.engine.timing.summed import Summed
from podyard.engine.timing.swapped import REVERSED, reversed_price
from podyard.engine.timing.touched import Touched, TypesInMemory, with_padding
from podyard.engine.timing.turned_updates import turned_gradients, turned_shape
from podyard.engine.timing.vector_work import cycles_before, operations_before, vector_instructions
from podyard.hardware.cost_model import SUBLANES, CostModel

# What turning a tile takes in the compiler's cycles where both ends are on the chip.
_NEAR_TURN_CYCLES = 0.4
# How many times the time to fetch an array is needed for it to be turned on the chip for groups.
_TIMES_TO_TURN = 1.5
# Bytes of a tile of 4-byte words.
_WIDE_TILE = LANES * SUBLANES * 4
# Copying an array on the chip, for each tile (four compiled on v5e, of 256 KB to 2 MB).
_NEAR_COPY_CYCLES = 8.8
# Types that the matrix units of some generations multiply faster. The other type of 8 bits,
# f8e4m3fn, is converted.
_NARROW = frozenset({"s8", "u8", "f8e5m2"})


class Pricer:
    """Prices the kernels of one fused body. `far`, of the body of a loop: the positions of what
    begins or ends in HBM, among what the loop carries; None for a body that runs once."""

    # Prices by a kernel's identity, once all values have their place; None until then.
    _prices: dict[int, tuple[Kernel, KernelPrice]] | None = None

    def __init__(
        self,
        program: Program,
        body: Body,
        fused: Fused,
        costs: CostModel,
        far: frozenset[int] | None = None,
    ) -> None:
        self.program = program
        self.fused = fused
        self.costs = costs
        self._producers = {
            value: operation
            for kernel in fused.kernels
            for operation in kernel.operations
            for value in operation.results
        }
        dots = (
            one
            for one in fused.kernels
            if one.anchor is not None and one.anchor.opcode == "dot_general"
        )
        self._makers = {value: kernel for kernel in fused.kernels for value in kernel.outputs}
        self._products = {value for kernel in dots for value in kernel.outputs}
        self._touched: dict[int, Touched] = {}
        self._fixed = set(map(self.resolve, (*program.body.parameters, *program.body.results)))
        types = TypesInMemory(program, fused.stored, self._fixed, costs)
        self.type_of, self._lay, self._size = types.of, types.without_ones, types.nbytes
        self._outside = {self.resolve(value) for value in (*body.parameters, *body.results)}
        # (kernel, value): arguments fetched before a kernel starts, results that leave after it.
        self._moved_around: set[tuple[int, int]] = set()
        self._near_turns: set[int] = set()
        # Arrays that lookups and scatters read a copy of in another layout.
        self.turned = {kernel.turns for kernel in fused.kernels if kernel.turns is not None}
        # Of large values that are moved around, the last kernel that had them on the chip.
        self._large: dict[int, int] = {}
        # (kernel, value): what is turned to be updated, and comes from HBM.
        self._turned_far: set[tuple[int, int]] = set()
        is_turned = body is program.body and costs.turns_updates
        self._turned = turned_gradients(program, costs.tiling) if is_turned else set[int]()
        # Images that a convolution copies while it reads them: from HBM.
        self.read_far: set[int] = set()
        # Values that find no room on the chip for all of their life: of one collective, and others,
        # which come back.
        self._crowded: frozenset[int] = frozenset()
        self._moved: frozenset[int] = frozenset()
        self._images = (
            ImageRoom.of(fused, self.resolve, costs) if costs.results_stay else ImageRoom()
        )
        # The argument that is fetched before the program starts.
        self.first: int | None = None
        room, stays = costs.prefetch_bytes, costs.results_stay
        self._alone = set(large_alone(fused, self._outside, self._size, room, stays))
        if body is program.body and stays:
            out = list(without_room(fused, self.is_near, self._size, room))
            self._crowded = frozenset(value for value, is_sent in out if is_sent)
            self._moved = frozenset(value for value, is_sent in out if not is_sent)
        if far is not None:
            taken = {value for kernel in fused.kernels for value in self.touch(kernel).read}
            self._outside -= set(
                map(self.resolve, kept_in_loop(body, far, taken, self._size, costs))
            )
        elif costs.prefetch_bytes:
            self._fetch_ahead(body)
        self._prices = {}

    def _fetch_ahead(self, body: Body) -> None:  # noqa: PLR0915
        """Arguments are fetched while earlier kernels run, as far as those leave time and there is
        room; a result that takes the place of one that is there leaves in the same way. One
        argument is fetched before the program starts: the first of `first_arguments` that fits."""
        arguments = {self.resolve(value) for value in body.parameters}
        most, budget = self.costs.prefetch_bytes, 0.0
        near_values = {
            value for kernel in self.fused.kernels for value in kernel.outputs if self._stays(value)
        }
        ahead = Ahead(self.fused, near_values, self._size, most)
        turned_before = False
        turns_near = self.costs.keeps_for_nothing
        uses = collections.Counter(
            value for kernel in self.fused.kernels for value in kernel.inputs
        )
        given = {self.resolve(value) for value in self.program.donated}
        ends = ImageEnds.of(self.program, self.fused, self._sources, self.costs)
        given |= {value for value in ends.copied if uses[value] == 1}
        self.read_far |= ends.far
        self._moved_around |= ends.near
        if body is self.program.body:
            ordered = first_arguments(
                body, self.fused, given, self._size, self.type_of, self.resolve
            )
            alone = self.fused.kernels[0] if len(self.fused.kernels) == 1 else None
            ordered += alone.inputs if alone is not None and self.is_lone(alone) else []
            fits = (one for one in ordered if 0 < self._size(one) <= most)
            self.first = next((one for one in fits if ahead.start(one, self._size(one))), None)
        for place, kernel in enumerate(self.fused.kernels):
            room = most - sum(
                self._size(value)
                for value in (*kernel.inputs, *kernel.outputs)
                if self._stays(value)
            )
            places: list[float] = []
            self._move_large(kernel, place, ahead)
            for value in kernel.inputs:
                size = self.read_bytes([value], kernel)
                if value == self.first:
                    self._moved_around.add((kernel.index, value))
                elif value in self.turned and kernel.kind == "opaque":
                    continue  # it reads the copy
                elif value in arguments - self.read_far and size > 0 and ahead.fetch(size, place):
                    self._moved_around.add((kernel.index, value))
                    places.append(size)
                    budget, room = budget - size, room - size
            for value in kernel.outputs:
                size = self._size(value)
                if value in self._outside and size in places:
                    ahead.leave(size)
                    self._moved_around.add((kernel.index, value))
                    places.remove(size)
                    budget -= size
            for value in self._turned_values(kernel):
                # The copy that is updated is on the chip.
                if value in kernel.inputs and (kernel.index, value) not in self._moved_around:
                    self._turned_far.add((kernel.index, value))
                self._moved_around.add((kernel.index, value))
            turned = kernel.moved if kernel.ahead and turns_near and turned_before else None
            turned_before |= kernel.ahead or (
                kernel.anchor is not None and kernel.anchor.text("step") == REVERSED
            )
            for_groups = kernel.index in self._images.left
            if turned is not None and kernel.minor and not for_groups:
                turned = turned if is_laid_near(turned, kernel.minor, self.costs) else None
            times, room = (
                _TIMES_TO_TURN if for_groups else 1,
                self._images.left.get(kernel.index, room),
            )
            if turned is not None and times * tile_bytes(turned, self.costs) <= min(
                budget, times * room
            ):
                (self._images.again if kernel.index in self._images.far else self._near_turns).add(
                    kernel.index
                )
                budget -= tile_bytes(turned, self.costs)
            moved = self.moved_meanwhile(kernel)
            if kernel.kind in ("collective", "opaque"):
                moved += min(map(self._size, (*kernel.inputs, *kernel.outputs)), default=0.0)
            budget = min(most, budget + moved)
            ahead.ran(moved)

    def _move_large(self, kernel: Kernel, place: int, ahead: Ahead) -> None:
        """Values of more than half of the chip's memory are written there if there is room, and
        leave; who reads them finds them there, or they are fetched again."""
        if not self.costs.results_stay:
            return
        for value in dict.fromkeys((*kernel.inputs, *kernel.outputs)):
            size = self._size(value)
            if (
                value in self._outside
                or self._stays(value)
                or not 0 < size <= self.costs.prefetch_bytes
            ):
                continue
            last = self._large.get(value)
            if value in kernel.outputs:
                is_here = ahead.hold(size, place, place)
            else:
                is_here = (last is not None and ahead.hold(size, last + 1, place)) or ahead.fetch(
                    size, place
                )
            if is_here:
                self._large[value] = place
                self._moved_around.add((kernel.index, value))

    def _is_turned_near(self, kernel: Kernel) -> bool:
        """Return whether a copy is of what was turned around before, and is on the chip, where that
        costs next to nothing."""
        made = self.program.producer(kernel.copies) if kernel.copies is not None else None
        costs_nothing = self.costs.keeps_for_nothing
        return (
            costs_nothing
            and made is not None
            and made.text("step") == REVERSED
            and self.is_near(made.results[0])
        )

    def moved_meanwhile(self, kernel: Kernel) -> float:
        """Bytes that the memory can move in the cycles of a kernel."""
        return self.price(kernel).cycles * self.costs.hbm_bytes_per_second / self.costs.clock_hz

    def _is_here(self, value: int, kernel: Kernel) -> bool:
        return self._stays(value) or (kernel.index, value) in self._moved_around

    def _shape_of(self, value: int) -> TensorType:
        return self._lay(self.resolve(value))

    def is_scalar(self, kernel: Kernel) -> bool:
        """Numbers by themselves are computed outside of the vector unit; the compiler gives that no
        cycles."""
        values = (*kernel.inputs, *kernel.outputs)
        return (
            kernel.kind == "loop"
            and bool(kernel.outputs)
            and not any(self.type_of(one).shape for one in values)
        )

    def resolve(self, value: int) -> int:
        while value in self.fused.aliases:
            value = self.fused.aliases[value]
        return value

    def price(self, kernel: Kernel) -> KernelPrice:
        """Cycles of `kernel`; collectives, bodies and what the compiler does not price cost nothing
        here."""
        if self._prices is not None and id(kernel) in self._prices:
            return self._prices[id(kernel)][1]
        price = self._own_price(kernel)
        turned = self._turning_cycles(kernel)
        if turned:
            price = dataclasses.replace(price, cycles=price.cycles + turned)
        if self._prices is not None:
            self._prices[id(kernel)] = kernel, price
        return price

    def _turning_cycles(self, kernel: Kernel) -> float:
        """The copies before and after of arrays that a turned gradient updates."""
        cycles = 0.0
        for value in self._turned_values(kernel):
            near = value in kernel.inputs and (kernel.index, value) not in self._turned_far
            each = _NEAR_TURN_CYCLES if near else self.costs.transpose_cycles_per_tile
            cycles += each * tiles_of(self.type_of(value), self.costs)
        return cycles

    def _turned_values(self, kernel: Kernel) -> list[int]:
        shape = turned_shape(self.program, kernel, self._turned)
        values = (*kernel.inputs, *kernel.outputs) if shape is not None else ()
        return [
            value
            for value in values
            if value in self._outside and self.type_of(value).shape == shape
        ]

    def _own_price(self, kernel: Kernel) -> KernelPrice:
        if kernel.kind == "matrix" and kernel.anchor is not None:
            return self._matrix(kernel, kernel.anchor)
        moved = kernel.moved or kernel.laid_out
        if kernel.kind in ("window", "reduce", "loop") and moved is None:
            return self._vector(kernel)
        if moved is not None:
            if kernel.laid_out is not None and any(map(self.is_near, kernel.outputs)):
                cycles = self.costs.vector_kernel_cycles + _NEAR_COPY_CYCLES * tiles_of(
                    moved, self.costs
                )
                return KernelPrice(cycles, "vpu")
            if kernel.index in self._near_turns or self._is_turned_near(kernel):
                return KernelPrice(_NEAR_TURN_CYCLES * tiles_of(moved, self.costs), "vpu")
            if kernel.regroups:
                return regroup_price(moved, kernel.regroups, self.costs)
            if kernel.is_table:
                return table_price(moved, kernel.turns is None, self.costs)
            if kernel.turned:
                return transpose_price(moved, self.costs)
            if kernel.kind == "loop":
                return moving_price(result_bytes(moved, self.costs), moved, self.costs)
            if kernel.minor:
                is_far, is_again = (
                    kernel.index in self._images.far,
                    kernel.index in self._images.again,
                )
                converted = converted_images_price(
                    self.program, kernel.copies, kernel.minor, self.costs
                )
                return converted or relayout_price(
                    moved, kernel.minor, self.costs, is_far, is_again
                )
            return vector_price(
                tile_bytes(moved, self.costs), result_bytes(moved, self.costs), 0.0, self.costs
            )
        if kernel.kind == "copy":
            return self._reshaped(kernel)
        if kernel.anchor is not None and kernel.anchor.opcode == "attention":
            rate = 2 * self.costs.mxu_count * self.costs.mxu_edge**2
            return KernelPrice(
                0.0, "unpriced", mxu_cycles=attention_flops(self.program, kernel.anchor) / rate
            )
        if kernel.anchor is not None and kernel.anchor.text("step") == REVERSED:
            is_argument = self.resolve(kernel.anchor.operands[0]) in self.program.body.parameters
            return reversed_price(self.program, kernel.anchor, is_argument, self.costs)
        return KernelPrice(0.0, "unpriced")

    def _reshaped(self, kernel: Kernel) -> KernelPrice:
        """Return where an axis is two, as heads and their features are, a product writes them as
        they are read. v5e and later take next to nothing for what stays on the chip."""
        moved = (*kernel.inputs, *kernel.outputs)
        ends = [self.type_of(value) for value in moved]
        if kernel.anchor is not None and (step := kernel.anchor.text("step")):
            return for_groups_price(
                ends[0], ends[-1], step == "turned", all(map(self.is_near, moved)), self.costs
            )
        if moved and moved[0] in self._products and not is_made_of_three(ends[0], ends[-1]):
            return KernelPrice(0.0, "overhead")
        if self.costs.keeps_for_nothing and all(map(self.is_near, moved)):
            return near_turn_price(ends[0], ends[-1], self.costs)
        narrower = min(ends, key=lambda type_: type_.itemsize)
        return transpose_price(TensorType(ends[-1].shape, narrower.dtype), self.costs)

    def vpu_cycles(self, kernel: Kernel, skipped: frozenset[int] = frozenset()) -> float:
        """Arithmetic of the element-wise operations and reductions in the kernel, but of those
        `skipped`."""
        total = vector_instructions(kernel, self._shape_of, self.costs, skipped)
        if kernel.kind == "window" and kernel.anchor is not None:
            taps = math.prod(
                min(extent, WINDOW_OF_POOLING) for extent in kernel.anchor.ints("window")
            )
            total += taps * tiles_of(self.program.types[kernel.anchor.results[0]], self.costs)
        spread = (
            spread_rows(self.program, kernel, self.resolve, self.costs)
            if self.costs.row_spread_cycles
            else 0
        )
        return total * self.costs.vector_cycles_per_tile + spread * self.costs.row_spread_cycles

    def read_bytes(self, values: list[int], kernel: Kernel | None = None) -> float:
        """Return the cost of reading; of an array that a kernel cuts slices from, the slices."""
        if kernel is None:
            return sum(map(self._size, values))
        parts, again = self.touch(kernel).read, self.touch(kernel).again
        return sum(
            parts[one] if one in parts else self._size(one) + again.get(one, 0.0) for one in values
        )

    def touch(self, kernel: Kernel) -> Touched:
        if kernel.index not in self._touched:
            self._touched[kernel.index] = Touched(self.program, kernel, self.resolve, self.costs)
        return self._touched[kernel.index]

    def written_bytes(self, kernel: Kernel) -> float:
        """Results; a reduction costs a pass in 4 bytes over what it sums up, unless as much is
        written anyway."""
        parts = self.touch(kernel).written
        written = 0.0
        for value in kernel.outputs:
            whole, type_ = result_bytes(self._lay(value), self.costs), self._lay(value)
            if value in kernel.layouts:
                whole *= laid_bytes(self.type_of(value), kernel.layouts[value]) / tile_bytes(
                    type_, self.costs
                )
            written += (
                parts[value] * whole / tile_bytes(type_, self.costs) if value in parts else whole
            )
        return max(written, self._summed_tiles(kernel) * _WIDE_TILE)

    def _summed_tiles(self, kernel: Kernel) -> float:
        return Summed(self.program, self.resolve, self._lay, self.is_outside, self.costs).tiles(
            kernel
        )

    def _written_by_vector(self, kernel: Kernel, narrow_share: float = 1.0) -> float:
        """From v4 on: results as they lie in memory, what stays on the chip at its share; and one
        pass in 4 bytes over what is summed up or narrowed, unless as many words are results
        anyway."""
        parts = self.touch(kernel).written
        written, wide, narrow = 0.0, 0.0, self._summed_tiles(kernel) * narrow_share
        for value in kernel.outputs:
            type_ = self._lay(value)
            whole = tile_bytes(type_, self.costs)
            own = parts.get(value, whole)
            tiles = tiles_of(type_, self.costs) * (own / whole if whole else 0.0)
            near = self._is_here(value, kernel)
            if value in kernel.layouts:
                minor, plain = kernel.layouts[value], self.type_of(value)
                near, laid = (
                    self._images.is_near(kernel, value, plain, self.costs),
                    laid_bytes(plain, minor),
                )
                own, tiles = laid, tiles * laid / whole
            written += own * (self.costs.near_write_share if near else 1.0)
            if type_.itemsize < 4:
                narrow = max(narrow, tiles * (narrow_share if near else 1.0))
            else:
                wide = max(wide, tiles)
        return written + (narrow * _WIDE_TILE if narrow > wide else 0.0)

    def _stays(self, value: int) -> bool:
        """Return whether a value is on the chip from the kernel that makes it to its last
        reader."""
        if value in self._outside or value in self._crowded or value in self._moved:
            return False
        return 0 < self._size(value) <= self.costs.prefetch_bytes / 2 or value in self._alone

    def _read_by_vector(self, kernel: Kernel) -> float:
        near = [value for value in kernel.inputs if self._is_here(value, kernel)]
        share = 1.0 - self.costs.near_read_share
        return self.read_bytes(kernel.inputs, kernel) - share * self.read_bytes(near, kernel)

    def _vector(self, kernel: Kernel) -> KernelPrice:
        passes = self.passes(kernel)
        if self.costs.prefetch_bytes:
            read, written = self._read_by_vector(kernel), self._written_by_vector(kernel)
        else:
            read, written = self.read_bytes(kernel.inputs, kernel), self.written_bytes(kernel)
        read, written = with_padding(
            self.program, kernel, (read, written), self._is_here, self.costs
        )
        summed = self._summed_tiles(kernel) * _WIDE_TILE
        if is_single(kernel) and (summed or read + written) > self.costs.window_bytes / 2:
            size = max(
                self._summed_tiles(kernel),
                *(tiles_of(self.type_of(one), self.costs) for one in kernel.outputs),
            )
            wide = all(
                self._is_here(one, kernel) and self.type_of(one).itemsize >= 4
                for one in kernel.outputs
            )
            if not (wide and self.costs.near_read_share < 1) or kernel.reductions:
                return single_price(max(read + written, size * _WIDE_TILE), size, self.costs)
        price = vector_price(passes * read, passes * written, self.vpu_cycles(kernel), self.costs)
        if summed > self.costs.large_sum_bytes:
            return sum_price(
                read + written,
                summed,
                kept_bytes(self.program, kernel),
                price.vpu_cycles,
                self.costs,
            )
        if (
            kernel.reductions
            and self.costs.near_read_share < 1
            and any(map(self.is_near, kernel.inputs))
        ):
            price = with_sum_windows(price, self._summed_tiles(kernel))
        kernels = max(passes, NEAR_KERNELS) if passes > 1 and self.costs.results_stay else passes
        return dataclasses.replace(
            price, cycles=price.cycles + (kernels - 1) * self.costs.vector_kernel_cycles
        )

    def is_lone(self, kernel: Kernel) -> bool:
        """Return whether a kernel is one sum of an array as it lies, or one pooling of images that
        no axis in a tile is pooled of: the array is fetched to the chip as a whole."""
        if kernel.kind == "window" and kernel.anchor is not None and len(self.fused.kernels) == 1:
            lies = compact_layout(self.program.types[kernel.anchor.operands[0]], self.costs.tiling)
            window = kernel.anchor.ints("window")
            return all(
                axis is not None and window[axis] == 1
                for axis in (lies.lane_axis, lies.sublane_axis)
            )
        return kernel.kind == "reduce" and is_single(kernel)

    def passes(self, kernel: Kernel) -> float:
        """A running sum (a window as long as its axis) is done in several passes."""
        if kernel.kind != "window" or kernel.anchor is None:
            return 1
        shape = self.program.types[kernel.anchor.operands[0]].shape
        return passes_of_window(kernel.anchor.ints("window"), shape, self.costs)

    def _matrix(self, kernel: Kernel, anchor: HloOperation) -> KernelPrice:
        left, right = (self._sources(value, kernel) for value in anchor.operands[:2])
        others = [value for value in kernel.inputs if value not in left and value not in right]
        passes: float = (
            PASSES.get(anchor.text("precision"), 1)
            if self.program.types[anchor.operands[0]].dtype == "f32"
            else 1
        )
        if all(self.program.types[value].dtype in _NARROW for value in anchor.operands[:2]):
            passes /= self.costs.narrow_rate
        near = self.costs.results_stay
        far_left, far_right, far_others = (
            [value for value in side if not (near and self._is_here(value, kernel))]
            for side in (left, right, others)
        )
        shares = group_shares(self.program, anchor, self.costs)
        left_bytes = self._operand_bytes(anchor.operands[0], far_left, kernel) * shares[0]
        left_bytes *= rows_read(self.program, anchor)
        right_bytes = self._operand_bytes(anchor.operands[1], far_right, kernel) * shares[1]
        written = (
            self._written_by_vector(kernel, self.costs.near_narrow_share)
            if near
            else self.written_bytes(kernel)
        )
        product = product_of(
            self.program, anchor, left_bytes, right_bytes, written * shares[2], passes, self.costs
        )
        if near:
            share = 0.5 * bool(far_left or far_right) + 0.5 * (written > 0)
            product = dataclasses.replace(product, fixed_share=share, reads_far=True)
        is_dot = anchor.opcode == "dot_general" and self.costs.before_product_cycles > 0
        before = operations_before(kernel, self.resolve) if is_dot else []
        vpu = self.vpu_cycles(kernel, frozenset(map(id, before)))
        product = dataclasses.replace(
            product, before_cycles=cycles_before(before, self._shape_of, self.costs)
        )
        if self.is_outside(self.resolve(anchor.operands[0])):
            vpu = max(vpu, row_cycles(self.program, anchor, self.costs))
        if work := depthwise_cycles(self.program, anchor, self.costs):
            share = product.fixed_share
            if anchor.int("batch_group_count", 1) > 1:
                work += read_before(product, self.costs)
                share *= self.costs.own_fixed_share
            product, vpu = (
                dataclasses.replace(product, passes=1, mxu_cycles=0.0, fixed_share=share),
                vpu + work,
            )
        if min(product.m, product.k, product.n) == 1 and product.mxu_cycles is None:
            padding = whole_rows(
                (self.program.types[value] for value in anchor.operands[:2]), self.costs.tiling
            )
            if product.batch > 1 and self.costs.vectors_summed_cycles:
                read = self._read_by_vector(kernel)
                return vectors_price(
                    self.program,
                    kernel,
                    product,
                    padding,
                    read,
                    vpu,
                    self._makers,
                    self._lay,
                    self.costs,
                )
            read, written = self.read_bytes(kernel.inputs, kernel), self.written_bytes(kernel)
            return without_matrix_unit(product, read, written, vpu, padding, self.costs)
        if anchor.int("ring"):
            result = tile_bytes(self.type_of(self.resolve(anchor.results[0])), self.costs)
            return ring_price(product, anchor, result, self.costs)
        price = matrix_price(product, self.read_bytes(far_others, kernel), vpu, self.costs)
        moved = sum(
            self._size(one)
            for one in (*kernel.inputs, *kernel.outputs)
            if not self._is_here(one, kernel)
        )
        return with_kept_sums(price, product, moved, kept_bytes(self.program, kernel), self.costs)

    def _operand_bytes(self, operand: int, sources: list[int], kernel: Kernel) -> float:
        """Return what a product reads for an operand: from memory, or of a copy in another layout
        unless that is near."""
        if operand not in kernel.layouts:
            return self.read_bytes(sources, kernel)
        type_, minor = self.program.types[operand], kernel.layouts[operand]
        return (
            0.0
            if self._images.is_near(kernel, operand, type_, self.costs)
            else laid_bytes(type_, minor)
        )

    def is_near(self, value: int) -> bool:
        """Return whether a value stays on the chip between the kernel that makes it and those that
        read it."""
        if value in self._outside or value in self._crowded or not self.costs.results_stay:
            return False
        return (
            value in self._alone
            or 0 < tile_bytes(self.type_of(value), self.costs) <= self.costs.prefetch_bytes / 2
        )

    def is_outside(self, value: int) -> bool:
        """Return whether a value comes from outside of the body, or leaves it."""
        return value in self._outside

    def multiplied_operands(self, kernel: Kernel) -> set[int]:
        """Return what a matrix kernel makes the operands of its product from."""
        operands = kernel.anchor.operands[:2] if kernel.anchor is not None else ()
        return {value for operand in operands for value in self._sources(operand, kernel)}

    def sources_of(self, operand: int, kernel: Kernel) -> set[int]:
        return set(self._sources(operand, kernel))

    def _sources(self, operand: int, kernel: Kernel) -> list[int]:
        """The kernel's inputs that an operand is computed from."""
        return sources(self.resolve(operand), kernel, self._producers, self.resolve)
