"""The record of a TPU generation, with the source of every number. Each generation is a file in
`generations/`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from podyard.hardware.cost_model import CostModel

GIB = 2**30  # bytes
CLOUD_TPU: Literal["Cloud TPU"] = "Cloud TPU"
COMPUTE_ENGINE: Literal["Compute Engine"] = "Compute Engine"

# Sources that several generations share.
AOT = "libtpu 0.0.51, ahead-of-time compile"
BOOK = "jax-ml/scaling-book:tpus.md@0819a7d"
RUNTIMES = "cloud.google.com/tpu/docs/runtimes"
TYPES = "https://cloud.google.com/tpu/docs/types-topologies"
WIRE = "google.cloud.tpu.v2 AcceleratorConfig.Type (google-cloud-tpu 1.28.0)"
MACHINES = "docs.cloud.google.com/compute/docs/tpus/tpu-machines"
UNVERIFIED = "from memory, unverified"
TORUS_2D_LINKS = "2D torus: two neighbours per dimension"
TORUS_3D_LINKS = "3D torus: two neighbours per dimension"


@dataclasses.dataclass(frozen=True, slots=True)
class StepError:
    """Deciles of published over estimated step time, of `rows` published runs."""

    rows: int
    p10: float
    p90: float

    def interval(self, seconds: float) -> tuple[float, float]:
        """Return the 10th and the 90th percentile of a step that is estimated at `seconds`."""
        return seconds * self.p10, seconds * self.p90


@dataclasses.dataclass(frozen=True, slots=True)
class Power:
    """Watts of one chip; None where nothing is published. `idle`: the least it was seen to draw,
    `mean`: in use,
    `busy`: the most it was seen to draw, `limit`: what its cooling is built for (thermal design
    power)."""

    idle: float | None = None
    mean: float | None = None
    busy: float | None = None
    limit: float | None = None
    source: str = "nothing published that was found"
    verified: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """The listing of a generation in Google's price catalogue: under which service, with which
    words, per how many chips.

    A slice of `pod_chips` chips or more is a pod, which has a separate price (None: at no size).
    """

    service: Literal["Cloud TPU", "Compute Engine"]
    words: str
    chips: int
    pod_chips: int | None = None

    def is_pod(self, chip_count: int) -> bool:
        return self.pod_chips is not None and chip_count >= self.pod_chips


@dataclasses.dataclass(frozen=True, slots=True)
class HostMachine:
    """A host with this many chips, as a machine of Compute Engine. Unknown figures are None."""

    chips: int
    cpus: int | None
    memory_gb: int | None
    source: str


@dataclasses.dataclass(frozen=True, slots=True)
class Generation:
    """One TPU generation.

    Peak, memory and bandwidth are per chip; link bandwidth is one direction of one link. A source
    that says "unverified" was written down from memory and never checked against a document. Where
    a number can be checked against another one (peak = 2 x rows x columns x arrays x clock),
    tests/unit/hardware does it.

    - `wire_type`: what the Cloud TPU API calls it; None: that API has no nodes of it.
    - `name_counts`: what the number in an accelerator type's name counts.
    - `devices_per_chip`: what JAX calls a device.
    - `hbm_usable_bytes_per_device`: what the real compiler lets one program use.
    - `shapes`: the default shape per size; in three dimensions `cubes_max` is the largest slice, in
      cubes of 64 chips.
    - `usual_types`: what a plan compares if no types are given.
    - `quota_family`, `quota_pod_word`, `has_device_quota`: parts of quota names; whether single
      devices have a separate quota.
    - `machines`: the machine types of Compute Engine, `FAMILY-CHIPSt`, that are hosts of it.
    - `image_base`: how the family of images for its instances begins; the names of all generations
      of one base follow.
    - `maintenance_from_chips`: the smallest slice whose maintenance a user may begin early (None:
      no slice).
    - `runtime_family`: which of the shared runtime versions it runs; `runtime_versions`: its own
      ones, with sources.
    - `chip_config`: how libtpu names the cores of a chip as one device.
    - `pcie_bytes_per_second`: of each chip's link to its host, in each direction. The default is
      the figure of generations without one of their own (jax-ml/scaling-book, tpus.md@04d8de58).
    - `dcn_bytes_per_second`: of a chip's share of its host's network, in each direction. None: no
      published figure.
    - `step_error`: of published step times over their estimates (`python -m benchmarks.published`).
      None: too few published steps.
    - `has_short_all_reduce`: whether the compiler has separate strategies for short vectors.
    - `jax_kind`: what libtpu calls it, where that is not "TPU" and its name; JAX shows it as
      `device_kind`.
    - `node_type`: False where Cloud TPU never offered the generation as a node (v1): only the
      engine knows it.
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
    shapes: str = ""
    shapes_source: str = ""
    cubes_max: int | None = None
    listing: Listing | None = None
    quota_family: str = ""
    quota_pod_word: str = "Pod"
    has_device_quota: bool = False
    machine_family: str = ""
    image_base: str = ""
    machines: tuple[HostMachine, ...] = ()
    maintenance_from_chips: int | None = None
    runtime_family: Literal["tensorflow", "v4", "pjrt"] | None = None
    runtime_version_default: str = ""
    runtime_versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    usual_types: tuple[str, ...] = ()
    costs: CostModel | None = None
    power: Power = Power()
    chip_config: str = "default"
    pcie_bytes_per_second: float = 1.5e10
    dcn_bytes_per_second: float | None = None
    step_error: StepError | None = None
    has_short_all_reduce: bool = False
    node_type: bool = True
    jax_kind: str = ""

    @property
    def device_word(self) -> str:
        """Return what a device is: a core, or a chip."""
        return "core" if self.devices_per_chip > 1 else "chip"

    @property
    def device_kind(self) -> str:
        return self.jax_kind or f"TPU {self.name}"


# Of machines without chips: not one of GENERATIONS, so that it has neither pods nor a price.
NO_GENERATION = Generation(
    name="none",
    wire_type=None,
    name_prefix="",
    cores_per_chip=0,
    devices_per_chip=0,
    name_counts="chips",
    dimensions=2,
    peak_bf16_flops_per_second=0,
    peak_int8_ops_per_second=None,
    hbm_bytes=0,
    hbm_usable_bytes_per_device=0,
    hbm_bytes_per_second=0,
    ici_link_bytes_per_second=0,
    ici_links_per_chip=0,
    clock_hz=0,
    mxu_rows=0,
    mxu_columns=0,
    mxu_count_per_core=0,
    pod_shape=(),
    sources={},
    node_type=False,
)
