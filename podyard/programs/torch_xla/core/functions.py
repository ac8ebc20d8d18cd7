"""Exchanges between processes that gradients flow through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch_xla.core import xla_model as xm

_Groups = Sequence[Sequence[int]] | None


class AllReduce(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, value: Any, reduce_type: str, scale: float, groups: _Groups) -> Any:
        ctx.kept = (reduce_type, scale, groups)
        return xm.all_reduce(reduce_type, value, scale=scale, groups=groups)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        reduce_type, scale, groups = ctx.kept
        return xm.all_reduce(reduce_type, gradient, scale=scale, groups=groups), None, None, None


class AllGather(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, value: Any, dim: int) -> Any:
        ctx.dim, ctx.length = dim, value.shape[dim]
        return xm.all_gather(value, dim=dim)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        total = xm.all_reduce(xm.REDUCE_SUM, gradient)
        return total.narrow(ctx.dim, xm.get_ordinal() * ctx.length, ctx.length), None


def all_reduce(reduce_type: str, value: Any, scale: float = 1.0, groups: _Groups = None) -> Any:
    return AllReduce.apply(value, reduce_type, scale, groups)


def all_gather(value: Any, dim: int = 0) -> Any:
    return AllGather.apply(value, dim)
