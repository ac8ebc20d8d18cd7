"""A rate card as Google lists prices: what is sold under which service, in which unit, with which
text.

Programs find a TPU's price by words of the SKU's description, and multiply it by cores or chips
that they know of, so the words and units here are those that they look for (SkyPilot 0.14.1
`fetch_gcp.py`, gpuhunt 0.1.34 `providers/gcp.py`; field meanings: Google's discovery document
cloudbilling v1):

- v2, v3 and v4 are in the service Cloud TPU: `Tpu-v2` and `Tpu-v3` for a device, `Tpu-v2 Pod` and
  so on for slices, all per 8 cores, which are 4 chips. v4 has pods only, its smallest slice too.
- v5e and later ones are in the service Compute Engine: `TpuV5e`, per chip. Hosts and disks are
  there as well; what buckets hold, and operations on them, are in the service Cloud Storage.
- `Preemptible` in the text marks both preemptible and spot. Readers take the first one: spot stands
  before preemptible.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.domain.node import UsageClass
from podyard.domain.usage import PriceUnit
from podyard.hardware.accelerator_types import all_types, parse
from podyard.hardware.generation import Generation, Listing
from podyard.hardware.generations import GENERATIONS
from podyard.pricing.sku import (
    COMMITMENT_YEARS,
    DISK,
    HOST,
    OBJECT,
    OPERATION,
    RateCard,
    Sku,
    commitment_usage,
)

DEVICE_CHIPS = 4  # of a v2-8 and v3-8: 8 cores, in which Google's service Cloud TPU has its prices
_GIB = 2**30
_MONTH_SECONDS = 730 * 3600


@dataclasses.dataclass(frozen=True, slots=True)
class ListedService:
    """A service of Google's that sells what a rate card has. `service_id` is Google's own."""

    service_id: str
    display_name: str


CLOUD_TPU = ListedService("E000-3F24-B8AA", "Cloud TPU")
COMPUTE_ENGINE = ListedService("6F81-5844-456A", "Compute Engine")
CLOUD_STORAGE = ListedService("95FF-2EF5-5EA1", "Cloud Storage")
SERVICES = (COMPUTE_ENGINE, CLOUD_STORAGE, CLOUD_TPU)  # in the order of their ids


@dataclasses.dataclass(frozen=True, slots=True)
class ListedUnit:
    """The unit of a price, as UCUM codes and in words; `base_factor` base units make one."""

    usage: str
    usage_words: str
    base: str
    base_words: str
    base_factor: int


_HOUR = ListedUnit("h", "hour", "s", "second", 3600)
_UNITS: Mapping[PriceUnit, ListedUnit] = {
    PriceUnit.GIB_HOUR: ListedUnit("GiBy.h", "gibibyte hour", "By.s", "byte second", _GIB * 3600),
    PriceUnit.GIB_MONTH: ListedUnit(
        "GiBy.mo", "gibibyte month", "By.s", "byte second", _GIB * _MONTH_SECONDS
    ),
    PriceUnit.OPERATION: ListedUnit("count", "count", "count", "count", 1),
}

Timeline = tuple[tuple[PlatformTime, int], ...]  # (effective from, nanos per unit), ascending


@dataclasses.dataclass(frozen=True, slots=True)
class ListedSku:
    """One SKU of the catalogue, with all its prices. `sku_id` has Google's form and follows from
    our own id."""

    service: ListedService
    sku_id: str
    description: str
    family: str
    group: str
    usage_type: str
    region: str
    unit: ListedUnit
    prices: Timeline

    def prices_between(self, start: PlatformTime, end: PlatformTime) -> Timeline:
        """The prices in force in [start, end), each from when it was so within that time."""
        before = [nanos for moment, nanos in self.prices if moment <= start]
        first = ((start, before[-1]),) if before else ()
        return (*first, *((moment, nanos) for moment, nanos in self.prices if start < moment < end))


_DISKS: Mapping[str, tuple[str, str]] = {
    "pd-standard": ("Storage PD Capacity", "PDStandard"),
    "pd-ssd": ("SSD backed PD Capacity", "SSD"),
}
# Ways to buy in the order of the catalogue -> (usageType at Compute Engine, before the name, behind
# it).
_USAGES: Mapping[str, tuple[str, str, str]] = {
    str(UsageClass.ON_DEMAND): ("OnDemand", "", ""),
    str(UsageClass.SPOT): ("Preemptible", "Spot Preemptible ", ""),
    str(UsageClass.PREEMPTIBLE): ("Preemptible", "Preemptible ", ""),
    **{
        commitment_usage(years): (f"Commit{years}Yr", "Commitment v1: ", f" for {years} Year")
        for years in COMMITMENT_YEARS
    },
}


def skus_of(card: RateCard, service: ListedService) -> tuple[ListedSku, ...]:
    """Return what a service sells at the prices of a card, in a stable order: by way to buy,
    region, generation."""
    return tuple(sku for sku in _all(card) if sku.service is service)


def tpus_of(
    card: RateCard, generation: Generation, region: str, usage: str
) -> tuple[ListedSku, ...]:
    """Return what is sold of one generation's chips in a region, in one way to buy."""
    # Asking for the price of each type would say at length why there is none.
    if generation.listing is None or all(
        sku.generation != generation.name for sku in card.rows_of(region, usage)
    ):
        return ()
    return tuple(_tpus(card, generation.name, generation.listing, region, usage))


def service_of(service_id: str) -> ListedService:
    """Raises NOT_FOUND, naming the services there are."""
    found = next((service for service in SERVICES if service.service_id == service_id), None)
    if found is None:
        known = ", ".join(f"{service.service_id} ({service.display_name})" for service in SERVICES)
        raise PodyardError(
            Code.NOT_FOUND, f"Service services/{service_id} was not found: there are {known}"
        )
    return found


def _all(card: RateCard) -> Iterator[ListedSku]:
    regions = sorted({sku.region for sku in card.skus.values()})
    for usage in _USAGES:
        for region in regions:
            for generation in GENERATIONS.values():
                yield from tpus_of(card, generation, region, usage)
            for sku in card.rows_of(region, usage):
                # A whole host VM is sold by its parts there.
                if sku.generation in _OTHERS and sku.unit is not PriceUnit.VM_HOUR:
                    yield _OTHERS[sku.generation](sku)


def _tpus(
    card: RateCard, generation: str, listing: Listing, region: str, usage: str
) -> Iterator[ListedSku]:
    """The SKUs of one generation: one for its devices and one for its pods, where a single price
    per unit is right for all their types. Where it is not, each type has a separate SKU, whose text
    matches no other price."""
    types = dict(_types(card, generation, region, usage))
    for pods in (False, True):
        rows = {
            name: row
            for name, row in types.items()
            if listing.is_pod(parse(name).chip_count) == pods
        }
        if not rows:
            continue
        shared = list(
            dict.fromkeys(_per_unit(name, *row, listing.chips) for name, row in rows.items())
        )
        if len(shared) == 1 and shared[0] is not None:
            name, words = ("pod", f"{listing.words} Pod") if pods else ("unit", listing.words)
            yield _tpu(listing, f"tpu-{generation}-{name}", words, region, usage, shared[0])
            continue
        for name, (sku, quantity) in rows.items():
            prices = tuple(
                (version.effective_from, version.nanos * quantity) for version in sku.versions
            )
            yield _tpu(listing, f"tpu-{name}", f"TPU slice {name}", region, usage, prices)


def _types(
    card: RateCard, generation: str, region: str, usage: str
) -> Iterator[tuple[str, tuple[Sku, int]]]:
    """Each type that has a price, with its SKU and how many of that one's units it is."""
    own = (
        sku.accelerator_type for sku in card.rows_of(region, usage) if sku.generation == generation
    )
    for name in dict.fromkeys(
        (*(kind.name for kind in all_types(generation)), *(name for name in own if name))
    ):
        with contextlib.suppress(PodyardError):
            yield name, card.row_for(name, region, usage)


def _per_unit(name: str, sku: Sku, quantity: int, unit_chips: int) -> Timeline | None:
    """The prices of `unit_chips` chips of this type; None where one is not a whole number of
    nanos."""
    chips = parse(name).chip_count
    whole = [
        (version.effective_from, version.nanos * quantity * unit_chips) for version in sku.versions
    ]
    if any(nanos % chips for _, nanos in whole):
        return None
    return tuple((moment, nanos // chips) for moment, nanos in whole)


def _tpu(
    listing: Listing, key: str, words: str, region: str, usage: str, prices: Timeline
) -> ListedSku:
    usage_type, before, behind = _USAGES[usage]
    if listing.service == CLOUD_TPU.display_name and usage_type == "Preemptible":
        usage_type = "OnDemand"  # as Google's are there: only the description tells
    text = f"{before}{words} running in {region}{behind}"
    return ListedSku(
        service=next(service for service in SERVICES if service.display_name == listing.service),
        sku_id=_google_id(f"{key}/{region}/{usage}"),
        description=text,
        family="Compute",
        group="TPU",
        usage_type=usage_type,
        region=region,
        unit=_HOUR,
        prices=prices,
    )


def _host(sku: Sku) -> ListedSku:
    usage_type, before, behind = _USAGES[sku.usage]
    # Google sells both kinds of machines under the one name.
    before = _USAGES[str(UsageClass.SPOT)][1] if usage_type == "Preemptible" else before
    part = "Ram" if sku.unit is PriceUnit.GIB_HOUR else "Core"
    text = f"{before}N1 Predefined Instance {part} running in {sku.region}{behind}"
    return _alone(sku, text, "Compute", "N1Standard", usage_type)


def _disk(sku: Sku) -> ListedSku:
    kind = sku.sku_id.partition("/")[0].removeprefix(f"{DISK}-")
    words, group = _DISKS.get(kind, (f"{kind} capacity", "PDStandard"))
    usage_type, before, behind = _USAGES[sku.usage]
    return _alone(sku, f"{before}{words} in {sku.region}{behind}", "Storage", group, usage_type)


def _object(sku: Sku) -> ListedSku:
    words = sku.sku_id.partition("/")[0].removeprefix(f"{OBJECT}-").title()
    usage_type, before, behind = _USAGES[sku.usage]
    text = f"{before}{words} Storage in {sku.region}{behind}"
    return _alone(sku, text, "Storage", f"{words}Storage", usage_type, CLOUD_STORAGE)


def _operation(sku: Sku) -> ListedSku:
    _, letter, name = sku.sku_id.partition("/")[0].removeprefix(f"{OPERATION}-").split("-", 2)
    usage_type, before, behind = _USAGES[sku.usage]
    text = f"{before}{name.title()} Class {letter.upper()} Operations in {sku.region}{behind}"
    return _alone(sku, text, "Storage", f"{name.title()}Ops", usage_type, CLOUD_STORAGE)


def _alone(
    sku: Sku,
    description: str,
    family: str,
    group: str,
    usage_type: str,
    service: ListedService = COMPUTE_ENGINE,
) -> ListedSku:
    return ListedSku(
        service=service,
        sku_id=_google_id(sku.sku_id),
        description=description,
        family=family,
        group=group,
        usage_type=usage_type,
        region=sku.region,
        unit=_UNITS.get(sku.unit, _HOUR),
        prices=tuple((version.effective_from, version.nanos) for version in sku.versions),
    )


_OTHERS: Mapping[str, Callable[[Sku], ListedSku]] = {
    DISK: _disk,
    HOST: _host,
    OBJECT: _object,
    OPERATION: _operation,
}


def _google_id(key: str) -> str:
    """`XXXX-XXXX-XXXX`, the same for the same key for ever."""
    digits = hashlib.sha256(key.encode()).hexdigest()[:12].upper()
    return "-".join((digits[:4], digits[4:8], digits[8:]))
