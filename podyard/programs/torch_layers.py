"""Layers and losses of PyTorch in StableHLO: convolutions, pools, attention, tables."""

from __future__ import annotations

import math
from typing import Any

from podyard.programs.torch_graph.stablehlo_writer import Operation, Shape, Type, Value, Writer


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
    of_scores = w.binary(
        "multiply", of_scores, w.constant(factor, of_scores.shape, of_scores.element)
    )
    of_query, of_key = (
        w.dot(of_scores, key, (2, 1), batched=True),
        w.dot(of_scores, query, (1, 1), batched=True),
    )
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
        flat = (
            w.reshape(mask, mask.shape[-2:]) if math.prod(mask.shape[:-2]) == 1 else _heads(w, mask)
        )
        scores = w.binary("add", scores, w.cast(flat, (scores.shape, scores.element)))
    elif causal:
        rows, columns = (w.iota(axis, scores.shape) for axis in (1, 2))
        lowest = w.constant(-math.inf, scores.shape, scores.element)
        scores = w.select(w.compare("GE", rows, columns), scores, lowest)
    largest = w.reduce("maximum", scores, [2], -math.inf)
    powers = w.unary(
        "exponential", w.binary("subtract", scores, w.broadcast_in(largest, scores.shape, [0, 1]))
    )
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
        found[0] = w.convolution(
            grad, kernel, image.shape, numbers, (ones, pads, stride, dilation), reverse=True
        )
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
    sizes, strides, pads = (
        [*a[first + number]] if len(a) > first + number else [] for number in range(3)
    )
    sizes = sizes * (2 // len(sizes))
    strides = strides * (2 // len(strides)) if strides else sizes
    pads = pads * (2 // len(pads)) if pads else [0, 0]
    lead = rank - 2
    return (
        (1,) * lead + tuple(sizes),
        (1,) * lead + tuple(strides),
        [(0, 0)] * lead + [(one, one) for one in pads],
    )


def _max_pool(w: Writer, a: list[Any], to: Type) -> list[Value]:
    sizes, strides, pads = _windows(a, 1, len(to[0]))
    found = w.reduce_window("maximum", a[0], -math.inf, sizes, strides, pads)
    # XLA keeps no places: the gradient looks for them again
    return [found, w.constant(0, found.shape, "i64")]


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
    high = [
        whole + size - 1 - a - b for whole, size, a, b in zip(to[0], sizes, low, used, strict=True)
    ]
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
        grad = w.binary(
            "divide", grad, w.constant(math.prod(labels.shape), grad.shape, grad.element)
        )
    rest = [one for one in range(len(to[0])) if one != axis]
    spread = w.broadcast_in(w.unary("negate", grad), to[0], rest if grad.shape else [])
    hot = _one_hot(w, labels, to[0], axis)
    return [w.select(hot, spread, w.constant(0.0, to[0], to[1]))]


LAYERS: dict[str, Operation] = {
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
