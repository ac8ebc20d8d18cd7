"""The constants of the timing model of one generation.

They are fitted on matrix products and element-wise programs that the TPU compiler (libtpu) compiled
ahead of time, over random shapes; docs/internals/engine.md says how to repeat it. No constant
belongs to a model, a case or a shape.
"""

from __future__ import annotations

import dataclasses
import math

SUBLANES = 8  # rows of a tile of 4-byte words


@dataclasses.dataclass(frozen=True, slots=True)
class Tiling:
    """The smallest tile of 4-byte words that a generation uses: 2 sublanes on v2 and v3, 1 from v4
    on."""

    min_sublanes: int

    def sublanes(self, extent: int, itemsize: float) -> int:
        """The rows of a tile along an axis of `extent`: a power of two up to 8; narrow types pack 4
        // itemsize rows into a word."""
        smallest = self.min_sublanes * max(1, int(4 // max(itemsize, 1)))
        rows = smallest
        while rows < min(extent, SUBLANES):
            rows *= 2
        return rows


@dataclasses.dataclass(frozen=True, slots=True)
class CostModel:
    """One device (a core on v2 and v3, a chip from v4 on). Times in cycles of `clock_hz`.

    A kernel works through its operands window by window. Its time is
    `kernel_cycles + window_cycles * windows + first window in + last window out + max(compute,
    traffic)
    + exposed_share * min(compute, traffic) / windows`.
    Results of 2 bytes are computed in 4 and converted: they cost `narrow_result_factor` times their
    bytes.
    Operands of up to `prefetch_bytes` are already on the chip when a matrix kernel starts (from v4
    on).
    """

    tiling: Tiling
    clock_hz: float
    mxu_edge: int
    mxu_count: int
    # What traffic costs in the compiler's cycles; `hbm_bytes_per_second` is the bandwidth that a
    # step cannot exceed.
    bytes_per_cycle: float
    hbm_bytes_per_second: float
    narrow_result_factor: float
    # A weight tile that is streamed through for fewer rows than this still takes as long as this
    # many.
    weight_load_rows: float
    matrix_kernel_cycles: float
    matrix_window_cycles: float
    exposed_share: float
    mxu_stretch: float
    window_bytes: float
    # Room on the chip for copies and for what stays. v6e has 96 of 128 MiB and v5p 48 of 64; the
    # rest is for kernels. On v4 and v5e it was fitted, a little below 128 and 112 MiB
    # (docs/internals/engine-corpus.md has what was tried).
    prefetch_bytes: float
    # Whether what is small enough stays on the chip between two kernels; a product that touches
    # nothing else has this fixed cost.
    results_stay: bool
    near_kernel_cycles: float
    # What a kernel without a matrix product reads and writes on the chip, as a share of what it
    # costs elsewhere.
    near_read_share: float
    near_write_share: float
    # Of the pass in 4 bytes that narrow results take, the share where a matrix product leaves them
    # on the chip.
    near_narrow_share: float
    vector_kernel_cycles: float
    vector_window_cycles: float
    # What each window of a kernel of one operation takes besides its traffic.
    single_window_cycles: float
    # One arithmetic instruction on one tile of 8 x 128 numbers; moving a tile through the transpose
    # unit.
    vector_cycles_per_tile: float
    transpose_cycles_per_tile: float
    hbm_usable_bytes: int
    # Several results come with a table of their addresses, in pieces of this size.
    result_table_bytes: int
    # Whether the compiler has a custom kernel for the softmax and the second product of an
    # attention.
    own_softmax: bool = False
    # Whether what takes functions (exponentials) is written once where several products multiply
    # it; else each of them works it out again. (Compiled gates and attentions with gradients.)
    keeps_costly: bool = False
    # From so many multiplications for each number that is sent on, products are worked out around a
    # ring of devices (compiled steps: 512 not, 768 do; on the newest generation 1024 not, 1280 do);
    # 0 where they never are.
    ring_rows: int = 0
    # Of scattered sums that are joined: see `Links.joined_bytes`. All compiled slices had 14.94 to
    # 15.07 MB, and 30.80 to 30.87 MB on the newest generation.
    joined_sum_bytes: float = 15e6
    # Of a product and the element-wise work next to it, the share of the shorter one that is not
    # hidden. (24 compiled products on the newest generation: one more exponential takes 0.75 cycles
    # a tile, however long the product is.)
    unhidden_share: float = 0.0
    # An instruction of what is done to the operands of a product, for each tile, where the matrix
    # units wait for that. (15 compiled products on v4.)
    before_product_cycles: float = 0.0
    # Whether loading a small weight tile takes as long as its rows, next to what is streamed, and
    # not as a whole one.
    loads_used_rows: bool = False
    # Whether gathers and permutations run next to kernels, which are put in another order for it.
    # (Compiled schedules. Other generations have no gathers that do. v5p and v6e leave orders as
    # they are, but for a few kernels; v4 was seen to change that of a loop with a permutation,
    # which the model does not.)
    hides_gathers: bool = False
    # Whether images of few features are priced as converted first, then copied on the chip.
    converts_images: bool = False
    # The same of images that are cut into patches; other windows were not seen to be.
    converts_patches: bool = False
    # The same of a dilated convolution, whose weights change at every position; 0 where it takes as
    # many.
    changed_load_rows: float = 0.0
    # A convolution of each feature by itself, features in lanes: cycles of one core for each tap of
    # a tile.
    each_tap_cycles: float = 2.05
    # Products of many vectors with an array each: cycles of a tile on the vector unit besides what
    # is read of it, where the lanes are summed up, and where the vector is spread over them; and
    # cycles of one on the matrix unit. 0 where that was not seen. (29 compiled steps of one token
    # on the newest generation, 13 on v5e, 6 on v4.)
    vectors_summed_cycles: float = 0.0
    vectors_spread_cycles: float = 0.0
    vectors_multiplied_cycles: float = 0.0
    # The gradient of its kernel: cycles for each tap of a tile where features lie in lanes (from
    # v5e on of rows in pairs), and there for a tile of the image where examples do. Whether what
    # comes from HBM is read before, and of a kernel's fixed cost, what this one has. (50 compiled
    # gradients on v4 and later.)
    own_tap_cycles: float = 0.0
    own_lanes_cycles: float = 0.0
    own_reads_before: bool = False
    own_fixed_share: float = 1.0
    # The start of each window of a product that sums up its result, and of a sum of more than
    # `large_sum_bytes` without a product; 0 where that is hidden. (Scores with their maxima and
    # sums of exponentials in ten compiled attentions.)
    kept_window_cycles: float = 0.0
    sum_window_cycles: float = 0.0
    large_sum_bytes: float = math.inf
    # Two where a chip is one device of two cores.
    vector_cores: int = 1
    # A tile of images that a convolution puts together of rows, or of its result; 0 where it was
    # not seen.
    row_cycles_per_tile: float = 0.0
    # Tables from this size on are turned by SparseCores. (Compiled: on v5p of 41 MB by the core,
    # of 64 MB by those; on v6e of 64 and 128 MB.)
    sparse_core_table_bytes: float = math.inf
    # Where taps of few features share a pass: moving a register of images to the lanes of its tap,
    # and for each feature that it has; 0 where that is hidden, or was not seen.
    packing_cycles: float = 0.0
    packing_feature_cycles: float = 0.0
    # The gradient of a kernel over large images of few examples, for 256 features of those: a place
    # of an image, and one of what comes back; 0 where it was not seen. (Eight compiled on v4.)
    large_image_cycles: float = 0.0
    large_window_cycles: float = 0.0
    # Turning an array around that a convolution has written, for each of its tiles (15 compiled on
    # v3 and on v5e).
    reverse_cycles_per_tile: float = 20.0
    # Whether the gradient of a matrix that multiplies an argument lies turned, and all that is
    # updated with it is turned and turned back. (20 compiled steps of perceptrons on the newest
    # generation; none of 3 on v5e.)
    turns_updates: bool = False
    # A number of each row that lies in lanes (a mean) and is spread over its row: cycles of a row.
    # (42 compiled kernels on the newest generation and v5e.)
    row_spread_cycles: float = 0.0
    # What no kernel touches for so many cycles leaves the chip for HBM, and is fetched again. (155
    # values of two compiled steps on the newest generation: all up to 690,787 cycles stay, none
    # from 719,483 on, of any size.)
    stays_cycles: float = math.inf
    # How many times as fast as bfloat16 the matrix units multiply integers of 8 bits and f8e5m2
    # (compiled products of 512 to 4096 rows; int8 as published for v5e).
    narrow_rate: float = 1
    # Whether weights with heads as a middle axis are converted before, and what is updated with
    # them copied back.
    copies_heads: bool = False
    # VMEM that one kernel may have unless it asks for more (XLA's flag
    # xla_tpu_scoped_vmem_limit_kib).
    scoped_vmem_bytes: int = 16 * 2**20
    # Whether sums of one collective have the room on the chip that all others leave. (Compiled
    # steps on v4.)
    sums_last: bool = False

    @property
    def keeps_for_nothing(self) -> bool:
        """Return whether results stay on the chip, and writing them there takes no time."""
        return self.results_stay and not self.near_write_share
