"""Copies of arrays into the layout that a kernel wants, and numbers that are repeated in memory."""

from __future__ import annotations

from podyard.engine.program.ir import HloOperation, TensorType
from podyard.engine.timing.graph import ELEMENTWISE, JUST_AFTER, REORDERING, SMALL_SIZE, Kernel
from podyard.engine.timing.layout import LANES, compact_layout
from podyard.engine.timing.rows import Rows
from podyard.engine.timing.touched import row_count
from podyard.hardware.cost_model import SUBLANES

# How often an array is copied until parts of its images are examples, and one that leaves the
# program, back.
_COPIES_OF_CUT = 3
_AXES_OF_TILE = 2
# Kernels that put a part of an array at a place, and those before the loop that does (compiled on
# five generations).
_KERNELS_OF_PART, _KERNELS_BEFORE_PARTS = 6, 3


class Relayouts(Rows):
    """Starts the kernels for that."""

    def _batch_minor_tiles(self, operation: HloOperation) -> dict[int, tuple[int, ...]]:
        """Operands of a product of many small ones that lie with the number of the product in
        lanes: they are copied, after what is put together of several arrays was written."""
        layouts: dict[int, tuple[int, ...]] = {}
        for value, name in zip(operation.operands, ("lhs_batching", "rhs_batching"), strict=False):
            batching, type_ = operation.ints(name), self.program.types[value]
            own = self.resolve(value)
            made = self.floating.get(own)
            joined = (
                made is not None and made.opcode == "concatenate" and own not in self.materialised
            )
            if len(batching) + 2 != len(type_.shape) or not (joined or self._from_outside(value)):
                continue
            if compact_layout(type_, self.tiling).lane_axis in batching:
                if joined:
                    kernel = self._start("loop", None)
                    self.order[kernel.index] = self.after[own] + JUST_AFTER
                    self._materialise(own, kernel)
                minor = tuple(axis for axis in range(len(type_.shape)) if axis not in batching)
                self._relayout(value, minor, layouts, leaves=True)
                if value in layouts:
                    self.kernels[-1].turns = own
        return layouts

    def _leaving(self, result: int) -> list[int]:
        """Results of the body that element-wise work makes of a convolution's, in its own
        layout."""
        leaving, stack, seen = [], [result], {result}
        shape = self.program.types[result].shape
        while stack:
            value = stack.pop()
            leaving += [value] if value in self.body.results else []
            for user in self.users.get(value, ()):
                is_same = (
                    self.program.types[user.results[0]].shape == shape
                    and user.opcode not in REORDERING[:2]
                )
                is_new = (
                    user.opcode in ELEMENTWISE and is_same and not seen.issuperset(user.results)
                )
                if is_new and all(
                    one in seen or self._is_there(one) for one in map(self.resolve, user.operands)
                ):
                    seen.update(user.results)
                    stack += user.results
        return leaving

    def _is_there(self, value: int) -> bool:
        """Return whether a value is placed already, or small."""
        placed = value in self.home or value in self.after
        return (
            placed or self.program.types[value].size < SMALL_SIZE or self._is_spread_constant(value)
        )

    def _copy_beside(self, kernel: Kernel) -> None:
        """Arguments that element-wise work on a convolution's result reads, in the layout of that:
        copied before."""
        anchor = kernel.anchor
        if anchor is None:
            return
        minor, shape = anchor.ints("out_dims")[:2], self.program.types[anchor.results[0]].shape
        for value in set(kernel.inputs) - {self.resolve(operand) for operand in anchor.operands}:
            type_ = self.program.types[value]
            lies = compact_layout(type_, self.tiling)
            is_there = lies.lane_axis in minor and lies.sublane_axis in minor
            if value in self.body.parameters and type_.shape == shape and not is_there:
                before = len(self.kernels)
                self._relayout(value, minor, kernel.layouts)
                for copy in self.kernels[before:]:
                    self.order[copy.index] = self.order[kernel.index] - JUST_AFTER / 2

    def _unpool(self, operation: HloOperation) -> None:
        """The gradient of pooling works on what lies as images of convolutions do, with the axes in
        its tiles that are not pooled: what comes from outside, or leaves, is copied."""
        minor = tuple(axis for axis, extent in enumerate(operation.ints("window")) if extent == 1)
        layouts: dict[int, tuple[int, ...]] = {}
        for value in operation.operands[:2] if len(minor) == _AXES_OF_TILE else ():
            if self._from_outside(value):
                self._relayout(value, minor, layouts)
        self._start("opaque", operation, in_flow=False).layouts = layouts
        result = operation.results[0]
        if len(minor) == _AXES_OF_TILE and result in self.body.results:
            self._relayout(result, minor, layouts, leaves=True)

    def _cut(self, type_: TensorType, feature_axis: int) -> None:
        for _ in range(_COPIES_OF_CUT):
            self._turn_whole(_cut_images(type_, feature_axis))

    def _cross(
        self, copies: tuple[tuple[TensorType, tuple[int, int]], ...], own: int | None = None
    ) -> None:
        for type_, minor in copies:
            copy = self._start("copy", None)
            copy.moved, copy.minor, copy.copies = type_, minor, own

    def _from_outside(self, value: int) -> bool:
        value = self.resolve(value)
        leaves = self._leaves(value, {}) if value in self.floating else [value]
        return value not in self.home and len(leaves) == 1 and leaves[0] in self.body.parameters

    def _turn_for_rows(self, value: int) -> None:
        """The compiler's attention wants rows in lanes: arguments that lie otherwise are turned,
        and results back."""
        type_ = self.program.types[value]
        outside = value in self.body.parameters or value in self.body.results
        if outside and compact_layout(type_, self.tiling).lane_axis != len(type_.shape) - 1:
            self._turn_whole(type_, ahead=value in self.body.parameters)

    def _is_repeated(self, operation: HloOperation) -> bool:
        """Return whether large numbers are repeated along an axis that is joined with the one
        before (`jnp.repeat`)."""
        given, made = (
            self.program.types[value] for value in (operation.operands[0], operation.results[0])
        )
        if not SMALL_SIZE <= given.size < made.size:
            return False
        users = self.users.get(operation.results[0], ())
        joined = (
            self.program.types[user.results[0]].shape for user in users if user.opcode == "reshape"
        )
        wide = sum(extent > 1 for extent in made.shape)
        return bool(users) and len(users) == sum(
            sum(extent > 1 for extent in shape) < wide for shape in joined
        )

    def _repeat(self, operation: HloOperation) -> None:
        ready = max(map(self._ready, self._operands(operation)))
        self._float(operation, ready)
        kernel = self._start("loop", None)
        self.order[kernel.index] = ready + JUST_AFTER
        self._materialise(operation.results[0], kernel)
        self.repeated.update(operation.results)

    def _lies_across_rows(self, part: int, operation: HloOperation) -> bool:
        """Return whether rows to scatter lie across the lanes."""
        type_ = self.program.types[part]
        is_row = operation.ints("sizes")[-1:] == type_.shape[-1:] and not operation.ints("moving")
        return (
            is_row
            and type_.size >= SMALL_SIZE
            and compact_layout(type_, self.tiling).lane_axis != len(type_.shape) - 1
        )

    def _put_one_by_one(self, operation: HloOperation) -> None:
        """A part of an array for each place, as a mapped update of a slice writes them: a loop puts
        them in one by one. A turn cuts out the place, the part and what is there, sees whether the
        place is inside, chooses and writes."""
        if not operation.ints("moving"):
            return
        for kernels, turns in (
            (_KERNELS_BEFORE_PARTS, 1),
            (_KERNELS_OF_PART, row_count(self.program, operation)),
        ):
            for _ in range(kernels):
                kernel = self._start("loop", None)
                kernel.laid_out, kernel.repeats = TensorType((1,), "s32"), turns


def _cut_images(type_: TensorType, feature_axis: int) -> TensorType:
    """Tiles of an array whose examples are parts of images; few features do not lie in lanes."""
    features = type_.shape[feature_axis]
    rows = -(-type_.size // features)
    if features < SUBLANES:
        return TensorType((-(-rows // LANES) * SUBLANES, LANES), type_.dtype)
    return TensorType((-(-rows // SUBLANES) * SUBLANES, -(-features // LANES) * LANES), type_.dtype)
