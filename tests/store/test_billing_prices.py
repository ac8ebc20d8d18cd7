"""A card cannot change what issued invoices went by: refused where a server starts, by previews and
by closings, with the row and both prices; on both databases."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from sqlalchemy import func, select

from podyard import migrations, settings
from podyard.api.app import prepare
from podyard.base.clock import ManualClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.control.billing import card_prices, invoices
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.billing import card_prices as table
from podyard.domain.principal import PLATFORM
from podyard.http import several_units
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import RateCard, Sku, make_sku, make_version
from tests.builders import PROJECT, Play

DAY = 86_400
CARD = default_rate_card()
SKU = "tpu-v2-device/us-central1/on-demand"  # what is used
OTHER = "tpu-v2-device/europe-west4/on-demand"  # what nobody has used


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    play = Play(database, clock)
    play.create("n")
    return play


def _with(sku_id: str, *versions: tuple[str, str]) -> RateCard:
    """The shipped card, in which a SKU has these versions (time, USD) besides its own; one of its
    own time replaces
    it."""
    old = CARD.skus[sku_id]
    found = {version.effective_from: version for version in old.versions}
    for since, amount in versions:
        made = make_version(sku_id, since, amount, "test")
        found[made.effective_from] = made
    fields = {
        name: getattr(old, name) for name in ("generation", "accelerator_type", "region", "usage")
    }
    return RateCard(
        CARD.currency,
        {**CARD.skus, sku_id: make_sku(sku_id, old.unit, list(found.values()), **fields)},
    )


def _without(sku_id: str) -> RateCard:
    return RateCard(CARD.currency, {key: sku for key, sku in CARD.skus.items() if key != sku_id})


def _other_unit() -> RateCard:
    sku: Sku = dataclasses.replace(CARD.skus[OTHER], usage="preemptible")
    return RateCard(CARD.currency, {**CARD.skus, OTHER: sku})


BEGIN = CARD.skus[SKU].versions[0].effective_from.rfc3339()
CHANGES = [
    (
        _with(SKU, (BEGIN, "5")),
        f"{SKU}@{BEGIN}",
        "4.50 USD per device_hour",
        "5.00 USD per device_hour",
    ),
    (
        _with(OTHER, (BEGIN, "5")),
        f"{OTHER}@{BEGIN}",
        "4.95 USD per device_hour",
        "5.00 USD per device_hour",
    ),
    (
        _with(SKU, ("2026-03-15T00:00:00Z", "5")),
        f"{SKU}@2026-03-15T00:00:00Z",
        "4.50 USD per device_hour",
        "5.00 USD per device_hour",
    ),
    (_without(OTHER), f"{OTHER}@{BEGIN}", "4.95 USD per device_hour", "is gone"),
    (_other_unit(), f"{OTHER}@{BEGIN}", "4.95 USD per device_hour", "something else"),
]


@pytest.mark.parametrize(("changed", "row", "old", "new"), CHANGES)
def test_a_card_that_contradicts_issued_invoices_is_refused_with_its_row(
    play: Play, changed: RateCard, row: str, old: str, new: str
) -> None:
    play.turn(31 * DAY)
    asks = [
        lambda: play.database.read(lambda uow: card_prices.check(uow, changed)),
        lambda: play.database.read(
            lambda uow: invoices.preview(uow, changed, PLATFORM, PROJECT, None)
        ),
    ]
    play.clock.advance(31 * DAY)
    asks.append(lambda: several_units.close(play.database, changed, PLATFORM, PROJECT, "2026-04"))
    for ask in asks:
        with pytest.raises(PodyardError) as raised:
            ask()
        assert raised.value.code is Code.FAILED_PRECONDITION
        for text in (row, old, new):
            assert text in raised.value.message


@pytest.mark.parametrize("changed", [change[0] for change in CHANGES])
def test_before_the_first_invoice_a_card_may_say_what_it_likes(
    play: Play, changed: RateCard
) -> None:
    play.turn(DAY)
    play.database.read(lambda uow: card_prices.check(uow, changed))
    play.database.read(lambda uow: invoices.preview(uow, changed, PLATFORM, PROJECT, None))


def test_what_begins_after_the_last_invoice_may_change(play: Play, clock: ManualClock) -> None:
    play.turn(31 * DAY)
    clock.advance(20 * DAY)
    changed = _with(SKU, ("2026-04-10T00:00:00Z", "5"))  # past, and not issued yet
    play.database.read(lambda uow: card_prices.check(uow, changed))
    clock.advance(20 * DAY)
    row = several_units.close(play.database, changed, PLATFORM, PROJECT, "2026-04")
    assert row is not None
    assert [line["unitPrice"] for line in json.loads(row.document)["lines"]] == [
        "4.500000000",
        "5.000000000",
    ]
    with pytest.raises(PodyardError, match="2026-04-10T00:00:00Z"):
        play.database.read(lambda uow: card_prices.check(uow, CARD))


def test_a_card_is_kept_once(play: Play, clock: ManualClock) -> None:
    def count() -> int:
        return int(
            play.database.read(
                lambda uow: uow.execute(select(func.count()).select_from(table)).scalar_one()
            )
        )

    assert count() == 0
    play.turn(31 * DAY)
    of_then = PlatformTime.from_rfc3339("2026-04-01T00:00:00Z")
    charged = [sku for sku in CARD.skus.values() if CARD.charges(sku)]  # no disks and objects
    wanted = sum(version.effective_from <= of_then for sku in charged for version in sku.versions)
    assert count() == wanted > 100
    play.turn(61 * DAY)
    assert count() == wanted


def test_a_server_with_a_contradicting_card_does_not_start(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = settings.from_environment({"PODYARD_DATA": str(tmp_path), "PODYARD_CLOCK": "system"})
    changed = CHANGES[0][0]
    monkeypatch.setattr(card_prices, "default_rate_card", lambda: changed)
    prepare(here, play.database)
    play.turn(31 * DAY)
    with pytest.raises(PodyardError, match=r"from 4\.50 USD|issued invoices use 4\.50 USD"):
        prepare(here, play.database)
    monkeypatch.setattr(card_prices, "default_rate_card", lambda: CARD)
    prepare(here, play.database)


def test_a_database_whose_invoices_kept_no_card_still_refuses_what_they_used(play: Play) -> None:
    play.turn(31 * DAY)
    migrations.migrate(play.database.engine, "0010")
    migrations.upgrade(play.database)
    play.database.read(lambda uow: card_prices.check(uow, CARD))
    with pytest.raises(PodyardError, match="add a new version"):
        play.database.read(lambda uow: card_prices.check(uow, CHANGES[0][0]))
    play.turn(30 * DAY)  # and from the next invoice on all of it
    with pytest.raises(PodyardError, match="has changed from"):
        play.database.read(lambda uow: card_prices.check(uow, CHANGES[1][0]))
