"""The work of one call of a kernel (of Pallas, or a custom call): the program's process writes it,
the engine reads it.

It is JSON in the frontend attribute KERNEL_ATTRIBUTE of the custom call, so a module and its
kernels stay together.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

KERNEL_ATTRIBUTE = "podyard_kernel"
# The custom call for operations that TensorFlow places on the host; its backend_config names them.
HOST_CALL = "podyard_host_call"
_TEXT_MAX, _NUMBER_MAX = 200, 1e24


@dataclasses.dataclass(frozen=True, slots=True)
class KernelCost:
    """Of one device. `flops`: of products. `matrix_flops`: the same with blocks rounded up to whole
    lanes. `vector_operations`, `transcendentals`: numbers that the vector unit computes, the latter
    by its function unit. `hbm_bytes`: between HBM and VMEM. `steps`: of the grid. `vmem_bytes`:
    buffers and scratch; `vmem_limit_bytes`: the author's limit, or None. `causal_flops`: of the
    products of all steps, where a mask orders two axes by position; 0 without such a mask.
    `is_backward`: the backward pass alone calls it. `doubts`: what is not known."""

    name: str
    flops: float
    hbm_bytes: float
    matrix_flops: float = 0.0
    vector_operations: float = 0.0
    transcendentals: float = 0.0
    steps: float = 0.0
    vmem_bytes: float = 0.0
    vmem_limit_bytes: float | None = None
    causal_flops: float = 0.0
    is_backward: bool = False
    doubts: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))


def kernel_cost_of(text: str) -> KernelCost | None:
    """The record in the text of an attribute; None if it is not one."""
    try:
        data = json.loads(text)
        limit = data["vmem_limit_bytes"]
        return KernelCost(
            name=str(data["name"])[:_TEXT_MAX],
            vmem_limit_bytes=None if limit is None else _number(limit),
            is_backward=data["is_backward"] is True,
            doubts=tuple(str(one)[:_TEXT_MAX] for one in data["doubts"]),
            **{name: _number(data[name]) for name in _NUMBERS},
        )
    except (ValueError, TypeError, KeyError):
        return None


def cost_estimate_of(name: str, config: Mapping[str, object]) -> KernelCost | None:
    """The author's estimate in the backend config of a `tpu_custom_call` (CustomCallBackendConfig
    in jax/_src/tpu_custom_call.py); None where there is none."""
    inner = config.get("custom_call_config")
    estimate = inner.get("cost_estimate") if isinstance(inner, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(estimate, Mapping):
        return None
    try:
        flops, nbytes = _number(estimate["flops"]), _number(estimate["bytes_accessed"])
        functions = _number(estimate.get("transcendentals", 0))
    except (ValueError, TypeError, KeyError):
        return None
    return KernelCost(name, flops, nbytes, flops, 0.0, functions)


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= _NUMBER_MAX:
        raise ValueError("figures of a kernel are between 0 and 1e24")
    return float(value)


_NUMBERS = (
    "flops",
    "hbm_bytes",
    "matrix_flops",
    "vector_operations",
    "transcendentals",
    "steps",
    "vmem_bytes",
    "causal_flops",
)
