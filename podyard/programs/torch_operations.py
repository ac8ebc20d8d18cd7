"""PyTorch's operations (aten) in StableHLO: those that training steps end in once PyTorch has taken
others apart.

Each function takes the writer, the operation's arguments, and the type of its first result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from podyard.programs.torch_graph.stablehlo_writer import Operation, Type, Value, Writer, is_float
from podyard.programs.torch_layers import LAYERS


def _binary(operation: str) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        other = w.cast(a[1], to)
        if len(a) > 2 and isinstance(a[2], int | float) and a[2] != 1:  # alpha
            other = w.binary("multiply", other, w.constant(a[2], to[0], to[1]))
        return [w.binary(operation, w.cast(a[0], to), other)]

    return run


def _reverse(operation: str) -> Operation:
    return lambda w, a, to: _binary(operation)(w, [a[1], a[0]], to)


def _unary(operation: str) -> Operation:
    return lambda w, a, to: [w.unary(operation, w.cast(a[0], to))]


def _compare(direction: str) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        element = a[0].element if isinstance(a[0], Value) else a[1].element
        return [
            w.compare(direction, w.cast(a[0], (to[0], element)), w.cast(a[1], (to[0], element)))
        ]

    return run


def _with_product(operation: str) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        found = w.binary(operation, w.cast(a[1], to), w.cast(a[2], to))
        if len(a) > 3 and a[3] not in (None, 1):
            found = w.binary("multiply", found, w.cast(a[3], to))
        return [w.binary("add", w.cast(a[0], to), found)]

    return run


def _between(w: Writer, a: list[Any], to: Type) -> list[Value]:
    begin = w.cast(a[0], to)
    way = w.binary("subtract", w.cast(a[1], to), begin)
    return [w.binary("add", begin, w.binary("multiply", way, w.cast(a[2], to)))]


def _where(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return [w.select(w.cast(a[0], (to[0], "i1")), w.cast(a[1], to), w.cast(a[2], to))]


def _masked_fill(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return _where(w, [a[1], a[2], a[0]], to)


def _clamp(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value = w.cast(a[0], to)
    for operation, bound in zip(("maximum", "minimum"), [*a[1:3], None][:2], strict=True):
        if bound is not None:
            value = w.binary(operation, value, w.cast(bound, to))
    return [value]


def _fill(number: float | None) -> Operation:
    return lambda w, a, to: [w.constant(a[1] if number is None else number, to[0], to[1])]


def _to_same(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return [w.cast(a[0], to)]


def _copy(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return [w.cast(a[1], to)]


# Shapes


def _reshape(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return [w.reshape(a[0], to[0])]


def _axis(value: Value, axis: int) -> int:
    return axis % max(1, len(value.shape))


def _transpose(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    order = list(range(len(a[0].shape)))
    one, other = (_axis(a[0], axis) for axis in (a[1:3] if len(a) > 2 else (0, 1)))
    if len(order) > 1:
        order[one], order[other] = order[other], order[one]
    return [w.transpose(a[0], order)]


def _permute(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    return [w.transpose(a[0], [_axis(a[0], axis) for axis in a[1]])]


def _slice(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value, axis, begin, _end, step = [*a, *(None,) * 5][:5]
    axis = _axis(value, axis or 0)
    size = value.shape[axis]
    begin = min(size, max(0, (begin or 0) + size * ((begin or 0) < 0)))
    return [_part(w, value, axis, begin, to[0][axis], step or 1)]


def _part(w: Writer, value: Value, axis: int, begin: int, count: int, step: int = 1) -> Value:
    begins, ends, steps = [0] * len(value.shape), list(value.shape), [1] * len(value.shape)
    begins[axis], ends[axis], steps[axis] = (
        begin,
        min(value.shape[axis], begin + count * step),
        step,
    )
    return w.slice(value, tuple(begins), tuple(ends), tuple(steps))


def _select(w: Writer, a: list[Any], to: Type) -> list[Value]:
    axis = _axis(a[0], a[1])
    return [w.reshape(_part(w, a[0], axis, a[2] % a[0].shape[axis], 1), to[0])]


def _split(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    axis = _axis(a[0], a[2] if len(a) > 2 else 0)
    whole = a[0].shape[axis]
    sizes = (
        list(a[1])
        if isinstance(a[1], Sequence)
        else [min(a[1], whole - at) for at in range(0, whole, a[1])]
    )
    return [_part(w, a[0], axis, sum(sizes[:number]), size) for number, size in enumerate(sizes)]


def _unbound(w: Writer, a: list[Any], to: Type) -> list[Value]:
    axis = _axis(a[0], a[1] if len(a) > 1 else 0)
    return [w.reshape(_part(w, a[0], axis, number, 1), to[0]) for number in range(a[0].shape[axis])]


def _join(w: Writer, a: list[Any], to: Type) -> list[Value]:
    parts = [w.convert(one, to[1]) for one in a[0] if one.shape != (0,)]
    return [w.concatenate(parts, (a[1] if len(a) > 1 else 0) % len(to[0]))]


def _stack(w: Writer, a: list[Any], to: Type) -> list[Value]:
    axis = (a[1] if len(a) > 1 else 0) % len(to[0])
    return [
        w.concatenate(
            [w.reshape(one, (*one.shape[:axis], 1, *one.shape[axis:])) for one in a[0]], axis
        )
    ]


def _pad(w: Writer, a: list[Any], to: Type) -> list[Value]:
    low, high = [0] * len(to[0]), [0] * len(to[0])
    for number in range(len(a[1]) // 2):
        low[-1 - number], high[-1 - number] = a[1][2 * number], a[1][2 * number + 1]
    return [w.pad(a[0], low, high, a[2] if len(a) > 2 else 0.0)]


def _triangle(direction: str) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        rows, columns = (w.iota(len(to[0]) - 2 + axis, to[0]) for axis in (0, 1))
        rows = w.binary("add", rows, w.constant(a[1] if len(a) > 1 else 0, to[0], "i32"))
        return [
            w.select(
                w.compare(direction, rows, columns), w.cast(a[0], to), w.constant(0, to[0], to[1])
            )
        ]

    return run


# Sums


def _axes(value: Value, asked: Any) -> list[int]:
    if asked is None or asked == []:
        return list(range(len(value.shape)))
    return [_axis(value, axis) for axis in (asked if isinstance(asked, Sequence) else [asked])]


def _reduce(operation: str, initial: float) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        value = w.convert(a[0], to[1])
        axes = _axes(value, a[1] if len(a) > 1 else None)
        return [w.reshape(w.reduce(operation, value, axes, initial), to[0])]

    return run


def _mean(w: Writer, a: list[Any], to: Type) -> list[Value]:
    (total,) = _reduce("add", 0.0)(w, a, to)
    count = math.prod(a[0].shape) / max(1, math.prod(to[0]))
    return [w.binary("divide", total, w.constant(count, to[0], to[1]))]


def _variance(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value = w.convert(a[0], to[1])
    axes = _axes(value, a[1] if len(a) > 1 else None)
    rest = [axis for axis in range(len(value.shape)) if axis not in axes]
    count = math.prod(value.shape[axis] for axis in axes)
    total = w.reduce("add", value, axes, 0.0)
    mean = w.binary("divide", total, w.constant(count, total.shape, to[1]))
    centred = w.binary("subtract", value, w.broadcast_in(mean, value.shape, rest))
    squares = w.reduce("add", w.binary("multiply", centred, centred), axes, 0.0)
    less = a[2] if len(a) > 2 and a[2] is not None else 1
    return [
        w.reshape(
            w.binary("divide", squares, w.constant(count - less, squares.shape, to[1])), to[0]
        )
    ]


def _norm(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value = w.convert(a[0], to[1])
    squares = w.binary("multiply", value, value)
    axes = _axes(value, a[2] if len(a) > 2 else None)
    return [w.unary("sqrt", w.reshape(w.reduce("add", squares, axes, 0.0), to[0]))]


def _where_largest(w: Writer, value: Value, asked: Any) -> tuple[Value, Value]:
    """The largest along an axis, and its place."""
    flat = value if asked is not None else w.reshape(value, (math.prod(value.shape),))
    axis = 0 if asked is None else _axis(value, asked)
    lowest = -math.inf if is_float(value.element) else 0
    largest = w.reduce("maximum", flat, [axis], lowest)
    rest = [one for one in range(len(flat.shape)) if one != axis]
    same = w.compare("EQ", flat, w.broadcast_in(largest, flat.shape, rest))
    places = w.select(
        same, w.iota(axis, flat.shape), w.constant(flat.shape[axis], flat.shape, "i32")
    )
    return largest, w.reduce("minimum", places, [axis], flat.shape[axis])


def _argmax(w: Writer, a: list[Any], to: Type) -> list[Value]:
    _, place = _where_largest(w, a[0], a[1] if len(a) > 1 else None)
    return [w.reshape(w.convert(place, to[1]), to[0])]


def _largest(w: Writer, a: list[Any], to: Type) -> list[Value]:
    if len(a) == 1:
        return _reduce("maximum", -math.inf)(w, a, to)
    largest, place = _where_largest(w, a[0], a[1])
    return [w.reshape(largest, to[0]), w.reshape(w.convert(place, "i64"), to[0])]


# Products


def _product(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    return [
        w.dot(
            a[0],
            a[1],
            (len(a[0].shape) - 1, max(0, len(a[1].shape) - 2)),
            batched=len(a[0].shape) == 3,
        )
    ]


def _added_product(w: Writer, a: list[Any], to: Type) -> list[Value]:
    (product,) = _product(w, a[1:3], to)
    return [w.binary("add", product, w.cast(a[0], to))]


OPERATIONS: dict[str, Operation] = {
    **{
        n: _binary(o)
        for n, o in (("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("div", "divide"))
    },
    **{
        n: _binary(o)
        for n, o in (("maximum", "maximum"), ("minimum", "minimum"), ("remainder", "remainder"))
    },
    **{n: _binary("and") for n in ("bitwise_and", "logical_and")},
    **{n: _binary("or") for n in ("bitwise_or", "logical_or")},
    "addcmul": _with_product("multiply"),
    "addcdiv": _with_product("divide"),
    "lerp": _between,
    "pow": _binary("power"),
    "rsub": _reverse("subtract"),
    **{
        n: _unary(n)
        for n in ("sqrt", "rsqrt", "tanh", "abs", "sign", "floor", "ceil", "log", "erf")
    },
    **{n: _unary("not") for n in ("bitwise_not", "logical_not")},
    **{
        n: _unary(o)
        for n, o in (("exp", "exponential"), ("neg", "negate"), ("sigmoid", "logistic"))
    },
    **{n: _unary(o) for n, o in (("log1p", "log_plus_one"), ("expm1", "exponential_minus_one"))},
    **{
        n: _unary(o)
        for n, o in (("sin", "sine"), ("cos", "cosine"), ("round", "round_nearest_even"))
    },
    "reciprocal": lambda w, a, to: _binary("divide")(w, [1.0, a[0]], to),
    "relu": lambda w, a, to: _binary("maximum")(w, [a[0], 0.0], to),
    **{n: _compare(n.upper()) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    "where": _where,
    "masked_fill": _masked_fill,
    "clamp": _clamp,
    "copy": _copy,
    **{
        n: _fill(0)
        for n in (
            "zeros",
            "zeros_like",
            "new_zeros",
            "zero",
            "empty",
            "empty_like",
            "empty_strided",
        )
    },
    **{n: _fill(0) for n in ("new_empty", "new_empty_strided")},
    **{n: _fill(1) for n in ("ones", "ones_like", "new_ones")},
    **{n: _fill(None) for n in ("full", "full_like", "fill")},
    "broadcast_in_dim": lambda w, a, to: [w.broadcast_in(a[0], to[0], a[2])],
    "convert_element_type": _to_same,
    "new_full": lambda w, a, to: [w.constant(a[2], to[0], to[1])],
    "scalar_tensor": lambda w, a, to: [w.constant(a[0], to[0], to[1])],
    "arange": lambda w, a, to: [w.iota(0, to[0], to[1])],  # noqa: ARG005
    **dict.fromkeys(
        ("clone", "detach", "alias", "lift_fresh", "_to_copy", "expand", "contiguous"), _to_same
    ),
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "_reshape_alias"), _reshape
    ),
    "t": _transpose,
    "transpose": _transpose,
    "permute": _permute,
    "slice": _slice,
    "select": _select,
    "split": _split,
    "split_with_sizes": _split,
    "unbind": _unbound,
    "cat": _join,
    "stack": _stack,
    "constant_pad_nd": _pad,
    "tril": _triangle("GE"),
    "triu": _triangle("LE"),
    "sum": _reduce("add", 0.0),
    "amax": _reduce("maximum", -math.inf),
    "amin": _reduce("minimum", math.inf),
    "any": _reduce("or", 0),
    "all": _reduce("and", 1),
    "mean": _mean,
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "argmax": _argmax,
    "max": _largest,
    "var": _variance,
    "mm": _product,
    "bmm": _product,
    "addmm": _added_product,
    "baddbmm": _added_product,
    **LAYERS,
}
