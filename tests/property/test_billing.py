"""The rules of the bill as properties of cases drawn by chance, and the whole bill against one
worked by the second."""

import dataclasses
import json
from collections import defaultdict
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.domain import months
from podyard.domain.ledger import LedgerEntry, balances
from podyard.domain.usage import PriceUnit, UsageRecord
from podyard.pricing import attribution, bill, budgets, commitments, invoicing, ledger
from podyard.pricing.amounts import cost_by_sku, total
from podyard.pricing.bill import Bill, Terms
from podyard.pricing.case import Case, read_case
from podyard.pricing.replay import replay_line, result_of
from tests.property.billing_cases import cases
from tests.unit.pricing.slow_bill import slow_bill

# Drawing a case takes longer than billing it; small numbers of examples keep all rules within
# seconds.
few = settings(
    max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
many = settings(few, max_examples=250)


def compute(case: Case, **changes: Any) -> Bill:
    return bill.compute(
        case.events, case.resources, dataclasses.replace(case.terms, **changes), case.as_of
    )


def by_second(records: Any) -> dict[tuple[str, int], int]:
    """Units in use by SKU and second."""
    found: dict[tuple[str, int], int] = defaultdict(int)
    for record in records:
        for second in range(record.start_second, record.start_second + record.seconds):
            found[record.sku_id, second] += record.quantity
    return found


@pytest.mark.slow
@many
@given(cases())
def test_the_bill_is_the_one_worked_by_the_second(case: dict[str, Any]) -> None:
    answer, is_result = replay_line(json.dumps(case).encode())
    assert is_result, answer
    assert answer["result"] == slow_bill(case)


@few
@given(cases(), st.integers(0, 10**6))
def test_r4_r14_neither_order_nor_repetition_changes_a_byte(
    case: dict[str, Any], seed: int
) -> None:
    mixed = case["events"] * 2
    Random(seed).shuffle(mixed)
    assert json.dumps(result_of(read_case({**case, "events": mixed}))) == json.dumps(
        result_of(read_case(case))
    )


@few
@given(cases(), st.data())
def test_r4_a_conflicting_event_changes_the_quarantine_only(
    case: dict[str, Any], data: st.DataObject
) -> None:
    if not case["events"]:
        return
    rival = {**data.draw(st.sampled_from(case["events"])), "state": "TERMINATED"}
    result = result_of(read_case({**case, "events": [*case["events"], rival, rival]}))
    assert result.pop("quarantined_event_ids") == [rival["id"]]
    assert result == result_of(read_case(case))


@few
@given(cases(), st.integers(-150, 150))
def test_r1_later_billing_never_takes_a_closed_second_back(
    case: dict[str, Any], seconds: int
) -> None:
    read = read_case({**case, "policy": {**case["policy"], "preempt_free_s": 0}})
    now = read.as_of.nanos // NANOS_PER_SECOND * NANOS_PER_SECOND
    earlier = dataclasses.replace(read, as_of=PlatformTime(now - abs(seconds) * NANOS_PER_SECOND))

    def used(of: Case) -> set[tuple[str, int]]:
        split = of.as_of.nanos // NANOS_PER_SECOND
        nodes = {r.resource_id for r in of.resources.values() if r.kind != "vm"}
        return {
            (r.resource_id, second)
            for r in compute(of).records
            for second in range(r.start_second, r.start_second + r.seconds)
            if second < split and r.resource_id in nodes
        }

    split = earlier.as_of.nanos // NANOS_PER_SECOND
    whole = dataclasses.replace(read, as_of=PlatformTime(now))
    assert used(earlier) == {(name, second) for name, second in used(whole) if second < split}


@few
@given(cases(), st.integers(-150, 150))
def test_r5_a_price_version_changes_only_what_is_used_from_then_on(
    case: dict[str, Any], seconds: int
) -> None:
    since = months.seconds_of("2026-04", "UTC").start + seconds
    row = {
        "sku": "a",
        "unit": "chip_hour",
        "usd": "1000000",
        "effective_from": PlatformTime(since * 10**9).rfc3339(),
    }
    if any(
        (r["sku"], r["effective_from"]) == (row["sku"], row["effective_from"])
        for r in case["rate_card"]
    ):
        return
    before, after = (
        compute(read_case(case)),
        compute(read_case({**case, "rate_card": [*case["rate_card"], row]})),
    )

    def until(found: Bill) -> Amount:
        cut = (_clipped(record, since) for record in found.records)
        return total(record for record in cut if record is not None)

    assert after.seconds == before.seconds
    assert until(after) == until(before)


def _clipped(record: UsageRecord, stop: int) -> UsageRecord | None:
    """Return what lies before `stop`."""
    seconds = min(record.seconds, stop - record.start_second)
    return dataclasses.replace(record, seconds=seconds) if seconds > 0 else None


@few
@given(cases())
def test_r6_amounts_are_exact_integers_of_seconds_times_price(case: dict[str, Any]) -> None:
    found = compute(read_case(case))
    for sku_id, amount in cost_by_sku(found.charges).items():
        assert type(amount.parts) is int
        exact = sum(
            Fraction(c.price.nanos * c.quantity * c.seconds, 10**9)
            / (2_628_000 if c.unit is PriceUnit.GIB_MONTH else 3_600)
            for c in found.charges
            if c.sku_id == sku_id
        )
        assert amount.fraction() == exact


@few
@given(cases())
def test_r7_what_is_shown_sums_to_the_total(case: dict[str, Any]) -> None:
    read = read_case(case)
    for invoice in compute(read).invoices:
        shown = [line.shown for line in invoice.lines] + [line.shown for line in invoice.credits]
        assert sum(shown) + invoice.rounding_error == invoice.subtotal
        assert invoice.subtotal + invoice.tax == invoice.total
        # half a unit for each, and for the sum
        assert 2 * abs(invoice.rounding_error) <= len(shown) + 1
        net = sum(line.amount.parts for line in invoice.lines) + sum(
            line.amount.parts for line in invoice.credits
        )
        exact = Amount(net).fraction() * invoice.exchange * 10**invoice.decimals
        assert abs(invoice.subtotal - exact) <= Fraction(1, 2)
        assert abs(invoice.tax - invoice.subtotal * read.terms.policy.tax) <= Fraction(1, 2)


@few
@given(
    cases(),
    st.sampled_from(
        ["UTC", "America/Los_Angeles", "Asia/Kolkata", "Pacific/Apia", "Africa/Monrovia"]
    ),
)
def test_r8_zones_move_seconds_between_months_and_lose_none(
    case: dict[str, Any], zone: str
) -> None:
    read = read_case({**case, "policy": {**case["policy"], "fx": "1"}})
    found = compute(read, policy=dataclasses.replace(read.terms.policy, time_zone=zone))
    lines = [line for invoice in found.invoices for line in invoice.lines]
    assert sum(line.seconds for line in lines) == sum(charge.seconds for charge in found.charges)
    assert Amount(sum(line.amount.parts for line in lines)) == found.total == compute(read).total
    assert [invoice.month for invoice in found.invoices] == sorted(
        {invoice.month for invoice in found.invoices}
    )


@given(
    st.integers(-(2**33), 2**33),
    st.sampled_from(["UTC", "America/Los_Angeles", "Asia/Kolkata", "Pacific/Apia"]),
)
def test_r8_every_second_is_in_the_one_month_that_names_it(second: int, zone: str) -> None:
    month = months.month_of(second, zone)
    seconds = months.seconds_of(month, zone)
    assert second in seconds
    assert months.month_of(seconds.stop, zone) == months.following(month)
    assert list(months.split(range(second, seconds.stop + 5), zone)) == [
        (month, range(second, seconds.stop)),
        (months.following(month), range(seconds.stop, seconds.stop + 5)),
    ]


@few
@given(cases(), st.integers(0, 150))
def test_r9_issued_and_corrections_sum_to_what_is_rated_now(
    case: dict[str, Any], seconds: int
) -> None:
    read = read_case({**case, "issued": {}})
    early = dataclasses.replace(read, as_of=read.as_of.plus_seconds(-seconds))
    issued = {invoice.month: invoice.total for invoice in compute(early).invoices}
    adjusted: dict[str, int] = {}
    for _ in range(2):  # the second time there is nothing left to correct
        found = compute(read, issued=issued, adjusted=adjusted, open_month="2027-01").adjustments
        for adjustment in found:
            assert (adjustment.minor != 0, adjustment.booked_in_month) == (True, "2027-01")
            adjusted[adjustment.corrects_month] = (
                adjusted.get(adjustment.corrects_month, 0) + adjustment.minor
            )
    assert found == ()
    rated = {invoice.month: invoice.total for invoice in compute(read).invoices}
    for month, minor in issued.items():
        assert minor + adjusted.get(month, 0) == rated.get(month, 0)


@few
@given(cases())
def test_r11_each_second_covers_what_there_is_and_no_more(case: dict[str, Any]) -> None:
    read = read_case(case)
    found = compute(read)
    own = [c for c in found.charges if c.sku_id.startswith(commitments.OWN)]
    net = [c for c in found.charges if not c.sku_id.startswith(commitments.OWN)]
    assert all(charge.quantity >= 0 for charge in net)
    assert sum(c.seconds for c in net) == sum(r.seconds for r in found.records)
    paid = by_second(own)
    covers = {commitments.OWN + c.commitment_id: c.sku_id for c in read.terms.commitments}
    capacity: dict[tuple[str, int], int] = defaultdict(int)
    for (own_sku, second), units in paid.items():
        capacity[covers[own_sku], second] += units
    left = by_second(net)
    for key, units in by_second(found.records).items():
        assert left[key] == max(0, units - capacity[key])
    for commitment in read.terms.commitments:
        seconds = sum(
            c.seconds for c in own if c.sku_id == commitments.OWN + commitment.commitment_id
        )
        assert seconds == len(commitments.term(commitment, read.as_of))


@few
@given(cases())
def test_r11_credits_never_pay_more_than_they_are_or_than_is_owed(case: dict[str, Any]) -> None:
    read = read_case(case)
    used: dict[str, int] = defaultdict(int)
    for invoice in compute(read).invoices:
        owed = sum(line.amount.parts for line in invoice.lines)
        for line in invoice.credits:
            assert line.amount.parts < 0
            used[line.credit_id] -= line.amount.parts
            owed += line.amount.parts
        assert owed >= 0
        valid = [c for c in read.terms.credits if c.from_month <= invoice.month <= c.until_month]
        if owed:  # then no credit that holds has anything left
            assert all(used[credit.credit_id] == credit.amount.parts for credit in valid)
    assert all(used[credit.credit_id] <= credit.amount.parts for credit in read.terms.credits)


@few
@given(cases())
def test_r12_jobs_and_idle_time_sum_to_what_each_resource_costs(case: dict[str, Any]) -> None:
    read = read_case(case)
    found = compute(read, jobs=read.terms.jobs or ())
    for resource_id, shares in found.attribution.items():
        charges = [charge for charge in found.charges if charge.resource_id == resource_id]
        assert sum(share.seconds for share in shares.values()) == found.seconds[resource_id]
        assert Amount(sum(share.amount.parts for share in shares.values())) == total(charges)
        assert all(share.seconds for share in shares.values())
        if not read.terms.jobs:
            assert set(shares) <= {attribution.IDLE}


@few
@given(cases(), st.integers(1, 60_000))
def test_r13_the_stop_is_the_end_of_the_first_second_that_spends_it(
    case: dict[str, Any], cents: int
) -> None:
    charges = compute(read_case(case)).charges
    amount = Amount(cents * invoicing.PARTS_PER_UNIT // 100)
    stop = budgets.stop_at(charges, amount)
    if stop is None:
        assert total(charges) < amount
        return
    second = stop.nanos // NANOS_PER_SECOND
    spent = [
        total(c for c in (_clipped(c, second - late) for c in charges) if c is not None)
        for late in (0, 1)
    ]
    assert spent[1] < amount <= spent[0]


@few
@given(cases(), st.integers(-200, 200))
def test_forecasts_are_in_order_and_begin_with_what_is_spent(
    case: dict[str, Any], seconds: int
) -> None:
    read = read_case(case)
    found = compute(read)
    as_of = read.as_of.plus_seconds(seconds)
    zone = read.terms.policy.time_zone
    for month in ("2026-03", "2026-04"):
        forecast = budgets.forecast(found.charges, month, zone, as_of)
        assert forecast.spent <= forecast.low <= forecast.expected <= forecast.high
        if as_of.nanos // NANOS_PER_SECOND >= months.seconds_of(month, zone).stop:
            assert forecast.high == forecast.spent


@few
@given(cases())
def test_every_invoice_balances_in_the_ledger(case: dict[str, Any]) -> None:
    read = read_case(case)
    policy = read.terms.policy
    found = compute(read, issued={"2026-01": 700}, open_month="2026-04")
    for month in ("2026-03", "2026-04"):
        invoice = invoicing.with_adjustments(found.invoice(month), found.adjustments, month, policy)
        booked = ledger.of_invoice("demo", invoice)
        accounts = dict(balances(booked.entries))
        assert sum(len(e.account) > 0 for e in booked.entries) == len(booked.entries)
        assert accounts.get("receivable:demo", Amount()) == ledger.of_minor(invoice.total, invoice)
        for line in invoice.lines:
            of_sku = Amount(
                sum(other.amount.parts for other in invoice.lines if other.sku_id == line.sku_id)
            )
            assert accounts.get(f"revenue:{line.sku_id}", Amount()) == -of_sku
        has_correction = month == "2026-04" and bool(found.adjustments)
        assert ("adjustment:2026-01" in accounts) == has_correction


def test_a_ledger_transaction_that_does_not_balance_is_a_defect() -> None:
    entries = [LedgerEntry("a", "USD", Amount(1)), LedgerEntry("b", "JPY", Amount(-1))]
    try:
        ledger.Transaction("t", entries)
    except AssertionError as error:
        assert "t does not balance: -1 parts of JPY are over" in str(error)
    else:
        raise AssertionError("it was accepted")


def test_terms_without_anything_are_those_of_a_new_account() -> None:
    assert Terms().policy.currency == "USD"
    assert bill.compute([], {}, Terms(), PlatformTime(0)).invoices == ()
