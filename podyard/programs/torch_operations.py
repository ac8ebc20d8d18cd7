"""PyTorch's operations (aten) in StableHLO: those that training steps end in once PyTorch has taken others apart.

Each function takes the writer, the operation's arguments, and the type of its first result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from podyard.programs.stablehlo_writer import Shape, Value, Writer, is_float

Type = tuple[Shape, str]
Operation = Callable[[Writer, list[Any], Type], list[Value]]


def _as(w: Writer, value: Any, to: Type) -> Value:
    if not isinstance(value, Value):
        return w.constant(value, to[0], to[1])
    return w.broadcast(w.convert(value, to[1]), to[0])


def _binary(operation: str) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        other = _as(w, a[1], to)
        if len(a) > 2 and isinstance(a[2], int | float) and a[2] != 1:  # alpha
            other = w.binary("multiply", other, w.constant(a[2], to[0], to[1]))
        return [w.binary(operation, _as(w, a[0], to), other)]

    return run


def _reversed(operation: str) -> Operation:
    return lambda w, a, to: _binary(operation)(w, [a[1], a[0]], to)


def _unary(operation: str) -> Operation:
    return lambda w, a, to: [w.unary(operation, _as(w, a[0], to))]


def _compare(direction: str) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        element = a[0].element if isinstance(a[0], Value) else a[1].element
        return [w.compare(direction, _as(w, a[0], (to[0], element)), _as(w, a[1], (to[0], element)))]

    return run


def _with_product(operation: str) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        found = w.binary(operation, _as(w, a[1], to), _as(w, a[2], to))
        if len(a) > 3 and a[3] not in (None, 1):
            found = w.binary("multiply", found, _as(w, a[3], to))
        return [w.binary("add", _as(w, a[0], to), found)]

    return run


def _between(w: Writer, a: list[Any], to: Type) -> list[Value]:
    begin = _as(w, a[0], to)
    way = w.binary("subtract", _as(w, a[1], to), begin)
    return [w.binary("add", begin, w.binary("multiply", way, _as(w, a[2], to)))]


def _where(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return [w.select(_as(w, a[0], (to[0], "i1")), _as(w, a[1], to), _as(w, a[2], to))]


def _masked_fill(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return _where(w, [a[1], a[2], a[0]], to)


def _clamp(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value = _as(w, a[0], to)
    for operation, bound in zip(("maximum", "minimum"), [*a[1:3], None][:2], strict=True):
        if bound is not None:
            value = w.binary(operation, value, _as(w, bound, to))
    return [value]


def _filled(number: float | None) -> Operation:
    return lambda w, a, to: [w.constant(a[1] if number is None else number, to[0], to[1])]


def _to_same(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return [_as(w, a[0], to)]


def _copied(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return [_as(w, a[1], to)]


# Shapes


def _reshaped(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return [w.reshape(a[0], to[0])]


def _axis(value: Value, axis: int) -> int:
    return axis % max(1, len(value.shape))


def _transposed(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    order = list(range(len(a[0].shape)))
    one, other = (_axis(a[0], axis) for axis in (a[1:3] if len(a) > 2 else (0, 1)))
    if len(order) > 1:
        order[one], order[other] = order[other], order[one]
    return [w.transpose(a[0], order)]


def _permuted(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    return [w.transpose(a[0], [_axis(a[0], axis) for axis in a[1]])]


def _sliced(w: Writer, a: list[Any], to: Type) -> list[Value]:
    value, axis, begin, _end, step = [*a, *(None,) * 5][:5]
    axis = _axis(value, axis or 0)
    size = value.shape[axis]
    begin = min(size, max(0, (begin or 0) + size * ((begin or 0) < 0)))
    return [_part(w, value, axis, begin, to[0][axis], step or 1)]


def _part(w: Writer, value: Value, axis: int, begin: int, count: int, step: int = 1) -> Value:
    begins, ends, steps = [0] * len(value.shape), list(value.shape), [1] * len(value.shape)
    begins[axis], ends[axis], steps[axis] = begin, min(value.shape[axis], begin + count * step), step
    return w.slice(value, tuple(begins), tuple(ends), tuple(steps))


def _selected(w: Writer, a: list[Any], to: Type) -> list[Value]:
    axis = _axis(a[0], a[1])
    return [w.reshape(_part(w, a[0], axis, a[2] % a[0].shape[axis], 1), to[0])]


def _split(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    axis = _axis(a[0], a[2] if len(a) > 2 else 0)
    whole = a[0].shape[axis]
    sizes = list(a[1]) if isinstance(a[1], Sequence) else [min(a[1], whole - at) for at in range(0, whole, a[1])]
    return [_part(w, a[0], axis, sum(sizes[:number]), size) for number, size in enumerate(sizes)]


def _unbound(w: Writer, a: list[Any], to: Type) -> list[Value]:
    axis = _axis(a[0], a[1] if len(a) > 1 else 0)
    return [w.reshape(_part(w, a[0], axis, number, 1), to[0]) for number in range(a[0].shape[axis])]


def _joined(w: Writer, a: list[Any], to: Type) -> list[Value]:
    parts = [w.convert(one, to[1]) for one in a[0] if one.shape != (0,)]
    return [w.concatenate(parts, (a[1] if len(a) > 1 else 0) % len(to[0]))]


def _stacked(w: Writer, a: list[Any], to: Type) -> list[Value]:
    axis = (a[1] if len(a) > 1 else 0) % len(to[0])
    return [w.concatenate([w.reshape(one, (*one.shape[:axis], 1, *one.shape[axis:])) for one in a[0]], axis)]


def _padded(w: Writer, a: list[Any], to: Type) -> list[Value]:
    low, high = [0] * len(to[0]), [0] * len(to[0])
    for number in range(len(a[1]) // 2):
        low[-1 - number], high[-1 - number] = a[1][2 * number], a[1][2 * number + 1]
    return [w.pad(a[0], low, high, a[2] if len(a) > 2 else 0.0)]


def _triangle(direction: str) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        rows, columns = (w.iota(len(to[0]) - 2 + axis, to[0]) for axis in (0, 1))
        rows = w.binary("add", rows, w.constant(a[1] if len(a) > 1 else 0, to[0], "i32"))
        return [w.select(w.compare(direction, rows, columns), _as(w, a[0], to), w.constant(0, to[0], to[1]))]

    return run


# Sums


def _axes(value: Value, asked: Any) -> list[int]:
    if asked is None or asked == []:
        return list(range(len(value.shape)))
    return [_axis(value, axis) for axis in (asked if isinstance(asked, Sequence) else [asked])]


def _reduced(operation: str, initial: float) -> Operation:
    def run(w: Writer, a: list[Any], to: Type) -> list[Value]:
        value = w.convert(a[0], to[1])
        axes = _axes(value, a[1] if len(a) > 1 else None)
        return [w.reshape(w.reduce(operation, value, axes, initial), to[0])]

    return run


def _mean(w: Writer, a: list[Any], to: Type) -> list[Value]:
    (total,) = _reduced("add", 0.0)(w, a, to)
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
    return [w.reshape(w.binary("divide", squares, w.constant(count - less, squares.shape, to[1])), to[0])]


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
    places = w.select(same, w.iota(axis, flat.shape), w.constant(flat.shape[axis], flat.shape, "i32"))
    return largest, w.reduce("minimum", places, [axis], flat.shape[axis])


def _argmax(w: Writer, a: list[Any], to: Type) -> list[Value]:
    _, place = _where_largest(w, a[0], a[1] if len(a) > 1 else None)
    return [w.reshape(w.convert(place, to[1]), to[0])]


def _largest(w: Writer, a: list[Any], to: Type) -> list[Value]:
    if len(a) == 1:
        return _reduced("maximum", -math.inf)(w, a, to)
    largest, place = _where_largest(w, a[0], a[1])
    return [w.reshape(largest, to[0]), w.reshape(w.convert(place, "i64"), to[0])]


# Products


def _product(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    return [w.dot(a[0], a[1], (len(a[0].shape) - 1, max(0, len(a[1].shape) - 2)), batched=len(a[0].shape) == 3)]


def _added_product(w: Writer, a: list[Any], to: Type) -> list[Value]:
    (product,) = _product(w, a[1:3], to)
    return [w.binary("add", product, _as(w, a[0], to))]


def _attention(w: Writer, a: list[Any], to: Type) -> list[Value]:
    query, key, value, mask, scale = *(_heads(w, one) for one in a[:3]), a[5], a[6]
    chances = _chances(w, query, key, mask, scale, a[4])
    found = w.dot(chances, value, (2, 1), batched=True)
    return [w.reshape(w.convert(found, to[1]), to[0]), w.constant(0.0, a[0].shape[:3], "f32")]


def _attention_backward(w: Writer, a: list[Any], to: Type) -> list[Value]:
    """As it is without keeping the chances: they are computed again."""
    grad, query, key, value = (_heads(w, one) for one in a[:4])
    chances = _chances(w, query, key, a[8], a[9], a[7])
    of_value = w.dot(chances, grad, (1, 1), batched=True)
    of_chances = w.dot(grad, value, (2, 2), batched=True)
    weighted = w.binary("multiply", of_chances, chances)
    rows = w.broadcast_in(w.reduce("add", weighted, [2], 0.0), weighted.shape, [0, 1])
    of_scores = w.binary("subtract", weighted, w.binary("multiply", chances, rows))
    factor = a[9] if isinstance(a[9], int | float) else query.shape[-1] ** -0.5
    of_scores = w.binary("multiply", of_scores, w.constant(factor, of_scores.shape, of_scores.element))
    of_query, of_key = w.dot(of_scores, key, (2, 1), batched=True), w.dot(of_scores, query, (1, 1), batched=True)
    shapes = (a[1].shape, a[2].shape, a[3].shape)
    found = zip((of_query, of_key, of_value), shapes, strict=True)
    return [w.reshape(w.convert(one, to[1]), shape) for one, shape in found]


def _heads(w: Writer, value: Value) -> Value:
    return w.reshape(value, (math.prod(value.shape[:-2]), *value.shape[-2:]))


def _chances(w: Writer, query: Value, key: Value, mask: Any, scale: Any, causal: Any) -> Value:
    scores = w.dot(query, key, (2, 2), batched=True)
    factor = scale if isinstance(scale, int | float) else query.shape[-1] ** -0.5
    scores = w.binary("multiply", scores, w.constant(factor, scores.shape, scores.element))
    if isinstance(mask, Value):
        flat = w.reshape(mask, mask.shape[-2:]) if math.prod(mask.shape[:-2]) == 1 else _heads(w, mask)
        scores = w.binary("add", scores, _as(w, flat, (scores.shape, scores.element)))
    elif causal:
        rows, columns = (w.iota(axis, scores.shape) for axis in (1, 2))
        lowest = w.constant(-math.inf, scores.shape, scores.element)
        scores = w.select(w.compare("GE", rows, columns), scores, lowest)
    largest = w.reduce("maximum", scores, [2], -math.inf)
    powers = w.unary("exponential", w.binary("subtract", scores, w.broadcast_in(largest, scores.shape, [0, 1])))
    total = w.reduce("add", powers, [2], 0.0)
    return w.binary("divide", powers, w.broadcast_in(total, scores.shape, [0, 1]))


def _numbers(count: int) -> str:
    return ", ".join(map(str, range(count)))


def _convolution(w: Writer, a: list[Any], to: Type) -> list[Value]:
    image, kernel, bias, stride, padding, dilation, transposed, _, groups = a[:9]
    if transposed:
        raise NotImplementedError("a transposed convolution")
    axes = _numbers(len(stride))
    pads = [(one, one) for one in padding]
    window = (stride, pads, [1] * len(stride), dilation)
    numbers = f"[b, f, {axes}]x[o, i, {axes}]->[b, f, {axes}]"
    found = w.convolution(image, kernel, to[0], numbers, window, groups)
    if bias is not None:
        found = w.binary("add", found, w.broadcast_in(bias, to[0], [1]))
    return [found]


def _convolution_backward(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    grad, image, kernel, _, stride, padding, dilation, transposed, _, groups, wanted = a[:11]
    if transposed or groups != 1:
        raise NotImplementedError("the gradient of a transposed or grouped convolution")
    axes, count = _numbers(len(stride)), len(stride)
    found: list[Any] = [None, None, None]
    size, window, result = image.shape[2:], kernel.shape[2:], grad.shape[2:]
    ones = [1] * count
    if wanted[0]:
        pads = []
        for axis in range(count):
            reach = dilation[axis] * (window[axis] - 1)
            low = reach - padding[axis]
            high = size[axis] + reach - low - (result[axis] - 1) * stride[axis] - 1
            pads.append((low, high))
        numbers = f"[b, f, {axes}]x[i, o, {axes}]->[b, f, {axes}]"
        found[0] = w.convolution(grad, kernel, image.shape, numbers, (ones, pads, stride, dilation), reverse=True)
    if wanted[1]:
        pads = []
        for axis in range(count):
            used = (result[axis] - 1) * stride[axis] + 1
            high = dilation[axis] * (window[axis] - 1) + used - size[axis] - padding[axis]
            pads.append((padding[axis], high))
        numbers = f"[f, b, {axes}]x[i, o, {axes}]->[f, b, {axes}]"
        found[1] = w.convolution(image, grad, kernel.shape, numbers, (dilation, pads, ones, stride))
    if wanted[2]:
        found[2] = w.reduce("add", grad, [0, *range(2, 2 + count)], 0.0)
    return found


def _windows(a: list[Any], first: int, rank: int) -> tuple[Shape, Shape, list[tuple[int, int]]]:
    sizes, strides, pads = ([*a[first + number]] if len(a) > first + number else [] for number in range(3))
    sizes = sizes * (2 // len(sizes))
    strides = strides * (2 // len(strides)) if strides else sizes
    pads = pads * (2 // len(pads)) if pads else [0, 0]
    lead = rank - 2
    return (1,) * lead + tuple(sizes), (1,) * lead + tuple(strides), [(0, 0)] * lead + [(one, one) for one in pads]


def _max_pool(w: Writer, a: list[Any], to: Type) -> list[Value]:
    sizes, strides, pads = _windows(a, 1, len(to[0]))
    found = w.reduce_window("maximum", a[0], -math.inf, sizes, strides, pads)
    return [found, w.constant(0, found.shape, "i64")]  # XLA keeps no places: the gradient looks for them again


def _max_pool_backward(w: Writer, a: list[Any], to: Type) -> list[Value]:
    sizes, strides, pads = _windows(a, 2, len(to[0]))
    return [w.select_and_scatter(a[1], a[0], sizes, strides, pads)]


def _average_pool(w: Writer, a: list[Any], to: Type) -> list[Value]:
    sizes, strides, pads = _windows(a, 1, len(to[0]))
    total = w.reduce_window("add", a[0], 0.0, sizes, strides, pads)
    return [w.binary("divide", total, w.constant(math.prod(sizes), to[0], to[1]))]


def _average_pool_backward(w: Writer, a: list[Any], to: Type) -> list[Value]:
    grad = a[0]
    sizes, strides, pads = _windows(a, 2, len(to[0]))
    low = [size - 1 - pad[0] for size, pad in zip(sizes, pads, strict=True)]
    used = [(size - 1) * stride + 1 for size, stride in zip(grad.shape, strides, strict=True)]
    high = [whole + size - 1 - a - b for whole, size, a, b in zip(to[0], sizes, low, used, strict=True)]
    spread = w.pad(grad, low, high, 0.0, [stride - 1 for stride in strides])
    total = w.reduce_window("add", spread, 0.0, sizes, (1,) * len(sizes), [(0, 0)] * len(sizes))
    return [w.binary("divide", total, w.constant(math.prod(sizes), to[0], to[1]))]


# Tables


def _embedding(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    return [w.take_rows(a[0], a[1])]


def _embedding_backward(w: Writer, a: list[Any], to: Type) -> list[Value]:
    return [w.add_rows(w.constant(0.0, to[0], to[1]), a[1], a[0])]


def _index_select(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    if a[1] % len(a[0].shape):
        raise NotImplementedError("index_select along another axis than the first")
    return [w.take_rows(a[0], a[2])]


def _one_hot(w: Writer, places: Value, shape: Shape, axis: int) -> Value:
    rest = [one for one in range(len(shape)) if one != axis]
    numbers = w.iota(axis, shape, places.element)
    return w.compare("EQ", numbers, w.broadcast_in(places, shape, rest))


def _nll_loss(w: Writer, a: list[Any], to: Type) -> list[Value]:  # noqa: ARG001
    chances, labels, reduction = a[0], a[1], a[3]
    axis = len(chances.shape) - 1 if len(chances.shape) < 3 else 1
    zero = w.constant(0.0, chances.shape, chances.element)
    own = w.select(_one_hot(w, labels, chances.shape, axis), chances, zero)
    losses = w.unary("negate", w.reduce("add", own, [axis], 0.0))
    count = math.prod(losses.shape)
    weight = w.constant(count, (), chances.element)
    if reduction == 0:
        return [losses, weight]
    total = w.reduce("add", losses, list(range(len(losses.shape))), 0.0)
    return [w.binary("divide", total, weight) if reduction == 1 else total, weight]


def _nll_loss_backward(w: Writer, a: list[Any], to: Type) -> list[Value]:
    grad, chances, labels, reduction = a[0], a[1], a[2], a[4]
    axis = len(chances.shape) - 1 if len(chances.shape) < 3 else 1
    if reduction == 1:
        grad = w.binary("divide", grad, w.constant(math.prod(labels.shape), grad.shape, grad.element))
    rest = [one for one in range(len(to[0])) if one != axis]
    spread = w.broadcast_in(w.unary("negate", grad), to[0], rest if grad.shape else [])
    hot = _one_hot(w, labels, to[0], axis)
    return [w.select(hot, spread, w.constant(0.0, to[0], to[1]))]


OPERATIONS: dict[str, Operation] = {
    **{n: _binary(o) for n, o in (("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("div", "divide"))},
    **{n: _binary(o) for n, o in (("maximum", "maximum"), ("minimum", "minimum"), ("remainder", "remainder"))},
    **{n: _binary("and") for n in ("bitwise_and", "logical_and")},
    **{n: _binary("or") for n in ("bitwise_or", "logical_or")},
    "addcmul": _with_product("multiply"),
    "addcdiv": _with_product("divide"),
    "lerp": _between,
    "pow": _binary("power"),
    "rsub": _reversed("subtract"),
    **{n: _unary(n) for n in ("sqrt", "rsqrt", "tanh", "abs", "sign", "floor", "ceil", "log", "erf")},
    **{n: _unary("not") for n in ("bitwise_not", "logical_not")},
    **{n: _unary(o) for n, o in (("exp", "exponential"), ("neg", "negate"), ("sigmoid", "logistic"))},
    **{n: _unary(o) for n, o in (("log1p", "log_plus_one"), ("expm1", "exponential_minus_one"))},
    **{n: _unary(o) for n, o in (("sin", "sine"), ("cos", "cosine"), ("round", "round_nearest_even"))},
    "reciprocal": lambda w, a, to: _binary("divide")(w, [1.0, a[0]], to),
    "relu": lambda w, a, to: _binary("maximum")(w, [a[0], 0.0], to),
    **{n: _compare(n.upper()) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    "where": _where,
    "masked_fill": _masked_fill,
    "clamp": _clamp,
    "copy": _copied,
    **{n: _filled(0) for n in ("zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like", "empty_strided")},
    **{n: _filled(0) for n in ("new_empty", "new_empty_strided")},
    **{n: _filled(1) for n in ("ones", "ones_like", "new_ones")},
    **{n: _filled(None) for n in ("full", "full_like", "fill")},
    "broadcast_in_dim": lambda w, a, to: [w.broadcast_in(a[0], to[0], a[2])],
    "convert_element_type": _to_same,
    "new_full": lambda w, a, to: [w.constant(a[2], to[0], to[1])],
    "scalar_tensor": lambda w, a, to: [w.constant(a[0], to[0], to[1])],
    "arange": lambda w, a, to: [w.iota(0, to[0], to[1])],  # noqa: ARG005
    **dict.fromkeys(("clone", "detach", "alias", "lift_fresh", "_to_copy", "expand", "contiguous"), _to_same),
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "_reshape_alias"), _reshaped),
    "t": _transposed,
    "transpose": _transposed,
    "permute": _permuted,
    "slice": _sliced,
    "select": _selected,
    "split": _split,
    "split_with_sizes": _split,
    "unbind": _unbound,
    "cat": _joined,
    "stack": _stacked,
    "constant_pad_nd": _padded,
    "tril": _triangle("GE"),
    "triu": _triangle("LE"),
    "sum": _reduced("add", 0.0),
    "amax": _reduced("maximum", -math.inf),
    "amin": _reduced("minimum", math.inf),
    "any": _reduced("or", 0),
    "all": _reduced("and", 1),
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
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "avg_pool2d": _average_pool,
    "avg_pool2d_backward": _average_pool_backward,
    "max_pool2d_with_indices": _max_pool,
    "max_pool2d_with_indices_backward": _max_pool_backward,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "index_select": _index_select,
    "nll_loss_forward": _nll_loss,
    "nll_loss_backward": _nll_loss_backward,
    "nll_loss2d_forward": _nll_loss,
    "nll_loss2d_backward": _nll_loss_backward,
}
