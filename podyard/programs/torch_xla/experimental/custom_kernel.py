"""torch_xla.experimental.custom_kernel: flash attention. PyTorch computes it; in the step's module
it is the kernels that a TPU runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch_xla import _spmd, _steps
from torch_xla._refusals import refusal
from torch_xla.distributed.spmd import get_global_mesh

from podyard.base.kernel_cost import KernelCost
from podyard.programs.torch_graph.flash_attention import (
    AttentionShape,
    forward_cost,
    keys_cost,
    queries_cost,
)
from podyard.programs.torch_graph.parallel import KernelCall
from podyard.programs.torch_graph.shardings import TensorSharding

_PLACEMENT = ("ab", "partition_spec", "mesh")
# As in JAX's kernel: masked scores are low, and a row without any other is a mean.
_MASKED = -0.7 * float(torch.finfo(torch.float32).max)


class FlashAttention(torch.autograd.Function):  # type: ignore[misc]
    MIN_BLOCK_SIZE = 128
    DEFAULT_MASK_VALUE = _MASKED
    NUM_LANES = 128
    NUM_SUBLANES = 8

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        """Takes the arguments of `flash_attention`, in their order."""
        q, k, v, causal, q_segment_ids, kv_segment_ids, sm_scale, ab, partition_spec, mesh = (
            arguments
        )
        if (q_segment_ids is None) != (kv_segment_ids is None):
            raise AssertionError(
                "Both q_segment_ids and kv_segment_ids should be provided: got one of them"
            )
        ctx.rule = _Rule(causal, q_segment_ids, kv_segment_ids, sm_scale)
        ctx.placement = _Placement(partition_spec, mesh)
        with _steps.pause() as recording:
            output = ctx.rule.attend(q, k, v, ab)
            sums, maxima = (q.new_empty(q.shape[:-1], dtype=torch.float32) for _ in range(2))
            if recording is not None:
                operands = [q, k, v, *_present(ab, q_segment_ids, kv_segment_ids)]
                keeps_rows = any(ctx.needs_input_grad)
                cost = forward_cost(ctx.placement.shape(ctx.rule, q, k, ab), keeps_rows)
                results = [output, sums, maxima] if keeps_rows else [output]
                rows = (1, 2) if keeps_rows else ()
                recording.note_kernel(
                    operands, results, ctx.placement.call(cost, operands, results, rows)
                )
        ctx.save_for_backward(q, k, v, ab, output, sums, maxima)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        q, k, v, ab, output, sums, maxima = ctx.saved_tensors
        deltas = (output.float() * gradient.float()).sum(dim=-1)
        with _steps.pause() as recording:
            gradients = ctx.rule.gradients(q, k, v, ab, gradient)
            if recording is not None:
                rest = _present(ab, ctx.rule.q_segments, ctx.rule.kv_segments)
                operands = [q, k, v, gradient, sums, maxima, deltas, *rest]
                shape = ctx.placement.shape(ctx.rule, q, k, ab)
                of_q, of_k, of_v, of_ab = gradients
                for cost, results in (
                    (keys_cost(shape), [of_k, of_v]),
                    (queries_cost(shape), [of_q, *_present(of_ab)]),
                ):
                    call = ctx.placement.call(cost, operands, results, ())
                    recording.note_kernel(operands, results, call)
        of_q, of_k, of_v, of_ab = gradients
        return of_q, of_k, of_v, None, None, None, None, of_ab, None, None


class _Rule:
    """The attention's mask and scale."""

    def __init__(self, causal: bool, q_segments: Any, kv_segments: Any, scale: float) -> None:
        self.causal = bool(causal)
        self.q_segments = q_segments
        self.kv_segments = kv_segments
        self.scale = float(scale)

    def attend(self, q: Any, k: Any, v: Any, ab: Any) -> Any:
        """In float32, as the kernel adds up."""
        mask = None if ab is None else ab.float()
        masked = []
        if self.q_segments is not None:
            masked.append(self.q_segments[:, None, :, None] != self.kv_segments[:, None, None])
        if self.causal and (mask is not None or masked):
            masked.append(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1))
        for one in masked:
            low = torch.zeros(one.shape).masked_fill(one, _MASKED)
            mask = low if mask is None else torch.clamp(mask + low, min=_MASKED)
        output = F.scaled_dot_product_attention(
            q.float(),
            k.float(),
            v.float(),
            attn_mask=mask,
            is_causal=self.causal and mask is None,
            scale=self.scale,
        )
        return output.to(q.dtype)

    def gradients(self, q: Any, k: Any, v: Any, ab: Any, gradient: Any) -> list[Any]:
        """Of queries, keys, values and the bias, from the values again."""
        with torch.enable_grad():
            leaves = [
                None if one is None else one.detach().requires_grad_() for one in (q, k, v, ab)
            ]
            output = self.attend(*leaves)
            gradients = iter(torch.autograd.grad(output, _present(*leaves), gradient))
        return [None if one is None else next(gradients) for one in leaves]


class _Placement:
    """The sharding of the operands; under SPMD without a spec, each device has all of them."""

    def __init__(self, partition_spec: Any, mesh: Any) -> None:
        self._sharding: TensorSharding | None = None
        if partition_spec is None:
            return
        _spmd.require()
        mesh = mesh or get_global_mesh()
        if mesh is None:
            raise ValueError("partition_spec needs a mesh: pass mesh=, or call set_global_mesh()")
        self._sharding = mesh.sharding(tuple(partition_spec))

    def shape(self, rule: _Rule, q: Any, k: Any, ab: Any) -> AttentionShape:
        """Of one device."""
        batch, heads, queries, width = tuple(q.shape)
        keys = k.shape[-2]
        if self._sharding is not None:
            batch, heads, queries, width = self._sharding.shard_shape(tuple(q.shape))
            keys = self._sharding.shard_shape(tuple(k.shape))[-2]
        return AttentionShape(
            batch,
            heads,
            queries,
            keys,
            width,
            q.element_size(),
            rule.causal,
            rule.scale != 1.0,
            0 if ab is None else ab.element_size(),
            rule.q_segments is not None,
        )

    def call(
        self,
        cost: KernelCost,
        operands: Sequence[Any],
        results: Sequence[Any],
        row_results: tuple[int, ...],
    ) -> KernelCall:
        rows = tuple(
            place
            for place, one in enumerate(operands)
            if one.dim() == 3 and one.is_floating_point()
        )
        types = tuple((tuple(one.shape), _steps.element(one)) for one in results)
        if self._sharding is None:
            return KernelCall(cost, types, rows, row_results)
        return KernelCall(
            cost,
            types,
            rows,
            row_results,
            tuple(self._of(one) for one in operands),
            tuple(self._of(one) for one in results),
        )

    def _of(self, tensor: Any) -> TensorSharding:
        """Operands have the axes of the queries' leading dimensions."""
        assert self._sharding is not None
        dims = self._sharding.dims
        return TensorSharding(
            self._sharding.mesh,
            # Segments have no heads.
            dims[:1] + dims[2:3] if tensor.dim() == 2 else dims[: tensor.dim()],
        )


def _present(*tensors: Any) -> list[Any]:
    return [one for one in tensors if one is not None]


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    q_segment_ids: torch.Tensor | None = None,
    kv_segment_ids: torch.Tensor | None = None,
    sm_scale: float = 1.0,
    **placement: Any,
) -> torch.Tensor:
    """Arrays are [batch, heads, length, width]. `placement`: `ab`, which is added to the scores;
    `partition_spec` of all arrays, over `mesh` or the global one."""
    ab, partition_spec, mesh = (placement.pop(name, None) for name in _PLACEMENT)
    if placement:
        raise TypeError(
            f"flash_attention() has no argument {', '.join(placement)}: it takes "
            f"{', '.join(_PLACEMENT)} by name"
        )
    output: torch.Tensor = FlashAttention.apply(
        q, k, v, causal, q_segment_ids, kv_segment_ids, sm_scale, ab, partition_spec, mesh
    )
    return output


def jax_import_guard() -> None:
    """JAX may be imported before torch_xla here."""


_INSTEAD = (
    "of torch_xla's kernels flash_attention is. Call PyTorch's own operations in its place, or "
    "write the program in JAX, whose Pallas kernels run here"
)
_NAME = "torch_xla.experimental.custom_kernel"
make_kernel_from_pallas = refusal(f"{_NAME}.make_kernel_from_pallas", _INSTEAD)
trace_pallas = refusal(f"{_NAME}.trace_pallas", _INSTEAD)
paged_attention = refusal(f"{_NAME}.paged_attention", _INSTEAD)
multi_queries_paged_attention = refusal(f"{_NAME}.multi_queries_paged_attention", _INSTEAD)
ragged_paged_attention = refusal(f"{_NAME}.ragged_paged_attention", _INSTEAD)
quantized_matmul_int8 = refusal(f"{_NAME}.quantized_matmul_int8", _INSTEAD)
gmm = refusal(f"{_NAME}.gmm", _INSTEAD)
tgmm = refusal(f"{_NAME}.tgmm", _INSTEAD)
