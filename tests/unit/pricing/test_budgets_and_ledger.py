"""Forecasts worked by hand, stops, and what the ledger books for invoices of other currencies and
for corrections."""

from fractions import Fraction

import pytest

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import PodyardError
from podyard.base.money import Amount
from podyard.domain.invoice import Adjustment, BillingPolicy, Credit, JobSpan
from podyard.domain.ledger import balances
from podyard.domain.usage import PriceUnit, PriceVersion, UsageEvent, UsageRecord
from podyard.pricing import attribution, bill, budgets, invoicing, ledger
from podyard.pricing.bill import Resource, Terms
from podyard.pricing.invoicing import PARTS_PER_UNIT
from podyard.pricing.meter import MeterPolicy

START = PlatformTime.from_rfc3339("2026-03-01T00:00:00Z")
FIRST = START.nanos // NANOS_PER_SECOND
DAY = 86_400
A_DOLLAR_AN_HOUR = PriceVersion("p", PlatformTime(0), 10**9, "test")


def used(day: float, hours: int, quantity: int = 1) -> UsageRecord:
    """`quantity` dollars an hour for some hours from a day of March, counted from 0."""
    start = FIRST + int(day * DAY)
    return UsageRecord(
        "n", "s", PriceUnit.CHIP_HOUR, start, hours * 3_600, quantity, A_DOLLAR_AN_HOUR
    )


def dollars(amount: Amount) -> Fraction:
    return amount.fraction()


def test_a_forecast_is_what_is_spent_and_the_rate_of_the_last_week() -> None:
    # Days cost 4 dollars each, but the ninth 12 and the eighth nothing.
    charges = [used(day, 12 if day == 8 else 4) for day in range(10) if day != 7]
    found = budgets.forecast(charges, "2026-03", "UTC", START.plus_seconds(10 * DAY))
    assert dollars(found.spent) == 8 * 4 + 12
    left = 21 * DAY
    assert found.low == found.spent  # a day of the week was without cost
    week = 5 * 4 + 12
    assert found.expected.parts - found.spent.parts == week * PARTS_PER_UNIT // (7 * DAY) * left
    assert found.high.parts - found.spent.parts == 12 * PARTS_PER_UNIT // DAY * left


def test_a_forecast_sees_what_has_just_been_started() -> None:
    charges = [used(day, 4) for day in range(9)] + [used(9.5, 12, quantity=100)]
    found = budgets.forecast(charges, "2026-03", "UTC", START.plus_seconds(int(9.5 * DAY) + 60))
    assert dollars(found.high - found.spent) == 100 * (Fraction(43, 2) * DAY - 60) / 3_600


def test_a_burst_of_operations_is_not_expected_again_every_minute() -> None:
    """An upload of one minute at the start of a month, at 5 dollars in all, while a node costs a
    dollar an hour."""
    price = PriceVersion("o", PlatformTime(0), 5 * 10**6, "test")
    seconds = range(FIRST + 1, FIRST + 11)
    burst = [UsageRecord("b", "o", PriceUnit.OPERATION, at, 1, 100, price) for at in seconds]
    found = budgets.forecast([used(0, 1), *burst], "2026-03", "UTC", START.plus_seconds(60))
    left = 31 * DAY - 60
    of_node = Fraction(left, 3_600)
    assert dollars(found.spent) == Fraction(1, 60) + 5
    # nobody knows whether there will be another upload
    assert dollars(found.low - found.spent) == of_node
    each_day = 5 * PARTS_PER_UNIT // DAY * left
    assert found.expected == found.high
    assert found.expected.parts - found.low.parts == each_day
    assert found.based_on == 60
    # The second in which an operation was done is no rate either.
    now = budgets.forecast(burst, "2026-03", "UTC", START.plus_seconds(11))
    assert dollars(now.high) < 5 * 32
    # A day later there is a day without any: the mean of both.
    later = budgets.forecast(burst, "2026-03", "UTC", START.plus_seconds(2 * DAY))
    assert later.low == later.spent
    assert later.expected.parts - later.spent.parts == 5 * PARTS_PER_UNIT // (2 * DAY) * 29 * DAY


def test_a_forecast_of_a_month_to_come_or_over() -> None:
    charges = [used(day, 24) for day in range(31)]
    april = budgets.forecast(charges, "2026-04", "UTC", START.plus_seconds(31 * DAY - 1))
    assert (april.spent, april.low) == (Amount(), april.high)
    assert dollars(april.expected) == 30 * 24
    over = budgets.forecast(charges, "2026-03", "UTC", START.plus_seconds(40 * DAY))
    assert dollars(over.spent) == dollars(over.high) == 31 * 24
    # Of a month that is over only its own seconds count, though the use goes on.
    longer = [*charges, used(31, 24)]
    assert budgets.forecast(longer, "2026-03", "UTC", START.plus_seconds(40 * DAY)) == over
    nothing = budgets.forecast([], "2026-03", "UTC", START)
    assert nothing == budgets.Forecast(Amount(), Amount(), Amount(), Amount())


def test_a_budget_of_nothing_stops_with_the_first_second() -> None:
    assert budgets.stop_at([used(0, 1)], Amount()) == START.plus_seconds(1)
    assert budgets.stop_at([], Amount()) is None
    assert budgets.stop_at([used(0, 1, quantity=0), used(1, 1)], Amount(1)) == START.plus_seconds(
        DAY + 1
    )


def bill_of(policy: BillingPolicy, hours: int = 3, credits: tuple[Credit, ...] = ()) -> bill.Bill:
    from podyard.pricing.sku import make_sku

    sku = make_sku("s", PriceUnit.CHIP_HOUR, [A_DOLLAR_AN_HOUR])
    events = [
        UsageEvent("a", "n", 1, "READY", START),
        UsageEvent("b", "n", 2, "STOPPED", START.plus_seconds(hours * 3_600 + 10)),
    ]
    resources = {"n": Resource("n", "tpu", sku, 1, MeterPolicy())}
    return bill.compute(
        events, resources, Terms(policy=policy, credits=credits), START.plus_seconds(DAY)
    )


def test_a_dollar_invoice_books_revenue_exactly_and_rounding_apart() -> None:
    credit = Credit("k", Amount(PARTS_PER_UNIT), "2026-03", "2026-03")
    policy = BillingPolicy(tax=Fraction(19, 100))
    (invoice,) = bill_of(policy, credits=(credit,)).invoices
    booked = ledger.of_invoice("demo", invoice)
    assert booked.source_id == "invoice:demo:2026-03"
    exact = Fraction(10_810, 3_600)
    assert {name: dollars(amount) for name, amount in balances(booked.entries)} == {
        "receivable:demo": Fraction("2.38"),
        "tax": Fraction("-0.38"),
        "revenue:s": -exact,
        "credit:k": Fraction(1),
        "rounding": exact - 1 - 2,
    }


def test_an_invoice_of_another_currency_balances_in_both() -> None:
    policy = BillingPolicy(currency="JPY", decimals=0, exchange_default=Fraction("149.37"))
    (invoice,) = bill_of(policy).invoices
    assert invoice.exchange == Fraction("149.37")
    booked = ledger.of_invoice("demo", invoice)
    assert [(name, rest.parts) for name, rest in balances(booked.entries, by="currency")] == [
        ("JPY", 0),
        ("USD", 0),
    ]
    assert {(e.account, e.currency): dollars(e.amount) for e in booked.entries} == {
        ("revenue:s", "USD"): -Fraction(10_810, 3_600),
        ("exchange:USD", "USD"): Fraction(10_810, 3_600),
        ("receivable:demo", "JPY"): Fraction(449),  # 448.52...
        ("exchange:JPY", "JPY"): Fraction(-449),
    }


def test_corrections_are_booked_in_the_open_month_and_name_what_they_correct() -> None:
    policy = BillingPolicy()
    made = [
        Adjustment("2026-02", "2026-03", -150),
        Adjustment("2026-01", "2026-03", 5),
        Adjustment("2026-01", "2026-04", 7),
    ]
    invoice = invoicing.with_adjustments(
        bill_of(policy).invoice("2026-03"), made, "2026-03", policy
    )
    assert (invoice.subtotal, invoice.total, len(invoice.adjustments)) == (300, 155, 2)
    accounts = dict(balances(ledger.of_invoice("demo", invoice).entries))
    assert dollars(accounts["adjustment:2026-02"]) == Fraction("1.5")
    assert dollars(accounts["adjustment:2026-01"]) == Fraction("-0.05")
    alone = invoicing.with_adjustments(None, made, "2026-04", policy)
    assert (alone.lines, alone.subtotal, alone.total) == ((), 0, 7)


def test_bad_inputs_are_named() -> None:
    resources = {"n": Resource("n", "tpu", None, 1, MeterPolicy(), "no price")}
    event = UsageEvent("e", "m", 1, "READY", START)
    with pytest.raises(PodyardError, match="event e names the unknown resource m"):
        bill.compute([event], resources, Terms(), START)
    apart = [UsageEvent(str(i), name, i, "READY", START) for i, name in enumerate("nmn")]
    with pytest.raises(PodyardError, match="events of n do not come together"):
        bill.compute(apart, {**resources, "m": resources["n"]}, Terms(), START, grouped=True)
    with pytest.raises(PodyardError, match="'Nowhere' is not an IANA time zone"):
        bill.compute([], {}, Terms(policy=BillingPolicy(time_zone="Nowhere")), START)
    span = JobSpan("j", "n", START.plus_seconds(1), START)
    with pytest.raises(PodyardError, match="job j ends on n before it starts"):
        attribution.attribute([], [span], START)
