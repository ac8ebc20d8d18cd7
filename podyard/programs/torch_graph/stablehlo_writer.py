"""Writes StableHLO, an operation at a time: what a step of another framework is told to the
estimator in.

`torch_graph.module_text` writes the module around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from podyard.programs.torch_graph.shardings import LogicalMesh

Shape = tuple[int, ...]
Type = tuple[Shape, str]


class Value(NamedTuple):
    """`element`: as StableHLO writes it, such as f32."""

    name: str
    shape: Shape
    element: str

    @property
    def type(self) -> str:
        return tensor_type(self.shape, self.element)


def tensor_type(shape: Shape, element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def is_float(element: str) -> bool:
    return element[0] in "fb"


class Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arguments: list[Value] = []
        self.meshes: dict[LogicalMesh, str] = {}
        self._swapped: dict[str, Value] = {}  # matrices, by their transposed ones
        self._count = 0

    def argument(self, shape: Shape, element: str) -> Value:
        self.arguments.append(Value(f"%arg{len(self.arguments)}", shape, element))
        return self.arguments[-1]

    def mesh_name(self, mesh: LogicalMesh) -> str:
        """By which the module names it."""
        count = len(self.meshes)
        return self.meshes.setdefault(mesh, f"mesh_{count}" if count else "mesh")

    def add(self, text: str, shape: Shape, element: str) -> Value:
        value = Value(f"%v{self._count}", shape, element)
        self._count += 1
        self.lines.append(f"{value.name} = {text}")
        return value

    def add_many(self, text: str, types: Sequence[Type]) -> list[Value]:
        """An operation with a result for each of the types."""
        if len(types) == 1:
            return [self.add(text, *types[0])]
        name = f"%v{self._count}"
        self._count += 1
        self.lines.append(f"{name}:{len(types)} = {text}")
        return [Value(f"{name}#{place}", *one) for place, one in enumerate(types)]

    def constant(self, number: float, shape: Shape, element: str) -> Value:
        text = _number(number, element)
        scalar = self.add(f"stablehlo.constant dense<{text}> : tensor<{element}>", (), element)
        return self.broadcast(scalar, shape)

    def broadcast(self, value: Value, shape: Shape) -> Value:
        """Aligned at the last axis, as NumPy does."""
        if value.shape == shape:
            return value
        first = len(shape) - len(value.shape)
        return self.broadcast_in(value, shape, range(first, len(shape)))

    def broadcast_in(self, value: Value, shape: Shape, axes: Sequence[int]) -> Value:
        dims = ", ".join(map(str, axes))
        types = f"({value.type}) -> {tensor_type(shape, value.element)}"
        return self.add(
            f"stablehlo.broadcast_in_dim {value.name}, dims = [{dims}] : {types}",
            shape,
            value.element,
        )

    def convert(self, value: Value, element: str) -> Value:
        if value.element == element:
            return value
        types = f"({value.type}) -> {tensor_type(value.shape, element)}"
        return self.add(f"stablehlo.convert {value.name} : {types}", value.shape, element)

    def cast(self, value: object, to: tuple[Shape, str]) -> Value:
        """A number or a value, as one of this shape and element."""
        if isinstance(value, Value):
            return self.broadcast(self.convert(value, to[1]), to[0])
        assert isinstance(value, int | float)
        return self.constant(value, to[0], to[1])

    def unary(self, operation: str, value: Value) -> Value:
        if operation == "erf":
            return self.add(
                f"chlo.erf {value.name} : {value.type} -> {value.type}", value.shape, value.element
            )
        return self.add(
            f"stablehlo.{operation} {value.name} : {value.type}", value.shape, value.element
        )

    def binary(self, operation: str, one: Value, other: Value) -> Value:
        """Of equal types."""
        return self.add(
            f"stablehlo.{operation} {one.name}, {other.name} : {one.type}", one.shape, one.element
        )

    def compare(self, direction: str, one: Value, other: Value) -> Value:
        how = (
            "FLOAT"
            if is_float(one.element)
            else "UNSIGNED"
            if one.element in ("i1", "ui8")
            else "SIGNED"
        )
        types = f"({one.type}, {other.type}) -> {tensor_type(one.shape, 'i1')}"
        text = f"stablehlo.compare {direction}, {one.name}, {other.name}, {how} : {types}"
        return self.add(text, one.shape, "i1")

    def select(self, where: Value, one: Value, other: Value) -> Value:
        text = f"stablehlo.select {where.name}, {one.name}, {other.name} : {where.type}, {one.type}"
        return self.add(text, one.shape, one.element)

    def iota(self, axis: int, shape: Shape, element: str = "i32") -> Value:
        return self.add(
            f"stablehlo.iota dim = {axis} : {tensor_type(shape, element)}", shape, element
        )

    def reduce(self, operation: str, value: Value, axes: Sequence[int], initial: float) -> Value:
        shape = tuple(size for axis, size in enumerate(value.shape) if axis not in axes)
        begin = self.constant(initial, (), value.element)
        dims = ", ".join(map(str, sorted(axes)))
        types = f"({value.type}, {begin.type}) -> {tensor_type(shape, value.element)}"
        text = (
            f"stablehlo.reduce({value.name} init: {begin.name}) applies stablehlo.{operation} "
            "across dimensions = "
        )
        return self.add(f"{text}[{dims}] : {types}", shape, value.element)

    def reshape(self, value: Value, shape: Shape) -> Value:
        if value.shape == shape:
            return value
        types = f"({value.type}) -> {tensor_type(shape, value.element)}"
        return self.add(f"stablehlo.reshape {value.name} : {types}", shape, value.element)

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        shape = tuple(value.shape[axis] for axis in order)
        types = f"({value.type}) -> {tensor_type(shape, value.element)}"
        text = f"stablehlo.transpose {value.name}, dims = [{', '.join(map(str, order))}] : {types}"
        swapped = self.add(text, shape, value.element)
        rank = len(order)
        if rank in (2, 3) and list(order) == [*range(rank - 2), rank - 1, rank - 2]:
            self._swapped[swapped.name] = value
        return swapped

    def slice(self, value: Value, begins: Shape, ends: Shape, steps: Shape) -> Value:
        shape = tuple(
            -(-(end - begin) // step) for begin, end, step in zip(begins, ends, steps, strict=True)
        )
        parts = [
            f"{b}:{e}" + f":{s}" * (s > 1) for b, e, s in zip(begins, ends, steps, strict=True)
        ]
        types = f"({value.type}) -> {tensor_type(shape, value.element)}"
        return self.add(
            f"stablehlo.slice {value.name} [{', '.join(parts)}] : {types}", shape, value.element
        )

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        first = values[0]
        size = sum(value.shape[axis] for value in values)
        shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
        names, types = (
            ", ".join(value.name for value in values),
            ", ".join(value.type for value in values),
        )
        text = (
            f"stablehlo.concatenate {names}, dim = {axis} : ({types}) -> "
            f"{tensor_type(shape, first.element)}"
        )
        return self.add(text, shape, first.element)

    def pad(
        self,
        value: Value,
        low: Sequence[int],
        high: Sequence[int],
        filling: float,
        between: Sequence[int] = (),
    ) -> Value:
        between = between or [0] * len(value.shape)
        sizes = [size + (size - 1) * gap for size, gap in zip(value.shape, between, strict=True)]
        shape = tuple(size + a + b for size, a, b in zip(sizes, low, high, strict=True))
        fill = self.constant(filling, (), value.element)
        text = (
            f"stablehlo.pad {value.name}, {fill.name}, low = {list(low)}, high = "
            f"{list(high)}, interior = "
        )
        types = f"({value.type}, {fill.type}) -> {tensor_type(shape, value.element)}"
        return self.add(f"{text}{list(between)} : {types}", shape, value.element)

    def dot(self, one: Value, other: Value, axes: tuple[int, int], batched: bool = False) -> Value:
        """`axes` are summed over; `batched`: the first axis of both is the same. A product reads a
        transposed matrix where it lies."""
        if len(one.shape) == len(other.shape) == 2 + batched:
            one, first = self._transpose_source(one, axes[0])
            other, second = self._transpose_source(other, axes[1])
            axes = first, second
        rest = [
            size
            for axis, size in enumerate(one.shape)
            if axis != axes[0] and not (batched and axis == 0)
        ]
        rest += [
            size
            for axis, size in enumerate(other.shape)
            if axis != axes[1] and not (batched and axis == 0)
        ]
        shape = (*one.shape[:1], *rest) if batched else tuple(rest)
        batch = "batching_dims = [0] x [0], " if batched else ""
        how = f"{batch}contracting_dims = [{axes[0]}] x [{axes[1]}], precision = [DEFAULT, DEFAULT]"
        types = f"({one.type}, {other.type}) -> {tensor_type(shape, one.element)}"
        return self.add(
            f"stablehlo.dot_general {one.name}, {other.name}, {how} : {types}", shape, one.element
        )

    def _transpose_source(self, value: Value, axis: int) -> tuple[Value, int]:
        """The matrix that was transposed to this one, and its axis."""
        source = self._swapped.get(value.name)
        return (value, axis) if source is None else (source, 2 * len(value.shape) - 3 - axis)

    def convolution(
        self, one: Value, other: Value, shape: Shape, numbers: str,
        window: Sequence[Sequence[object]],
        groups: int = 1, reverse: bool = False,
    ) -> Value:  # fmt: skip
        """`numbers`: dim_numbers. `window`: strides, (low, high) paddings, dilations of both sides.
        `groups`: of features. `reverse`: the window is read from its end."""
        stride, pad, lhs, rhs = (f"[{', '.join(map(_list, part))}]" for part in window)
        types = f"({one.type}, {other.type}) -> {tensor_type(shape, one.element)}"
        text = (
            f"stablehlo.convolution({one.name}, {other.name}) dim_numbers = {numbers}, window = "
            f"{{stride = {stride}, "
            f"pad = {pad}, lhs_dilate = {lhs}, rhs_dilate = {rhs}, "
            f"reverse = {str([reverse] * len(window[0])).lower()}}} {{batch_group_count = 1 : i64, "
            f"feature_group_count = {groups} : i64, precision_config = "
            "[#stablehlo<precision DEFAULT>, "
            f"#stablehlo<precision DEFAULT>]}} : {types}"
        )
        return self.add(text, shape, one.element)

    def reduce_window(
        self,
        operation: str,
        value: Value,
        initial: float,
        sizes: Shape,
        strides: Shape,
        pads: Sequence[Sequence[int]],
    ) -> Value:
        shape = tuple(
            (size + sum(pad) - window) // stride + 1
            for size, pad, window, stride in zip(value.shape, pads, sizes, strides, strict=True)
        )
        begin = self.constant(initial, (), value.element)
        how = (
            f"padding = {_pads(pads)}, window_dimensions = {_array(sizes)}, window_strides = "
            f"{_array(strides)}"
        )
        types = f"({value.type}, {begin.type}) -> {tensor_type(shape, value.element)}"
        body = _region(operation, value.element)
        text = (
            f'"stablehlo.reduce_window"({value.name}, {begin.name}) <{{{how}}}> ({body}) : {types}'
        )
        return self.add(text, shape, value.element)

    def select_and_scatter(
        self,
        value: Value,
        source: Value,
        sizes: Shape,
        strides: Shape,
        pads: Sequence[Sequence[int]],
    ) -> Value:
        """The gradient of a maximum over windows."""
        begin = self.constant(0.0, (), value.element)
        how = (
            f"padding = {_pads(pads)}, window_dimensions = {_array(sizes)}, window_strides = "
            f"{_array(strides)}"
        )
        types = f"({value.type}, {source.type}, {begin.type}) -> {value.type}"
        bodies = f"{_comparing('GE', value.element)}, {_region('add', value.element)}"
        operands = f"({value.name}, {source.name}, {begin.name})"
        text = f'"stablehlo.select_and_scatter"{operands} <{{{how}}}> ({bodies}) : {types}'
        return self.add(text, value.shape, value.element)

    def take_rows(self, table: Value, places: Value) -> Value:
        """table[places], of any number of places."""
        shape = (*places.shape, *table.shape[1:])
        offsets = list(range(len(places.shape), len(shape)))
        how = (
            f"dimension_numbers = #stablehlo.gather<offset_dims = {offsets}, "
            "collapsed_slice_dims = [0], "
            f"start_index_map = [0], index_vector_dim = {len(places.shape)}>, "
            "indices_are_sorted = false, "
            f"slice_sizes = {_array((1, *table.shape[1:]))}"
        )
        types = f"({table.type}, {places.type}) -> {tensor_type(shape, table.element)}"
        text = f'"stablehlo.gather"({table.name}, {places.name}) <{{{how}}}> : {types}'
        return self.add(text, shape, table.element)

    def add_rows(self, table: Value, places: Value, rows: Value) -> Value:
        """The gradient of `take_rows`."""
        offsets = list(range(len(places.shape), len(rows.shape)))
        how = (
            "indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<"
            f"update_window_dims = {offsets}, inserted_window_dims = [0], "
            "scatter_dims_to_operand_dims = [0], "
            f"index_vector_dim = {len(places.shape)}>, unique_indices = false"
        )
        types = f"({table.type}, {places.type}, {rows.type}) -> {table.type}"
        body = _region("add", table.element)
        text = (
            f'"stablehlo.scatter"({table.name}, {places.name}, {rows.name}) <{{{how}}}> '
            f"({body}) : {types}"
        )
        return self.add(text, table.shape, table.element)


def _number(number: float, element: str) -> str:
    if element == "i1":
        return str(bool(number)).lower()
    if not is_float(element):
        return str(int(number))
    if math.isinf(number) or math.isnan(number):
        special = {"f32": "FF800000", "f16": "FC00", "bf16": "FF80", "f64": "FFF0000000000000"}
        return (
            "0x" + special[element]
            if number < 0
            else "0x" + special[element].replace("FF", "7F", 1)
        )
    return f"{float(number):e}"


def _array(numbers: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, numbers))}>"


def _pads(pads: Sequence[Sequence[int]]) -> str:
    return f"dense<{[list(pad) for pad in pads]}> : tensor<{len(pads)}x2xi64>"


def _list(part: object) -> str:
    return str(list(part)) if isinstance(part, tuple | list) else str(part)


def _region(operation: str, element: str) -> str:
    scalar = f"tensor<{element}>"
    return (
        f"{{\n^bb0(%a: {scalar}, %b: {scalar}):\n%r = stablehlo.{operation} %a, %b : {scalar}\n"
        f"stablehlo.return %r : {scalar}\n}}"
    )


def sum_region(element: str) -> str:
    return _region("add", element)


def _comparing(direction: str, element: str) -> str:
    scalar = f"tensor<{element}>"
    return (
        f"{{\n^bb0(%a: {scalar}, %b: {scalar}):\n"
        f"%r = stablehlo.compare {direction}, %a, %b, FLOAT : ({scalar}, {scalar}) -> tensor<i1>\n"
        "stablehlo.return %r : tensor<i1>\n}"
    )


# The writer, an operation's arguments, and the type of its first result.
Operation = Callable[[Writer, list[Any], Type], list[Value]]
