"""Fields of forms, as text, and the records that the use cases take."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.node import NodeSpec, UsageClass
from podyard.hardware import accelerator_types
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.runtime_versions import job_versions_of, runtime_versions_of
from podyard.hardware.software import software_of
from podyard.http.texts import check_description, check_labels
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import Price
from podyard.web.kit.commands import scheduling

DEFAULT_TYPE = "v2-8"  # the smallest node: what a first visitor should meet
DEFAULT_ZONE = "us-central1-f"


@dataclasses.dataclass(frozen=True, slots=True)
class TypeGroup:
    """The types of one generation, for one <optgroup>."""

    generation: str
    types: list[AcceleratorType]


@dataclasses.dataclass(frozen=True)
class NodeChoice:
    """The four choices that make a node, each valid with those before it, and what may be chosen
    for each."""

    zone: str
    accelerator_type: str
    usage: str
    runtime_version: str
    zones: list[str]
    groups: list[TypeGroup]
    usages: list[str]
    versions: list[str]
    price: Price | None
    no_price: str
    kind: AcceleratorType | None

    @property
    def software(self) -> str:
        """The environment that runs in place of the version's image."""
        python = sys.version_info.minor
        choice = software_of(self.runtime_version, python)
        own = f"Podyard's Python 3.{python}"
        if choice.software is None:
            return f"Programs run with {own}."
        if choice.optional:
            return f"Programs run with {own}, and {choice.software.title} where it is installed."
        return f"Programs run with {choice.software.title} on Python 3.{python}."


def choose(
    fleet: Fleet, fields: Mapping[str, str], now: PlatformTime, *, of_job: bool = False
) -> NodeChoice:
    """Reads zone, type, usage class and runtime version. A choice that the zone before it does not
    offer gives way to the first one that it does; what is wrong only when it is created (quota,
    capacity) is left to the use case. `of_job`: the node is one that a job makes."""
    zones = list(fleet.zones)
    usual = DEFAULT_ZONE if DEFAULT_ZONE in zones else zones[0]
    zone = fields.get("zone") if fields.get("zone") in zones else usual
    assert zone is not None
    types = list(fleet.offered_types(zone))
    names = [kind.name for kind in types]
    fallback = DEFAULT_TYPE if DEFAULT_TYPE in names else names[0]
    name = fields.get("accelerator_type", "")
    name = name if name in names else fallback
    kind = types[names.index(name)]
    usages = [str(usage) for usage in fleet.zones[zone].offers[kind.generation.name].usage_classes]
    usage = fields.get("usage", "")
    usage = usage if usage in usages else usages[0]
    versions = [item.version for item in runtime_versions_of(kind.generation)]
    versions = list(job_versions_of(kind.generation)) if of_job else versions
    version = fields.get("runtime_version", "")
    version = version if version in versions else kind.generation.runtime_version_default
    found, why = price_of(name, zone, usage, now)
    return NodeChoice(
        zone, name, usage, version, zones, groups_of(types), usages, versions, found, why, kind
    )


def price_of(
    accelerator_type: str, zone: str, usage: str, now: PlatformTime
) -> tuple[Price | None, str]:
    """(the price, "") or (None, why there is none)."""
    try:
        return default_rate_card().price(
            accelerator_type, region_of(zone), UsageClass(usage), now
        ), ""
    except PodyardError as error:
        return None, error.message


def labels(fields: Mapping[str, str]) -> dict[str, str]:
    """The labels of a form, as the API takes them."""
    given = pairs(fields.get("labels", ""))
    check_labels(given)
    return given


def node_spec(fields: Mapping[str, str]) -> NodeSpec:
    """The node that the posted fields ask for, with no choice mended: what is wrong is said, not
    guessed."""
    kind = accelerator_types.parse(fields.get("accelerator_type", ""))
    usage = fields.get("usage") or str(UsageClass.ON_DEMAND)
    if usage not in tuple(UsageClass):
        raise invalid(f"unknown usage {usage!r}: use {', '.join(UsageClass)}", "usage")
    version = fields.get("runtime_version", "")
    if not version:
        raise invalid("a runtime version is required", "runtimeVersion")
    node_labels = labels(fields)
    description = fields.get("description", "").strip()
    check_description(description)
    usage_class = UsageClass(usage)
    return NodeSpec(
        accelerator_type=kind.name,
        topology=kind.topology.text,
        runtime_version=version,
        usage_class=usage_class,
        description=description,
        labels=node_labels,
        extras={
            "networkConfig": {"network": "default", "enableExternalIps": True},
            "schedulingConfig": scheduling(usage_class),
        },
    )


def pairs(text: str) -> dict[str, str]:
    """`team=vision, stage=test` -> a mapping; raises INVALID_ARGUMENT for a piece without `=`."""
    found = {}
    for piece in (part.strip() for part in text.split(",")):
        if not piece:
            continue
        key, equals, value = piece.partition("=")
        if not equals:
            raise invalid(f"labels: {piece!r} must have the form key=value", "labels")
        found[key.strip()] = value.strip()
    return found


def whole(fields: Mapping[str, str], name: str, label: str, default: int) -> int:
    """The whole number of a field; an empty field is `default`."""
    found = whole_if_given(fields, name, label)
    return default if found is None else found


def whole_if_given(fields: Mapping[str, str], name: str, label: str) -> int | None:
    """The whole number of a field; None for an empty one."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise invalid(f"{label} is {text!r}: it must be a whole number", name)
    return int(text)


def decimal(fields: Mapping[str, str], name: str, label: str, default: float) -> float:
    text = fields.get(name, "").strip()
    try:
        return float(text) if text else default
    except ValueError:
        raise invalid(f"{label} is {text!r}: it must be a number", name) from None


def groups_of(types: list[AcceleratorType]) -> list[TypeGroup]:
    groups: list[TypeGroup] = []
    for kind in types:
        if not groups or groups[-1].generation != kind.generation.name:
            groups.append(TypeGroup(kind.generation.name, []))
        groups[-1].types.append(kind)
    return groups
