"""TPU7x (Ironwood). Compute Engine and GKE have it; the Cloud TPU API does not."""

from __future__ import annotations

from podyard.hardware.generation import (
    GIB,
    MACHINES,
    TORUS_3D_LINKS,
    UNVERIFIED,
    Generation,
    HostMachine,
)

_GDOC = "docs.cloud.google.com/tpu/docs/tpu7x"
_AOT = "libtpu 0.0.52, ahead-of-time compile of tpu7x:2x2x1"

GENERATION = Generation(
    name="tpu7x",
    wire_type=None,
    name_prefix="tpu7x",
    cores_per_chip=2,
    devices_per_chip=2,
    name_counts="cores",
    dimensions=3,
    peak_bf16_flops_per_second=2_307_000_000_000_000,
    peak_int8_ops_per_second=None,
    hbm_bytes=192 * GIB,
    hbm_usable_bytes_per_device=round(94.74 * GIB),
    hbm_bytes_per_second=7_380_000_000_000,
    ici_link_bytes_per_second=100_000_000_000,
    ici_links_per_chip=6,
    clock_hz=2_200_000_000,
    mxu_rows=256,
    mxu_columns=256,
    mxu_count_per_core=4,
    pod_shape=(16, 24, 24),
    # One host. What is larger has the most cube-like shape of its size.
    shapes="1x1x1 2x2x1",
    shapes_source=_GDOC,
    cubes_max=144,
    machine_family="tpu7x-standard",
    image_base="ubuntu-accel-2404-amd64-tpu",
    machines=(
        HostMachine(1, None, None, MACHINES + ": not read"),
        HostMachine(4, 224, 960, _GDOC),
    ),
    dcn_bytes_per_second=12.5e9,
    jax_kind="TPU7x",
    sources={
        "wire_type": "docs.cloud.google.com/tpu/docs/tpus-in-compute-engine",
        "jax_kind": _AOT,
        "peak_bf16_flops_per_second": _GDOC,
        "hbm_bytes": _GDOC,
        "hbm_usable_bytes_per_device": _AOT,
        "hbm_bytes_per_second": _GDOC,
        "ici_link_bytes_per_second": "1200 GB/s a chip in both directions: " + _GDOC,
        "ici_links_per_chip": TORUS_3D_LINKS,
        "dcn_bytes_per_second": "100 Gbps a chip: " + _GDOC,
        "clock_hz": "unverified: peak / (2 x 256 x 256 x 8)",
        "mxu_rows": UNVERIFIED,
        "mxu_count_per_core": UNVERIFIED,
        "cores_per_chip": _GDOC,
        "pod_shape": "9216 chips, 144 cubes: " + _GDOC + "; the arrangement is Podyard's",
    },
)
