"""TPU v3."""

from __future__ import annotations

import math

from podyard.hardware.cost_model import CostModel, Tiling
from podyard.hardware.generation import (
    AOT,
    BOOK,
    CLOUD_TPU,
    GIB,
    TORUS_2D_LINKS,
    TYPES,
    WIRE,
    Generation,
    Listing,
    Power,
)

_GDOC_V3 = "https://cloud.google.com/tpu/docs/v3"

GENERATION = Generation(
    name="v3",
    wire_type="V3",
    name_prefix="v3",
    cores_per_chip=2,
    devices_per_chip=2,
    name_counts="cores",
    dimensions=2,
    peak_bf16_flops_per_second=123_000_000_000_000,
    peak_int8_ops_per_second=None,
    hbm_bytes=32 * GIB,
    hbm_usable_bytes_per_device=round(15.48 * GIB),
    hbm_bytes_per_second=900_000_000_000,
    ici_link_bytes_per_second=100_000_000_000,
    ici_links_per_chip=4,
    clock_hz=940_000_000,
    mxu_rows=128,
    mxu_columns=128,
    mxu_count_per_core=2,
    pod_shape=(32, 32),
    shapes="2x2 4x4 4x8 8x8 8x16 16x16 16x32 32x32",
    shapes_source=TYPES,
    listing=Listing(CLOUD_TPU, "Tpu-v3", chips=4, pod_chips=5),
    quota_family="V3s",
    has_device_quota=True,
    machine_family="ct3-hightpu",
    maintenance_from_chips=None,
    runtime_family="tensorflow",
    runtime_version_default="tpu-ubuntu2204-base",
    usual_types=("v3-8", "v3-32"),
    costs=CostModel(
        tiling=Tiling(min_sublanes=2),
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
        hbm_usable_bytes=round(15.48 * GIB),
        result_table_bytes=1024,
    ),
    power=Power(
        idle=123.0, mean=220.0, busy=262.0, source="https://cloud.google.com/tpu/docs/v3: min/mean/max", verified=True
    ),
    sources={
        "wire_type": WIRE,
        "peak_bf16_flops_per_second": _GDOC_V3,
        "hbm_bytes": _GDOC_V3,
        "hbm_usable_bytes_per_device": AOT,
        "hbm_bytes_per_second": _GDOC_V3,
        "ici_link_bytes_per_second": BOOK + "; 656 Gb/s (82 GB/s) is also told, from memory",
        "ici_links_per_chip": TORUS_2D_LINKS,
        "clock_hz": "936.9 MHz implied by flops / optimal_seconds of a 4096^3 GEMM, " + AOT,
        "mxu_rows": AOT,
        "mxu_count_per_core": AOT,
        "cores_per_chip": AOT,
        "pod_shape": _GDOC_V3,
    },
)
