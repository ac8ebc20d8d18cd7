"""TPU generations: every number with its source.

Peak, memory and bandwidth are per chip; link bandwidth is one direction of one link. A source that says "unverified"
was written down from memory and never checked against a document. Where a number can be checked against another one
(peak = 2 x rows x columns x arrays x clock), tests/unit/hardware does it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

GIB = 2**30

_AOT = "libtpu 0.0.51, ahead-of-time compile"
_BOOK = "jax-ml/scaling-book:tpus.md@0819a7d"
_GDOC_V3 = "https://cloud.google.com/tpu/docs/v3"
_GDOC_V4 = "https://cloud.google.com/tpu/docs/v4"
_GDOC_V5E = "https://docs.cloud.google.com/tpu/docs/v5e"
_GDOC_V5P = "https://cloud.google.com/tpu/docs/v5p-training"
_TYPES = "https://cloud.google.com/tpu/docs/types-topologies"
_WIRE = "google.cloud.tpu.v2 AcceleratorConfig.Type (google-cloud-tpu 1.28.0)"
_UNVERIFIED = "from memory, unverified"
_PAPER_V1 = "abstract of arXiv 1704.04760"
_TORUS_2D_LINKS = "2D torus: two neighbours per dimension"
_TORUS_3D_LINKS = "3D torus: two neighbours per dimension"


@dataclasses.dataclass(frozen=True, slots=True)
class Generation:
    """One TPU generation.

    `name_counts` says what the number in an accelerator type's name counts. `devices_per_chip` is what JAX calls a
    device. `hbm_usable_bytes_per_device` is what the real compiler lets one program use. `node_type` is False where
    Cloud TPU never offered the generation as a node (v1): only the engine knows it.
    """

    name: str
    wire_type: str | None
    name_prefix: str
    cores_per_chip: int
    devices_per_chip: int
    name_counts: Literal["cores", "chips"]
    dimensions: Literal[2, 3]
    peak_bf16_flops_per_second: int
    peak_int8_ops_per_second: int | None
    hbm_bytes: int
    hbm_usable_bytes_per_device: int
    hbm_bytes_per_second: int
    ici_link_bytes_per_second: int
    ici_links_per_chip: int
    clock_hz: int
    mxu_rows: int
    mxu_columns: int
    mxu_count_per_core: int
    pod_shape: tuple[int, ...]
    sources: Mapping[str, str]
    node_type: bool = True


V1 = Generation(
    name="v1",
    wire_type=None,
    name_prefix="v1",
    cores_per_chip=1,
    devices_per_chip=1,
    name_counts="chips",
    dimensions=2,
    peak_bf16_flops_per_second=0,
    peak_int8_ops_per_second=92_000_000_000_000,
    hbm_bytes=8 * GIB,
    hbm_usable_bytes_per_device=8 * GIB,
    hbm_bytes_per_second=34_000_000_000,
    ici_link_bytes_per_second=0,
    ici_links_per_chip=0,
    clock_hz=700_000_000,
    mxu_rows=256,
    mxu_columns=256,
    mxu_count_per_core=1,
    pod_shape=(1, 1),
    sources={
        "peak_bf16_flops_per_second": "no floating point: int8 x int8 -> int32 only; " + _PAPER_V1,
        "peak_int8_ops_per_second": _PAPER_V1,
        "hbm_bytes": "8 GiB DDR3 weight memory; " + _UNVERIFIED,
        "hbm_usable_bytes_per_device": "taken as all of the weight memory; unverified",
        "hbm_bytes_per_second": _UNVERIFIED,
        "ici_link_bytes_per_second": "no chip interconnect; " + _UNVERIFIED,
        "clock_hz": _UNVERIFIED,
        "mxu_rows": "65,536 multipliers: " + _PAPER_V1,
    },
    node_type=False,
)

V2 = Generation(
    name="v2",
    wire_type="V2",
    name_prefix="v2",
    cores_per_chip=2,
    devices_per_chip=2,
    name_counts="cores",
    dimensions=2,
    peak_bf16_flops_per_second=46_000_000_000_000,
    peak_int8_ops_per_second=None,
    hbm_bytes=16 * GIB,
    hbm_usable_bytes_per_device=round(7.48 * GIB),
    hbm_bytes_per_second=700_000_000_000,
    ici_link_bytes_per_second=62_000_000_000,
    ici_links_per_chip=4,
    clock_hz=700_000_000,
    mxu_rows=128,
    mxu_columns=128,
    mxu_count_per_core=1,
    pod_shape=(16, 16),
    sources={
        "wire_type": _WIRE,
        "peak_bf16_flops_per_second": "45.9e12 = 2 x 128 x 128 x 2 x clock; published as 46, " + _UNVERIFIED,
        "hbm_bytes": _UNVERIFIED,
        "hbm_usable_bytes_per_device": _AOT,
        "hbm_bytes_per_second": _UNVERIFIED + "; the compiler's cost model uses 316.8 GB/s per core",
        "ici_link_bytes_per_second": "496 Gb/s per link, " + _UNVERIFIED,
        "ici_links_per_chip": _TORUS_2D_LINKS,
        "clock_hz": "695.8 MHz implied by flops / optimal_seconds of a 4096^3 GEMM, " + _AOT,
        "mxu_rows": _AOT,
        "mxu_count_per_core": _AOT,
        "cores_per_chip": _AOT,
        "pod_shape": _TYPES,
    },
)

V3 = Generation(
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
    sources={
        "wire_type": _WIRE,
        "peak_bf16_flops_per_second": _GDOC_V3,
        "hbm_bytes": _GDOC_V3,
        "hbm_usable_bytes_per_device": _AOT,
        "hbm_bytes_per_second": _GDOC_V3,
        "ici_link_bytes_per_second": _BOOK + "; 656 Gb/s (82 GB/s) is also told, from memory",
        "ici_links_per_chip": _TORUS_2D_LINKS,
        "clock_hz": "936.9 MHz implied by flops / optimal_seconds of a 4096^3 GEMM, " + _AOT,
        "mxu_rows": _AOT,
        "mxu_count_per_core": _AOT,
        "cores_per_chip": _AOT,
        "pod_shape": _GDOC_V3,
    },
)

V4 = Generation(
    name="v4",
    wire_type="V4",
    name_prefix="v4",
    cores_per_chip=2,
    devices_per_chip=1,
    name_counts="cores",
    dimensions=3,
    peak_bf16_flops_per_second=275_000_000_000_000,
    peak_int8_ops_per_second=None,
    hbm_bytes=32 * GIB,
    hbm_usable_bytes_per_device=round(30.75 * GIB),
    hbm_bytes_per_second=1_200_000_000_000,
    ici_link_bytes_per_second=45_000_000_000,
    ici_links_per_chip=6,
    clock_hz=1_050_000_000,
    mxu_rows=128,
    mxu_columns=128,
    mxu_count_per_core=4,
    pod_shape=(16, 16, 16),
    sources={
        "wire_type": _WIRE,
        "peak_bf16_flops_per_second": _GDOC_V4,
        "hbm_bytes": _GDOC_V4,
        "hbm_usable_bytes_per_device": "megacore device, " + _AOT,
        "hbm_bytes_per_second": _GDOC_V4,
        "ici_link_bytes_per_second": _BOOK,
        "ici_links_per_chip": _TORUS_3D_LINKS,
        "clock_hz": _UNVERIFIED,
        "mxu_rows": _AOT,
        "mxu_count_per_core": _AOT,
        "cores_per_chip": _AOT,
        "pod_shape": _GDOC_V4,
    },
)

V5E = Generation(
    name="v5e",
    wire_type="V5LITE_POD",
    name_prefix="v5litepod",
    cores_per_chip=1,
    devices_per_chip=1,
    name_counts="chips",
    dimensions=2,
    peak_bf16_flops_per_second=197_000_000_000_000,
    peak_int8_ops_per_second=393_000_000_000_000,
    hbm_bytes=16 * GIB,
    hbm_usable_bytes_per_device=round(15.75 * GIB),
    hbm_bytes_per_second=819_000_000_000,
    ici_link_bytes_per_second=45_000_000_000,
    ici_links_per_chip=4,
    clock_hz=1_500_000_000,
    mxu_rows=128,
    mxu_columns=128,
    mxu_count_per_core=4,
    pod_shape=(16, 16),
    sources={
        "wire_type": _WIRE,
        "peak_bf16_flops_per_second": _GDOC_V5E,
        "peak_int8_ops_per_second": _GDOC_V5E,
        "hbm_bytes": _GDOC_V5E,
        "hbm_usable_bytes_per_device": _AOT,
        "hbm_bytes_per_second": _GDOC_V5E,
        "ici_link_bytes_per_second": _BOOK,
        "ici_links_per_chip": _GDOC_V5E,
        "clock_hz": _BOOK,
        "mxu_rows": _AOT,
        "mxu_count_per_core": _AOT,
        "cores_per_chip": _GDOC_V5E,
        "pod_shape": _GDOC_V5E,
    },
)

V5P = Generation(
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
    sources={
        "wire_type": _WIRE,
        "peak_bf16_flops_per_second": _GDOC_V5P,
        "hbm_bytes": _GDOC_V5P,
        "hbm_usable_bytes_per_device": "more than 94 GiB were accepted, " + _AOT,
        "hbm_bytes_per_second": _GDOC_V5P,
        "ici_link_bytes_per_second": _BOOK,
        "ici_links_per_chip": _TORUS_3D_LINKS,
        "clock_hz": _UNVERIFIED + "; it fits the published peak",
        "mxu_rows": _AOT,
        "mxu_count_per_core": "8 per device, " + _AOT,
        "cores_per_chip": _TYPES,
        "pod_shape": "8960 chips: " + _GDOC_V5P + "; 16x20x28 is the shape xpk@367c838 gives 8960 chips",
    },
)

V6E = Generation(
    name="v6e",
    wire_type="V6E",
    name_prefix="v6e",
    cores_per_chip=1,
    devices_per_chip=1,
    name_counts="chips",
    dimensions=2,
    peak_bf16_flops_per_second=918_000_000_000_000,
    peak_int8_ops_per_second=None,
    hbm_bytes=32 * GIB,
    hbm_usable_bytes_per_device=round(31.24 * GIB),
    hbm_bytes_per_second=1_600_000_000_000,
    ici_link_bytes_per_second=90_000_000_000,
    ici_links_per_chip=4,
    clock_hz=1_750_000_000,
    mxu_rows=256,
    mxu_columns=256,
    mxu_count_per_core=4,
    pod_shape=(16, 16),
    sources={
        "wire_type": _WIRE,
        "peak_bf16_flops_per_second": _UNVERIFIED + "; the scaling book says 920e12",
        "hbm_bytes": _BOOK,
        "hbm_usable_bytes_per_device": _AOT,
        "hbm_bytes_per_second": _BOOK,
        "ici_link_bytes_per_second": _BOOK,
        "ici_links_per_chip": _TORUS_2D_LINKS,
        "clock_hz": "unverified: peak / (2 x 256 x 256 x 4)",
        "mxu_rows": _AOT,
        "mxu_count_per_core": _AOT,
        "cores_per_chip": _AOT,
        "pod_shape": _BOOK,
    },
)

GENERATIONS: Mapping[str, Generation] = {g.name: g for g in (V1, V2, V3, V4, V5E, V5P, V6E)}

BY_WIRE_TYPE: Mapping[str, Generation] = {g.wire_type: g for g in GENERATIONS.values() if g.wire_type is not None}
