"""Reads fleets from YAML: the two that come with Podyard, and users' own files.

`fleets/default.yaml` explains each key. Every error names the place in the file and what is wrong
there.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import math
import re
from collections.abc import Mapping
from typing import Any

from podyard.base.errors import PodyardError, failed_precondition
from podyard.domain import yaml_file
from podyard.domain.fleet import (
    QUOTA_UNLIMITED,
    Fleet,
    NodeTimings,
    Offer,
    Pod,
    QuotaRule,
    Unpriced,
    Zone,
    region_of,
)
from podyard.domain.node import UsageClass
from podyard.hardware import accelerator_types
from podyard.hardware.generation import Generation
from podyard.hardware.generations import GENERATIONS
from podyard.hardware.topology import CUBE_EDGE_CHIPS, Shape, parse_topology, shape_text
from podyard.settings import FLEET_NAMES, INSTANT_FLEET

FULL_POD = "full-pod"  # a quota: one full pod of the generation
_METHOD = re.compile(r"[a-zA-Z]+\.[a-zA-Z]+")


def instant_fleet() -> Fleet:
    """The default fleet without delays and without quotas, for tests and demonstrations."""
    return shipped_fleet(INSTANT_FLEET)


@functools.cache
def shipped_fleet(name: str) -> Fleet:
    """One of FLEET_NAMES."""
    return load_fleet(_shipped_text(name))


def _shipped_text(name: str) -> str:
    return (
        importlib.resources.files("podyard.domain")
        .joinpath(f"fleets/{name}.yaml")
        .read_text(encoding="utf-8")
    )


def load_fleet(text: str) -> Fleet:
    """Reads a fleet file; raises FAILED_PRECONDITION that names the place and what is wrong
    there."""
    top = _top(text)
    zones = _mapping(top.get("zones"), "zones", None)
    if not zones:
        raise _wrong("zones", "a fleet has at least one zone")
    quotas = _mapping(
        top.get("quotas") or {}, "quotas", {"default", "overrides", "requests_per_minute"}
    )
    return Fleet(
        zones={str(name): _zone(str(name), value) for name, value in zones.items()},
        quotas=tuple(
            _quota(f"quotas.overrides[{i}]", v) for i, v in _items(quotas, "overrides", "quotas")
        ),
        quota_default=_limit(quotas.get("default", QUOTA_UNLIMITED), "quotas.default"),
        requests_per_minute=_rates(quotas.get("requests_per_minute") or {}),
        timings=_timings(top.get("timings") or {}),
        unpriced=tuple(_read_unpriced(f"unpriced[{i}]", v) for i, v in _items(top, "unpriced", "")),
        shares=_shares(top.get("shares") or {}),
        unknown_runtime_versions=_allows(top, "unknown_runtime_versions"),
    )


def _top(text: str) -> dict[str, Any]:
    """The file's top-level keys, over those of the fleet that it extends."""
    data = yaml_file.parse(text, "fleet file", failed_precondition).data
    top = _mapping(
        data,
        "fleet file",
        {"extends", "zones", "quotas", "timings", "unpriced", "shares", "unknown_runtime_versions"},
    )
    base = top.pop("extends", None)
    if base is None:
        return top
    if base not in FLEET_NAMES:
        raise _wrong("extends", f"unknown fleet {base!r}: use {' or '.join(FLEET_NAMES)}")
    return _top(_shipped_text(base)) | top


def _zone(name: str, value: object) -> Zone:
    place = f"zones.{name}"
    try:
        region = region_of(name)
    except PodyardError as error:
        raise _wrong(place, error.message) from error
    offers = {
        str(g): _offer(name, _generation(g, f"{place}.{g}"), v)
        for g, v in _mapping(value, place, None).items()
    }
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
        raise _wrong(
            f"{place}.shape", f"{shape_text(shape)} does not divide into hosts of 2x2 chips"
        )
    switched = _is_switched(data, place, generation, shape)
    count = _count(data.get("pods", 1), f"{place}.pods")
    pods = tuple(
        Pod(f"{zone}-{generation.name}-{i}", zone, generation, shape, switched)
        for i in range(count)
    )
    known = {kind.name for kind in accelerator_types.all_types(generation)}
    types = [str(item) for _, item in _items(data, "types", place)]
    for name in types:
        if name not in known:
            raise _wrong(
                f"{place}.types",
                f"{name!r} is not a {generation.name} type: {', '.join(sorted(known))}",
            )
    usage = _usage(data, place, tuple(UsageClass))
    return Offer(generation, pods, usage, frozenset(types) if types else None)


def _is_switched(data: Mapping[str, Any], place: str, generation: Generation, shape: Shape) -> bool:
    """v4 and v5p have optical switches (arXiv 2304.01433), unless the file says otherwise; the
    others never do."""
    kind = data.get("interconnect", "switch" if generation.dimensions == 3 else "torus")
    if kind not in ("switch", "torus"):
        raise _wrong(f"{place}.interconnect", f"unknown interconnect {kind!r}: use switch or torus")
    if kind == "torus":
        return False
    if generation.dimensions != 3:
        raise _wrong(
            f"{place}.interconnect", f"{generation.name} has no optical switches: only torus"
        )
    if any(extent % CUBE_EDGE_CHIPS for extent in shape):
        raise _wrong(
            f"{place}.shape",
            f"{shape_text(shape)} does not divide into the cubes of 4x4x4 chips that optical "
            "switches join; "
            "a pod of this shape needs interconnect: torus",
        )
    return True


def _quota(place: str, value: object) -> QuotaRule:
    data = _mapping(value, place, {"limit", "region", "generation", "usage", "kind"})
    kind = data.get("kind")
    if kind not in (None, "device", "pod"):
        raise _wrong(f"{place}.kind", f"unknown kind {kind!r}: use device or pod")
    generation = data.get("generation")
    return QuotaRule(
        limit=_limit(data.get("limit"), f"{place}.limit"),
        region=None if data.get("region") is None else str(data["region"]),
        generation=None
        if generation is None
        else _generation(generation, f"{place}.generation").name,
        usage_class=None
        if data.get("usage") is None
        else _usage_class(data["usage"], f"{place}.usage"),
        kind=kind,
    )


def _rates(value: object) -> dict[str, int]:
    place = "quotas.requests_per_minute"
    found = {
        str(name): _count(limit, f"{place}.{name}")
        for name, limit in _mapping(value, place, None).items()
    }
    for name in found:
        if name != "default" and _METHOD.fullmatch(name) is None:
            raise _wrong(place, f"{name!r} is neither default nor a method such as nodes.create")
    return found


def _shares(value: object) -> dict[str, float]:
    data = _mapping(value, "shares", None)
    for project, weight in data.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not 0 < weight < math.inf
        ):
            raise _wrong(f"shares.{project}", f"{weight!r} is not a weight above 0")
    return {str(project): float(weight) for project, weight in data.items()}


def _allows(top: Mapping[str, Any], key: str) -> bool:
    value = top.get(key, "refuse")
    if value not in ("allow", "refuse"):
        raise _wrong(key, f"unknown value {value!r}: use allow or refuse")
    return bool(value == "allow")


def _timings(value: object) -> NodeTimings:
    names = {field.name for field in dataclasses.fields(NodeTimings)}
    data = _mapping(value, "timings", names)
    for name, seconds in data.items():
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 0 <= seconds < math.inf
        ):
            raise _wrong(f"timings.{name}", f"{seconds!r} is not a number of seconds")
    return NodeTimings(**{name: float(seconds) for name, seconds in data.items()})


def _read_unpriced(place: str, value: object) -> Unpriced:
    data = _mapping(value, place, {"region", "generation", "usage", "types"})
    return Unpriced(
        region=None if data.get("region") is None else str(data["region"]),
        generation=_generation(data.get("generation"), f"{place}.generation").name,
        usage_classes=_usage(data, place, tuple(UsageClass)),
        types=tuple(str(item) for _, item in _items(data, "types", place)),
    )


def _usage(
    data: Mapping[str, Any], place: str, default: tuple[UsageClass, ...]
) -> tuple[UsageClass, ...]:
    found = tuple(_usage_class(v, f"{place}.usage[{i}]") for i, v in _items(data, "usage", place))
    return found or default


def _usage_class(value: object, place: str) -> UsageClass:
    try:
        return UsageClass(str(value))
    except ValueError:
        raise _wrong(place, f"unknown usage {value!r}: use {', '.join(UsageClass)}") from None


def _generation(value: object, place: str) -> Generation:
    generation = GENERATIONS.get(str(value))
    if generation is None or not generation.node_type:
        names = ", ".join(g.name for g in GENERATIONS.values() if g.node_type)
        raise _wrong(place, f"{value!r} is not a generation that has nodes: one of {names}")
    return generation


def _limit(value: object, place: str) -> int | None:
    return None if value == FULL_POD else _count(value, place)


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
        raise _wrong(
            place,
            f"unknown key {', '.join(sorted(unknown))}: allowed are {', '.join(sorted(keys))}",
        )
    return value


def _wrong(place: str, why: str) -> PodyardError:
    return failed_precondition(
        f"{place}: {why}" if place == "fleet file" else f"fleet file, {place}: {why}"
    )
