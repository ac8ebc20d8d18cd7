"""torch_xla.experimental.scan: a function over the leading dimension of tensors. Each turn is
computed, and recorded, when it is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten


def scan(
    fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    partition_fn: Any = None,  # noqa: ARG001
    is_fn_pure: bool = False,  # noqa: ARG001
) -> tuple[Any, Any]:
    """Return the last carry, and the turns' outputs, stacked.

    `partition_fn` changes no number; what it would compute again in the backward pass is kept.
    """
    if not callable(fn):
        raise ValueError(f"`fn` {fn} must be callable.")
    leaves, structure = tree_flatten(xs)
    if not leaves:
        raise ValueError(f"`xs` {xs} is an empty PyTree.")
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) > 1:
        raise ValueError(
            "The leaves of the `xs` input PyTree must have the same leading dimension size. "
            f"Got {' and '.join(map(str, sorted(lengths)))}"
        )
    carry, outputs = init, []
    for turn in zip(*(leaf.unbind(0) for leaf in leaves), strict=True):
        before, (carry, output) = carry, fn(carry, tree_unflatten(list(turn), structure))
        _check_carry(before, carry)
        outputs.append(output)
    return carry, _stack(outputs)


def _check_carry(before: Any, after: Any) -> None:
    """A loop of XLA has one type of carry."""
    types = [
        tree_map(lambda one: (tuple(one.shape), one.dtype) if _is_tensor(one) else None, carry)
        for carry in (before, after)
    ]
    if types[0] != types[1]:
        raise ValueError(
            f"`fn` must return a carry with the shapes and dtypes of the one that it takes: it "
            f"takes {types[0]} and returns {types[1]}"
        )


def _stack(outputs: list[Any]) -> Any:
    flat = [tree_flatten(one) for one in outputs]
    stacked = [
        torch.stack(turns) if _is_tensor(turns[0]) else None
        for turns in zip(*(leaves for leaves, _ in flat), strict=True)
    ]
    return tree_unflatten(stacked, flat[0][1])


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
