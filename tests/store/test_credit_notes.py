"""Credit notes: a part of an issued invoice is taken back, a commitment or a credit ends; no
invoice changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import pytest
from sqlalchemy import select

from podyard.base.clock import ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.control.billing import accounts, commitments, credit_notes, invoices
from podyard.control.billing.invoice_document import from_json
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.billing import ledger_entries, usage_events
from podyard.domain.credit_note import CreditNote
from podyard.domain.invoice import IssuedInvoice
from podyard.domain.principal import PLATFORM
from podyard.pricing.current_card import default_rate_card
from tests.builders import PROJECT, Play
from tests.surfaces import check_books, check_month

DAY = 86_400
CARD = default_rate_card()
DEVICE = "tpu-v2-device/us-central1/on-demand"
SLICE = "tpu-v2-32/us-central1/on-demand"


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Play:
    return Play(database, clock)


def _credit(
    play: Play, amount: str, line: str = "", month: str = "2026-03", reason: str = "outage"
) -> CreditNote:
    return play.database.run(
        lambda uow: credit_notes.credit_invoice(uow, PLATFORM, PROJECT, month, amount, line, reason)
    )


def _invoices(play: Play) -> list[IssuedInvoice]:
    return play.database.read(lambda uow: invoices.list_invoices(uow, PLATFORM, PROJECT))


def _owed(play: Play, currency: str = "USD") -> Fraction:
    rows = play.database.read(lambda uow: uow.all(select(ledger_entries)))
    mine = [
        row
        for row in rows
        if (row["account"], row["currency"]) == (f"receivable:{PROJECT}", currency)
    ]
    return sum((row["amount"].fraction() for row in mine), Fraction(0))


def _refused(code: Code, said: str, ask: Callable[[], object]) -> None:
    with pytest.raises(PodyardError) as raised:
        ask()
    assert raised.value.code is code
    assert said in raised.value.message


def _buy(play: Play, *, upfront: bool = False) -> str:
    wanted = commitments.CommitmentRequest(1, 1, upfront, sku_id=SLICE)
    bought = play.database.run(lambda uow: commitments.buy(uow, CARD, PLATFORM, PROJECT, wanted))
    return bought.commitment.commitment_id


def _end(play: Play, commitment: str) -> CreditNote:
    return play.database.run(
        lambda uow: credit_notes.end_commitment(uow, PLATFORM, PROJECT, commitment, "moved away")
    )


def test_a_note_takes_back_a_part_and_changes_no_invoice(play: Play, clock: ManualClock) -> None:
    play.create("n")
    play.turn(31 * DAY)
    before, owed = _invoices(play), _owed(play)
    assert owed == Fraction("3347.99")
    note = _credit(play, "100.5")
    assert (note.number, note.minor, note.currency, note.reason) == (
        f"{PROJECT}-CN-1",
        10_050,
        "USD",
        "outage",
    )
    assert note.created_by == PLATFORM.email
    line = _credit(play, "3000", f"{DEVICE}@4.50")
    assert line.number == f"{PROJECT}-CN-2"
    assert _owed(play) == owed - Fraction("3100.50")
    assert _invoices(play) == before
    play.turn(30 * DAY)
    check_month(play.database, CARD, PROJECT, "2026-03")
    april = check_month(play.database, CARD, PROJECT, "2026-04")
    assert april is not None and not april.adjustments
    check_books(play.database, play.fleet, CARD)
    found = play.database.read(lambda uow: credit_notes.list_notes(uow, PLATFORM, PROJECT))
    assert found == [note, line]


def test_notes_never_exceed_the_invoice_or_the_line(play: Play, clock: ManualClock) -> None:
    play.create("n")
    play.create("m", "v5litepod-8")
    play.turn(31 * DAY)
    line = f"{DEVICE}@4.50"
    _credit(play, "3347.00", line)
    _refused(
        Code.FAILED_PRECONDITION,
        "1.00 is more than is left of line",
        lambda: _credit(play, "1.00", line),
    )
    _credit(play, "0.99", line)
    total = _invoices(play)[0].total
    left = total - 334_799
    _refused(
        Code.FAILED_PRECONDITION,
        f"more than is left of invoice {PROJECT}-2026-03: {left // 100}.{left % 100:02}",
        lambda: _credit(play, f"{(left + 1) // 100}.{(left + 1) % 100:02}"),
    )
    assert _owed(play) == Fraction(left, 100)


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ({"amount": "0"}, Code.INVALID_ARGUMENT, "more than zero"),
        ({"amount": "-1"}, Code.INVALID_ARGUMENT, "amount"),
        ({"amount": "1.001"}, Code.INVALID_ARGUMENT, "USD has 2 decimals"),
        ({"amount": "NaN"}, Code.INVALID_ARGUMENT, "amount"),
        ({"amount": "1e3"}, Code.INVALID_ARGUMENT, "amount"),
        ({"reason": " "}, Code.INVALID_ARGUMENT, "reason must have 1 to"),
        ({"reason": "x" * 501}, Code.INVALID_ARGUMENT, "reason must have 1 to"),
        ({"month": "2026-04"}, Code.NOT_FOUND, "2026-04"),
        ({"month": "March"}, Code.INVALID_ARGUMENT, "March"),
        ({"line": "nothing@1"}, Code.NOT_FOUND, "has no line"),
    ],
)
def test_bad_requests_are_refused_and_write_nothing(
    play: Play, clock: ManualClock, asked: dict[str, str], code: Code, said: str
) -> None:
    play.create("n")
    play.turn(31 * DAY)
    _refused(code, said, lambda: _credit(play, **{"amount": "1", **asked}))
    assert play.database.read(lambda uow: credit_notes.list_notes(uow, PLATFORM, PROJECT)) == []
    assert _owed(play) == Fraction("3347.99")


def test_a_monthly_commitment_ends_and_covers_nothing_more(play: Play, clock: ManualClock) -> None:
    play.create("n", "v2-32")
    commitment = _buy(play)
    play.turn(31 * DAY - 10)
    march = check_month(play.database, CARD, PROJECT, "2026-03")
    note = _end(play, commitment)  # at midnight of the 1st of April
    assert (note.minor, note.subject_id) == (0, commitment)
    play.turn(30 * DAY)
    assert check_month(play.database, CARD, PROJECT, "2026-03") == march
    april = check_month(play.database, CARD, PROJECT, "2026-04")
    assert april is not None
    assert [(line.sku, line.quantity) for line in april.lines] == [(SLICE, "720.000000000000")]
    _refused(Code.FAILED_PRECONDITION, "has ended already", lambda: _end(play, commitment))
    _refused(Code.NOT_FOUND, "no commitment 'c'", lambda: _end(play, "c"))
    for row in _invoices(play):
        assert play.database.read(lambda uow, row=row: invoices.is_reproduced(uow, CARD, row))
    check_books(play.database, play.fleet, CARD)


def test_what_was_paid_upfront_for_the_rest_is_taken_back_with_its_tax(
    play: Play, clock: ManualClock
) -> None:
    play.database.run(lambda uow: accounts.patch(uow, PLATFORM, PROJECT, {"tax": "0.1"}))
    play.create("n")
    commitment = _buy(play, upfront=True)
    play.turn(31 * DAY)
    march = from_json(_invoices(play)[0].document)
    (paid,) = [line for line in march.lines if line.sku.endswith("/upfront-payment")]
    # a fifth of the year is over: 73 of 365 days, less the seconds before the purchase
    play.turn(42 * DAY)
    note = _end(play, commitment)
    exact = Amount(int(paid.parts)).fraction() * Fraction(365 * DAY - (73 * DAY), 365 * DAY)
    wanted = round(exact * 100)
    assert note.minor == wanted + round(Fraction(wanted, 10))
    assert note.minor > 0
    before = _invoices(play)
    play.turn(DAY)
    assert _invoices(play) == before
    check_month(play.database, CARD, PROJECT, "2026-05")


def test_a_commitment_that_ends_at_once_is_charged_for_one_second(
    play: Play, clock: ManualClock
) -> None:
    play.create("n")
    commitment = _buy(play, upfront=True)
    _end(play, commitment)
    play.turn(31 * DAY)
    march = check_month(play.database, CARD, PROJECT, "2026-03")
    assert march is not None
    own = {
        line.sku.rpartition("/")[2]: line.seconds
        for line in march.lines
        if line.sku.startswith("commitment:")
    }
    assert own["upfront-payment"] == 1


def test_a_credit_ends_with_the_month_before(play: Play, clock: ManualClock) -> None:
    credit = play.database.run(
        lambda uow: commitments.add_credit(
            uow, PLATFORM, PROJECT, "5000", None, "2026-12", "a gift"
        )
    )
    other = play.database.run(
        lambda uow: commitments.add_credit(uow, PLATFORM, PROJECT, "1", None, "2026-12", "another")
    )
    play.create("n")
    play.turn(31 * DAY)
    march = check_month(play.database, CARD, PROJECT, "2026-03")
    assert march is not None
    note = play.database.run(
        lambda uow: credit_notes.end_credit(
            uow, PLATFORM, PROJECT, credit.credit_id, "given by mistake"
        )
    )
    assert (note.minor, note.ends_month) == (0, "2026-04")
    play.turn(30 * DAY)
    april = check_month(play.database, CARD, PROJECT, "2026-04")
    assert april is not None
    used = {one.credit for document in (march, april) for one in document.credits}
    assert used <= {credit.credit_id, other.credit_id}
    assert [one.credit for one in april.credits if one.credit == credit.credit_id] == []
    for row in _invoices(play):
        assert play.database.read(lambda uow, row=row: invoices.is_reproduced(uow, CARD, row))
    asks: list[tuple[Code, str, str]] = [
        (Code.FAILED_PRECONDITION, "has ended already", credit.credit_id),
        (Code.NOT_FOUND, "no credit 'c'", "c"),
    ]
    for code, said, credit_id in asks:
        _refused(
            code,
            said,
            lambda credit_id=credit_id: play.database.run(
                lambda uow: credit_notes.end_credit(uow, PLATFORM, PROJECT, credit_id, "again")
            ),
        )


def test_a_note_in_another_currency(play: Play, clock: ManualClock) -> None:
    changes = {"currency": "JPY", "decimals": 0, "rates": {"2026-03": "150"}}
    play.database.run(lambda uow: accounts.patch(uow, PLATFORM, PROJECT, changes))
    play.create("n")
    play.turn(31 * DAY)
    owed = _owed(play, "JPY")
    _refused(Code.INVALID_ARGUMENT, "JPY has 0 decimals", lambda: _credit(play, "10.5"))
    note = _credit(play, "1000")
    assert (note.currency, note.decimals, note.minor) == ("JPY", 0, 1000)
    assert _owed(play, "JPY") == owed - 1000


def test_notes_are_facts_of_their_own(play: Play, clock: ManualClock) -> None:
    """They need no usage."""
    play.create("n")
    play.turn(31 * DAY)
    note = _credit(play, "1")
    play.database.run(lambda uow: uow.execute(usage_events.delete()))
    (found,) = play.database.read(lambda uow: credit_notes.list_notes(uow, PLATFORM, PROJECT))
    assert dataclasses.asdict(found) == dataclasses.asdict(note)
