"""SKUs, price versions, and the rate card that holds them. How a card is read and checked:
cards.py.

A price that is missing is a PodyardError that says what there is; it is never zero and never a
sentinel.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.base.money import nanos_from_decimal_text
from podyard.domain.node import UsageClass
from podyard.domain.usage import BilledKind, PriceUnit, PriceVersion
from podyard.hardware import machine_types
from podyard.hardware.machine_types import MIB_PER_GB, billed_kind

DISK = "disk"  # what stands in the place of a generation: SKUs `disk-TYPE/REGION/USAGE`
OBJECT = "object"  # SKUs `object-CLASS/LOCATION/USAGE`
OPERATION = "operation"  # SKUs `operation-class-a-CLASS/LOCATION/USAGE`, and class-b
# Generations of what may be listed only, and is charged from a date on.
STORED = {DISK: BilledKind.DISK, OBJECT: BilledKind.BUCKET, OPERATION: BilledKind.OPERATION}
# Names of before locations told regions and multi-regions apart
# (cloud.google.com/storage/docs/storage-classes).
STORAGE_CLASSES = {"multi_regional": "standard", "regional": "standard"}
# SKUs `host-SERIES-PART/REGION/USAGE`, one for the vCPUs and one for the memory of a host
HOST = "host"
# the machines of hosts (PyPI apache-libcloud 3.9.1 has their prices apart from TPUs)
HOST_SERIES = "n1"
HOST_PARTS: Mapping[str, PriceUnit] = {"vcpu": PriceUnit.VCPU_HOUR, "ram": PriceUnit.GIB_HOUR}
# SKUs `HOST_VM/REGION/USAGE`: the machine of Google's first steps with TPU Nodes
HOST_VM = f"{HOST}-n1-standard-2"
HOST_VCPUS, HOST_GIB = 2, Fraction(15, 2)
COMMITMENT_YEARS = (1, 3)  # the terms that Google sells (cloud.google.com/tpu/pricing)


@dataclasses.dataclass(frozen=True, slots=True)
class Sku:
    """A unit that is sold: `versions` ascend by effective time. `accelerator_type` None: sold per
    unit of the generation."""

    sku_id: str
    generation: str
    accelerator_type: str | None
    region: str
    usage: str
    unit: PriceUnit
    versions: tuple[PriceVersion, ...]

    def version_at(self, at: PlatformTime) -> PriceVersion | None:
        """The version in force at `at`; None before the first one."""
        index = bisect.bisect_right(self.versions, at, key=lambda v: v.effective_from)
        return self.versions[index - 1] if index else None


@dataclasses.dataclass(frozen=True, slots=True)
class Price:
    """The price of one node. `nanos_per_hour` is for one unit, `quantity` how many units it is."""

    sku_id: str
    unit: PriceUnit
    quantity: int
    nanos_per_hour: int
    effective_from: PlatformTime
    version_id: str
    source: str
    verified: bool

    @property
    def total_nanos_per_hour(self) -> int:
        return self.nanos_per_hour * self.quantity


@dataclasses.dataclass(frozen=True)
class RateCard:
    """All SKUs of one currency. Look-ups answer the type's own row first, then the price per chip.

    `hosts_from`: from then on the host VMs of TPU Nodes are charged, by SKUs that begin then; None:
    never. So `disks_from` of disks, `objects_from` of what buckets hold, and `operations_from` of
    operations on them.
    """

    currency: str
    skus: Mapping[str, Sku]
    hosts_from: PlatformTime | None = None
    disks_from: PlatformTime | None = None
    objects_from: PlatformTime | None = None
    operations_from: PlatformTime | None = None

    def charge_start(self, kind: BilledKind) -> PlatformTime | None:
        """Since when hosts, disks, buckets or operations are charged."""
        return {
            BilledKind.HOST: self.hosts_from,
            BilledKind.DISK: self.disks_from,
            BilledKind.BUCKET: self.objects_from,
            BilledKind.OPERATION: self.operations_from,
        }[kind]

    @property
    def charges_storage(self) -> bool:
        """Return whether disks, buckets or operations are charged at any time."""
        starts = (self.disks_from, self.objects_from, self.operations_from)
        return any(start is not None for start in starts)

    def charges(self, sku: Sku) -> bool:
        """Return whether anything is charged by the SKU: those of disks, objects and operations may
        be listed only."""
        return sku.generation not in STORED or self.charge_start(STORED[sku.generation]) is not None

    def sku_for(
        self, accelerator_type: str, region: str, usage: UsageClass | str
    ) -> tuple[Sku, int]:
        """The SKU of a node and how many of its units the node is; raises NOT_FOUND when nothing
        prices it.

        Reserved nodes are priced as on demand: what a reservation saves comes from its commitment,
        not from here.
        """
        return self.row_for(accelerator_type, region, row_usage(usage))

    def row_for(self, accelerator_type: str, region: str, sold_as: str) -> tuple[Sku, int]:
        """The same by what the card calls a way to buy, commitments included."""
        kind = billed_kind(accelerator_type)
        generation, chips = kind.generation, kind.chip_count
        if not chips:
            return self.machine_sku(accelerator_type, region, sold_as), 1
        own = self._index.get((accelerator_type, region, sold_as))
        if own is not None:
            return own, 1
        per_chip = self._index.get((generation.name, region, sold_as))
        if per_chip is not None:
            return per_chip, chips
        raise PodyardError(
            Code.NOT_FOUND, self._why_no_price(accelerator_type, generation.name, region, sold_as)
        )

    def price(
        self, accelerator_type: str, region: str, usage: UsageClass | str, at: PlatformTime
    ) -> Price:
        """The price of a node at a time; raises NOT_FOUND when there is none."""
        return _price_of(*self.sku_for(accelerator_type, region, usage), at)

    def host_sku(self, region: str, usage: UsageClass | str) -> Sku:
        """The SKU of a node's host VM; raises NOT_FOUND when nothing prices it."""
        sold_as = row_usage(usage)
        found = self.skus.get(f"{HOST_VM}/{region}/{sold_as}")
        if found is None:
            raise PodyardError(
                Code.NOT_FOUND,
                f"no {sold_as} price of a host VM in {region}: {HOST_VM} has none there",
            )
        return found

    def machine_sku(self, name: str, region: str, sold_as: str) -> Sku:
        """The SKU of an instance without chips: the card's own, `host-NAME/REGION/USAGE`, else one
        made of its processors and memory. Raises NOT_FOUND where the card has not both of them."""
        place = f"{region}/{sold_as}"
        sku_id = f"{HOST}-{name}/{place}"
        if (own := self.skus.get(sku_id)) is not None:
            return own
        machine = machine_types.all_types()[name]
        parts = [self.skus.get(f"{HOST}-{machine.family}-{part}/{place}") for part in HOST_PARTS]
        amounts = (Fraction(machine.cpus or 0), Fraction(machine.memory_mib or 0, MIB_PER_GB))
        known = [
            (sku, amount) for sku, amount in zip(parts, amounts, strict=True) if sku and amount
        ]
        versions = _versions_of_parts(sku_id, known) if len(known) == len(parts) else []
        if not versions:
            text = f"no {sold_as} price of {name} in {region}: it has none there"
            raise PodyardError(Code.NOT_FOUND, text)
        return make_sku(
            sku_id, PriceUnit.VM_HOUR, versions, generation=HOST, region=region, usage=sold_as
        )

    def storage_sku(self, kind: BilledKind, of_type: str, region: str) -> Sku:
        """The SKU of a disk, a bucket or operations; raises NOT_FOUND when nothing prices it."""
        word = next(generation for generation, sold in STORED.items() if sold is kind)
        stem, dash, name = of_type.lower().rpartition("-")
        item = f"{word}-{stem}{dash}{STORAGE_CLASSES.get(name, name)}"
        found = self.skus.get(f"{item}/{region}/{UsageClass.ON_DEMAND}")
        if found is None:
            regions = sorted(
                sku.region for sku in self.skus.values() if sku.sku_id.startswith(f"{item}/")
            )
            where = f"it is priced in {', '.join(regions)}" if regions else "it is priced nowhere"
            raise PodyardError(Code.NOT_FOUND, f"no price of {item} in {region}: {where}")
        return found

    def commitment_of(self, sku: Sku, years: int) -> Sku | None:
        """The SKU of a commitment to units of this one, if it is sold. Its price per hour is the
        same whether it is
        paid upfront or by the month."""
        found = self._index.get(
            (sku.accelerator_type or sku.generation, sku.region, commitment_usage(years))
        )
        return found if found is not None and found.unit is sku.unit else None

    def rows_of(self, region: str, usage: str) -> Sequence[Sku]:
        """Return what is sold there in this way, in the order of the SKU ids."""
        return self._rows.get((region, usage), ())

    @functools.cached_property
    def _rows(self) -> Mapping[tuple[str, str], Sequence[Sku]]:
        found: dict[tuple[str, str], list[Sku]] = {}
        for _, sku in sorted(self.skus.items()):
            found.setdefault((sku.region, sku.usage), []).append(sku)
        return found

    @functools.cached_property
    def _index(self) -> Mapping[tuple[str, str, str], Sku]:
        return {
            (sku.accelerator_type or sku.generation, sku.region, sku.usage): sku
            for sku in self.skus.values()
            if sku.accelerator_type is not None or sku.unit is PriceUnit.CHIP_HOUR
        }

    def _why_no_price(self, accelerator_type: str, generation: str, region: str, usage: str) -> str:
        names = (accelerator_type, generation)
        commitment = usage.startswith(_COMMITMENT)
        keys = [
            key
            for key in self._index
            if key[0] in names and key[2].startswith(_COMMITMENT) is commitment
        ]
        usages = sorted(u for _, r, u in keys if r == region)
        regions = sorted({r for _, r, u in keys if u == usage})
        what = "prices for" if not commitment else "commitments:"
        has = (
            f"there it has {what} {', '.join(usages)}" if usages else "it has no price there at all"
        )
        where = f"; {usage} is priced in {', '.join(regions)}" if regions else ""
        return f"no {usage} price of {accelerator_type} in {region}: {has}{where}"


_COMMITMENT = "commitment-"


def row_usage(usage: UsageClass | str) -> str:
    """Return what a rate card calls a way to buy; reserved nodes are priced as on demand."""
    return str(UsageClass.ON_DEMAND if usage == UsageClass.RESERVED else UsageClass(usage))


def commitment_usage(years: int) -> str:
    """Return what a rate card calls a commitment: `commitment-1y`."""
    return f"{_COMMITMENT}{years}y"


def _versions_of_parts(sku_id: str, parts: Sequence[tuple[Sku, Fraction]]) -> list[PriceVersion]:
    """The prices of so many units of each part together, from when there is one of each. Those that
    make no whole number of nanos are left out."""
    versions = []
    for at in sorted({version.effective_from for sku, _ in parts for version in sku.versions}):
        priced = [(sku.version_at(at), amount) for sku, amount in parts]
        inside = [(version, amount) for version, amount in priced if version is not None]
        nanos = sum((amount * version.nanos for version, amount in inside), Fraction(0))
        if len(inside) == len(parts) and nanos.denominator == 1:
            source = ", ".join(dict.fromkeys(version.source for version, _ in inside))
            verified = all(version.verified for version, _ in inside)
            name = f"{sku_id}@{at.rfc3339()}"
            versions.append(PriceVersion(name, at, nanos.numerator, source, verified))
    return versions


def _price_of(sku: Sku, quantity: int, at: PlatformTime) -> Price:
    version = sku.version_at(at)
    if version is None:
        first = sku.versions[0].effective_from.rfc3339()
        raise PodyardError(
            Code.NOT_FOUND, f"no price of {sku.sku_id} at {at.rfc3339()}: the first is from {first}"
        )
    return Price(
        sku_id=sku.sku_id,
        unit=sku.unit,
        quantity=quantity,
        nanos_per_hour=version.nanos,
        effective_from=version.effective_from,
        version_id=version.version_id,
        source=version.source,
        verified=version.verified,
    )


def make_sku(
    sku_id: str,
    unit: PriceUnit,
    versions: Sequence[PriceVersion],
    *,
    generation: str = "",
    accelerator_type: str | None = None,
    region: str = "",
    usage: str = "",
) -> Sku:
    """A SKU with its versions in order; raises FAILED_PRECONDITION for none, or for two from one
    second."""
    ordered = tuple(sorted(versions, key=lambda v: v.effective_from))
    moments = [version.effective_from for version in ordered]
    if not ordered or len(set(moments)) != len(moments):
        raise failed_precondition(
            f"rate card, {sku_id}: needs prices, and no two from the same second"
        )
    return Sku(sku_id, generation, accelerator_type, region, usage, unit, ordered)


def make_version(
    sku_id: str, effective_from: str, amount: str, source: str, verified: bool = True
) -> PriceVersion:
    """A price version from texts; raises FAILED_PRECONDITION for a negative price, more than nine
    decimals, or a time that is not a whole second."""
    try:
        moment = PlatformTime.from_rfc3339(effective_from)
        nanos = nanos_from_decimal_text(amount)
    except (ValueError, ArithmeticError) as error:
        raise failed_precondition(f"rate card, {sku_id}: {error}") from error
    if moment.nanos % NANOS_PER_SECOND or nanos < 0:
        raise failed_precondition(
            f"rate card, {sku_id}: a price is not negative and starts at a whole second"
        )
    return PriceVersion(f"{sku_id}@{moment.rfc3339()}", moment, nanos, source, verified)
