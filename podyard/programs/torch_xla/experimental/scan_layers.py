"""torch_xla.experimental.scan_layers: equal layers, one after the other, as a scan over their
stacked weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch_xla.experimental.scan import scan


def scan_layers(
    layers: Iterable[torch.nn.Module],
    input_data: Any,
    partition_fn: Any = None,
    is_layer_pure: bool = False,
) -> Any:
    """Return the last layer's output. The first layer computes for all, with the others'
    weights."""
    modules = list(layers)
    if not modules:
        return input_data
    weights = [dict(one.named_parameters()) for one in modules]
    buffers = [dict(one.named_buffers()) for one in modules]
    for kind in (weights, buffers):
        _check_structure(kind)
    stacked = tuple(
        {name: torch.stack([one[name] for one in kind]) for name in kind[0]}
        for kind in (weights, buffers)
    )

    def compute_layer(carry: Any, own: Any) -> tuple[Any, None]:
        return torch.func.functional_call(modules[0], own, carry, strict=True), None

    output, _ = scan(
        compute_layer, input_data, stacked, partition_fn=partition_fn, is_fn_pure=is_layer_pure
    )
    return output


def _check_structure(dicts: Sequence[Mapping[str, torch.Tensor]]) -> None:
    first = dicts[0]
    for number, one in enumerate(dicts[1:], start=1):
        if one.keys() != first.keys():
            missing, extra = first.keys() - one.keys(), one.keys() - first.keys()
            raise ValueError(
                f"Layer {number} has mismatched keys."
                + (f" Missing keys: {missing}." if missing else "")
                + (f" Extra keys: {extra}." if extra else "")
            )
        for name, tensor in one.items():
            if tensor.shape != first[name].shape:
                raise ValueError(
                    f"Shape mismatch for '{name}' in layer {number}: expected "
                    f"{first[name].shape}, got {tensor.shape}."
                )
