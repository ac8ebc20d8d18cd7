"""The work of the kernels of flash attention that torch_xla calls, which are JAX's.

Source: jax/experimental/pallas/ops/tpu/flash_attention.py, with torch_xla's blocks. The forward
kernel's FLOPs, functions and bytes are those of its `cost_estimate`; all else is counted in the
bodies over the grids, as `kernels.kernel_body` counts them.
"""

from __future__ import annotations

import dataclasses

from podyard.base.kernel_cost import KernelCost
from podyard.programs.torch_graph.parallel import LANES

_WORD = 4  # bytes of a float32 or int32
_SUBLANES = 8
# Vector operations for a number of a causal mask: two positions, their comparison, the choice and
# its constant; where rows end in several blocks, the block's offset as well.
_MASK, _MASK_OF_BLOCK = 5, 6
# The running maximum and sum of a row over several blocks, by lane.
_ROW_UPDATES = 7


@dataclasses.dataclass(frozen=True, slots=True)
class AttentionShape:
    """Of one device. `bias_bytes`: of an element of what is added to the scores; 0: nothing is.
    `segments`: rows attend to their own."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    itemsize: int
    causal: bool
    scaled: bool = True
    bias_bytes: int = 0
    segments: bool = False

    @property
    def matrices(self) -> int:
        return self.batch * self.heads

    @property
    def is_low(self) -> bool:
        """Numbers are converted to float32 and back."""
        return self.itemsize < _WORD

    @property
    def score_operations(self) -> int:
        """Vector operations for each score, besides the usual ones: a bias is added; segments are
        compared, and the score is chosen."""
        return bool(self.bias_bytes) + 2 * self.segments

    @property
    def full_width(self) -> int:
        """In whole registers."""
        return -(-self.width // LANES) * LANES

    def scores(self, block_q: int, block_k: int) -> float:
        """Of all matrices, in the blocks that are visited."""
        return self.matrices * self.block_count(block_q, block_k) * block_q * block_k

    def causal_flops(self, products: int, block_q: int, block_k: int) -> float:
        """Of so many products with all scores, if there is a causal mask; else 0."""
        rows, columns = -(-self.queries // block_q), -(-self.keys // block_k)
        scores = self.matrices * rows * block_q * columns * block_k
        return 2.0 * products * scores * self.width * self.causal

    def block_count(self, block_q: int, block_k: int) -> int:
        """Blocks of a matrix; a causal mask leaves out those above the diagonal."""
        rows, columns = -(-self.queries // block_q), -(-self.keys // block_k)
        if not self.causal:
            return rows * columns
        return sum(min(columns, ((row + 1) * block_q - 1) // block_k + 1) for row in range(rows))

    def row_bytes(self, queries: int, keys: int, lanes: int) -> int:
        """Of a matrix: arrays of queries' size, of keys' size, and of a row's lanes."""
        long = self.width * self.itemsize
        return (queries * self.queries + keys * self.keys) * long + (
            lanes * self.queries * LANES * _WORD
        )


def forward_cost(shape: AttentionShape, keeps_rows: bool = True) -> KernelCost:
    """Queries, keys and values to the output; `keeps_rows`: to the rows' sums and maxima, too,
    for the gradient."""
    block_q, block_k = min(512, shape.queries), min(512, shape.keys)
    rows, columns = -(-shape.queries // block_q), -(-shape.keys // block_k)
    own = min(2, shape.batch)
    scores = float(shape.matrices * shape.queries * shape.keys)
    # Of a score: scaled, less the maximum, its power summed up and divided.
    each = 3 + shape.scaled + shape.is_low + shape.score_operations
    if columns == 1:
        vector = shape.scores(block_q, block_k) * (each + _MASK * shape.causal)
    else:
        each += _MASK_OF_BLOCK * shape.causal
        each_row = (_ROW_UPDATES * LANES + 3 * shape.width) / block_k
        vector = shape.scores(block_q, block_k) * (each + each_row)
    if shape.is_low:
        vector += shape.matrices * shape.queries * shape.width
    blocks = 2 * own * _block_bytes(shape, 2 * block_q, 2 * block_k, 2 * block_q * keeps_rows)
    blocks += 2 * own * _mask_bytes(shape, block_q, block_k)
    flops = scores * (4 * shape.width + 2 + shape.scaled + shape.causal + bool(shape.bias_bytes))
    flops += scores / shape.heads * shape.segments
    ids = shape.batch * shape.segments * _segment_bytes(shape.queries, shape.keys)
    scratch = own * block_q * (2 * LANES + shape.full_width) * _WORD if columns > 1 else 0
    return KernelCost(
        "_flash_attention_kernel",
        flops=flops,
        matrix_flops=flops,
        hbm_bytes=shape.matrices * shape.row_bytes(2, 2, 2 * keeps_rows)
        + scores * shape.bias_bytes
        + ids,
        vector_operations=vector,
        transcendentals=scores,
        steps=-(-shape.batch // own) * shape.heads * rows * columns,
        vmem_bytes=blocks + scratch,
        causal_flops=max(flops, shape.causal_flops(2, block_q, block_k)) * shape.causal,
    )


def keys_cost(shape: AttentionShape) -> KernelCost:
    """The gradients of keys and values: four products for each score."""
    block_q, block_k = min(512, shape.queries), min(512, shape.keys)
    rows, columns = -(-shape.queries // block_q), -(-shape.keys // block_k)
    scores = shape.scores(block_q, block_k)
    each = (
        6
        + 2 * shape.scaled
        + 2 * shape.is_low
        + _MASK_OF_BLOCK * shape.causal
        + shape.score_operations
    )
    vector = scores * (each + 2 * shape.width / block_k)
    if shape.is_low:
        vector += 2 * shape.matrices * shape.keys * shape.width
    steps = rows * columns
    # Queries' blocks above the diagonal are not fetched, but for the first one.
    fetches = shape.block_count(block_q, block_k) + columns - 1 if shape.causal else steps
    lanes = block_q * LANES * _WORD
    moved = 2 * block_q * shape.width * shape.itemsize + lanes
    nbytes = (
        min(fetches, steps) * moved
        + 2 * steps * lanes
        + shape.row_bytes(0, 4, 0)
        + shape.queries * shape.keys * shape.bias_bytes
    )
    return KernelCost(
        "_flash_attention_dkv_kernel",
        flops=8 * scores * shape.width,
        matrix_flops=8 * scores * shape.full_width,
        hbm_bytes=shape.matrices * nbytes
        + _segment_reads(shape, steps) * _segment_bytes(min(fetches, steps) * block_q, shape.keys),
        vector_operations=vector,
        transcendentals=scores * (1 + LANES / block_k),
        steps=shape.matrices * steps,
        vmem_bytes=2 * _block_bytes(shape, 2 * block_q, 4 * block_k, 3 * block_q)
        + 2 * _mask_bytes(shape, block_q, block_k)
        + 2 * block_k * shape.full_width * _WORD,
        causal_flops=shape.causal_flops(4, block_q, block_k),
        is_backward=True,
    )


def queries_cost(shape: AttentionShape) -> KernelCost:
    """The gradient of queries: three products for each score."""
    block_q, block_k = min(1024, shape.queries), min(512, shape.keys)
    inner = min(256, shape.keys)
    rows, columns = -(-shape.queries // block_q), -(-shape.keys // block_k)
    scores = shape.scores(block_q, block_k)
    each = (
        4 + 2 * shape.scaled + shape.is_low + _MASK_OF_BLOCK * shape.causal + shape.score_operations
    )
    vector = scores * (each + shape.width / inner)
    if shape.is_low:
        vector += shape.matrices * shape.queries * shape.width
    fetches = shape.block_count(block_q, block_k)
    nbytes = (
        shape.row_bytes(3, 0, 3)
        + 2 * fetches * block_k * shape.width * shape.itemsize
        # The bias is read, and its gradient is written.
        + 2 * shape.queries * shape.keys * shape.bias_bytes
    )
    return KernelCost(
        "_flash_attention_dq_kernel",
        flops=6 * scores * shape.width,
        matrix_flops=6 * scores * shape.full_width,
        hbm_bytes=shape.matrices * nbytes
        + _segment_reads(shape, rows * columns) * _segment_bytes(shape.queries, fetches * block_k),
        vector_operations=vector,
        transcendentals=scores * (1 + LANES / inner),
        steps=shape.matrices * rows * columns,
        vmem_bytes=2 * _block_bytes(shape, 3 * block_q, 2 * block_k, 3 * block_q)
        + 2 * _mask_bytes(shape, block_q, block_k)
        + 2 * block_q * block_k * shape.bias_bytes
        + block_q * shape.full_width * _WORD,
        causal_flops=shape.causal_flops(3, block_q, block_k),
        is_backward=True,
    )


def _block_bytes(shape: AttentionShape, queries: int, keys: int, lanes: int) -> int:
    """In VMEM: of rows of queries' and of keys' width, and of rows of lanes."""
    return (queries + keys) * shape.full_width * shape.itemsize + lanes * LANES * _WORD


def _mask_bytes(shape: AttentionShape, queries: int, keys: int) -> int:
    """In VMEM: of a block of the bias, and of its rows' and columns' segments."""
    return queries * keys * shape.bias_bytes + _segment_bytes(queries, keys) * shape.segments


def _segment_reads(shape: AttentionShape, steps: int) -> int:
    """Segments are those of a batch: one block of them stays from head to head."""
    return shape.segments * (shape.batch if steps == 1 else shape.matrices)


def _segment_bytes(queries: int, keys: int) -> int:
    """Of a batch: a query's number in each lane, a key's in each sublane."""
    return (queries * LANES + keys * _SUBLANES) * _WORD
