"""The fleet that is emulated: zones, their pods, what they offer, quotas, and how long nodes take.

A fleet is a YAML file (`fleets/default.yaml` explains each key). `load_fleet` reads it; every error names the place.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, failed_precondition, invalid, not_found
from podyard.domain.node import UsageClass
from podyard.domain.reservation import ReservationRoom
from podyard.domain.slice import SliceRecord
from podyard.hardware import accelerator_types
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.generations import GENERATIONS, Generation
from podyard.hardware.topology import CUBE_EDGE_CHIPS, Shape, parse_topology, shape_text
from podyard.hardware.torus import rotations

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ZONE = re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]")
_METHOD = re.compile(r"[a-zA-Z]+\.[a-zA-Z]+")
_DEFAULT_QUOTA = 1_000_000


def region_of(zone: str) -> str:
    """`us-central1-a` -> `us-central1`; raises INVALID_ARGUMENT for what is no zone."""
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise invalid(f"{zone!r} is not the name of a zone such as us-central1-a", "location")
    return match[1]


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """What slices are cut from. `switched`: optical switches join any free 4x4x4 cubes to one slice; else the pod is
    one torus, and a slice is a box of neighbouring chips."""

    pod_id: str
    zone: str
    generation: Generation
    shape: Shape
    switched: bool = False

    @property
    def chip_count(self) -> int:
        return math.prod(self.shape)

    def can_hold(self, shape: Shape) -> bool:
        """Whether a slice of this shape fits when the pod is empty."""
        if self.switched and all(extent % CUBE_EDGE_CHIPS == 0 for extent in shape):
            return math.prod(shape) <= self.chip_count
        return _fits_in(shape, self.shape)


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """What a zone has of one generation. `only_types` None: every type whose shape fits a pod."""

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
    """Platform seconds that a node spends in CREATING, DELETING, STOPPING, STARTING, RESTARTING and REIMAGING, in
    a maintenance (REPAIRING, or with a simulated maintenance event on its hosts), and under notice before the scheduler
    takes its slice back (Compute Engine gives 30 s: cloud.google.com/compute/docs/instances/preemptible).

    `repair_seconds`: how long a node waits at most for broken chips of its slice to work again; 0: as long as it takes.
    """

    create_seconds: float = 0.0
    delete_seconds: float = 0.0
    stop_seconds: float = 0.0
    start_seconds: float = 0.0
    restart_seconds: float = 0.0
    reimage_seconds: float = 0.0
    maintenance_seconds: float = 0.0
    preemption_notice_seconds: float = 0.0
    repair_seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaRule:
    """A limit for what it names; None matches all. `kind`: `device` for single-host types, `pod` for the rest."""

    limit: int
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
    """Offered although the rate card has no price: usage is metered and its lines are held, never billed as zero."""

    region: str | None
    generation: str
    usage_classes: tuple[UsageClass, ...]
    types: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Fleet:
    zones: Mapping[str, Zone]
    quotas: tuple[QuotaRule, ...] = ()
    quota_default: int = _DEFAULT_QUOTA
    timings: NodeTimings = NodeTimings()
    unpriced: tuple[Unpriced, ...] = ()
    requests_per_minute: Mapping[str, int] = dataclasses.field(default_factory=dict)  # `nodes.create` or `default`
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)  # project -> weight; 1 where it is not named

    def zone(self, name: str) -> Zone:
        """Raises NOT_FOUND, naming the zones there are."""
        found = self.zones.get(name)
        if found is None:
            error = not_found(f"locations/{name}")
            raise PodyardError(error.code, f"{error.message}; this fleet has {', '.join(self.zones)}")
        return found

    def pods(self) -> tuple[Pod, ...]:
        return tuple(pod for zone in self.zones.values() for pod in zone.pods)

    def pod(self, pod_id: str) -> Pod:
        for pod in self.pods():
            if pod.pod_id == pod_id:
                return pod
        raise not_found(f"pods/{pod_id}")

    def offered_types(self, zone: str) -> tuple[AcceleratorType, ...]:
        """The named types of a zone, by generation and size."""
        offers = self.zone(zone).offers
        return tuple(
            kind
            for kind in accelerator_types.all_types()
            if kind.generation.name in offers and offers[kind.generation.name].fits(kind)
        )

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
        where = f"it is offered in {', '.join(elsewhere)}" if elsewhere else "no zone of this fleet offers it"
        raise invalid(
            f"accelerator type {kind.name} (topology {kind.topology.text}) is not offered in {zone}; {where}",
            "acceleratorType",
        )

    def is_unpriced(self, region: str, kind: AcceleratorType, usage_class: UsageClass) -> bool:
        return any(
            item.generation == kind.generation.name
            and item.region in (None, region)
            and usage_class in item.usage_classes
            and (not item.types or kind.name in item.types)
            for item in self.unpriced
        )

    def quota_limit(self, region: str, kind: AcceleratorType, usage_class: UsageClass) -> int:
        """The limit that applies, in the unit that the type's name counts (cores, or chips on v5e and v6e)."""
        group = quota_kind(kind)
        for rule in self.quotas:
            if rule.matches(region, kind.generation.name, usage_class, group):
                return rule.limit
        return self.quota_default


def _fits_in(shape: Shape, pod: Shape) -> bool:
    return any(all(a <= b for a, b in zip(turned, pod, strict=True)) for turned in rotations(shape))


def quota_kind(kind: AcceleratorType) -> str:
    """v2 and v3 have separate quotas for single devices and pods; the others have one for all sizes (docs/quota)."""
    return "device" if kind.generation.name in ("v2", "v3") and kind.is_single_host else "pod"


def quota_units(kind: AcceleratorType) -> int:
    """What one node of this type takes from its quota."""
    return kind.core_count if kind.generation.name_counts == "cores" else kind.chip_count


def quota_name(kind: AcceleratorType, usage_class: UsageClass, per: str = "Region") -> str:
    """Google's name of the quota, e.g. `TPUV2sPreemptiblePodPerProjectPerRegionForTPUAPI`. `per`: Region or Zone.

    Seen in error texts: V2s (pod), V4s and V5s Preemptible (Pod, Litepod); the others follow their pattern, unverified.
    Spot nodes use the preemptible quota's name, as SkyPilot's spot errors show.
    """
    family = {"v5e": "V5s", "v5p": "V5Ps", "v6e": "V6Es"}.get(kind.generation.name, kind.generation.name.upper() + "s")
    classes = {UsageClass.ON_DEMAND: "", UsageClass.RESERVED: "Reserved"}
    size = {"device": "", "pod": "Litepod" if kind.generation.name == "v5e" else "Pod"}[quota_kind(kind)]
    return f"TPU{family}{classes.get(usage_class, 'Preemptible')}{size}PerProjectPer{per}ForTPUAPI"


def quota_message(zone: str, kind: AcceleratorType, usage_class: UsageClass, limit: int) -> str:
    """Google's text of an exhausted quota (semantics 1.4), both scopes."""
    region = region_of(zone)
    names = ",".join(quota_name(kind, usage_class, per) for per in ("Region", "Zone"))
    return f"Quota limit '{names}' has been exceeded. Limit: {limit},{limit} in region {region},zone {zone}."


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A node that waits for a slice. Higher `priority` goes first.

    Requests of one `group` (a queued resource; their `version` is its version) are placed all together or not at all,
    and not before `not_before`. `queued`: it goes on waiting where a plain creation fails. A reserved request needs
    room in a reservation that `reservation_name` allows and that lasts for `min_duration_seconds`. `wait_reason` is
    why it waited in the last cycle. `duration_seconds`: READY for so long at most, then it ends by itself; None: it is
    open-ended. `job_priority`: of the job that the platform makes the node for; None for any other node. `last_pod`:
    it has left broken chips there, and goes back there if it can. `fault`: the rule that denies it chips.
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
    """Everything a scheduling cycle decides from. `broken_chips`: bit set per pod id, never placed on. `reservations`
    are the ACTIVE ones. `shares`: the weight of a project among those that wait for one pool; 1 where it is not named.
    """

    fleet: Fleet
    slices: Sequence[SliceRecord] = ()
    waiting: Sequence[PlacementRequest] = ()
    broken_chips: Mapping[str, int] = dataclasses.field(default_factory=dict)
    reservations: Sequence[ReservationRoom] = ()
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)


@functools.cache
def default_fleet() -> Fleet:
    """The fleet that `podyard up` emulates when no file is given."""
    file = importlib.resources.files("podyard.domain").joinpath("fleets/default.yaml")
    return load_fleet(file.read_text(encoding="utf-8"))


def load_fleet(text: str) -> Fleet:
    """Reads a fleet file; raises FAILED_PRECONDITION that names the place and what is wrong there."""
    try:
        data = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise failed_precondition(f"fleet file: not YAML: {error}") from error
    top = _mapping(data, "fleet file", {"zones", "quotas", "timings", "unpriced", "shares"})
    zones = _mapping(top.get("zones"), "zones", None)
    if not zones:
        raise _wrong("zones", "a fleet has at least one zone")
    quotas = _mapping(top.get("quotas") or {}, "quotas", {"default", "overrides", "requests_per_minute"})
    return Fleet(
        zones={str(name): _zone(str(name), value) for name, value in zones.items()},
        quotas=tuple(_quota(f"quotas.overrides[{i}]", v) for i, v in _items(quotas, "overrides", "quotas")),
        quota_default=_count(quotas.get("default", _DEFAULT_QUOTA), "quotas.default"),
        requests_per_minute=_rates(quotas.get("requests_per_minute") or {}),
        timings=_timings(top.get("timings") or {}),
        unpriced=tuple(_unpriced(f"unpriced[{i}]", v) for i, v in _items(top, "unpriced", "")),
        shares=_shares(top.get("shares") or {}),
    )


def _zone(name: str, value: object) -> Zone:
    place = f"zones.{name}"
    try:
        region = region_of(name)
    except PodyardError as error:
        raise _wrong(place, error.message) from error
    offers = {str(g): _offer(name, _generation(g, f"{place}.{g}"), v) for g, v in _mapping(value, place, None).items()}
    return Zone(name, region, offers)


def _offer(zone: str, generation: Generation, value: object) -> Offer:
    place = f"zones.{zone}.{generation.name}"
    data = _mapping(value or {}, place, {"pods", "shape", "interconnect", "types", "usage"})
    shape = generation.pod_shape
    if "shape" in data:
        try:
            shape = parse_topology(generation, str(data["shape"])).shape
        except PodyardError as error:
            raise _wrong(f"{place}.shape", error.message) from error
    if any(extent % 2 for extent in shape[:2]):
        raise _wrong(f"{place}.shape", f"{shape_text(shape)} does not divide into hosts of 2x2 chips")
    switched = _is_switched(data, place, generation, shape)
    count = _count(data.get("pods", 1), f"{place}.pods")
    pods = tuple(Pod(f"{zone}-{generation.name}-{i}", zone, generation, shape, switched) for i in range(count))
    known = {kind.name for kind in accelerator_types.all_types(generation)}
    types = [str(item) for _, item in _items(data, "types", place)]
    for name in types:
        if name not in known:
            raise _wrong(f"{place}.types", f"{name!r} is no {generation.name} type: one of {', '.join(sorted(known))}")
    usage = _usage(data, place, tuple(UsageClass))
    return Offer(generation, pods, usage, frozenset(types) if types else None)


def _is_switched(data: Mapping[str, Any], place: str, generation: Generation, shape: Shape) -> bool:
    """v4 and v5p have optical switches (arXiv 2304.01433), unless the file says otherwise; the others never do."""
    kind = data.get("interconnect", "switch" if generation.dimensions == 3 else "torus")
    if kind not in ("switch", "torus"):
        raise _wrong(f"{place}.interconnect", f"{kind!r} is neither switch nor torus")
    if kind == "torus":
        return False
    if generation.dimensions != 3:
        raise _wrong(f"{place}.interconnect", f"{generation.name} has no optical switches: only torus")
    if any(extent % CUBE_EDGE_CHIPS for extent in shape):
        raise _wrong(
            f"{place}.shape",
            f"{shape_text(shape)} does not divide into the cubes of 4x4x4 chips that optical switches join; "
            "a pod of this shape needs interconnect: torus",
        )
    return True


def _quota(place: str, value: object) -> QuotaRule:
    data = _mapping(value, place, {"limit", "region", "generation", "usage", "kind"})
    kind = data.get("kind")
    if kind not in (None, "device", "pod"):
        raise _wrong(f"{place}.kind", f"{kind!r} is neither device nor pod")
    generation = data.get("generation")
    return QuotaRule(
        limit=_count(data.get("limit"), f"{place}.limit"),
        region=None if data.get("region") is None else str(data["region"]),
        generation=None if generation is None else _generation(generation, f"{place}.generation").name,
        usage_class=None if data.get("usage") is None else _usage_class(data["usage"], f"{place}.usage"),
        kind=kind,
    )


def _rates(value: object) -> dict[str, int]:
    place = "quotas.requests_per_minute"
    found = {str(name): _count(limit, f"{place}.{name}") for name, limit in _mapping(value, place, None).items()}
    for name in found:
        if name != "default" and _METHOD.fullmatch(name) is None:
            raise _wrong(place, f"{name!r} is neither default nor a method such as nodes.create")
    return found


def _shares(value: object) -> dict[str, float]:
    data = _mapping(value, "shares", None)
    for project, weight in data.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise _wrong(f"shares.{project}", f"{weight!r} is not a weight above 0")
    return {str(project): float(weight) for project, weight in data.items()}


def _timings(value: object) -> NodeTimings:
    names = {field.name for field in dataclasses.fields(NodeTimings)}
    data = _mapping(value, "timings", names)
    for name, seconds in data.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise _wrong(f"timings.{name}", f"{seconds!r} is not a number of seconds")
    return NodeTimings(**{name: float(seconds) for name, seconds in data.items()})


def _unpriced(place: str, value: object) -> Unpriced:
    data = _mapping(value, place, {"region", "generation", "usage", "types"})
    return Unpriced(
        region=None if data.get("region") is None else str(data["region"]),
        generation=_generation(data.get("generation"), f"{place}.generation").name,
        usage_classes=_usage(data, place, tuple(UsageClass)),
        types=tuple(str(item) for _, item in _items(data, "types", place)),
    )


def _usage(data: Mapping[str, Any], place: str, default: tuple[UsageClass, ...]) -> tuple[UsageClass, ...]:
    found = tuple(_usage_class(v, f"{place}.usage[{i}]") for i, v in _items(data, "usage", place))
    return found or default


def _usage_class(value: object, place: str) -> UsageClass:
    try:
        return UsageClass(str(value))
    except ValueError:
        raise _wrong(place, f"{value!r} is not one of {', '.join(UsageClass)}") from None


def _generation(value: object, place: str) -> Generation:
    generation = GENERATIONS.get(str(value))
    if generation is None or not generation.node_type:
        names = ", ".join(g.name for g in GENERATIONS.values() if g.node_type)
        raise _wrong(place, f"{value!r} is not a generation that has nodes: one of {names}")
    return generation


def _count(value: object, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(place, f"{value!r} is not a number of 0 or more")
    return value


def _items(data: Mapping[str, Any], key: str, place: str) -> list[tuple[int, Any]]:
    value = data.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(f"{place}.{key}".lstrip("."), "must be a list")
    return list(enumerate(value))


def _mapping(value: object, place: str, keys: set[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(place, "must be a mapping of keys to values")
    unknown = set(map(str, value)) - keys if keys is not None else set()
    if unknown and keys is not None:
        raise _wrong(place, f"unknown key {', '.join(sorted(unknown))}: allowed are {', '.join(sorted(keys))}")
    return value


def _wrong(place: str, why: str) -> PodyardError:
    return failed_precondition(f"{place}: {why}" if place == "fleet file" else f"fleet file, {place}: {why}")
