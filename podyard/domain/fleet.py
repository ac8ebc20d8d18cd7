"""The fleet that is emulated: zones, their pods, what they offer, quotas, and how long nodes take.

`domain/fleet_file.py` reads fleets from YAML.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid, not_found
from podyard.domain.node import UsageClass
from podyard.domain.reservation import ReservationRoom
from podyard.domain.slice import SliceRecord
from podyard.hardware import accelerator_types
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.generation import Generation
from podyard.hardware.topology import CUBE_EDGE_CHIPS, Shape
from podyard.hardware.torus import rotations

QUOTA_UNLIMITED = 1_000_000  # above what any fleet holds of one generation in a region
_ZONE = re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]")


def region_of(zone: str) -> str:
    """`us-central1-a` -> `us-central1`; raises INVALID_ARGUMENT for a malformed zone."""
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise invalid(f"{zone!r} is not the name of a zone such as us-central1-a", "location")
    return match[1]


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """A pod, from which slices are cut. `switched`: optical switches join any free 4x4x4 cubes to
    one slice; else the pod is one torus, and a slice is a box of neighbouring chips."""

    pod_id: str
    zone: str
    generation: Generation
    shape: Shape
    switched: bool = False

    @property
    def chip_count(self) -> int:
        return math.prod(self.shape)

    def can_hold(self, shape: Shape) -> bool:
        """Return whether a slice of this shape fits when the pod is empty."""
        if self.switched and all(extent % CUBE_EDGE_CHIPS == 0 for extent in shape):
            return math.prod(shape) <= self.chip_count
        return _fits_in(shape, self.shape)


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """The pods of one generation in a zone. `only_types` None: every type whose shape fits a
    pod."""

    generation: Generation
    pods: tuple[Pod, ...]
    usage_classes: tuple[UsageClass, ...]
    only_types: frozenset[str] | None

    def fits(self, kind: AcceleratorType) -> bool:
        if self.only_types is not None and kind.name not in self.only_types:
            return False
        return any(pod.can_hold(kind.topology.shape) for pod in self.pods)


@dataclasses.dataclass(frozen=True, slots=True)
class Zone:
    name: str
    region: str
    offers: Mapping[str, Offer]

    @property
    def pods(self) -> tuple[Pod, ...]:
        return tuple(pod for offer in self.offers.values() for pod in offer.pods)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeTimings:
    """Platform seconds that a node spends in CREATING, DELETING, STOPPING, STARTING, RESTARTING and
    REIMAGING, in
    a maintenance (REPAIRING, or with a simulated maintenance event on its hosts), and under notice
    before the scheduler takes its slice back (Compute Engine gives 30 s:
    cloud.google.com/compute/docs/instances/preemptible).

    A node spends `create_seconds` in CREATING, and `create_seconds_per_host` more for each of its
    hosts. `repair_seconds`: how long a node waits at most for broken chips of its slice to work
    again; 0: as long as it takes.
    """

    create_seconds: float = 0.0
    create_seconds_per_host: float = 0.0
    delete_seconds: float = 0.0
    stop_seconds: float = 0.0
    start_seconds: float = 0.0
    restart_seconds: float = 0.0
    reimage_seconds: float = 0.0
    maintenance_seconds: float = 0.0
    preemption_notice_seconds: float = 0.0
    repair_seconds: float = 0.0

    def creation_seconds(self, host_count: int) -> float:
        """Platform seconds that a node with this many hosts spends in CREATING."""
        return self.create_seconds + self.create_seconds_per_host * host_count


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaRule:
    """A limit for what it names; None matches all. `kind`: `device` for single-host types, `pod`
    for the rest.

    `limit` None: one full pod of the generation.
    """

    limit: int | None
    region: str | None = None
    generation: str | None = None
    usage_class: UsageClass | None = None
    kind: str | None = None

    def matches(self, region: str, generation: str, usage_class: UsageClass, kind: str) -> bool:
        wanted = (self.region, self.generation, self.usage_class, self.kind)
        given = (region, generation, usage_class, kind)
        return all(w is None or w == g for w, g in zip(wanted, given, strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class Unpriced:
    """Offered although the rate card has no price: usage is metered and its lines are held, never
    billed as zero."""

    region: str | None
    generation: str
    usage_classes: tuple[UsageClass, ...]
    types: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Fleet:
    zones: Mapping[str, Zone]
    quotas: tuple[QuotaRule, ...] = ()
    quota_default: int | None = QUOTA_UNLIMITED  # None: one full pod of the generation
    timings: NodeTimings = NodeTimings()
    unpriced: tuple[Unpriced, ...] = ()
    # `nodes.create` or `default`
    requests_per_minute: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # project -> weight; 1 where it is not named
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # whether versions that the table of runtime versions lacks are allowed
    unknown_runtime_versions: bool = False

    def zone(self, name: str) -> Zone:
        """Raises NOT_FOUND, naming the zones there are."""
        found = self.zones.get(name)
        if found is None:
            error = not_found(f"locations/{name}")
            raise PodyardError(
                error.code, f"{error.message}; this fleet has {', '.join(self.zones)}"
            )
        return found

    def pods(self) -> tuple[Pod, ...]:
        return tuple(pod for zone in self.zones.values() for pod in zone.pods)

    def pod(self, pod_id: str) -> Pod:
        for pod in self.pods():
            if pod.pod_id == pod_id:
                return pod
        raise not_found(f"pods/{pod_id}")

    def offered_types(self, zone: str) -> tuple[AcceleratorType, ...]:
        """The named types that nodes of a zone can have, by generation and size."""
        offers = self.zone(zone).offers
        return tuple(
            kind
            for kind in accelerator_types.all_types()
            if kind.generation.wire_type is not None
            if kind.generation.name in offers and offers[kind.generation.name].fits(kind)
        )

    def check_node(self, zone: str, kind: AcceleratorType, usage_class: UsageClass) -> None:
        """Raise INVALID_ARGUMENT for a type that no node of the zone can have."""
        if kind.generation.wire_type is None:
            raise self._invalid_type(
                zone,
                kind.name,
                f"{kind.name} is not in the Cloud TPU API: create instances of machine type "
                f"{kind.generation.machine_family}-4t in Compute Engine",
            )
        self.check_offered(zone, kind, usage_class)

    def check_offered(self, zone: str, kind: AcceleratorType, usage_class: UsageClass) -> None:
        """Raises INVALID_ARGUMENT, saying what the zone has and where else the type is offered."""
        offer = self.zone(zone).offers.get(kind.generation.name)
        if offer is not None and offer.fits(kind):
            if usage_class in offer.usage_classes:
                return
            names = ", ".join(offer.usage_classes)
            raise invalid(f"{kind.name} in {zone} is not offered as {usage_class}: only as {names}")
        elsewhere = [
            z.name
            for z in self.zones.values()
            if (o := z.offers.get(kind.generation.name)) is not None and o.fits(kind)
        ]
        where = (
            f"it is offered in {', '.join(elsewhere)}"
            if elsewhere
            else "no zone of this fleet offers it"
        )
        raise self._invalid_type(
            zone,
            kind.name,
            f"accelerator type {kind.name} (topology {kind.topology.text}) is not offered in "
            f"{zone}; {where}",
        )

    def type_named(self, zone: str, name: str) -> AcceleratorType:
        """The type called `name`, which need not be offered; raises INVALID_ARGUMENT in Cloud TPU's
        words."""
        try:
            return accelerator_types.parse(name)
        except PodyardError as error:
            raise self._invalid_type(zone, name, error.message) from None

    def _invalid_type(self, zone: str, name: str, why: str) -> PodyardError:
        """Google's text, which SkyPilot looks for (cloud_vm_ray_backend.py); the details have
        ours."""
        valid = "".join(f"{offered.name}, " for offered in self.offered_types(zone))
        text = (
            f'CloudTpu received an invalid AcceleratorType, "{name}" for zone "{zone}". Valid '
            f'values are "{valid}".'
        )
        error = invalid(why, "acceleratorType")
        return PodyardError(error.code, text, error.details)

    def is_unpriced(self, region: str, kind: AcceleratorType, usage_class: UsageClass) -> bool:
        return any(
            item.generation == kind.generation.name
            and item.region in (None, region)
            and usage_class in item.usage_classes
            and (not item.types or kind.name in item.types)
            for item in self.unpriced
        )

    def quota_limit(self, region: str, kind: AcceleratorType, usage_class: UsageClass) -> int:
        """The limit that applies, in the unit that the type's name counts (cores or chips)."""
        return self.group_limit(region, kind.generation, usage_class, quota_kind(kind))

    def group_limit(
        self, region: str, generation: Generation, usage_class: UsageClass, group: str
    ) -> int:
        """As `quota_limit`, for `device` or `pod` types of a generation."""
        limits = (
            rule.limit
            for rule in self.quotas
            if rule.matches(region, generation.name, usage_class, group)
        )
        limit = next(limits, self.quota_default)
        return full_pod_units(generation) if limit is None else limit


def _fits_in(shape: Shape, pod: Shape) -> bool:
    return any(all(a <= b for a, b in zip(turned, pod, strict=True)) for turned in rotations(shape))


def quota_kind(kind: AcceleratorType) -> str:
    """`device` where single devices have a separate quota; the others have one for all sizes
    (docs/quota)."""
    return "device" if kind.generation.has_device_quota and kind.is_single_host else "pod"


def quota_units(kind: AcceleratorType) -> int:
    """Return what one node of this type takes from its quota."""
    return kind.core_count if kind.generation.name_counts == "cores" else kind.chip_count


def full_pod_units(generation: Generation) -> int:
    """Return what a full pod takes from its quota, in the same unit as `quota_units`."""
    chips = math.prod(generation.pod_shape)
    return chips * generation.cores_per_chip if generation.name_counts == "cores" else chips


def quota_name(kind: AcceleratorType, usage_class: UsageClass, per: str = "Region") -> str:
    """Google's name of the quota, e.g. `TPUV2sPreemptiblePodPerProjectPerRegionForTPUAPI`. `per`:
    Region or Zone.

    Seen in error texts: V2s (pod), V4s and V5s Preemptible (Pod, Litepod); the others follow their
    pattern, unverified. Spot nodes use the preemptible quota's name, as SkyPilot's spot errors
    show.
    """
    classes = {UsageClass.ON_DEMAND: "", UsageClass.RESERVED: "Reserved"}
    size = {"device": "", "pod": kind.generation.quota_pod_word}[quota_kind(kind)]
    family = f"TPU{kind.generation.quota_family}{classes.get(usage_class, 'Preemptible')}"
    return f"{family}{size}PerProjectPer{per}ForTPUAPI"


def quota_message(zone: str, kind: AcceleratorType, usage_class: UsageClass, limit: int) -> str:
    """Google's text of an exhausted quota (semantics 1.4), both scopes."""
    region = region_of(zone)
    names = ",".join(quota_name(kind, usage_class, per) for per in ("Region", "Zone"))
    return (
        f"Quota limit '{names}' has been exceeded. Limit: {limit},{limit} in region "
        f"{region},zone {zone}."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A node that waits for a slice. Higher `priority` goes first.

    Requests of one `group` (a queued resource; their `version` is its version) are placed all
    together or not at all, and not before `not_before`; so are those of one `job_group`, the nodes
    that are made for the slices of a job. `queued`: it goes on waiting where a plain creation
    fails. A reserved request needs room in a reservation that `reservation_name` allows and that
    lasts for `min_duration_seconds`. `wait_reason` is why it waited in the last cycle.
    `duration_seconds`: READY for so long at most, then it ends by itself; None: it is open-ended.
    `job_priority`: of the job that the platform makes the node for; None for any other node.
    `last_pod`: it has left broken chips there, and goes back there if it can. `fault`: the rule
    that denies it chips.
    """

    node_key: str
    version: int
    project: str
    zone: str
    accelerator_type: AcceleratorType
    usage_class: UsageClass
    priority: int
    created: PlatformTime
    group: str = ""
    job_group: str = ""
    not_before: PlatformTime | None = None
    queued: bool = False
    reservation_name: str = ""
    min_duration_seconds: float | None = None
    wait_reason: str = ""
    duration_seconds: float | None = None
    job_priority: int | None = None
    last_pod: str = ""
    fault: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """Everything a scheduling cycle decides from. `broken_chips`: bit set per pod id, never placed
    on. `reservations` are the ACTIVE ones. `shares`: the weight of a project among those that wait
    for one pool; 1 where it is not named.
    """

    fleet: Fleet
    slices: Sequence[SliceRecord] = ()
    waiting: Sequence[PlacementRequest] = ()
    broken_chips: Mapping[str, int] = dataclasses.field(default_factory=dict)
    reservations: Sequence[ReservationRoom] = ()
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
