"""torch_xla.distributed.fsdp.wrap: which modules of a model are wrapped by themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from torch import nn


def always_wrap_policy(*_args: Any, **_named: Any) -> bool:
    return True


def lambda_auto_wrap_policy(
    module: nn.Module, recurse: bool, unwrapped_params: int, lambda_fn: Callable[..., bool]
) -> bool:
    """Those for which the function is true."""
    del unwrapped_params
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    unwrapped_params: int,
    transformer_layer_cls: Collection[type[nn.Module]],
) -> bool:
    """Layers of these classes."""
    del unwrapped_params
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    unwrapped_params: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: Collection[type[nn.Module]] | None = None,
    exclude_wrap_modules: Collection[type[nn.Module]] | None = None,
) -> bool:
    """Modules with so many parameters that are not wrapped yet; lists and dicts of modules are not
    wrapped themselves, and inside of `MultiheadAttention` nothing is."""
    leaves = tuple(force_leaf_modules or (nn.MultiheadAttention,))
    excluded = tuple(exclude_wrap_modules or (nn.ModuleList, nn.ModuleDict))
    is_large = unwrapped_params >= min_num_params
    if recurse:
        return is_large and not isinstance(module, leaves)
    return is_large and not isinstance(module, excluded)


def recursive_wrap(
    module: nn.Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., nn.Module],
    ignored_modules: Collection[nn.Module],
    ignored_params: Collection[nn.Parameter],
    only_wrap_children: bool = False,
    **named: Any,
) -> tuple[nn.Module, int]:
    """Wraps what the policy names, the inner modules first. Returns the module and how many of its
    parameters are wrapped."""
    own = sum(one.numel() for one in module.parameters() if one not in set(ignored_params))
    wrapped = 0
    if auto_wrap_policy(module=module, recurse=True, unwrapped_params=own):
        for name, child in list(module.named_children()):
            if child in ignored_modules:
                continue
            inner, count = recursive_wrap(
                child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **named
            )
            setattr(module, name, inner)
            wrapped += count
    rest = own - wrapped
    policy_wraps = auto_wrap_policy(module=module, recurse=False, unwrapped_params=rest)
    if not only_wrap_children and policy_wraps:
        return wrapper_cls(module, **named), own
    return module, wrapped
