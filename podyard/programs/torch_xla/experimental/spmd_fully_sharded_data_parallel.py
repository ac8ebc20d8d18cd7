"""torch_xla.experimental.spmd_fully_sharded_data_parallel: FSDPv2, by shardings alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch_xla.distributed import spmd
from torch_xla.distributed.fsdp.wrap import recursive_wrap

from podyard.programs.torch_graph.marks import sharding_of

_AXIS = "fsdp"


class SpmdFullyShardedDataParallel(nn.Module):  # type: ignore[misc]
    """A module whose parameters are split along the mesh's axis `fsdp`, and whose output is split
    along it by examples: the partitioner gathers each parameter where it is used.

    `shard_output`: marks the output, called with it and the mesh. `extra_data_axis`: splits the
    output's examples, too.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        mesh: spmd.Mesh | None = None,
        shard_output: Callable[..., object] | None = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., nn.Module] | None = None,
        extra_data_axis: str | None = None,
    ) -> None:
        _refuse_unfit(module)
        mesh = mesh or spmd.get_global_mesh()
        if mesh is None:
            raise ValueError(
                "No mesh is provided and no global mesh is set. Please provide a mesh."
            )
        names = mesh.axis_names or ()
        if _AXIS not in names:
            raise ValueError("The mesh must have an axis named 'fsdp'.")
        if extra_data_axis and extra_data_axis not in names:
            raise ValueError(f"The provided {extra_data_axis} axis is not in the mesh.")
        super().__init__()
        if auto_wrap_policy is not None:
            _wrap_children(
                module,
                auto_wrap_policy,
                auto_wrapper_callable or SpmdFullyShardedDataParallel,
                mesh=mesh,
                shard_output=shard_output,
            )
        self._orig_module = module.to("xla")
        self._mesh = mesh
        self._extra_data_axis = extra_data_axis
        self._shard_output = shard_output or self._shard_first
        for parameter in module.parameters():
            if sharding_of(parameter) is None:
                spmd.mark_sharding(parameter, mesh, _largest_dimension(parameter))

    @property
    def module(self) -> nn.Module:
        return self._orig_module

    def forward(self, *args: Any, **named: Any) -> Any:
        output = self._orig_module(*args, **named)
        self._shard_output(output, self._mesh)
        return output

    def _shard_first(self, output: Any, mesh: spmd.Mesh) -> None:
        """The output, or the first tensor of a tuple, by its first dimension."""
        first = output
        if isinstance(output, tuple):
            first = output[0] if output else None
            warnings.warn(
                "The output is a tuple, but only the first element is sharded. If this is not "
                "intended, please provide your own shard_output callable.",
                stacklevel=2,
            )
        if not isinstance(first, torch.Tensor):
            raise RuntimeError(
                f"The output type is not supported: {type(output)}. Please provide your own "
                "shard_output callable."
            )
        if first.dim():
            axes = (self._extra_data_axis, _AXIS) if self._extra_data_axis else _AXIS
            spmd.mark_sharding(first, mesh, (axes, *(None,) * (first.dim() - 1)))

    def __getattr__(self, name: str) -> Any:
        """Attributes of the wrapped module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._orig_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._orig_module[key]


def _refuse_unfit(module: nn.Module) -> None:
    if isinstance(module, SpmdFullyShardedDataParallel):
        raise RuntimeError(
            "Cannot wrap a module that is already wrapped with FSDP. For nested FSDP, first wrap "
            "the inner child modules before wrapping the outer parent module."
        )
    forward = getattr(module.forward, "__func__", module.forward)
    if forward is nn.Module.forward or isinstance(module, nn.ModuleList | nn.ModuleDict):
        raise RuntimeError(
            "The module wrapped by FSDP *must define a `forward` method and call it during the "
            "module's forward pass for FSDP to work correctly.* Hence, do not wrap "
            "`nn.ModuleList` or `nn.ModuleDict` with FSDP."
        )


def _largest_dimension(parameter: torch.Tensor) -> tuple[str | None, ...]:
    """The spec that splits a parameter's largest dimension, the first of them."""
    sizes = list(parameter.shape)
    place = sizes.index(max(sizes)) if sizes else -1
    return tuple(_AXIS if axis == place else None for axis in range(len(sizes)))


def _wrap_children(
    module: nn.Module,
    policy: Callable[..., bool],
    wrapper: Callable[..., nn.Module],
    **named: Any,
) -> None:
    for name, child in module.named_modules():
        if isinstance(child, SpmdFullyShardedDataParallel):
            raise ValueError(
                f"Expected {name} to NOT be SpmdFullyShardedDataParallel if using an "
                "`auto_wrap_policy`"
            )
    recursive_wrap(module, policy, wrapper, [], [], only_wrap_children=True, **named)
