"""Convolutions of few examples: the compiler cuts images into parts, along their last axis, and
makes those examples.

Each image becomes 8 parts with room for what a window reaches over its edge. An array is filled up,
parted and put together with the edges of its neighbours; after a convolution only those edges are
copied. Element-wise work and convolutions of one tap go on with parts; all else gets whole images
again, by two copies. (Read off 26 compiled chains of one to four convolutions on v5e and v5p.) Not
in loops, and not with strides or dilation: there `Placement` guesses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType, outer_values
from podyard.engine.timing.convolutions import Convolution
from podyard.engine.timing.graph import ELEMENTWISE
from podyard.hardware.cost_model import Tiling

# Parts that an image is cut into.
_PARTS = 8
# Element-wise operations that need whole images.
_NEEDS_WHOLE = frozenset({
    "broadcast_in_dim", "concatenate", "dynamic_slice", "pad", "reshape", "reverse", "slice",
    "transpose",
})  # fmt: skip


def is_uncertain(conv: Convolution, tiling: Tiling) -> bool:
    """Few examples in steps: how images are cut is not modelled (patches of 4 images: 6 to 20 times
    the cycles)."""
    return conv.is_strided and conv.window > 1 and conv.has_few_examples(tiling)


def part_images(program: Program, tiling: Tiling) -> Program:
    """The program with such convolutions written out; the same object where there are none."""
    maker = _Parting(program, tiling)
    if not any(map(maker.is_parted, program.body.operations)):
        return program
    return dataclasses.replace(program, body=maker.body(), types=maker.types)


class _Parting:
    def __init__(self, program: Program, tiling: Tiling) -> None:
        self.types = list(program.types)
        self._program = program
        self._tiling = tiling
        self._makers = {value: step for step in program.body.operations for value in step.results}
        # Arrays that are there in parts, and what was whole before or is again.
        self._parts: dict[int, int] = {}
        self._whole: set[int] = set(program.body.parameters)
        self._made: list[HloOperation] = []

    def is_parted(self, step: HloOperation) -> bool:
        if step.opcode != "convolution" or not self._is_plain(step):
            return False
        conv = Convolution.of(self._program, step, self._tiling)
        return conv.is_cut(self._tiling) and self._room(step) > 0

    def body(self) -> Body:
        for step in self._program.body.operations:
            if self.is_parted(step) or (
                self._has_one_tap(step) and step.operands[0] in self._parts
            ):
                self._convolution(step)
            elif self._goes_on(step):
                self._elementwise(step)
            else:
                inner = (value for one in step.bodies for value in outer_values(one))
                self._join((*step.operands, *inner))
                self._made.append(step)
                self._whole.update(step.results)
        body = self._program.body
        self._join(body.results, leaves=True)
        return Body(body.parameters, self._made, body.results)

    def _is_plain(self, step: HloOperation) -> bool:
        """Return whether a convolution is of images with a batch in front, in steps of one."""
        dims = (step.ints("lhs_dims"), step.ints("out_dims"))
        steps = (*step.ints("strides"), *step.ints("lhs_dilation"), *step.ints("rhs_dilation"))
        alike = dims[0] == dims[1] and len(dims[0]) == 4 and dims[0][0] == 0
        return alike and all(one == 1 for one in steps)

    def _has_one_tap(self, step: HloOperation) -> bool:
        if (
            step.opcode != "convolution"
            or not self._is_plain(step)
            or step.int("feature_group_count", 1) > 1
        ):
            return False
        shape = self.types[step.operands[1]].shape
        return all(shape[axis] == 1 for axis in step.ints("kernel_dims")[2:])

    def _axis(self, step: HloOperation) -> int:
        return step.ints("lhs_dims")[-1]

    def _room(self, step: HloOperation) -> int:
        """Numbers of a row in each part."""
        extent = self.types[step.results[0]].shape[self._axis(step)]
        return extent // _PARTS + 1 if extent >= _PARTS else 0

    def _in_parts(self, type_: TensorType, axis: int, room: int) -> TensorType:
        shape = list(type_.shape)
        shape[0], shape[axis] = shape[0] * _PARTS, room
        return TensorType(tuple(shape), type_.dtype)

    def _new(self, type_: TensorType) -> int:
        self.types.append(type_)
        return len(self.types) - 1

    def _copy(
        self, values: Iterable[int], type_: TensorType, where: str, into: int | None = None
    ) -> int:
        """A kernel that makes nothing but an array of others."""
        made = self._new(type_) if into is None else into
        self._made.append(
            HloOperation("reshape", tuple(values), (made,), {"step": "made"}, where=where)
        )
        return made

    def _edges(self, value: int, given: TensorType, axis: int, count: int, where: str) -> int:
        """A kernel that cuts out what a window reaches of the parts next to each: some rows, one
        after the other."""
        rest = [extent for place, extent in enumerate(given.shape) if place not in (0, axis)]
        made = self._new(TensorType((count, given.shape[0] * _PARTS, *rest), given.dtype))
        self._made.append(HloOperation("slice", (value,), (made,), {"step": "made"}, where=where))
        return made

    def _fill_up(self, value: int, axis: int, room: int, where: str) -> int:
        """Images whose rows have room for all parts."""
        type_ = self.types[value]
        if value in self._program.body.parameters:
            value = self._copy((value,), type_, where)
        shape = (*type_.shape[:axis], room * _PARTS, *type_.shape[axis + 1 :])
        return self._copy((value,), TensorType(shape, type_.dtype), where)

    def _convolution(self, step: HloOperation) -> None:
        value, axis, where = step.operands[0], self._axis(step), step.where
        given, result = self.types[value], self.types[step.results[0]]
        room = self._room(step)
        edge = self.types[step.operands[1]].shape[step.ints("kernel_dims")[-1]] - 1
        operands = step.operands
        if value in self._parts:
            room = self.types[self._parts[value]].shape[axis]
            operands = (self._parts[value], *operands[1:])
            if edge:
                # The convolution puts them together with the parts.
                operands += (self._edges(operands[0], given, axis, edge, where),)
        else:
            filled = self._fill_up(value, axis, room, where)
            edges = self._edges(filled, given, axis, edge, where)
            whole = self._copy((filled, edges), self._in_parts(given, axis, room + edge), where)
            operands = (whole, *operands[1:])
        made = self._new(self._in_parts(result, axis, room))
        attributes = {**step.attributes, "parted": 1}
        self._made.append(
            dataclasses.replace(step, operands=operands, results=(made,), attributes=attributes)
        )
        self._parts[step.results[0]] = made

    def _goes_on(self, step: HloOperation) -> bool:
        if step.opcode not in ELEMENTWISE or step.opcode in _NEEDS_WHOLE or len(step.results) != 1:
            return False
        shape = self.types[step.results[0]].shape
        return any(one in self._parts for one in step.operands) and all(
            self.types[one].shape in (shape, ()) for one in step.operands
        )

    def _elementwise(self, step: HloOperation) -> None:
        parts = next(self._parts[one] for one in step.operands if one in self._parts)
        shape = self.types[step.results[0]].shape
        like = self.types[parts].shape
        axis = next(place for place, extent in enumerate(like) if place and extent != shape[place])
        operands = tuple(
            one
            if not self.types[one].shape
            else self._parts.get(one) or self._into_parts(one, axis, like, step.where)
            for one in step.operands
        )
        made = self._new(TensorType(like, self.types[step.results[0]].dtype))
        self._made.append(dataclasses.replace(step, operands=operands, results=(made,)))
        self._parts[step.results[0]] = made

    def _into_parts(self, value: int, axis: int, like: tuple[int, ...], where: str) -> int:
        """Another operand in parts: what is the same for all images and along their rows is just
        repeated."""
        maker, type_ = self._makers.get(value), TensorType(like, self.types[value].dtype)
        is_spread = maker is not None and maker.opcode in ("broadcast_in_dim", "constant")
        if maker is not None and is_spread and not {0, axis} & set(maker.ints("dims")):
            made = self._new(type_)
            self._made.append(dataclasses.replace(maker, results=(made,)))
            self._parts[value] = made
            return made
        self._parts[value] = self._copy(
            (self._fill_up(value, axis, like[axis], where),), type_, where
        )
        return self._parts[value]

    def _join(self, values: Iterable[int], leaves: bool = False) -> None:
        """Whole images again."""
        for value in values:
            if value not in self._parts or value in self._whole:
                continue
            parts, where = self._parts[value], self._makers[value].where
            copied = self._copy((parts,), self.types[parts], where)
            if leaves:
                copied = self._copy((copied,), self.types[value], where)
            self._copy((copied,), self.types[value], where, into=value)
            self._whole.add(value)
