"""TPU v5p."""

from __future__ import annotations

import math

from podyard.hardware.cost_model import CostModel, Tiling
from podyard.hardware.generation import (
    AOT,
    BOOK,
    COMPUTE_ENGINE,
    GIB,
    RUNTIMES,
    TORUS_3D_LINKS,
    TYPES,
    UNVERIFIED,
    WIRE,
    Generation,
    HostMachine,
    Listing,
    StepError,
)

_GDOC_V5P = "https://cloud.google.com/tpu/docs/v5p-training"
# The default shape per size: xpk's list, which is the most cube-like factorisation into whole
# cubes.
_SHAPES = """
    2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x4x12 4x8x8 4x4x20 4x8x12 4x4x28 8x8x8 4x12x12 4x8x20 4x4x44 8x8x12
    4x4x52 4x8x28 4x12x20 8x8x16 4x4x68 8x12x12 4x4x76 8x8x20 4x12x28 4x8x44 4x4x92 8x12x16 4x20x20 4x8x52
    12x12x12 8x8x28 4x4x116 8x12x20 4x4x124 8x16x16 4x12x44 4x8x68 4x20x28 12x12x16 4x4x148 4x8x76 4x12x52
    8x16x20 4x4x164 8x12x28 4x4x172 8x8x44 12x12x20 4x8x92 4x4x188 12x16x16 4x28x28 8x20x20 4x12x68 8x8x52
    4x4x212 12x12x24 4x20x44 8x16x28 4x12x76 4x8x116 4x4x236 12x16x20 4x4x244 4x8x124 12x12x28 16x16x16 4x20x52
    8x12x44 8x8x68 4x12x92 8x20x28 12x16x24 4x8x148 12x20x20 8x8x76 4x28x44 8x12x52 16x16x20 12x12x36 4x8x164
    12x16x28 4x20x68 4x8x172 4x12x116 8x16x44 12x20x24 4x28x52 8x8x92 4x12x124 4x8x188 4x20x76 16x16x24 12x24x24
    16x20x28
"""  # noqa: E501

GENERATION = Generation(
    name="v5p",
    wire_type="V5P",
    name_prefix="v5p",
    cores_per_chip=2,
    devices_per_chip=1,
    name_counts="cores",
    dimensions=3,
    peak_bf16_flops_per_second=459_000_000_000_000,
    peak_int8_ops_per_second=None,
    hbm_bytes=95 * GIB,
    hbm_usable_bytes_per_device=94 * GIB,
    hbm_bytes_per_second=2_765_000_000_000,
    ici_link_bytes_per_second=90_000_000_000,
    ici_links_per_chip=6,
    clock_hz=1_750_000_000,
    mxu_rows=128,
    mxu_columns=128,
    mxu_count_per_core=4,
    pod_shape=(16, 20, 28),
    shapes=_SHAPES,
    shapes_source="xpk@367c838 default shapes",
    cubes_max=140,
    listing=Listing(COMPUTE_ENGINE, "TpuV5p", chips=1),
    quota_family="V5Ps",
    machine_family="ct5p-hightpu",
    image_base="ubuntu-accel-2204-amd64-tpu",
    machines=(HostMachine(4, 208, 448, _GDOC_V5P),),
    maintenance_from_chips=1,
    runtime_family="pjrt",
    runtime_version_default="v2-alpha-tpuv5",
    runtime_versions={"v2-alpha-tpuv5": RUNTIMES},
    usual_types=("v5p-8",),
    costs=CostModel(
        tiling=Tiling(min_sublanes=1),
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
        ring_rows=640,
        prefetch_bytes=48 * 2**20,
        sparse_core_table_bytes=50e6,
        results_stay=False,
        near_kernel_cycles=math.inf,
        near_read_share=1,
        near_write_share=0,
        near_narrow_share=1,
        vector_kernel_cycles=2050,
        vector_window_cycles=120,
        single_window_cycles=1100,
        vector_cycles_per_tile=0.33,
        transpose_cycles_per_tile=10.9,
        own_tap_cycles=0.18,
        own_lanes_cycles=2,
        own_reads_before=True,
        reverse_cycles_per_tile=14.4,
        hbm_usable_bytes=round(95 * GIB),
        own_softmax=True,
        result_table_bytes=32,
        narrow_rate=2,
        keeps_costly=True,
        kept_window_cycles=2500,
        sum_window_cycles=1300,
        large_sum_bytes=2**23,
        vector_cores=2,
    ),
    dcn_bytes_per_second=6.25e9,
    step_error=StepError(10, 0.97, 1.35),
    has_short_all_reduce=True,
    jax_kind="TPU v5",
    sources={
        "jax_kind": AOT,
        "step_error": "python -m benchmarks.published",
        "dcn_bytes_per_second": "docs.cloud.google.com/tpu/docs/v5p-training: 50 Gbps a chip",
        "wire_type": WIRE,
        "peak_bf16_flops_per_second": _GDOC_V5P,
        "hbm_bytes": _GDOC_V5P,
        "hbm_usable_bytes_per_device": "more than 94 GiB were accepted, " + AOT,
        "hbm_bytes_per_second": _GDOC_V5P,
        "ici_link_bytes_per_second": BOOK,
        "ici_links_per_chip": TORUS_3D_LINKS,
        "clock_hz": UNVERIFIED + "; it fits the published peak",
        "mxu_rows": AOT,
        "mxu_count_per_core": "8 per device, " + AOT,
        "cores_per_chip": TYPES,
        "pod_shape": "8960 chips: "
        + _GDOC_V5P
        + "; 16x20x28 is the shape xpk@367c838 gives 8960 chips",
    },
)
