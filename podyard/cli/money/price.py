"""`podyard price`: what the rate card says. Needs no running Podyard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import click

from podyard.base.clock import OsClock, PlatformTime
from podyard.base.errors import Code, PodyardError, invalid
from podyard.base.money import minor_text, round_half_up, without_zeros
from podyard.cli.kit import output
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import output_option
from podyard.cli.kit.output import say
from podyard.domain.usage import PriceVersion
from podyard.hardware.accelerator_types import parse
from podyard.pricing import cards
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import RateCard, Sku

_ROW = {
    "SKU": "sku", "TYPE": "type", "REGION": "region", "USAGE": "usage", "UNIT": "unit",
    "USD": "usd",
    "VERIFIED": "verified",
}  # fmt: skip
_OF_TYPE = {**_ROW, "UNITS": "quantity", "USD_PER_HOUR": "usdPerHour"}
_VERSION = {
    "SKU": "sku", "REGION": "region", "USAGE": "usage", "UNIT": "unit", "FROM": "from",
    "USD": "usd",
    "VERIFIED": "verified", "SOURCE": "source",
}  # fmt: skip
_CHANGE = {
    "SKU": "sku", "CHANGE": "change", "FROM": "from", "OLD": "old", "NEW": "new",
    "PERCENT": "percent", "PAST": "past",
}  # fmt: skip


@click.group(cls=CommandGroup, default="list")
def price() -> None:
    """Show prices of TPUs, hosts and disks.

    Prices come from the file that PODYARD_RATE_CARD names, or from Podyard's own rate card.
    """


@price.command(name="list")
@click.option("--region", metavar="REGION", help="Region, for example us-central1.")
@click.option(
    "--type",
    "accelerator_type",
    metavar="TYPE",
    help="Only SKUs of this accelerator type, and the price of a node.",
)
@click.option(
    "--generation", metavar="GENERATION", help="Generation (for example v4), host or disk."
)
@click.option("--usage", type=click.Choice(cards.USAGES), help="Class of usage.")
@click.option(
    "--verified/--unverified",
    default=None,
    help="Only prices that were, or were not, checked against their source.",
)
@click.option("--at", "moment", metavar="TIME", help="Time in RFC 3339 (default: now).")
@lists(lambda given: _OF_TYPE if given["accelerator_type"] else _ROW)
def list_prices(
    region: str | None,
    accelerator_type: str | None,
    generation: str | None,
    usage: str | None,
    verified: bool | None,
    moment: str | None,
) -> Iterable[Item]:
    """List current prices."""
    card, at = default_rate_card(), _moment(moment)
    rows = []
    for sku, quantity in _of_type(card, accelerator_type) if accelerator_type else _all(card):
        version = sku.version_at(at)
        if version is None or (verified is not None and version.verified is not verified):
            continue
        wanted = ((region, sku.region), (generation, sku.generation), (usage, sku.usage))
        if all(asked in (None, found) for asked, found in wanted):
            row = {**_row(sku), **_price(version)}
            if accelerator_type:
                row |= {"quantity": quantity, "usdPerHour": _text(version.nanos * quantity)}
            rows.append(row)
    return rows


@price.command()
@click.argument("what", metavar="SKU|TYPE")
@click.option("--region", metavar="REGION", help="Region, for example us-central1.")
@output_option
def show(what: str, region: str | None, output: str) -> None:
    """Show all versions of the price of a SKU, or of all SKUs of an accelerator type, with
    sources."""
    card = default_rate_card()
    named = card.skus.get(what)
    found = (
        [(named, 1)] if named is not None else list(_of_type(card, what)) if _is_type(what) else []
    )
    skus = [sku for sku, _ in found if region in (None, sku.region)]
    if not skus:
        raise PodyardError(
            Code.NOT_FOUND, _missing(what, region, sorted({sku.region for sku, _ in found}))
        )
    rows = [{**_row(sku), "from": version.effective_from.rfc3339(), **_price(version)}
            for sku in skus for version in sku.versions]  # fmt: skip
    _emit(rows, output, _VERSION)


@price.command()
@click.argument("card_a", metavar="CARD_A")
@click.argument("card_b", metavar="CARD_B")
@click.option(
    "--at", "moment", metavar="TIME", help="End of the invoiced usage, in RFC 3339 (default: now)."
)
@output_option
def diff(card_a: str, card_b: str, moment: str | None, output: str) -> None:
    """Compare two rate cards, each a file or the date of one of Podyard's own.

    PAST marks changes to prices before TIME. If Podyard has issued invoices with CARD_A until TIME,
    it rejects CARD_B.
    """
    old, new = cards.read_card(card_a), cards.read_card(card_b)
    refused = dict(cards.changes_of_the_past(old, new, _moment(moment)))
    rows = list(_differences(old, new, refused))
    if output == "table":
        rows = [{**row, "past": "refused" if row["refused"] else None} for row in rows]
    _emit(rows, output, _CHANGE)
    if refused:
        say(f"CARD_B is refused where CARD_A has priced usage: {next(iter(refused.values()))}")


def _all(card: RateCard) -> Iterator[tuple[Sku, int]]:
    return ((sku, 1) for _, sku in sorted(card.skus.items()))


def _of_type(card: RateCard, accelerator_type: str) -> Iterator[tuple[Sku, int]]:
    """Return what prices the type in each region and way to buy, by SKU id, with the units of a
    node. Raises INVALID_ARGUMENT for anything else."""
    parse(accelerator_type)
    places = sorted({(sku.region, sku.usage) for sku in card.skus.values()})
    found = {}
    for region, usage in places:
        try:
            sku, quantity = card.row_for(accelerator_type, region, usage)
        except PodyardError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            continue
        found[sku.sku_id] = (sku, quantity)
    return (found[sku_id] for sku_id in sorted(found))


def _missing(what: str, region: str | None, regions: list[str]) -> str:
    if regions:
        return (
            f"the rate card has no price of {what} in {region}: it has some in {', '.join(regions)}"
        )
    return (
        f"the rate card has no price of {what}, neither a SKU nor a type that is sold: see "
        "podyard price list"
    )


def _is_type(name: str) -> bool:
    try:
        parse(name)
    except PodyardError:
        return False
    return True


def _differences(
    old: RateCard, new: RateCard, refused: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """By SKU and version, in the order of their ids and times. `refused`: versions that cannot
    change, with why."""
    for sku_id in sorted({*old.skus, *new.skus}):
        before, after = (
            {version.effective_from: version for version in card.skus[sku_id].versions}
            if sku_id in card.skus
            else {}
            for card in (old, new)
        )
        for moment in sorted({*before, *after}):
            was, now = before.get(moment), after.get(moment)
            version = now or was
            assert version is not None
            why = refused.get(version.version_id)
            if was is not None and now is not None and was.nanos == now.nanos and why is None:
                continue
            yield {
                "sku": sku_id,
                "change": "added" if was is None else "removed" if now is None else "changed",
                "from": moment.rfc3339(),
                "old": None if was is None else _usd(was),
                "new": None if now is None else _usd(now),
                "percent": None if was is None or now is None else _percent(was.nanos, now.nanos),
                "refused": why,
            }


def _percent(old: int, new: int) -> str | None:
    """`+12.50`; None from a price of nothing."""
    if old == 0:
        return None
    change = Fraction(new - old, old) * 100 * 100
    text = minor_text(round_half_up(change.numerator, change.denominator), 2)
    return text if change < 0 else f"+{text}"


def _row(sku: Sku) -> dict[str, Any]:
    return {
        "sku": sku.sku_id,
        "type": sku.accelerator_type,
        "generation": sku.generation,
        "region": sku.region,
        "usage": sku.usage,
        "unit": str(sku.unit),
    }


def _price(version: PriceVersion) -> dict[str, Any]:
    return {"usd": _usd(version), "verified": version.verified, "source": version.source}


def _usd(version: PriceVersion) -> str:
    return _text(version.nanos)


def _text(nanos: int) -> str:
    return without_zeros(minor_text(nanos, cards.USD_DECIMALS))


def _moment(text: str | None) -> PlatformTime:
    if text is None:
        return PlatformTime(OsClock().now().nanos)
    try:
        return PlatformTime.from_rfc3339(text)
    except ValueError as error:
        raise invalid(f"--at: {error}", "at") from None


def _emit(rows: list[dict[str, Any]], form: str, columns: dict[str, str]) -> None:
    if form != "table":
        output.emit(rows, form)
        return
    shown = [{**row, "verified": "yes" if row.get("verified") else "no"} for row in rows]
    output.emit(shown, form, columns)


COMMANDS = {"price": price}
