"""The work of torch_xla's flash attention, against JAX's kernels: it calls those."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from podyard.base.kernel_cost import KernelCost
from podyard.programs.kernels.kernel_body import kernel_cost
from podyard.programs.kernels.kernel_uses import kernel_uses
from podyard.programs.torch_graph.flash_attention import (
    AttentionShape,
    forward_cost,
    keys_cost,
    queries_cost,
)

jax: Any = pytest.importorskip("jax", reason="kernels are traced by JAX")
flash: Any = pytest.importorskip("jax.experimental.pallas.ops.tpu.flash_attention")
# torch_xla/experimental/custom_kernel.py, FlashAttention.DEFAULT_BLOCK_SIZES
BLOCKS = {
    **dict.fromkeys(("block_q", "block_k_major", "block_k", "block_q_major_dkv"), 512),
    **dict.fromkeys(("block_k_major_dkv", "block_q_dkv", "block_k_dkv", "block_k_major_dq"), 512),
    "block_q_dq": 1024,
    "block_k_dq": 256,
}


def _calls(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            yield equation.params
            continue
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _calls(inner)


def _traced(shape: AttentionShape, differentiates: bool = True) -> list[KernelCost]:
    """JAX's kernels, in the order of their calls."""
    sizes = {name: min(size, shape.queries) for name, size in BLOCKS.items()}
    blocks = flash.BlockSizes(block_b=min(2, shape.batch), **sizes)

    numbers = jax.numpy.zeros((shape.batch, shape.queries), int)

    def attend(*arrays: Any) -> Any:
        output = flash.flash_attention(
            *arrays,
            segment_ids=flash.SegmentIds(numbers, numbers) if shape.segments else None,
            causal=shape.causal,
            sm_scale=0.1 if shape.scaled else 1.0,
            block_sizes=blocks,
        )
        return output.astype(jax.numpy.float32).sum()

    dtype = jax.numpy.float32 if shape.itemsize == 4 else jax.numpy.bfloat16
    size = (shape.batch, shape.heads, shape.queries, shape.width)
    arrays = [jax.ShapeDtypeStruct(size, dtype)] * 3
    if shape.bias_bytes:
        arrays.append(jax.ShapeDtypeStruct((*size[:3], shape.queries), jax.numpy.float32))
    function = jax.grad(attend, argnums=(0, 1, 2)) if differentiates else attend
    names = ("_flash_attention_kernel", "_flash_attention_dkv_kernel", "_flash_attention_dq_kernel")
    program = jax.make_jaxpr(function)(*arrays)
    uses, calls = kernel_uses(program), _calls(program.jaxpr)
    return [
        kernel_cost(name, params, uses[id(params["jaxpr"])])
        for name, params in zip(names, calls, strict=False)
    ]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize(
    ("batch", "length", "width"), [(2, 256, 128), (2, 512, 128), (1, 2048, 256), (4, 4096, 64)]
)
def test_each_kernel_has_the_work_of_jax_s(
    batch: int, length: int, width: int, itemsize: int, causal: bool, scaled: bool
) -> None:
    shape = AttentionShape(batch, 3, length, length, width, itemsize, causal, scaled)
    expected = _traced(shape)
    own = [forward_cost(shape), keys_cost(shape), queries_cost(shape)]
    for one, other in zip(own, expected, strict=True):
        assert dataclasses.asdict(one) == pytest.approx(dataclasses.asdict(other), rel=1e-6)


def test_without_a_gradient_rows_are_not_written() -> None:
    shape = AttentionShape(2, 3, 2048, 2048, 128, 2, causal=True)
    (expected,) = _traced(shape, differentiates=False)
    assert forward_cost(shape, keeps_rows=False).hbm_bytes == expected.hbm_bytes


@pytest.mark.parametrize("length", [512, 2048])
@pytest.mark.parametrize(("bias_bytes", "segments"), [(4, False), (0, True), (4, True)])
def test_a_bias_and_segments_are_counted(length: int, bias_bytes: int, segments: bool) -> None:
    shape = AttentionShape(2, 3, length, length, 128, 2, True, True, bias_bytes, segments)
    own = [forward_cost(shape), keys_cost(shape), queries_cost(shape)]
    for one, other in zip(own, _traced(shape), strict=True):
        assert dataclasses.asdict(one) == pytest.approx(dataclasses.asdict(other), rel=1e-6)
