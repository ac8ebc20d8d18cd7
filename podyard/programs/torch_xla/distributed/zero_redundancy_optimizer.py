"""torch_xla.distributed.zero_redundancy_optimizer: ZeRO-1, the optimizer's states split over the
processes.

Each process has a part of every parameter's first dimension: gradients are summed up and cut
(reduce-scatter), the part is stepped, and the parts are gathered.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch_xla import runtime as xr
from torch_xla.core import xla_model as xm

_SCHEME = "sharding_scheme"


@dataclasses.dataclass(frozen=True)
class ZeroOptions:
    """The optimizer's own arguments. `pin_layout` and `bucket_cap_mb_...` change no number: each
    tensor is exchanged by itself here."""

    optimizer_dtype: Any = None
    grad_clipping: bool = True
    max_norm: float | None = None
    pin_layout: bool = True
    sharding_groups: Any = None
    grad_norm_groups: Any = None
    lazy_init: bool = False
    bucket_cap_mb_all_gather: int = 0
    bucket_cap_mb_reduce_scatter: int = 0
    use_grad_acc_hook: bool = False
    save_master_weights: bool = False
    higher_cc_precision: bool = False


class ZeroRedundancyOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer of `optimizer_class` over this process' part of each parameter."""

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[torch.optim.Optimizer],
        *positional: Any,
        **named: Any,
    ) -> None:
        """`positional`, `named`: of `ZeroOptions`, in their order; other names are the wrapped
        optimizer's."""
        names = [field.name for field in dataclasses.fields(ZeroOptions)]
        options = ZeroOptions(
            *positional, **{name: named.pop(name) for name in names if name in named}
        )
        if xr.is_spmd():
            raise RuntimeError(
                "ZeroRedundancyOptimizer needs a process for each device: start the program with "
                "torch_xla.launch and without use_spmd(), or shard with FSDPv2"
            )
        if not options.save_master_weights:
            logging.warning(
                "Not saving master weights may have accuracy issues when resuming training!"
            )
        super().__init__(params, named)
        self.optimizer_class = optimizer_class
        self.defaults = named
        self.optimizer_dtype = options.optimizer_dtype or torch.float32
        self.grad_clipping = options.grad_clipping
        self.max_norm = 1.0 if options.max_norm is None else options.max_norm
        self._sharding_groups = options.sharding_groups or [list(range(xr.world_size()))]
        self._grad_norm_groups = options.grad_norm_groups
        self.use_grad_acc_hook = options.use_grad_acc_hook
        self.save_master_weights = options.save_master_weights
        self.higher_cc_precision = options.higher_cc_precision
        self._hooks: list[Any] = []
        self._grad_norm: torch.Tensor | None = None
        self.inited = False
        if not options.lazy_init:
            self.init_zero()

    def init_zero(self) -> None:
        """Cuts the parameters; `lazy_init` leaves the call to the program."""
        self.remove_hooks()
        rank = xr.global_ordinal()
        own = next((list(one) for one in self._sharding_groups if rank in one), None)
        if own is None:
            raise ValueError(
                f"Current rank {rank} is missing from the sharding_groups {self._sharding_groups}"
            )
        self.local_world_size, self.local_rank = len(own), own.index(rank)
        groups = [
            {**group, "params": [self._cut(one) for one in group["params"]]}
            for group in self.param_groups
        ]
        self.base_optimizer = self.optimizer_class(groups, **self.defaults)
        _copy_settings(self.param_groups, self.base_optimizer.param_groups)
        self.inited = True

    @property
    def grad_norm(self) -> torch.Tensor | None:
        return self._grad_norm

    @property
    def sharding_groups(self) -> Any:
        return self._sharding_groups

    @sharding_groups.setter
    def sharding_groups(self, groups: Any) -> None:
        if self.inited:
            raise AssertionError("already inited, cannot change sharding_groups")
        self._sharding_groups = groups

    def remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _cut(self, parameter: Any) -> Any:
        """This process' part of a parameter."""
        part = self._pad(parameter.data).chunk(self.local_world_size)[self.local_rank]
        shard = nn.Parameter(
            part.detach().clone().to(self.optimizer_dtype), requires_grad=parameter.requires_grad
        )
        if self.use_grad_acc_hook and parameter.requires_grad:
            self._hooks.append(
                parameter.register_post_accumulate_grad_hook(self._accumulate_into(shard))
            )
        return shard

    def _accumulate_into(self, shard: Any) -> Any:
        """Gradients add up in the optimizer's dtype."""

        def accumulate(parameter: Any) -> None:
            if not hasattr(shard, "main_grad"):
                shard.main_grad = torch.zeros(parameter.shape, dtype=self.optimizer_dtype)
                parameter.main_grad = shard.main_grad
            shard.main_grad.add_(parameter.grad.to(self.optimizer_dtype))
            parameter.grad = None

        return accumulate

    def _pad(self, tensor: Any) -> Any:
        """To equal parts."""
        rest = -tensor.size(0) % self.local_world_size
        if not rest:
            return tensor
        return nn.functional.pad(tensor, [0, 0] * (tensor.dim() - 1) + [0, rest])

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        """Parameters that have a gradient, and their parts."""
        groups = zip(self.param_groups, self.base_optimizer.param_groups, strict=True)
        for group, parts in groups:
            for parameter, shard in zip(group["params"], parts["params"], strict=True):
                if self._gradient(parameter, shard) is not None:
                    yield parameter, shard

    def _gradient(self, parameter: Any, shard: Any) -> Any:
        return getattr(shard, "main_grad", None) if self.use_grad_acc_hook else parameter.grad

    def _scheme(self, named: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        own = {
            "scale_factor": 1.0,
            "sharding_group": self._sharding_groups,
            "group_size": self.local_world_size,
        }
        return named.get(_SCHEME) or [own]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None, **named: Any) -> Any:
        """`named`: of the wrapped optimizer's step."""
        if not self.inited:
            raise AssertionError("must call init_zero() first")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scheme = self._scheme(named)
        _copy_settings(self.param_groups, self.base_optimizer.param_groups)
        for parameter, shard in self._pairs():
            shard.grad = self._reduce(self._gradient(parameter, shard), scheme)
        if self.grad_clipping:
            self._clip()
        named.pop(_SCHEME, None)
        self.base_optimizer.step(closure=None, **named)
        self.base_optimizer.zero_grad(set_to_none=True)
        self.allgather_weights_and_update_full_parameter(scheme)
        _copy_settings(self.base_optimizer.param_groups, self.param_groups)
        return loss

    def _reduce(self, gradient: Any, scheme: Sequence[Mapping[str, Any]]) -> Any:
        part = self._pad(gradient)
        if self.higher_cc_precision:
            part = part.to(self.optimizer_dtype)
        for turn in scheme:
            part = xm.reduce_scatter(
                xm.REDUCE_SUM,
                part,
                scale=turn["scale_factor"] / turn["group_size"],
                scatter_dim=0,
                shard_count=turn["group_size"],
                groups=turn["sharding_group"],
            )
        return part.to(self.optimizer_dtype)

    def _clip(self) -> None:
        """By the norm of all gradients together."""
        parts = [
            one.grad
            for group in self.base_optimizer.param_groups
            for one in group["params"]
            if one.grad is not None
        ]
        total = torch.zeros([], dtype=self.optimizer_dtype)
        for part in parts:
            total += (part * part).sum()
        xm.all_reduce(xm.REDUCE_SUM, [total], groups=self._sharding_groups)
        if self._grad_norm_groups is not None:
            xm.all_reduce(xm.REDUCE_SUM, [total], groups=self._grad_norm_groups)
        self._grad_norm = total.sqrt()
        factor = torch.clamp(self.max_norm / (self._grad_norm + 1e-6), max=1.0)
        for part in parts:
            part.mul_(factor)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def allgather_weights_and_update_full_parameter(
        self, sharding_scheme: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        for parameter, shard in self._pairs():
            whole = shard.data.to(parameter.dtype)
            for turn in reversed(sharding_scheme or self._scheme({})):
                whole = xm.all_gather(whole, dim=0, groups=turn["sharding_group"])
            parameter.data.copy_(whole[: parameter.size(0)])

    def zero_grad(self, set_to_none: bool = False) -> None:
        super().zero_grad(set_to_none=set_to_none)
        for group in self.base_optimizer.param_groups if self.use_grad_acc_hook else ():
            for shard in group["params"]:
                if hasattr(shard, "main_grad"):
                    shard.main_grad.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Of this process: each saves its own."""
        state: dict[str, Any] = super().state_dict()
        state["base_state"] = self.base_optimizer.state_dict()["state"]
        state["shape_info"] = self.get_shape_info()
        if self.save_master_weights:
            parts = (one for group in self.base_optimizer.param_groups for one in group["params"])
            state["sharded_master_weights"] = {
                number: part.data for number, part in enumerate(parts)
            }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = copy.deepcopy(state_dict)
        base = state.pop("base_state")
        super().load_state_dict(state)
        self.init_zero()
        own = self.base_optimizer.state_dict()
        self.base_optimizer.load_state_dict(
            {**own, "state": base, "param_groups": state["param_groups"]}
        )
        if (masters := state.get("sharded_master_weights")) is None:
            return
        parts = [one for group in self.base_optimizer.param_groups for one in group["params"]]
        for number, part in enumerate(parts):
            part.data.copy_(masters[number])
        wholes = [one for group in self.param_groups for one in group["params"]]
        for whole, part in zip(wholes, parts, strict=True):  # so that each is gathered
            if self.use_grad_acc_hook:
                part.main_grad = torch.zeros(whole.shape, dtype=self.optimizer_dtype)
                whole.main_grad = part.main_grad
            else:
                whole.grad = torch.zeros_like(whole.data)
        self.allgather_weights_and_update_full_parameter()

    def get_shape_info(self) -> dict[int, Any]:
        wholes = (one for group in self.param_groups for one in group["params"])
        return {number: one.shape for number, one in enumerate(wholes)}


def _copy_settings(source: Sequence[Mapping[str, Any]], target: Sequence[dict[str, Any]]) -> None:
    """Learning rates and the like, which schedulers change."""
    for one, other in zip(source, target, strict=True):
        other.update({name: value for name, value in one.items() if name != "params"})
