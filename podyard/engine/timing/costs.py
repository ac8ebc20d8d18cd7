"""The constants of the timing model, one set per generation, with where they come from.

`fitted`: fitted on matrix products and element-wise programs that the TPU compiler (libtpu) compiled ahead of time,
over random shapes; how to repeat it is in docs/internals/engine.md. No constant belongs to a model, a case or a shape.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType

from podyard.base.errors import invalid
from podyard.engine.timing.layout import Tiling


@dataclasses.dataclass(frozen=True, slots=True)
class CostModel:
    """One device (a core on v2 and v3, a chip from v4 on). Times in cycles of `clock_hz`.

    A kernel works through its operands window by window. Its time is
    `kernel_cycles + window_cycles * windows + first window in + last window out + max(compute, traffic)
    + exposed_share * min(compute, traffic) / windows`.
    Results of 2 bytes are computed in 4 and converted: they cost `narrow_result_factor` times their bytes.
    Operands of up to `prefetch_bytes` are already on the chip when a matrix kernel starts (from v4 on).
    """

    tiling: Tiling
    clock_hz: float
    mxu_edge: int
    mxu_count: int
    # What traffic costs in the compiler's cycles; `hbm_bytes_per_second` is the bandwidth that a step cannot exceed.
    bytes_per_cycle: float
    hbm_bytes_per_second: float
    narrow_result_factor: float
    # A weight tile that is streamed through for fewer rows than this still takes as long as this many.
    weight_load_rows: float
    matrix_kernel_cycles: float
    matrix_window_cycles: float
    exposed_share: float
    mxu_stretch: float
    window_bytes: float
    prefetch_bytes: float
    # What stays on the chip between two kernels (up to `prefetch_bytes`) moves at this rate; a kernel that touches
    # nothing else has this fixed cost. Infinite where results always go out.
    near_bytes_per_cycle: float
    near_kernel_cycles: float
    vector_kernel_cycles: float
    vector_window_cycles: float
    # One arithmetic instruction on one tile of 8 x 128 numbers; moving a tile through the transpose unit.
    vector_cycles_per_tile: float
    transpose_cycles_per_tile: float
    hbm_usable_bytes: int
    # Several results come with a table of their addresses, in pieces of this size.
    result_table_bytes: int


_GIB = 2**30
_PACKED = Tiling(min_sublanes=2)
_SINGLE = Tiling(min_sublanes=1)

COSTS: Mapping[str, CostModel] = MappingProxyType(
    {
        "v2": CostModel(
            tiling=_PACKED,
            clock_hz=700e6,
            mxu_edge=128,
            mxu_count=1,
            bytes_per_cycle=452.6,
            hbm_bytes_per_second=316.8e9,
            narrow_result_factor=3.0,
            weight_load_rows=124,
            matrix_kernel_cycles=285,
            matrix_window_cycles=494,
            exposed_share=0.84,
            mxu_stretch=0.976,
            window_bytes=9.3e6,
            prefetch_bytes=0,
            near_bytes_per_cycle=math.inf,
            near_kernel_cycles=math.inf,
            vector_kernel_cycles=60,
            vector_window_cycles=310,
            vector_cycles_per_tile=0.65,
            transpose_cycles_per_tile=21.8,
            hbm_usable_bytes=round(7.48 * _GIB),
            result_table_bytes=1024,
        ),
        "v3": CostModel(
            tiling=_PACKED,
            clock_hz=940e6,
            mxu_edge=128,
            mxu_count=2,
            bytes_per_cycle=451.0,
            hbm_bytes_per_second=429.5e9,
            narrow_result_factor=3.0,
            weight_load_rows=128,
            matrix_kernel_cycles=400,
            matrix_window_cycles=543,
            exposed_share=1.0,
            mxu_stretch=0.979,
            window_bytes=10.8e6,
            prefetch_bytes=0,
            near_bytes_per_cycle=math.inf,
            near_kernel_cycles=math.inf,
            vector_kernel_cycles=60,
            vector_window_cycles=310,
            vector_cycles_per_tile=0.65,
            transpose_cycles_per_tile=21.8,
            hbm_usable_bytes=round(15.48 * _GIB),
            result_table_bytes=1024,
        ),
        "v4": CostModel(
            tiling=_SINGLE,
            clock_hz=1050e6,
            mxu_edge=128,
            mxu_count=8,
            bytes_per_cycle=857.6,
            hbm_bytes_per_second=982.5e9,
            narrow_result_factor=2.83,
            weight_load_rows=54,
            matrix_kernel_cycles=1180,
            matrix_window_cycles=272,
            exposed_share=1.0,
            mxu_stretch=1.062,
            window_bytes=14.3e6,
            prefetch_bytes=128e6,
            near_bytes_per_cycle=1024,
            near_kernel_cycles=500,
            vector_kernel_cycles=570,
            vector_window_cycles=35,
            vector_cycles_per_tile=0.33,
            transpose_cycles_per_tile=10.9,
            hbm_usable_bytes=round(30.75 * _GIB),
            result_table_bytes=512,
        ),
        "v5e": CostModel(
            tiling=_SINGLE,
            clock_hz=1500e6,
            mxu_edge=128,
            mxu_count=4,
            bytes_per_cycle=411.8,
            hbm_bytes_per_second=737.7e9,
            narrow_result_factor=2.78,
            weight_load_rows=30.6,
            matrix_kernel_cycles=3714,
            matrix_window_cycles=187,
            exposed_share=0.29,
            mxu_stretch=1.004,
            window_bytes=15.8e6,
            prefetch_bytes=116e6,
            near_bytes_per_cycle=512,
            near_kernel_cycles=200,
            vector_kernel_cycles=1850,
            vector_window_cycles=120,
            vector_cycles_per_tile=0.5,
            transpose_cycles_per_tile=16.0,
            hbm_usable_bytes=round(15.75 * _GIB),
            result_table_bytes=512,
        ),
        "v5p": CostModel(
            tiling=_SINGLE,
            clock_hz=1750e6,
            mxu_edge=128,
            mxu_count=8,
            bytes_per_cycle=1053.0,
            hbm_bytes_per_second=2488.5e9,
            narrow_result_factor=2.73,
            weight_load_rows=30.3,
            matrix_kernel_cycles=4000,
            matrix_window_cycles=493,
            exposed_share=0.82,
            mxu_stretch=1.0,
            window_bytes=35e6,
            prefetch_bytes=50e6,
            near_bytes_per_cycle=math.inf,
            near_kernel_cycles=math.inf,
            vector_kernel_cycles=1880,
            vector_window_cycles=120,
            vector_cycles_per_tile=0.33,
            transpose_cycles_per_tile=10.9,
            hbm_usable_bytes=round(95 * _GIB),
            result_table_bytes=32,
        ),
        "v6e": CostModel(
            tiling=_SINGLE,
            clock_hz=1750e6,
            mxu_edge=256,
            mxu_count=4,
            bytes_per_cycle=859.3,
            hbm_bytes_per_second=1476e9,
            narrow_result_factor=3.0,
            weight_load_rows=110,
            matrix_kernel_cycles=3970,
            matrix_window_cycles=376,
            exposed_share=0.88,
            mxu_stretch=1.105,
            window_bytes=24.5e6,
            prefetch_bytes=100e6,
            near_bytes_per_cycle=1024,
            near_kernel_cycles=800,
            vector_kernel_cycles=2000,
            vector_window_cycles=120,
            vector_cycles_per_tile=0.33,
            transpose_cycles_per_tile=10.9,
            hbm_usable_bytes=round(31.24 * _GIB),
            result_table_bytes=32,
        ),
    }
)


def cost_model(generation: str) -> CostModel:
    """Raises PodyardError INVALID_ARGUMENT for a generation that is not modelled."""
    if generation not in COSTS:
        raise invalid(f"no timing model for {generation!r}; there are: {', '.join(COSTS)}", "accelerator_type")
    return COSTS[generation]
