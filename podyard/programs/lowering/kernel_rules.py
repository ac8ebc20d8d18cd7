"""Check Pallas kernels by the rules for TPUs when they are run by an interpreter."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from podyard.base.kernel_cost import KernelCost
from podyard.hardware.generation import Generation
from podyard.programs import jax_internals as internals

_MIB = 2**20
_SCOPED_LIMIT = re.compile(r"--xla_tpu_scoped_vmem_limit_kib=(\d+)")


def vmem_rejection(cost: KernelCost, generation: Generation) -> Exception | None:
    """Return the error of the TPU compiler for a kernel whose blocks and scratch are more than the
    VMEM that it may have (as libtpu 0.0.42 says it for kernels of f32 blocks on each generation).

    The limit is the cost's `vmem_limit_bytes`, else the generation's scoped limit; both in bytes.
    """
    default = None if generation.costs is None else generation.costs.scoped_vmem_bytes
    limit = cost.vmem_limit_bytes or default
    if limit is None or cost.vmem_bytes <= limit:
        return None
    used, room, over = (_size(size) for size in (cost.vmem_bytes, limit, cost.vmem_bytes - limit))
    if generation.name in ("v2", "v3", "v4"):
        text = (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            f"space vmem. Used {used} of {room} vmem. Exceeded vmem capacity by {over}."
        )
    else:
        text = (
            "RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:\nRan out of memory in memory "
            f"space vmem while allocating on stack for %{cost.name} = custom-call, "
            f'custom_call_target="tpu_custom_call". Scoped allocation with size {used} and limit '
            f"{room} exceeded scoped vmem limit by {over}."
        )
    error: Exception = internals.XlaRuntimeError(text)
    return error


def scoped_vmem_bytes() -> float | None:
    """Return the scoped limit that the user's flags for libtpu set for kernels without one; None:
    the generation's."""
    text = " ".join(os.environ.get(name, "") for name in ("LIBTPU_INIT_ARGS", "XLA_FLAGS"))
    limits = _SCOPED_LIMIT.findall(text)
    return 1024.0 * int(limits[-1]) if limits else None


def lowering_rejection(
    primitive: Any, params: Mapping[str, Any], avals: Sequence[Any]
) -> Exception | None:
    """Return the error with which JAX's own lowering for TPUs rejects a kernel, such as a block
    shape that is not a multiple of 8 x 128; None: it lowers it."""
    call = functools.partial(primitive.bind, **{**params, "interpret": False})
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    try:
        jax.jit(call).trace(*shapes).lower(lowering_platforms=("tpu",))
    except Exception as error:  # JAX has many kinds; each is what a program on a TPU would get
        return error
    return None


def _size(nbytes: float) -> str:
    """Spell a size as XLA does: `16.38M`, `384.0K`."""
    if nbytes >= _MIB:
        return f"{nbytes / _MIB:.2f}M"
    return f"{nbytes / 1024:.1f}K"
