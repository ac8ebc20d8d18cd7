"""TPU v1."""

from __future__ import annotations

from podyard.hardware.generation import GIB, UNVERIFIED, Generation, Power

_PAPER_V1 = "abstract of arXiv 1704.04760"

GENERATION = Generation(
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
    power=Power(
        idle=28.0,
        busy=40.0,
        limit=75.0,
        source="Jouppi et al., ISCA 2017 (arXiv 1704.04760), table 2, measured die: " + UNVERIFIED,
    ),
    sources={
        "peak_bf16_flops_per_second": "no floating point: int8 x int8 -> int32 only; " + _PAPER_V1,
        "peak_int8_ops_per_second": _PAPER_V1,
        "hbm_bytes": "8 GiB DDR3 weight memory; " + UNVERIFIED,
        "hbm_usable_bytes_per_device": "taken as all of the weight memory; unverified",
        "hbm_bytes_per_second": UNVERIFIED,
        "ici_link_bytes_per_second": "no chip interconnect; " + UNVERIFIED,
        "clock_hz": UNVERIFIED,
        "mxu_rows": "65,536 multipliers: " + _PAPER_V1,
    },
    node_type=False,
)
