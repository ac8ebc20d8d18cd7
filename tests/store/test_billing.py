"""Closing a month: once, by the loop or by hand, with its ledger; previews, adjustments and what is
refused; on both databases."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from podyard import migrations
from podyard.base.clock import ManualClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import accounts, bill_lines, budgets, closing, commitments, invoices
from podyard.control.checks import fsck
from podyard.control.compute import nodes
from podyard.db.store import ledger, timers
from podyard.db.tables.billing import adjustments, ledger_entries, ledger_transactions
from podyard.db.tables.billing import commitments as table_of_commitments
from podyard.db.tables.billing import invoices as table_of_invoices
from podyard.domain.account import Account
from podyard.domain.invoice import Purchase
from podyard.domain.ledger import LedgerEntry
from podyard.domain.principal import PLATFORM, Principal
from podyard.http import several_units
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import RateCard, make_sku, make_version
from tests.builders import PROJECT, ZONE, Play

DAY = 86_400
PARTS_PER_CENT = 26_280_000_000_000
READY_MARCH = 31 * DAY - 10  # a node that is made with the month is READY 10 s later
SKU = "tpu-v2-device/us-central1/on-demand"


def _close(play: Play, month: str, **options: Any) -> Any:
    card = options.pop("card", default_rate_card())
    return several_units.close(play.database, card, PLATFORM, PROJECT, month, **options)


def _invoice(play: Play, month: str) -> dict[str, Any]:
    row = play.database.read(lambda uow: invoices.get(uow, PLATFORM, PROJECT, month))
    found: dict[str, Any] = json.loads(row.document)
    assert row.sha256 == hashlib.sha256(row.document).hexdigest()
    return found


def _preview(play: Play, month: str | None = None) -> Any:
    return play.database.read(
        lambda uow: invoices.preview(uow, default_rate_card(), PLATFORM, PROJECT, month)
    )


def _account(play: Play, **changes: Any) -> Account:
    return play.database.run(lambda uow: accounts.patch(uow, PLATFORM, PROJECT, changes))


def _ledger(play: Play) -> dict[str, int]:
    """Parts by account."""
    sums: dict[str, int] = {}
    for row in play.database.read(lambda uow: uow.all(select(ledger_entries))):
        sums[row["account"]] = sums.get(row["account"], 0) + row["amount"].parts
    assert sum(sums.values()) == 0
    return sums


def _refused(code: Code, body: Any) -> str:
    with pytest.raises(PodyardError) as raised:
        body()
    assert raised.value.code is code, raised.value.message
    return raised.value.message


def test_the_loop_closes_the_month_when_it_is_over_and_its_grace_has_passed(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    _account(play, grace_hours=2)
    clock.advance(31 * DAY - 10 + 3600)
    play.turn()
    assert play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT)) == []
    play.turn(3600)
    found = _invoice(play, "2026-03")
    (line,) = found["lines"]
    assert (line["sku"], line["seconds"], line["estimated"]) == (SKU, READY_MARCH, False)
    assert found["asOf"] == "2026-04-01T02:00:00Z"
    assert found["total"] == line["amount"] == "3347.99"  # 2,678,390 s x 4.50 / 3600 = 3347.9875
    assert (found["periodStart"], found["periodEnd"]) == (
        "2026-03-01T00:00:00Z",
        "2026-04-01T00:00:00Z",
    )


def test_a_preview_is_the_invoice_while_its_month_is_open(play: Play, clock: ManualClock) -> None:
    play.create("n")
    clock.advance(DAY)
    found = _preview(play)
    assert found.document.lines[0].estimated
    assert found.document.total == "108.00"
    clock.advance(30 * DAY - 10.5)
    before = _preview(play).document
    play.turn(DAY)
    issued = _invoice(play, "2026-03")
    assert before.lines[0].amount == issued["lines"][0]["amount"]
    assert "2026-03 is closed" in _refused(
        Code.FAILED_PRECONDITION, lambda: _preview(play, "2026-03")
    )


def test_a_month_is_closed_once_and_books_once(play: Play, clock: ManualClock) -> None:
    play.create("n")
    message = _refused(Code.FAILED_PRECONDITION, lambda: _close(play, "2026-03"))
    assert "2026-04-01T00:00:00Z" in message
    clock.advance(32 * DAY)
    first = _close(play, "2026-03")
    # a day late, with the same bytes
    assert json.loads(first.document)["asOf"] == "2026-04-01T00:00:00Z"
    booked = _ledger(play)
    assert booked == {
        f"receivable:{PROJECT}": 334_799 * PARTS_PER_CENT,
        f"revenue:{SKU}": -READY_MARCH * 4_500_000_000 * 730,
        "rounding": READY_MARCH * 4_500_000_000 * 730 - 334_799 * PARTS_PER_CENT,
    }
    again = _close(play, "2026-03")
    assert again == first
    play.turn(DAY)  # the loop's own timer finds it closed
    assert _ledger(play) == booked
    message = _refused(Code.FAILED_PRECONDITION, lambda: _close(play, "2026-05"))
    assert "2026-05 cannot be closed yet: close 2026-04 first" in message
    (booking,) = play.database.read(lambda uow: uow.all(select(ledger_transactions)))
    assert booking["source_id"] == "invoice:demo:2026-03"


def test_an_empty_month_closes_without_an_invoice(play: Play, clock: ManualClock) -> None:
    play.create("n")
    play.turn(60)
    play.run(nodes.delete, "n")
    clock.advance(100 * DAY)
    play.turn()
    found = play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT))
    assert [row.month for row in found] == ["2026-03"]
    assert _close(play, "2026-04") is None
    account = play.database.read(lambda uow: accounts.get(uow, PLATFORM, PROJECT))
    assert account.next_month == "2026-06"


def test_late_usage_is_an_adjustment_in_the_month_that_is_closed_next(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    play.turn(31 * DAY)
    issued = _invoice(play, "2026-03")
    # twelve hours of March were not used after all
    play.late_event("STOPPED", "2026-03-31T12:00:00Z")
    assert _invoice(play, "2026-03") == issued
    play.turn(30 * DAY)
    found = _invoice(play, "2026-04")
    (correction,) = found["adjustments"]
    (item,) = correction.pop("items")
    assert correction == {"correctsMonth": "2026-03", "amount": "-54.00", "exchangeRate": "1"}
    assert (item["line"], item["quantity"]) == (f"{SKU}@4.50", "-12.000000000000")
    assert (item["seconds"], item["exactUsd"]) == (-43_200, "-54.000000000000")
    assert (found["subtotal"], found["total"]) == ("0.00", "-54.00")
    play.late_event("READY", "2026-04-30T23:00:00Z")
    play.turn(31 * DAY)
    found = _invoice(play, "2026-05")
    (correction,) = found["adjustments"]
    assert (correction["correctsMonth"], correction["amount"]) == ("2026-04", "4.50")
    assert [item["seconds"] for item in correction["items"]] == [3600]
    assert _ledger(play)["adjustment:2026-03"] == 5400 * PARTS_PER_CENT
    rows = play.database.read(
        lambda uow: uow.all(select(adjustments).order_by(adjustments.c.corrects_month))
    )
    assert [(row["corrects_month"], row["booked_month"], row["minor"]) for row in rows] == [
        ("2026-03", "2026-04", -5400),
        ("2026-04", "2026-05", 450),
    ]


def test_an_issued_invoice_is_computed_again_to_the_same_bytes(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    play.turn(31 * DAY)
    play.late_event("STOPPED", "2026-03-31T12:00:00Z")
    play.turn(40 * DAY)
    rows = play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT))
    assert [row.month for row in rows] == ["2026-03", "2026-04"]
    for row in rows:
        assert play.database.read(
            lambda uow, row=row: invoices.is_reproduced(uow, default_rate_card(), row)
        )


def _card_without_v2() -> RateCard:
    card = default_rate_card()
    return RateCard(
        card.currency, {key: sku for key, sku in card.skus.items() if sku.generation != "v2"}
    )


def test_usage_without_a_price_holds_the_month_up_or_is_adjusted_when_it_has_one(
    play: Play, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.create("n")
    monkeypatch.setattr(closing, "default_rate_card", _card_without_v2)
    play.turn(31 * DAY)
    account = play.database.read(lambda uow: accounts.get(uow, PLATFORM, PROJECT))
    assert account.next_month == "2026-03"
    assert f"2678390 s of projects/{PROJECT}/locations/" in account.held_because
    assert "no on-demand price of v2-8" in account.held_because
    message = _refused(
        Code.FAILED_PRECONDITION, lambda: _close(play, "2026-03", card=_card_without_v2())
    )
    assert message == account.held_because
    row = _close(play, "2026-03", card=_card_without_v2(), hold_suspense=True)
    held = json.loads(row.document)
    assert (held["total"], held["held"][0]["seconds"]) == ("0.00", READY_MARCH)
    monkeypatch.setattr(closing, "default_rate_card", default_rate_card)
    play.turn(31 * DAY)
    found = _invoice(play, "2026-04")
    (correction,) = found["adjustments"]
    assert (correction["correctsMonth"], correction["amount"]) == ("2026-03", "3347.99")
    assert [item["seconds"] for item in correction["items"]] == [READY_MARCH]
    assert play.database.read(lambda uow: invoices.is_reproduced(uow, default_rate_card(), row))


def test_a_price_that_was_used_cannot_change(play: Play, clock: ManualClock) -> None:
    play.create("n")
    play.turn(31 * DAY)
    card = default_rate_card()
    old = card.skus[SKU]
    dearer = make_version(SKU, old.versions[0].effective_from.rfc3339(), "5.00", "test")
    changed = RateCard(card.currency, {**card.skus, SKU: make_sku(SKU, old.unit, [dearer])})
    clock.advance(31 * DAY)
    message = _refused(Code.FAILED_PRECONDITION, lambda: _close(play, "2026-04", card=changed))
    assert old.versions[0].version_id in message
    message = _refused(
        Code.FAILED_PRECONDITION, lambda: _close(play, "2026-04", card=_card_without_v2())
    )
    assert "no longer has price" in message


def test_currency_tax_and_zone_are_those_of_the_account(play: Play, clock: ManualClock) -> None:
    play.create("n")
    _account(play, currency="JPY", tax="0.1", time_zone="Asia/Tokyo")
    clock.advance(31 * DAY - 20)
    play.turn()
    account = play.database.read(lambda uow: accounts.get(uow, PLATFORM, PROJECT))
    assert "no exchange rate of JPY for 2026-03" in account.held_because
    _account(play, rates={"2026-03": "150"})
    play.turn()
    found = _invoice(play, "2026-03")
    assert found["periodStart"] == "2026-02-28T15:00:00Z"
    seconds = found["lines"][0]["seconds"]
    assert seconds == READY_MARCH - 9 * 3600
    yen = round(seconds * 4.5 / 3600 * 150)
    assert (found["subtotal"], found["tax"]) == (str(yen), str(round(yen / 10)))
    assert "tax cannot change" in _refused(
        Code.FAILED_PRECONDITION, lambda: _account(play, tax="0.2")
    )
    assert "2026-03 is closed" in _refused(
        Code.FAILED_PRECONDITION, lambda: _account(play, rates={"2026-03": "151"})
    )
    assert _account(play, grace_hours=3).grace_hours == 3


def test_an_account_refuses_what_it_cannot_be_and_names_it(play: Play) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"time_zone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"currency": "euro"}, "currency"),
        ({"decimals": 9}, "decimals"),
        ({"tax": "1.5"}, "tax"),
        ({"tax": "-0.1"}, "tax"),
        ({"grace_hours": -1}, "graceHours"),
        ({"rates": {"2026-13": "1"}}, "exchangeRates"),
        ({"rates": {"2026-03": "0"}}, "exchangeRates.2026-03"),
        ({"rates": {"2026-03": "1e3"}}, "exchangeRates.2026-03"),
    ]
    for changes, field in cases:
        assert field in _refused(Code.INVALID_ARGUMENT, partial(_account, play, **changes))


def test_a_commitment_is_charged_each_second_and_covers_what_is_used(
    play: Play, clock: ManualClock
) -> None:
    play.create("n", "v2-32")

    def buy(**options: Any) -> Purchase:
        fields = {"quantity": 1, "years": 1, "accelerator_type": "v2-32", "zone": ZONE, **options}
        request = commitments.CommitmentRequest(**fields)
        return play.database.run(
            lambda uow: commitments.buy(uow, default_rate_card(), PLATFORM, PROJECT, request)
        )

    clock.advance(90)
    monthly, upfront = buy(), buy(quantity=2, upfront=True)
    assert not monthly.commitment.price.verified
    assert upfront.upfront is not None
    assert upfront.upfront.text(2) == "264902.40"  # 2 slices x 15.12 x 8760 h
    play.turn(31 * DAY)
    found = _invoice(play, "2026-03")
    lines = {line["sku"]: line for line in found["lines"]}
    own = f"commitment:{upfront.commitment.commitment_id}"
    assert lines[f"commitment:{monthly.commitment.commitment_id}"]["parts"] == str(
        15_120_000_000 * 730 * (READY_MARCH - 90)
    )
    assert lines[own]["amount"] == "0.00"
    paid = lines[f"{own}/upfront-payment"]
    assert (paid["amount"], paid["seconds"], paid["unitPrice"]) == ("264902.40", 1, "15.120000000")
    (used,) = (line for name, line in lines.items() if name.startswith("tpu-"))
    assert used["parts"] == str(90 * 24_000_000_000 * 730)  # before the first commitment
    booked = _ledger(play)
    assert booked[f"revenue:{own}"] == -upfront.upfront.parts
    assert booked[f"receivable:{PROJECT}"] == _minor(found["total"]) * PARTS_PER_CENT
    play.turn(30 * DAY)
    assert f"{own}/upfront-payment" not in [
        line["sku"] for line in _invoice(play, "2026-04")["lines"]
    ]
    assert _ledger(play)[f"revenue:{own}"] == -upfront.upfront.parts


def _buy_upfront(play: Play, **options: Any) -> Purchase:
    fields = {
        "quantity": 1,
        "years": 1,
        "accelerator_type": "v2-32",
        "zone": ZONE,
        "upfront": True,
        **options,
    }
    request = commitments.CommitmentRequest(**fields)
    return play.database.run(
        lambda uow: commitments.buy(uow, default_rate_card(), PLATFORM, PROJECT, request)
    )


def _minor(text: str) -> int:
    return int(text.replace(".", ""))


def test_a_payment_upfront_is_taxed_credited_and_converted_as_other_lines_are(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    _account(play, currency="EUR", tax="0.1", rates={"2026-03": "0.5"})
    bought = _buy_upfront(play)
    own = f"commitment:{bought.commitment.commitment_id}"
    clock.advance(1)
    draft = _preview(play).document
    (line,) = (line for line in draft.lines if line.sku.endswith("/upfront-payment"))
    assert (line.amount, line.exact_usd) == ("66225.60", "132451.200000000000")
    play.turn(31 * DAY)
    found = _invoice(play, "2026-03")
    assert _minor(found["subtotal"]) == 66_225_60 + round(READY_MARCH * 450 / 3600 / 2)
    assert _minor(found["tax"]) == round(_minor(found["subtotal"]) / 10)
    sums: dict[tuple[str, str], int] = {}
    for row in play.database.read(lambda uow: uow.all(select(ledger_entries))):
        key = (row["account"], row["currency"])
        sums[key] = sums.get(key, 0) + row["amount"].parts
    assert bought.upfront is not None
    assert sums[f"revenue:{own}", "USD"] == -bought.upfront.parts
    # what was owed in US dollars is owed in euros now
    assert sums[f"receivable:{PROJECT}", "USD"] == 0
    assert sums[f"receivable:{PROJECT}", "EUR"] == _minor(found["total"]) * PARTS_PER_CENT


def test_a_payment_upfront_belongs_to_the_month_in_which_its_term_begins(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    _account(play, grace_hours=5)
    clock.advance(31 * DAY - 10.5)  # half a second before the end: the term begins with April
    play.turn()
    bought = _buy_upfront(play)
    sku = f"commitment:{bought.commitment.commitment_id}/upfront-payment"
    play.turn(DAY)
    assert sku not in [line["sku"] for line in _invoice(play, "2026-03")["lines"]]
    assert sku in [line.sku for line in _preview(play).document.lines]
    (booking,) = play.database.read(
        lambda uow: [
            row
            for row in uow.all(select(ledger_transactions))
            if row["source_id"].startswith("commitment/")
        ]
    )
    assert booking["month"] == "2026-04"


def test_a_line_of_a_payment_upfront_is_explained(play: Play, clock: ManualClock) -> None:
    play.create("n")
    bought = _buy_upfront(play)
    sku = f"commitment:{bought.commitment.commitment_id}/upfront-payment"
    clock.advance(1)
    (line,) = [line.id for line in _preview(play).document.lines if line.sku == sku]
    for month in ("2026-03", "2026-03"):  # open, then issued
        found = play.database.read(
            lambda uow, month=month: bill_lines.explain(
                uow, default_rate_card(), PLATFORM, PROJECT, month, line
            )
        )
        assert found.amount == bought.upfront
        (part,) = found.parts
        assert part.quantity == 365 * DAY
        play.turn(31 * DAY)
    assert found.issued


def test_a_payment_upfront_of_an_issued_month_stays_on_no_invoice(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    old = _buy_upfront(play)
    play.database.run(
        lambda uow: uow.update(table_of_commitments, {"project": PROJECT}, {"stated": False})
    )
    play.turn(31 * DAY)  # issued as it was before payments were stated
    before = _invoice(play, "2026-03")
    assert before["total"] == "3347.99"
    new = _buy_upfront(play)
    migrations.migrate(play.database.engine, "0010")
    migrations.upgrade(play.database)
    bought = play.database.read(lambda uow: commitments.list_commitments(uow, PLATFORM, PROJECT))
    stated = {one.commitment.commitment_id: one.stated for one in bought}
    assert stated == {old.commitment.commitment_id: False, new.commitment.commitment_id: True}
    play.turn(30 * DAY)
    found = _invoice(play, "2026-04")
    assert found["adjustments"] == []
    assert found["total"] == "135691.20"  # 132451.20 and 30 days of the node
    migrations.migrate(play.database.engine, "0010")
    migrations.upgrade(play.database)  # the way back and forth knows what April says
    assert play.database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card())) == []


def test_a_budget_counts_a_payment_upfront_once_and_does_not_expect_it_again(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    wanted = budgets.BudgetRequest("200000", forecasts=["1"])
    play.database.run(
        lambda uow: budgets.set_budget(uow, play.fleet, PLATFORM, PROJECT, "b", wanted)
    )
    _buy_upfront(play)  # 132,451.20
    play.turn(DAY)

    def told() -> list[tuple[str, str]]:
        rows = play.database.read(lambda uow: budgets.events(uow, PLATFORM, PROJECT, 0, 100))
        return [(entry.kind, entry.detail) for entry, _ in rows]

    assert told() == []
    _buy_upfront(play)
    play.turn(1)  # nothing else has changed
    assert told() == [("threshold", "1"), ("forecast", "1")]


def test_a_commitment_that_nobody_sells_is_refused_with_its_reason(play: Play) -> None:
    def buy(**fields: Any) -> None:
        wanted = {"quantity": 1, "years": 1, "accelerator_type": "v2-32", "zone": ZONE, **fields}
        request = commitments.CommitmentRequest(**wanted)
        play.database.run(
            lambda uow: commitments.buy(uow, default_rate_card(), PLATFORM, PROJECT, request)
        )

    cases: list[tuple[dict[str, Any], Code, str]] = [
        ({"quantity": 0}, Code.INVALID_ARGUMENT, "quantity"),
        ({"quantity": -3}, Code.INVALID_ARGUMENT, "quantity"),
        ({"years": 2}, Code.INVALID_ARGUMENT, "years"),
        ({"zone": None}, Code.INVALID_ARGUMENT, "zone"),
        ({"accelerator_type": None}, Code.INVALID_ARGUMENT, "SKU"),
        ({"accelerator_type": None, "sku_id": "tpu-v9/nowhere"}, Code.NOT_FOUND, "tpu-v9/nowhere"),
        ({"accelerator_type": "v2-8"}, Code.NOT_FOUND, "no price for a commitment of 1 years"),
        ({"accelerator_type": "v9-8"}, Code.INVALID_ARGUMENT, "v9-8"),
        (
            {"accelerator_type": None, "sku_id": "disk-pd-ssd/us-central1/on-demand"},
            Code.INVALID_ARGUMENT,
            "disk",
        ),
    ]
    for fields, code, text in cases:
        assert text in _refused(code, partial(buy, **fields))


def test_credits_come_off_open_months_only(play: Play, clock: ManualClock) -> None:
    play.create("n")

    def add(amount: str, first: str | None, last: str) -> Any:
        return play.database.run(
            lambda uow: commitments.add_credit(
                uow, PLATFORM, PROJECT, amount, first, last, "a gift"
            )
        )

    add("100", None, "2026-03")
    play.turn(31 * DAY)
    found = _invoice(play, "2026-03")
    assert [line["amount"] for line in found["credits"]] == ["-100.00"]
    assert found["total"] == "3247.99"
    assert "2026-03 is closed" in _refused(
        Code.FAILED_PRECONDITION, lambda: add("1", "2026-03", "2026-04")
    )
    assert "amount" in _refused(Code.INVALID_ARGUMENT, lambda: add("-1", None, "2026-04"))
    assert "before" in _refused(Code.INVALID_ARGUMENT, lambda: add("1", "2026-05", "2026-04"))


def test_who_only_views_cannot_close_or_buy(play: Play, clock: ManualClock) -> None:
    viewer = Principal("viewer@example.com", {PROJECT: frozenset({"billing.viewer"})})
    play.database.read(lambda uow: invoices.list_invoices(uow, viewer, PROJECT))
    for use_case in (
        lambda uow: closing.prepare(uow, default_rate_card(), viewer, PROJECT, "never", 0),
        lambda uow: accounts.patch(uow, viewer, PROJECT, {}),
        lambda uow: commitments.add_credit(uow, viewer, PROJECT, "x", None, "x", ""),
    ):
        _refused(Code.PERMISSION_DENIED, lambda use_case=use_case: play.database.run(use_case))


def test_a_transaction_that_does_not_sum_to_zero_is_not_booked(play: Play) -> None:
    postings = [LedgerEntry("a", "USD", Amount(5)), LedgerEntry("b", "USD", Amount(-4))]
    with pytest.raises(AssertionError, match="does not sum to zero"):
        play.database.run(lambda uow: ledger.book(uow, PROJECT, "x", "2026-03", postings, ""))
    assert _ledger(play) == {}


def test_a_database_of_before_gets_accounts_for_what_was_used(play: Play) -> None:
    play.create("n")
    migrations.migrate(play.database.engine, "0008")
    assert play.database.read(lambda uow: timers.count_due(uow, PlatformTime(2**62), 1)) == 0
    migrations.upgrade(play.database)
    play.turn(61 * DAY)
    found = play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT))
    assert [(row.month, row.total) for row in found] == [("2026-03", 334_799), ("2026-04", 324_000)]


def test_the_check_of_a_database_finds_a_ledger_or_an_invoice_that_was_changed(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    play.turn(31 * DAY)

    def found() -> list[tuple[str, str]]:
        wrong = play.database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card()))
        return [(violation.resource, violation.detail) for violation in wrong]

    assert found() == []
    half = Amount(1)
    play.database.run(
        lambda uow: uow.execute(
            update(ledger_entries).where(ledger_entries.c.position == 0).values(amount=half)
        )
    )
    ((resource, detail),) = found()
    assert (resource, "instead of zero" in detail) == ("invoice:demo:2026-03", True)
    play.database.run(lambda uow: uow.execute(update(table_of_invoices).values(document=b"{}")))
    assert [resource for resource, _ in found()] == [
        "demo-2026-03",
        "demo-2026-03",
        "invoice:demo:2026-03",
    ]


def test_no_statement_changes_what_is_issued_or_booked() -> None:
    root = Path(fsck.__file__).parents[1]
    kept = ("invoices", "ledger_transactions", "ledger_entries", "adjustments", "invoice_records")
    for path in (
        *root.rglob("*.py"),
        *(root.parent / "api").rglob("*.py"),
        *(root.parent / "workers").rglob("*.py"),
    ):
        code = path.read_text(encoding="utf-8")
        for table in kept:
            for change in (f"update({table}", f"delete({table}", f"uow.update({table}"):
                assert change not in code, f"{path} changes {table}"
