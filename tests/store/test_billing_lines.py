"""Every surface says the same of a line: document, exports, explanation and fsck; whatever prices
have done."""

from __future__ import annotations

import dataclasses
import json

import pytest

from podyard.base.clock import ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.control.billing import accounts, bill_lines, closing, commitments, exports, invoices
from podyard.control.billing.exports import ExportRequest
from podyard.control.billing.invoice_document import (
    InvoiceDocument,
    canonical,
    from_json,
    same_facts,
    to_json,
)
from podyard.control.compute import nodes
from podyard.db.billing import invoices as invoice_rows
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.billing import invoices as invoices_table
from podyard.domain.invoice import IssuedInvoice
from podyard.domain.principal import PLATFORM
from podyard.http import several_units
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import RateCard, make_sku, make_version
from tests.builders import PROJECT, Play
from tests.surfaces import check_books, check_month

DAY = 86_400
CARD = default_rate_card()
SKU = "tpu-v2-device/us-central1/on-demand"
SLICE = "tpu-v2-32/us-central1/on-demand"
BEGIN = CARD.skus[SKU].versions[0].effective_from.rfc3339()


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock)


def _card(*versions: tuple[str, str, str]) -> RateCard:
    """The shipped card with these versions (time, USD, source) of the SKU, and no others."""
    old = CARD.skus[SKU]
    fields = {
        name: getattr(old, name) for name in ("generation", "accelerator_type", "region", "usage")
    }
    made = [make_version(SKU, since, amount, source) for since, amount, source in versions]
    return RateCard(CARD.currency, {**CARD.skus, SKU: make_sku(SKU, old.unit, made, **fields)})


RETURNS = _card(
    (BEGIN, "4.50", "a"), ("2026-03-10T00:00:00Z", "9", "b"), ("2026-03-20T00:00:00Z", "4.5", "c")
)
RESTATED = _card((BEGIN, "4.5", "a"), ("2026-03-10T00:00:00Z", "4.50", "another source"))
ANNOUNCED = _card((BEGIN, "4.50", "a"), ("2026-04-15T00:00:00Z", "5.123456789", "b"))
LATE = _card(("2026-03-10T12:34:56Z", "4.50", "a"))
TOO_LATE = _card(("2026-05-10T12:34:56Z", "4.50", "a"))


def _both(
    play: Play, card: RateCard, month: str = "2026-03", *, books: bool = True
) -> InvoiceDocument:
    """The month as a draft, and as it was issued. `books`: all usage is that of nodes."""
    check_month(play.database, card, PROJECT, month)
    play.turn(31 * DAY)
    issued = check_month(play.database, card, PROJECT, month)
    assert issued is not None
    if books:
        check_books(play.database, play.fleet, card)
    return issued


@pytest.fixture
def card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RateCard:
    found: RateCard = request.param
    monkeypatch.setattr(closing, "default_rate_card", lambda: found)
    return found


@pytest.mark.parametrize("card", [RETURNS], indirect=True)
def test_a_price_that_returns_is_one_line(play: Play, card: RateCard) -> None:
    play.create("n")
    play.turn(2 * DAY)
    issued = _both(play, card)
    assert [(line.id, line.exact_usd) for line in issued.lines] == [
        (f"{SKU}@4.50", "2267.987500000000"),  # 20.99988 days
        (f"{SKU}@9.00", "2160.000000000000"),
    ]
    assert [version.rpartition("@")[2] for version in issued.lines[0].price_versions] == [
        BEGIN,
        "2026-03-20T00:00:00Z",
    ]
    april = check_month(play.database, card, PROJECT, "2026-04")
    assert april is not None and not april.adjustments


@pytest.mark.parametrize("card", [RESTATED], indirect=True)
def test_a_price_that_is_stated_again_is_one_line(play: Play, card: RateCard) -> None:
    play.create("n")
    play.turn(2 * DAY)
    (line,) = _both(play, card).lines
    assert len(line.price_versions) == 2


@pytest.mark.parametrize("card", [ANNOUNCED], indirect=True)
def test_an_announced_price_changes_nothing_before_its_time(play: Play, card: RateCard) -> None:
    play.create("n")
    play.turn(2 * DAY)
    assert [line.id for line in _both(play, card).lines] == [f"{SKU}@4.50"]
    april = _both(play, card, "2026-04")
    assert [line.id for line in april.lines] == [f"{SKU}@4.50", f"{SKU}@5.123456789"]


def test_a_month_that_was_closed_without_what_has_no_price_is_no_fault(
    play: Play, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    """The card knows the SKU from the 10th of March on; what was held keeps no words that a later
    card might change."""
    monkeypatch.setattr(closing, "default_rate_card", lambda: LATE)
    play.create("n")
    play.turn(DAY)
    draft = play.database.read(lambda uow: invoices.preview(uow, LATE, PLATFORM, PROJECT, None))
    (reason,) = draft.held
    assert reason.endswith(f"/nodes/n: {SKU} has no price before 2026-03-10T12:34:56Z")
    play.turn(30 * DAY)
    held_because = play.database.read(lambda uow: accounts.get(uow, PLATFORM, PROJECT)).held_because
    assert f"{SKU} has no price before 2026-03-10T12:34:56Z" in held_because
    row = several_units.close(play.database, LATE, PLATFORM, PROJECT, "2026-03", hold_suspense=True)
    assert row is not None
    assert set(json.loads(row.document)["held"][0]) == {"resource", "name", "start", "seconds"}
    check_month(play.database, LATE, PROJECT, "2026-03")
    check_books(play.database, play.fleet, LATE)


def test_held_seconds_that_touch_are_the_same_seconds_however_they_are_cut(
    play: Play, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    """The SKU has no price of March: its seconds are cut where the node's last period begins.
    Computed again, by the prices that invoices had used by then, there is no SKU."""
    monkeypatch.setattr(closing, "default_rate_card", lambda: TOO_LATE)
    play.fleet = dataclasses.replace(
        play.fleet, timings=dataclasses.replace(play.fleet.timings, stop_seconds=0)
    )
    play.create("n")
    play.turn(DAY)
    play.run(nodes.stop, "n")
    play.turn()
    play.run(nodes.start, "n")
    play.turn()
    play.turn(30 * DAY)
    row = several_units.close(
        play.database, TOO_LATE, PLATFORM, PROJECT, "2026-03", hold_suspense=True
    )
    assert row is not None
    check_month(play.database, TOO_LATE, PROJECT, "2026-03")
    check_books(play.database, play.fleet, TOO_LATE)
    document = from_json(row.document)
    damaged = document._replace(
        held=[document.held[0]._replace(start="yesterday"), *document.held[1:]]
    )
    assert not same_facts(canonical(damaged), document)
    for held in (document.held[:-1], [document.held[0]._replace(seconds=1), *document.held[1:]]):
        assert not same_facts(row.document, document._replace(held=held))


def test_commitments_credits_corrections_and_another_currency(
    play: Play, clock: ManualClock
) -> None:
    changes = {
        "currency": "JPY",
        "decimals": 0,
        "tax": "0.1",
        "rates": {"2026-03": "151.37", "2026-04": "149.9"},
    }
    play.database.run(lambda uow: accounts.patch(uow, PLATFORM, PROJECT, changes))
    play.create("n", "v2-32", labels={"team": "a"})
    play.create("m", "v5litepod-8")
    for upfront in (False, True):
        wanted = commitments.CommitmentRequest(1, 1, upfront, sku_id=SLICE)
        play.database.run(
            lambda uow, wanted=wanted: commitments.buy(uow, CARD, PLATFORM, PROJECT, wanted)
        )
    play.database.run(
        lambda uow: commitments.add_credit(
            uow, PLATFORM, PROJECT, "12.345", None, "2026-12", "a gift"
        )
    )
    play.turn(5 * DAY + 1234.5)
    march = _both(play, CARD)
    quantities = {line.sku.partition(":")[0]: line.quantity for line in march.lines}
    # READY for 10 s before the first commitment was bought
    assert quantities[SLICE] == "0.002777777778"
    play.late_event("STOPPED", "2026-03-30T12:00:00Z", "m")
    april = _both(play, CARD, "2026-04", books=False)
    assert [one.corrects_month for one in april.adjustments] == ["2026-03"]
    check_month(play.database, CARD, PROJECT, "2026-03")


def _tamper(play: Play, change: str) -> IssuedInvoice:
    """An issued invoice whose first line says another amount: what no code of ours would write."""
    row = play.database.read(lambda uow: invoice_rows.find(uow, PROJECT, "2026-03"))
    assert row is not None
    found = from_json(row.document)
    lines = [
        found.lines[0]._replace(parts=str(int(found.lines[0].parts) + int(change))),
        *found.lines[1:],
    ]
    values = {"document": canonical(found._replace(lines=lines))}
    play.database.run(
        lambda uow: uow.update(invoices_table, {"project": PROJECT, "month": "2026-03"}, values)
    )
    return row


def test_a_difference_is_an_error_that_names_it(play: Play) -> None:
    play.create("n")
    play.turn(31 * DAY)
    _tamper(play, str(2_628_000 * 10**9))  # a dollar more
    line = f"{SKU}@4.50"
    request = ExportRequest("csv", "2026-03", "2026-03")
    asks = [
        lambda: play.database.read(
            lambda uow: bill_lines.explain(uow, CARD, PLATFORM, PROJECT, "2026-03", line)
        ),
        lambda: exports.small_file(
            play.database.read(
                lambda uow: exports.one_month(uow, CARD, PLATFORM, PROJECT, request)
            ),
            request,
        ),
    ]
    for ask in asks:
        with pytest.raises(PodyardError) as raised:
            ask()
        assert raised.value.code is Code.DATA_LOSS
        assert line in raised.value.message
        assert "-1.000000000000 USD" in raised.value.message


@pytest.mark.parametrize("line", ["", "nothing", f"{SKU}@4.51", "x" * 5000])
def test_a_line_that_is_not_there_is_not_found(play: Play, line: str) -> None:
    play.create("n")
    play.turn(31 * DAY)
    for month in ("2026-03", "2026-04"):
        with pytest.raises(PodyardError) as raised:
            play.database.read(
                lambda uow, month=month: bill_lines.explain(
                    uow, CARD, PLATFORM, PROJECT, month, line
                )
            )
        assert raised.value.code is Code.NOT_FOUND
        assert len(raised.value.message) < 300


def _form_1(document: InvoiceDocument) -> bytes:
    """As versions before this one wrote it."""
    data = to_json(document)
    del data["form"]
    for line in data["lines"]:
        for name in ("id", "priceVersions", "quantity", "unitSeconds"):
            del line[name]
    for held in data["held"]:
        held["reason"] = "no on-demand price of v2-8"
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_a_document_of_the_old_form_says_the_same(play: Play) -> None:
    play.create("n", "v2-32")
    play.create("m", "v5litepod-8")
    wanted = commitments.CommitmentRequest(1, 1, sku_id=SLICE)
    play.database.run(lambda uow: commitments.buy(uow, CARD, PLATFORM, PROJECT, wanted))
    play.turn(31 * DAY)
    row = play.database.read(lambda uow: invoice_rows.find(uow, PROJECT, "2026-03"))
    assert row is not None
    written = from_json(row.document)
    old = _form_1(written)
    assert same_facts(old, written)
    read = from_json(old)
    assert (read.form, len(read.lines)) == (1, len(written.lines))
    for mine, theirs in zip(read.lines, written.lines, strict=True):
        assert (mine.id, mine.quantity, mine.unit_seconds) == (
            theirs.id,
            theirs.quantity,
            theirs.unit_seconds,
        )
    changed = dataclasses.replace(row, document=old)
    more = written._replace(total="1.00")
    assert not same_facts(changed.document, more)
    assert not same_facts(json.dumps({**json.loads(old), "form": 3}).encode(), written)
    for damaged in (b"", b"{}", b"[]", b"1", old[:-2]):
        assert not same_facts(damaged, written)
    fewer = written._replace(lines=written.lines[1:])
    assert not same_facts(changed.document, fewer)
