"""Fields of the form that creates an instance, and the records that the use case takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.durations import parse_duration
from podyard.base.errors import invalid
from podyard.domain.compute.images import IMAGES, RUNTIMES, PublicImage, find_image
from podyard.domain.fleet import Fleet
from podyard.domain.host import STARTUP_SCRIPT
from podyard.domain.instances.instance import (
    BOOT_DISK_GB,
    DEFAULT_IMAGE,
    AttachedDisk,
    BootDisk,
    InstanceSpec,
    Interface,
    ProvisioningModel,
    Scheduling,
)
from podyard.domain.node import UsageClass
from podyard.hardware import machine_types
from podyard.hardware.generations import GENERATIONS
from podyard.hardware.machine_types import MachineType
from podyard.hardware.runtime_versions import runtime_versions_of
from podyard.http.texts import check_description, check_metadata
from podyard.pricing.sku import Price
from podyard.web.instances.rows import MODEL_WORDS
from podyard.web.kit import forms

DEFAULT_MACHINE = "ct6e-standard-1t"  # the smallest with a chip
DEFAULT_DATA_TYPE = "pd-balanced"
DEFAULT_RUN_TIME = "1h"  # of flex-start, which must have one
# How the form buys. Reservations are named in the command or in a template.
MODELS = (ProvisioningModel.STANDARD, ProvisioningModel.SPOT, ProvisioningModel.FLEX_START)


@dataclasses.dataclass(frozen=True, slots=True)
class MachineGroup:
    """The machine types of one family, for one <optgroup>."""

    label: str
    machines: Sequence[MachineType]


@dataclasses.dataclass(frozen=True, slots=True)
class ImageGroup:
    """The images of one project, for one <optgroup>: the path that names each, and its words."""

    label: str
    images: Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceChoice:
    """The choices that make an instance, each valid with those before it, and what may be chosen
    for each."""

    machine: MachineType
    zone: str
    model: ProvisioningModel
    image: str
    machine_groups: Sequence[MachineGroup]
    zones: Sequence[str]
    models: Sequence[tuple[str, str]]
    image_groups: Sequence[ImageGroup]
    price: Price | None
    no_price: str

    @property
    def usage_class(self) -> UsageClass:
        return Scheduling(self.model).usage_class

    @property
    def fields(self) -> Mapping[str, str]:
        """The same, as the form posts them."""
        return {
            "machine_type": self.machine.name,
            "zone": self.zone,
            "model": self.model.value,
            "image": self.image,
        }


def choose(fleet: Fleet, fields: Mapping[str, str], now: PlatformTime) -> InstanceChoice:
    """Reads machine type, zone, provisioning model and image. A choice that the one before it does
    not offer gives way to the first one that it does; what is wrong only when the instance is
    created is left to the use case."""
    offers = {name: zones_of(fleet, one) for name, one in machine_types.all_types().items()}
    machines = {name: one for name, one in machine_types.all_types().items() if offers[name]}
    machine = machines.get(fields.get("machine_type", "")) or machines.get(
        DEFAULT_MACHINE, next(iter(machines.values()))
    )
    zones = offers[machine.name]
    zone = _valid(fields.get("zone", ""), zones, forms.DEFAULT_ZONE)
    models = [str(model) for model in _models_of(fleet, machine, zone)]
    model = ProvisioningModel(_valid(fields.get("model", ""), models))
    image_groups = _image_groups(machine)
    paths = [path for group in image_groups for path, _ in group.images]
    image = _valid(fields.get("image", ""), paths, DEFAULT_IMAGE)
    billed = machine.kind().name if machine.has_chips else machine.name
    price, why = forms.price_of(billed, zone, str(Scheduling(model).usage_class), now)
    return InstanceChoice(
        machine,
        zone,
        model,
        image,
        _machine_groups(machines),
        zones,
        [(value, MODEL_WORDS[ProvisioningModel(value)].capitalize()) for value in models],
        image_groups,
        price,
        why,
    )


def _valid(value: str, values: Sequence[str], usual: str = "") -> str:
    if value in values:
        return value
    return usual if usual in values else values[0]


def zones_of(fleet: Fleet, machine: MachineType) -> list[str]:
    """The zones that offer a machine type: those without chips are everywhere."""
    if not machine.has_chips:
        return list(fleet.zones)
    kind = machine.kind()
    return [
        zone.name
        for zone in fleet.zones.values()
        if (offer := zone.offers.get(machine.generation)) is not None and offer.fits(kind)
    ]


def _models_of(fleet: Fleet, machine: MachineType, zone: str) -> list[ProvisioningModel]:
    if not machine.has_chips:
        return [ProvisioningModel.STANDARD, ProvisioningModel.SPOT]
    classes = fleet.zones[zone].offers[machine.generation].usage_classes
    return [model for model in MODELS if Scheduling(model).usage_class in classes]


def _machine_groups(machines: Mapping[str, MachineType]) -> list[MachineGroup]:
    """Those with chips first, by generation; then the families without."""
    groups: dict[str, list[MachineType]] = {}
    ordered = sorted(
        machines.values(), key=lambda one: (not one.has_chips, one.family, one.cpus or 0)
    )
    for one in ordered:
        label = f"TPU {one.generation}" if one.has_chips else f"Without chips: {one.family}"
        groups.setdefault(label, []).append(one)
    return [MachineGroup(label, members) for label, members in groups.items()]


def _image_groups(machine: MachineType) -> list[ImageGroup]:
    """Images for TPUs are offered to machines that have some: those of their generation."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for image in IMAGES:
        if _suits(image, machine):
            path = image.path
            if image.project != RUNTIMES:
                path = f"projects/{image.project}/global/images/family/{image.family}"
            groups.setdefault(image.project, []).append((path, image.description))
    return [ImageGroup(label, images) for label, images in groups.items()]


def _suits(image: PublicImage, machine: MachineType) -> bool:
    if image.project == RUNTIMES:
        if not machine.has_chips:
            return False
        versions = runtime_versions_of(GENERATIONS[machine.generation])
        return image.family in {one.version for one in versions}
    for_tpu = image.description.startswith("Ubuntu for TPU")
    return not for_tpu or machine.generation in image.family.split("-")


def instance_spec(fields: Mapping[str, str]) -> InstanceSpec:
    """The instance that the posted fields ask for, with no choice mended: what is wrong is said,
    not guessed."""
    model = fields.get("model") or str(ProvisioningModel.STANDARD)
    if model not in MODELS:
        words = ", ".join(MODELS)
        raise invalid(f"unknown provisioning model {model!r}: use {words}", "model")
    machine = machine_types.find(fields.get("machine_type", ""))
    data_gb = forms.whole(fields, "data_gb", "Size of the data disk", 0)
    script = fields.get("startup_script", "").replace("\r\n", "\n").strip()
    description = fields.get("description", "").strip()
    spec = InstanceSpec(
        machine_type=fields.get("machine_type", ""),
        description=description,
        labels=forms.labels(fields),
        metadata={STARTUP_SCRIPT: script} if script else {},
        scheduling=Scheduling(
            ProvisioningModel(model),
            max_run_seconds=_run_seconds(fields),
            on_host_maintenance="TERMINATE" if machine and machine.has_chips else "",
        ),
        interfaces=(Interface(has_external_ip=not fields.get("internal_only")),),
        boot=BootDisk(
            image=_image(fields.get("image") or DEFAULT_IMAGE),
            size_gb=forms.whole(fields, "boot_gb", "Size of the boot disk", BOOT_DISK_GB),
        ),
        disks=(
            (AttachedDisk("", auto_delete=True, new_gb=data_gb, new_type=DEFAULT_DATA_TYPE),)
            if data_gb
            else ()
        ),
    )
    check_description(description)
    check_metadata(spec.metadata)
    spec.scheduling.check()
    return spec


def _image(path: str) -> str:
    """Raises NOT_FOUND for an image that does not exist."""
    project, *_, name = [*path.split("/")[1:], ""][:-1] or [path, ""]
    of_family = {"family": name} if "/family/" in path else {}
    find_image(project, name, **of_family)
    return path


def _run_seconds(fields: Mapping[str, str]) -> float | None:
    """None for an empty field."""
    text = fields.get("run_time", "").strip()
    try:
        return parse_duration(text) / NANOS_PER_SECOND if text else None
    except ValueError as error:
        raise invalid(f"run time: {error}", "run_time") from None
