"""By invoice month the explorer adds up to the invoices: issued ones as they were issued, drafts as
they are; on both databases."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from podyard.base.clock import ManualClock
from podyard.base.errors import PodyardError
from podyard.control.billing import (
    accounts,
    commitments,
    explorer_invoices,
    invoice_records,
    invoices,
    snapshots,
)
from podyard.control.billing.explorer import BY_INVOICE, Question
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.node import UsageClass
from podyard.domain.principal import PLATFORM
from podyard.pricing import explore
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.explore import Booked, CostBucket
from podyard.web.billing.views import by_invoice
from tests.builders import PROJECT, Play

CARD = default_rate_card()
DAY = 86_400
GROUPS = ("type", "node", "sku", "usage", "job", "label:team", "user")


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    """Two months of two nodes, of which one is stopped late in March, in euros, with tax, a credit
    and a commitment."""
    found = Play(database, clock)
    found.create("a")
    found.create("b", usage_class=UsageClass.SPOT)
    rates = {"2026-03": "0.91", "2026-04": "0.937", "2026-05": "0.93"}
    changes = {"currency": "EUR", "tax": "0.19", "rates": rates}
    database.run(lambda uow: accounts.patch(uow, PLATFORM, PROJECT, changes))
    database.run(
        lambda uow: commitments.add_credit(
            uow, PLATFORM, PROJECT, "7.77", None, "2026-04", "a gift"
        )
    )
    wanted = commitments.CommitmentRequest(
        1, 1, upfront=True, sku_id="tpu-v4-chip/us-central2/on-demand"
    )
    database.run(lambda uow: commitments.buy(uow, CARD, PLATFORM, PROJECT, wanted))
    found.turn(31 * DAY + 3.5)
    return found


def _asked(first: str, last: str, group: str, **more: Any) -> Question:
    days = (date.fromisoformat(f"{first}-01"), date.fromisoformat(f"{last}-02"))
    return Question(*days, CostBucket.MONTH, group, by=BY_INVOICE, **more)


def _rows(play: Play, first: str, last: str, group: str, **more: Any) -> dict[str, Booked]:
    def body(uow: UnitOfWork) -> list[explore.Invoiced]:
        found = snapshots.snapshot(uow, CARD, PLATFORM, PROJECT)
        asked = _asked(first, last, group, **more)
        return explorer_invoices.ask_invoiced(uow, CARD, PLATFORM, found, asked)

    made = explore.book(play.database.read(body))
    for row in made:
        assert list(row.net) == [a + b for a, b in zip(row.gross, row.credits, strict=True)]
    return {row.name: row for row in made}


def _totals(rows: dict[str, Booked]) -> list[int]:
    return [sum(column) for column in zip(*(row.net for row in rows.values()), strict=True)]


def _invoice(play: Play, month: str) -> Any:
    return play.database.read(lambda uow: invoices.get(uow, PLATFORM, PROJECT, month))


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_a_month_adds_up_to_its_invoice_issued_or_draft(play: Play, group: str) -> None:
    issued = _invoice(play, "2026-03")
    draft = play.database.read(
        lambda uow: invoices.preview(uow, CARD, PLATFORM, PROJECT, "2026-04")
    )
    assert draft.invoice is not None and draft.invoice.total > 0
    rows = _rows(play, "2026-02", "2026-05", group)
    assert _totals(rows) == [0, issued.total, draft.invoice.total, 0]
    document = json.loads(issued.document)
    assert rows["(tax)"].net[1] == int(document["tax"].replace(".", "")) > 0
    groups = [row for name, row in rows.items() if name != "(tax)"]
    assert sum(row.net[1] for row in groups) == int(document["subtotal"].replace(".", ""))
    assert sum(row.credits[1] for row in groups) < 0


@pytest.mark.slow
def test_what_became_known_late_is_on_the_later_invoice_and_the_issued_one_stays(
    play: Play,
) -> None:
    before = _rows(play, "2026-03", "2026-03", "node")
    total = _invoice(play, "2026-03").total
    play.late_event("STOPPED", "2026-03-21T00:00:00Z", "b")
    rows = _rows(play, "2026-03", "2026-04", "node")
    draft = play.database.read(
        lambda uow: invoices.preview(uow, CARD, PLATFORM, PROJECT, "2026-04")
    )
    assert draft.invoice is not None
    assert _totals(rows) == [total, draft.invoice.total]
    (correction,) = draft.invoice.adjustments
    assert rows["(correction of 2026-03)"].net == [0, correction.minor] and correction.minor < 0
    for name, row in before.items():
        assert [rows[name].gross[0], rows[name].net[0]] == [row.gross[0], row.net[0]], (
            "as it was issued"
        )
    assert rows["us-central1-a/b"].net[1] == 0
    play.turn(30 * DAY)
    assert _totals(_rows(play, "2026-03", "2026-04", "sku")) == [
        total,
        _invoice(play, "2026-04").total,
    ]


def test_the_records_of_an_issued_month_that_is_rated_the_same_are_not_read(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invoice_records, "of_issued", lambda *_: pytest.fail("read for nothing"))
    assert _totals(_rows(play, "2026-03", "2026-03", "type")) == [_invoice(play, "2026-03").total]
    play.late_event("STOPPED", "2026-03-21T00:00:00Z", "b")
    with pytest.raises(pytest.fail.Exception):
        _rows(play, "2026-03", "2026-03", "type")


def test_parts_of_an_invoice_leave_out_what_belongs_to_the_whole(play: Play) -> None:
    whole = _rows(play, "2026-03", "2026-03", "node")
    part = _rows(play, "2026-03", "2026-03", "node", where=(("usage", "spot"),))
    assert list(part) == ["us-central1-a/b"]
    assert abs(part["us-central1-a/b"].net[0] - whole["us-central1-a/b"].net[0]) <= 1


def test_the_view_says_the_same_in_the_invoices_currency(play: Play) -> None:
    def body(uow: UnitOfWork) -> Any:
        found = snapshots.snapshot(uow, CARD, PLATFORM, PROJECT)
        asked = _asked("2026-03", "2026-04", "sku")
        answer = explorer_invoices.ask_invoiced(uow, CARD, PLATFORM, found, asked)
        return by_invoice(found.account, found.as_of, answer, "net")

    view = play.database.read(body)
    document = json.loads(_invoice(play, "2026-03").document)
    assert view.money(view.bars[0][2]).replace(",", "") == f"{document['total']} EUR"
    assert view.bars_total == view.total.net == sum(line.net for line in view.lines)
    drawn = sum(sum(heights) for _, heights in view.series)
    assert drawn == pytest.approx(view.total.net / 100)
    assert [line.name for line in view.lines if not line.is_group] == ["(tax)"]


def test_too_many_months_and_days_in_the_wrong_order_are_refused(play: Play) -> None:
    for first, last in (("2026-05", "2026-04"), ("2020-01", "2026-01")):
        with pytest.raises(PodyardError):
            _rows(play, first, last, "type")
    with pytest.raises(PodyardError):
        _rows(play, "2026-03", "2026-03", "colour")
