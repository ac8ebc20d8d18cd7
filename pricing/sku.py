"""SKUs, price versions, and the rate card that holds them.

A price that is missing is a PodyardError that says what there is; it is never zero and never a sentinel.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import importlib.resources
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.base.money import nanos_from_decimal_text
from podyard.domain.node import UsageClass
from podyard.domain.usage import PriceUnit, PriceVersion
from podyard.hardware.accelerator_types import size_of

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYS = {"type", "generation", "region", "usage", "unit", "prices"}
DEFAULT_RATE_CARD = "2026-11-01"


@dataclasses.dataclass(frozen=True, slots=True)
class Sku:
    """What is sold: `versions` ascend by effective time. `accelerator_type` None: sold per unit of the generation."""

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
    """The price of one node. `nanos_per_hour` is for one unit, `quantity` how many units the node is."""

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
    """All SKUs of one currency. Look-ups answer the type's own row first, then the price per chip."""

    currency: str
    skus: Mapping[str, Sku]

    def sku_for(self, accelerator_type: str, region: str, usage: UsageClass | str) -> tuple[Sku, int]:
        """The SKU of a node and how many of its units the node is; raises NOT_FOUND when nothing prices it.

        Reserved nodes are priced as on demand: what a reservation saves comes from its commitment, not from here.
        """
        generation, chips = size_of(accelerator_type)
        sold_as = str(UsageClass.ON_DEMAND if usage == UsageClass.RESERVED else UsageClass(usage))
        own = self._index.get((accelerator_type, region, sold_as))
        if own is not None:
            return own, 1
        per_chip = self._index.get((generation.name, region, sold_as))
        if per_chip is not None:
            return per_chip, chips
        raise PodyardError(Code.NOT_FOUND, self._why_no_price(accelerator_type, generation.name, region, sold_as))

    def price(self, accelerator_type: str, region: str, usage: UsageClass | str, at: PlatformTime) -> Price:
        """The price of a node at a time; raises NOT_FOUND when there is none."""
        sku, quantity = self.sku_for(accelerator_type, region, usage)
        version = sku.version_at(at)
        if version is None:
            first = sku.versions[0].effective_from.rfc3339()
            raise PodyardError(Code.NOT_FOUND, f"no price of {sku.sku_id} at {at.rfc3339()}: the first is from {first}")
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

    def price_per_hour(self, accelerator_type: str, region: str, usage: UsageClass | str, at: PlatformTime) -> int:
        """Nanos per hour of a whole node, for forms and lists; raises NOT_FOUND when there is no price."""
        return self.price(accelerator_type, region, usage, at).total_nanos_per_hour

    @functools.cached_property
    def _index(self) -> Mapping[tuple[str, str, str], Sku]:
        return {
            (sku.accelerator_type or sku.generation, sku.region, sku.usage): sku
            for sku in self.skus.values()
            if sku.accelerator_type is not None or sku.unit is PriceUnit.CHIP_HOUR
        }

    def _why_no_price(self, accelerator_type: str, generation: str, region: str, usage: str) -> str:
        names = (accelerator_type, generation)
        classes = {str(u) for u in UsageClass}
        usages = sorted(u for name, r, u in self._index if name in names and r == region and u in classes)
        regions = sorted({r for name, r, u in self._index if name in names and u == usage})
        has = f"there it has prices for {', '.join(usages)}" if usages else "it has no price there at all"
        where = f"; {usage} is priced in {', '.join(regions)}" if regions else ""
        return f"no {usage} price of {accelerator_type} in {region}: {has}{where}"


@functools.cache
def default_rate_card() -> RateCard:
    """The rate card that comes with Podyard."""
    return load_rate_card(read_rate_card(DEFAULT_RATE_CARD))


def read_rate_card(date: str) -> str:
    file = importlib.resources.files("podyard.pricing").joinpath(f"rate_cards/{date}.yaml")
    return file.read_text(encoding="utf-8")


def load_rate_card(text: str) -> RateCard:
    """Reads a rate card; raises FAILED_PRECONDITION that names the place and what is wrong there."""
    try:
        data = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise failed_precondition(f"rate card: not YAML: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("skus"), dict):
        raise failed_precondition("rate card: must have currency, sources and skus")
    sources = data.get("sources") or {}
    skus = {str(sku_id): _sku(str(sku_id), value, sources) for sku_id, value in data["skus"].items()}
    return RateCard(str(data.get("currency", "USD")), skus)


def _sku(sku_id: str, value: object, sources: Mapping[str, str]) -> Sku:
    place = f"rate card, {sku_id}"
    if not isinstance(value, dict) or set(value) - _KEYS or _KEYS - {"type"} - set(value):
        raise failed_precondition(f"{place}: must have exactly {', '.join(sorted(_KEYS))} (type may be left out)")
    try:
        unit = PriceUnit(value["unit"])
    except ValueError:
        raise failed_precondition(f"{place}: unit {value['unit']!r} is not one of {', '.join(PriceUnit)}") from None
    versions = [_version(sku_id, row, sources) for row in value["prices"]]
    return make_sku(
        sku_id,
        unit,
        versions,
        generation=str(value["generation"]),
        accelerator_type=value.get("type"),
        region=str(value["region"]),
        usage=str(value["usage"]),
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
    """A SKU with its versions in order; raises FAILED_PRECONDITION for none, or for two from one second."""
    ordered = tuple(sorted(versions, key=lambda v: v.effective_from))
    moments = [version.effective_from for version in ordered]
    if not ordered or len(set(moments)) != len(moments):
        raise failed_precondition(f"rate card, {sku_id}: needs prices, and no two from the same second")
    return Sku(sku_id, generation, accelerator_type, region, usage, unit, ordered)


def make_version(sku_id: str, effective_from: str, amount: str, source: str, verified: bool = True) -> PriceVersion:
    """A price version from texts; raises FAILED_PRECONDITION for a negative price, more than nine decimals, or a time
    that is no whole second."""
    try:
        moment = PlatformTime.from_rfc3339(effective_from)
        nanos = nanos_from_decimal_text(amount)
    except (ValueError, ArithmeticError) as error:
        raise failed_precondition(f"rate card, {sku_id}: {error}") from error
    if moment.nanos % NANOS_PER_SECOND or nanos < 0:
        raise failed_precondition(f"rate card, {sku_id}: a price is not negative and starts at a whole second")
    return PriceVersion(f"{sku_id}@{moment.rfc3339()}", moment, nanos, source, verified)


def _version(sku_id: str, row: object, sources: Mapping[str, str]) -> PriceVersion:
    if not isinstance(row, dict) or not isinstance(row.get("usd"), str) or row.get("source") not in sources:
        raise failed_precondition(f"rate card, {sku_id}: a price has from, usd (as text) and source (a key of sources)")
    return make_version(sku_id, str(row.get("from")), row["usd"], sources[row["source"]], row.get("verified", True))
