"""Rate cards as files: how one is read, what it may say, and what of it may change.

A card is YAML (`rate_cards/` has its header); every error names the row. What a card says of the
past stays as it is, because past usage is priced by it: `changes_of_the_past`.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.base.money import minor_text, without_zeros
from podyard.domain import yaml_file
from podyard.domain.node import UsageClass
from podyard.domain.usage import PriceUnit, PriceVersion
from podyard.hardware.accelerator_types import parse
from podyard.hardware.generations import GENERATIONS
from podyard.pricing.machines import MachineCard
from podyard.pricing.sku import (
    COMMITMENT_YEARS,
    DISK,
    HOST,
    HOST_GIB,
    HOST_PARTS,
    HOST_SERIES,
    HOST_VCPUS,
    HOST_VM,
    OBJECT,
    OPERATION,
    STORED,
    RateCard,
    Sku,
    commitment_usage,
    make_sku,
    make_version,
)

SHIPPED = "2026-11-01"
# the shipped card has 200 SKUs in 40 kB; Google's whole catalogue is about this long
CARD_BYTES_MAX = 8 << 20
CURRENCY = "USD"  # invoices convert from it
USD_DECIMALS = 9  # that a price may have: nanos
USAGES = (
    # a reserved node is priced as on demand
    *(str(usage) for usage in UsageClass if usage is not UsageClass.RESERVED),
    *(commitment_usage(years) for years in COMMITMENT_YEARS),
)

# When these begin to be charged.
_SWITCHES = {
    "hosts_from": HOST,
    "disks_from": DISK,
    "objects_from": OBJECT,
    "operations_from": OPERATION,
}
_CARD_KEYS = ("currency", "sources", *_SWITCHES, "skus")
_NAMES = {
    DISK: (rf"{DISK}-[a-z_-]+", PriceUnit.GIB_MONTH),
    OBJECT: (rf"{OBJECT}-[a-z_-]+", PriceUnit.GIB_MONTH),
    OPERATION: (rf"{OPERATION}-class-[ab]-[a-z_]+", PriceUnit.OPERATION),
}
_MACHINE_CARD_KEYS = ("currency", "sources", "cpu_hour", "gib_hour")
_SKU_KEYS = ("type", "generation", "region", "usage", "unit", "prices")
_PRICE_KEYS = ("from", "until", "usd", "source", "verified")
_REGION = re.compile(r"[a-z]+-[a-z]+\d+")
# of buckets: multi-regions and pairs of regions, too
_LOCATION = re.compile(r"[a-z]+-[a-z]+\d+|us|eu|asia|[a-z]+\d+")
_USD = re.compile(r"\d{1,9}(\.\d{1,9})?")  # so that its nanos are a 64-bit integer
_GENERATIONS = tuple(name for name, generation in GENERATIONS.items() if generation.node_type)


def read_card(name: str | Path) -> RateCard:
    """The card that comes with Podyard under this date, or that of a file. Raises NOT_FOUND for
    neither, and FAILED_PRECONDITION that names the row that is wrong."""
    if name in shipped_cards():
        file = importlib.resources.files("podyard.pricing").joinpath(f"rate_cards/{name}.yaml")
        return load_rate_card(file.read_text(encoding="utf-8"))
    text = _text_of(
        name,
        "rate card",
        f"is neither one of {', '.join(shipped_cards())} nor a file that can be read",
    )
    try:
        return load_rate_card(text)
    except PodyardError as error:
        raise failed_precondition(f"{name}: {error.message}") from error


def _text_of(name: str | Path, kind: str, wrong: str) -> str:
    try:
        with Path(name).open("rb") as source:
            data = source.read(CARD_BYTES_MAX + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PodyardError(Code.NOT_FOUND, f"{kind} {str(name)!r} {wrong}: {why}") from error
    if len(data) > CARD_BYTES_MAX:
        raise failed_precondition(
            f"{kind} {name}: the file is larger than the maximum of {CARD_BYTES_MAX} bytes"
        )
    return text


def shipped_cards() -> tuple[str, ...]:
    """The dates of the cards that come with Podyard, ascending."""
    folder = importlib.resources.files("podyard.pricing").joinpath("rate_cards")
    names = (item.name for item in folder.iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def load_rate_card(text: str) -> RateCard:
    """Reads a card's text; raises FAILED_PRECONDITION that names the row and what is wrong
    there."""
    data = yaml_file.parse(text, "rate card", failed_precondition, has_times=True).data
    if not isinstance(data, dict) or not isinstance(data.get("skus"), dict):
        raise failed_precondition("rate card: must have currency, sources and skus")
    _check_keys("rate card", data, _CARD_KEYS, ("skus",))
    sources = _head("rate card", data)
    skus: dict[str, Sku] = {}
    sold: dict[tuple[str, ...], str] = {}
    for sku_id, value in data["skus"].items():
        sku = _sku(sku_id, value, sources)
        key = (_item_of(sku), sku.region, sku.usage)
        if key in sold:
            raise failed_precondition(
                f"rate card, {sku.sku_id}: {sold[key]} has the prices of {' '.join(key)} already"
            )
        sold[key] = sku.sku_id
        skus[sku.sku_id] = sku
    begins: dict[str, PlatformTime] = {}
    for switch in (switch for switch in _SWITCHES if switch in data):
        start = make_version(
            switch, _moment("rate card", switch, data[switch]), "0", ""
        ).effective_from
        changed = (
            _host_vms(skus, start)
            if switch == "hosts_from"
            else _from_then_on(skus, _SWITCHES[switch], start)
        )
        charged = {sku.sku_id: sku for sku in changed}
        if not charged and switch != "hosts_from":
            raise failed_precondition(
                f"rate card, {switch}: no SKU of generation {_SWITCHES[switch]}: add its prices"
            )
        skus |= charged
        begins[switch] = start
    return RateCard(CURRENCY, skus, *map(begins.get, _SWITCHES))


def _from_then_on(skus: Mapping[str, Sku], generation: str, start: PlatformTime) -> Iterator[Sku]:
    """The SKUs of disks, objects or operations as they are charged: from `start` on."""
    for sku in skus.values():
        if sku.generation != generation:
            continue
        later = [version for version in sku.versions if version.effective_from > start]
        if (then := sku.version_at(start)) is not None:
            name = f"{sku.sku_id}@{start.rfc3339()}"
            later.insert(0, dataclasses.replace(then, version_id=name, effective_from=start))
        yield dataclasses.replace(sku, versions=tuple(later))


def _host_vms(skus: Mapping[str, Sku], start: PlatformTime) -> Iterator[Sku]:
    """The SKUs of host VMs as they are charged: from `start` on. One that the card does not have is
    made of the prices of its parts, where there are both. Raises FAILED_PRECONDITION where these
    make no whole number of nanos."""
    for region, usage in sorted(
        {(sku.region, sku.usage) for sku in skus.values() if sku.generation == HOST}
    ):
        place = f"{region}/{usage}"
        own = skus.get(f"{HOST_VM}/{place}")
        parts = [skus.get(f"{HOST}-{HOST_SERIES}-{part}/{place}") for part in HOST_PARTS]
        sources = [sku for sku in (own,) if sku] or [sku for sku in parts if sku]
        if own is None and len(sources) < len(parts):
            continue
        starts = {max(start, version.effective_from) for sku in sources for version in sku.versions}
        versions = [
            made
            for at in sorted(starts)
            if (made := _host_version(f"{HOST_VM}/{place}", sources, at))
        ]
        unit = PriceUnit.VM_HOUR
        yield make_sku(
            f"{HOST_VM}/{place}", unit, versions, generation=HOST, region=region, usage=usage
        )


def _host_version(sku_id: str, sources: Sequence[Sku], at: PlatformTime) -> PriceVersion | None:
    """The price of a host VM in force at `at`; None before there is one of each source."""
    found = [sku.version_at(at) for sku in sources]
    versions = [version for version in found if version is not None]
    if len(versions) < len(sources):
        return None
    amounts = (Fraction(HOST_VCPUS), HOST_GIB) if len(versions) > 1 else (Fraction(1),)
    nanos = sum(
        (n * version.nanos for n, version in zip(amounts, versions, strict=True)), Fraction(0)
    )
    name = f"{sku_id}@{at.rfc3339()}"
    if nanos.denominator > 1:
        parts = ", ".join(version.version_id for version in versions)
        raise failed_precondition(
            f"rate card, {name}: {parts} do not make a whole number of nanos: add a SKU {sku_id}"
        )
    source = ", ".join(dict.fromkeys(version.source for version in versions))
    return PriceVersion(
        name, at, nanos.numerator, source, all(version.verified for version in versions)
    )


def read_machine_card(path: Path) -> MachineCard:
    """The prices of one's own machines. Raises NOT_FOUND, and FAILED_PRECONDITION that names the
    row that is wrong."""
    name, text = (
        f"machine card {path}",
        _text_of(path, "machine card", "is not a file that can be read"),
    )
    data = yaml_file.parse(text, name, failed_precondition, has_times=True).data
    if not isinstance(data, dict):
        raise failed_precondition(f"{name}: must have {', '.join(_MACHINE_CARD_KEYS)}")
    _check_keys(name, data, _MACHINE_CARD_KEYS, _MACHINE_CARD_KEYS[2:])
    sources = _head(name, data)
    try:
        cpu, memory = (
            make_sku(key, unit, list(_versions(key, data[key], sources)))
            for key, unit in (("cpu_hour", PriceUnit.VCPU_HOUR), ("gib_hour", PriceUnit.GIB_HOUR))
        )
    except PodyardError as error:
        raise failed_precondition(f"{name}: {error.message.removeprefix('rate card, ')}") from error
    return MachineCard(cpu, memory)


def _head(place: str, data: Mapping[str, Any]) -> Mapping[str, str]:
    """The sources of a card, whose currency is checked."""
    currency = data.get("currency", CURRENCY)
    if currency != CURRENCY:
        raise failed_precondition(
            f"{place}: currency {currency!r}: prices are in {CURRENCY}, and invoices convert"
        )
    sources = data.get("sources") or {}
    if not isinstance(sources, dict) or not all(
        isinstance(item, str) for pair in sources.items() for item in pair
    ):
        raise failed_precondition(f"{place}: sources must be a mapping of short names to texts")
    return sources


def check_change(old: RateCard, new: RateCard, now: PlatformTime) -> None:
    """Raises FAILED_PRECONDITION with the first of `changes_of_the_past`."""
    for _, why in changes_of_the_past(old, new, now):
        raise failed_precondition(why)


def changes_of_the_past(
    old: RateCard, new: RateCard, now: PlatformTime
) -> Iterator[tuple[str, str]]:
    """The price versions by which `new` would price usage before `now` otherwise than `old` does,
    and why, with both prices: a version that has changed, is gone or has come between, or a SKU of
    another kind.

    Where there was no price, one may come: usage that is held for the lack of it is then billed. A
    source may be corrected.
    """
    for _, sku in sorted(old.skus.items()):
        past = [version for version in sku.versions if version.effective_from <= now]
        if not past or not old.charges(sku):
            continue
        other = new.skus.get(sku.sku_id)
        is_gone = other is None or not new.charges(other)
        if other is None or is_gone or _kind(other) != _kind(sku):
            what = "is gone" if is_gone else "is of something else now"
            yield _change(
                past[0],
                f"the SKU of {price_words(past[0], sku)} {what}, and usage has been priced by it",
            )
            continue
        yield from _changed_versions(sku, past, other, now)
    yield from _takeovers(old, new, now)
    yield from _hosts_charged_late(old, new, now)
    for key, generation in _SWITCHES.items():
        if generation in STORED:
            yield from _charged_late(old, new, now, key)


def price_text(nanos: int, unit: str) -> str:
    """`4.50 USD per device_hour`."""
    return f"{without_zeros(minor_text(nanos, USD_DECIMALS))} {CURRENCY} per {unit}"


def price_words(version: PriceVersion, sku: Sku) -> str:
    return price_text(version.nanos, sku.unit)


def _change(version: PriceVersion, why: str) -> tuple[str, str]:
    return version.version_id, f"{version.version_id}: {why}"


def _changed_versions(
    old: Sku, past: Sequence[PriceVersion], new: Sku, now: PlatformTime
) -> Iterator[tuple[str, str]]:
    by_time = {version.effective_from: version for version in new.versions}
    for version in past:
        other = by_time.get(version.effective_from)
        was = price_words(version, old)
        if other is None:
            yield _change(version, f"this price of {was} is gone, and usage has been priced by it")
        elif other.nanos != version.nanos:
            changed = f"this price has changed from {was} to {price_words(other, new)}"
            yield _change(version, f"{changed}, and usage has been priced by it")
    known = {version.effective_from for version in past}
    for version in new.versions:
        if (
            past[0].effective_from < version.effective_from <= now
            and version.effective_from not in known
        ):
            before = old.version_at(version.effective_from)
            assert before is not None
            begins = f"this price of {price_words(version, new)} is new, and begins in the past"
            yield _change(
                version, f"{begins}, where usage has been priced at {price_words(before, old)}"
            )


def _takeovers(old: RateCard, new: RateCard, now: PlatformTime) -> Iterator[tuple[str, str]]:
    """A type's own row goes before its generation's price per chip: a new one must not do so in the
    past."""
    for sku_id, sku in sorted(new.skus.items()):
        if (
            sku_id in old.skus
            or sku.accelerator_type is None
            or sku.versions[0].effective_from > now
        ):
            continue
        before = [
            row for row in old.rows_of(sku.region, sku.usage) if _item_of(row) == sku.generation
        ]
        if before and before[0].versions[0].effective_from <= now:
            priced = f"{before[0].sku_id} has priced {sku.accelerator_type} in the past"
            was, new_price = (
                price_words(before[0].versions[0], before[0]),
                price_words(sku.versions[0], sku),
            )
            yield _change(sku.versions[0], f"{priced}, at {was}, and not this SKU at {new_price}")


def _hosts_charged_late(
    old: RateCard, new: RateCard, now: PlatformTime
) -> Iterator[tuple[str, str]]:
    """Host VMs are free where nothing prices them. So a price of them that is new must not begin in
    the past."""
    for sku_id, sku in sorted(new.skus.items()):
        begins, before = sku.versions[0].effective_from, old.skus.get(sku_id)
        is_new = before is None or begins < before.versions[0].effective_from
        if new.hosts_from is not None and _item_of(sku) == HOST_VM and begins <= now and is_new:
            why = (
                "hosts_from begins in the past, where host VMs have been free: it must be after "
                f"{now.rfc3339()}"
            )
            yield _change(
                sku.versions[0],
                f"this price of {price_words(sku.versions[0], sku)} is new, and {why}",
            )


def _charged_late(
    old: RateCard, new: RateCard, now: PlatformTime, key: str
) -> Iterator[tuple[str, str]]:
    """Disks, objects and operations are free until the card charges them: that must not begin
    earlier in the past than it did. From then on, usage without a price is held, and its price may
    come."""
    generation = _SWITCHES[key]
    before, start = (card.charge_start(STORED[generation]) for card in (old, new))
    if start is None or start > now or (before is not None and before <= start):
        return
    charged = ((sku.versions[0], sku) for sku in new.skus.values() if sku.generation == generation)
    first, sku = min(charged, key=lambda one: (one[0].effective_from, one[0].version_id))
    why = f"{key} begins in the past, where they have been free: it must be after {now.rfc3339()}"
    yield _change(first, f"this price of {price_words(first, sku)} is new, and {why}")


def _kind(sku: Sku) -> tuple[object, ...]:
    return (sku.generation, sku.accelerator_type, sku.region, sku.usage, sku.unit)


def _item_of(sku: Sku) -> str:
    """Return what a SKU is of: a type, one unit of a generation, a disk type, a storage class, or a
    part of a host."""
    if sku.generation in _SWITCHES.values():
        return sku.sku_id.partition("/")[0]
    return sku.accelerator_type or sku.generation


def _sku(sku_id: object, value: object, sources: Mapping[str, str]) -> Sku:
    place = f"rate card, {sku_id}"
    if not isinstance(sku_id, str) or not isinstance(value, dict):
        raise failed_precondition(
            f"{place}: a SKU is a text with a mapping of {', '.join(_SKU_KEYS)}"
        )
    _check_keys(place, value, _SKU_KEYS, _SKU_KEYS[1:])
    unit = _one_of(place, "unit", value["unit"], tuple(str(unit) for unit in PriceUnit))
    generation = _one_of(
        place, "generation", value["generation"], (*_GENERATIONS, *_SWITCHES.values())
    )
    region, kind = value["region"], value.get("type")
    pattern = _LOCATION if generation in (OBJECT, OPERATION) else _REGION
    if not isinstance(region, str) or not pattern.fullmatch(region):
        raise failed_precondition(
            f"{place}: region {region!r} is not the name of a region such as us-central1"
        )
    usage = _one_of(place, "usage", value["usage"], USAGES)
    found = make_sku(
        sku_id,
        PriceUnit(unit),
        list(_versions(sku_id, value["prices"], sources)),
        generation=generation,
        accelerator_type=kind,
        region=region,
        usage=usage,
    )
    _check_unit(place, found)
    return found


def _check_unit(place: str, sku: Sku) -> None:
    """Raises FAILED_PRECONDITION unless unit, type and id are what the generation is sold by."""
    if sku.generation in _SWITCHES.values():
        name = sku.sku_id.removesuffix(f"/{sku.region}/{sku.usage}")
        if sku.generation != HOST:
            pattern, unit = _NAMES[sku.generation]
            wanted = {name: unit} if re.fullmatch(pattern, name) else {}
        else:
            unit = PriceUnit.VM_HOUR
            wanted = {
                f"{HOST}-{HOST_SERIES}-{part}": part_unit for part, part_unit in HOST_PARTS.items()
            }
            wanted[HOST_VM] = unit
        if sku.accelerator_type is not None or wanted.get(name) is not sku.unit:
            names = ", ".join(wanted) or f"{sku.generation}-TYPE"
            units = ", ".join(wanted.values()) or str(unit)
            raise failed_precondition(
                f"{place}: a {sku.generation} has an id NAME/REGION/USAGE of {names}, in {units}"
            )
        return
    if sku.accelerator_type is None:
        if sku.unit is not PriceUnit.CHIP_HOUR:
            raise failed_precondition(
                f"{place}: without a type the unit is {PriceUnit.CHIP_HOUR}, not {sku.unit}"
            )
        return
    try:
        kind = parse(sku.accelerator_type)
    except (PodyardError, TypeError) as error:
        why = (
            error.message
            if isinstance(error, PodyardError)
            else f"type {sku.accelerator_type!r} is not a string"
        )
        raise failed_precondition(f"{place}: {why}") from error
    if kind.name != sku.accelerator_type:
        raise failed_precondition(
            f"{place}: accelerator type {sku.accelerator_type!r} does not exist"
        )
    if kind.generation.name != sku.generation:
        raise failed_precondition(
            f"{place}: {kind.name} is of generation {kind.generation.name}, not {sku.generation}"
        )
    if sku.unit not in (PriceUnit.DEVICE_HOUR, PriceUnit.SLICE_HOUR):
        units = f"{PriceUnit.DEVICE_HOUR} or {PriceUnit.SLICE_HOUR}"
        raise failed_precondition(f"{place}: with a type the unit is {units}, not {sku.unit}")


def _versions(sku_id: str, rows: object, sources: Mapping[str, str]) -> Iterator[PriceVersion]:
    """The price versions of a SKU, checked one by one and against each other."""
    if not isinstance(rows, list) or not rows:
        raise failed_precondition(
            f"rate card, {sku_id}: needs prices: a list of {', '.join(_PRICE_KEYS)}"
        )
    found = [_Row.of(sku_id, number, row, sources) for number, row in enumerate(rows, 1)]
    found.sort(key=lambda row: row.version.effective_from)
    for row, after in itertools.pairwise(found):
        _check_follows(row, after)
    last = found[-1]
    if last.until is not None:
        raise failed_precondition(
            f"{last.place}: gap: nothing follows {last.until.rfc3339()}, and usage after it would "
            "have no price"
        )
    yield from (row.version for row in found)


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """One price with where it stands, and its end where it says one."""

    place: str
    version: PriceVersion
    until: PlatformTime | None

    @classmethod
    def of(cls, sku_id: str, number: int, row: object, sources: Mapping[str, str]) -> _Row:
        place = f"rate card, {sku_id}, price {number}"
        if not isinstance(row, dict):
            raise failed_precondition(f"{place}: a price is a mapping of {', '.join(_PRICE_KEYS)}")
        _check_keys(place, row, _PRICE_KEYS, ("from", "usd", "source"))
        usd, verified = row["usd"], row.get("verified", True)
        if not isinstance(usd, str):
            raise failed_precondition(
                f"{place}: usd {usd!r} is a number to YAML: write usd (as text) in quotes"
            )
        if usd.startswith("-"):
            raise failed_precondition(f"{place}: usd {usd!r}: a price is not negative")
        if not _USD.fullmatch(usd):
            raise failed_precondition(
                f"{place}: usd {usd!r} must have at most nine digits and nine decimals"
            )
        source = _one_of(place, "source", row["source"], tuple(sources))
        if not isinstance(verified, bool):
            raise failed_precondition(f"{place}: verified is true or false, not {verified!r}")
        version = make_version(
            sku_id, _moment(place, "from", row["from"]), usd, sources[source], verified
        )
        until = None
        if "until" in row:
            until = make_version(
                sku_id, _moment(place, "until", row["until"]), "0", ""
            ).effective_from
            if until <= version.effective_from:
                raise failed_precondition(f"{place}: until {until.rfc3339()} is not after from")
        return cls(f"{place} ({version.version_id})", version, until)


def _check_follows(row: _Row, after: _Row) -> None:
    begins = after.version.effective_from
    if row.version.effective_from == begins:
        raise failed_precondition(f"{after.place}: overlap: no two from the same second")
    if row.until is not None and row.until > begins:
        until = row.until.rfc3339()
        raise failed_precondition(
            f"{row.place}: overlap: it ends at {until}, the next begins at {begins.rfc3339()}"
        )
    if row.until is not None and row.until < begins:
        until = row.until.rfc3339()
        raise failed_precondition(
            f"{row.place}: gap: it ends at {until}, the next begins at {begins.rfc3339()}"
        )


def _moment(place: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise failed_precondition(
            f"{place}: {key} {value} is not a string in YAML: write the time in quotes"
        )
    return value


def _one_of(place: str, key: str, value: object, known: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise failed_precondition(f"{place}: {key} {value!r} is not one of {', '.join(known)}")
    return value


def _check_keys(
    place: str, found: Mapping[Any, Any], known: Sequence[str], needed: Sequence[str]
) -> None:
    for key in found:
        if key not in known:
            raise failed_precondition(f"{place}: unknown key {key!r}; there are {', '.join(known)}")
    for key in needed:
        if key not in found:
            raise failed_precondition(f"{place}: must have {key}")
