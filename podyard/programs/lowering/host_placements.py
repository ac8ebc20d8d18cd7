"""Copies between the memories of the device and of the host inside a program: JAX marks them in the
module for TPUs only."""

from __future__ import annotations

from typing import Any

from podyard.programs.jax_internals import dispatch, mlir


def keep_host_placements() -> None:
    """Mark the copies in modules for the TPU's backend, which are lowered for CPUs."""
    primitive, inner = dispatch.device_put_p, dispatch._common_device_put_lowering

    def lowering(ctx: Any, *args: Any, **params: Any) -> Any:
        backend = ctx.module_context.backend
        is_tpu = backend is not None and backend.platform == "tpu"
        rule = dispatch._tpu_gpu_device_put_lowering if is_tpu else inner
        return rule(ctx, *args, **params)

    mlir.register_lowering(primitive, lowering)
