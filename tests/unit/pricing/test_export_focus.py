"""FOCUS 1.2: what the official validator does not look at. (It runs in
tests/clients/test_focus.py.)"""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from podyard.base.money import minor_text
from podyard.domain.months import seconds_of
from podyard.pricing.export import ExportSource, rows
from podyard.pricing.export_focus import COLUMNS, EXACT_DECIMALS_MAX, as_focus, exact
from tests.unit.pricing.export_source import DEVICE, MONTH, SPOT, second, source

SPECIFICATION = Path(__file__).parents[2] / "data" / "billing" / "focus_1_2_columns.csv"
ALLOWED = {
    "CapacityReservationStatus": {"Used", "Unused"},
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "CommitmentDiscountCategory": {"Spend", "Usage"},
    "CommitmentDiscountStatus": {"Used", "Unused"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
    "ServiceCategory": {"Compute", "Other"},
    "ServiceSubcategory": {"Other (Compute)", "Other (Other)"},
}


def _specification() -> dict[str, dict[str, str]]:
    with SPECIFICATION.open(encoding="utf-8", newline="") as file:
        return {row["column"]: row for row in csv.DictReader(file)}


def _read(found: ExportSource, granularity: str = "day") -> list[dict[str, str]]:
    text = b"".join(as_focus([(found, rows(found, granularity))])).decode()
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def _sum(read: list[dict[str, str]], column: str, **wanted: Any) -> Decimal:
    chosen = (row for row in read if all(row[name] == value for name, value in wanted.items()))
    return sum((Decimal(row[column]) for row in chosen), Decimal(0))


READ = _read(source())


def test_the_columns_are_those_of_the_specification() -> None:
    assert list(READ[0]) == list(COLUMNS) == list(_specification())


def test_what_may_not_be_null_is_there_and_values_are_of_their_types() -> None:
    for name, column in _specification().items():
        values = [row[name] for row in READ]
        if column["nulls"] == "False":
            assert all(values), name
        for value in filter(None, values):
            if column["datatype"] == "Decimal":
                assert Decimal(value).is_finite(), (name, value)
                assert not value.startswith("+"), (name, value)
            elif column["datatype"] == "Date/Time":
                assert len(value) == len("2026-03-01T00:00:00Z"), (name, value)
            elif column["datatype"] == "JSON":
                assert isinstance(json.loads(value), dict)


def test_values_are_those_that_the_specification_allows() -> None:
    for name, allowed in ALLOWED.items():
        assert {row[name] for row in READ} - {""} <= allowed, name
        assert {row[name] for row in READ} - {""}, f"no row has {name}"
    assert {row["ChargeCategory"] for row in READ} == ALLOWED["ChargeCategory"]
    assert {row["PricingCategory"] for row in READ} == {"", "Standard", "Dynamic", "Committed"}


def test_list_cost_is_the_price_times_the_quantity_exactly() -> None:
    for row in READ:
        assert bool(row["PricingQuantity"]) == (row["ChargeCategory"] in ("Usage", "Purchase"))
        if row["PricingQuantity"]:
            for kind in ("List", "Contracted"):
                product = Fraction(row[f"{kind}UnitPrice"]) * Fraction(row["PricingQuantity"])
                assert Fraction(row[f"{kind}Cost"]) == product
                in_usd = Fraction(row[f"PricingCurrency{kind}UnitPrice"]) * Fraction("0.9137")
                assert Fraction(row[f"{kind}UnitPrice"]) == in_usd


def test_what_is_billed_sums_to_the_invoice_s_total() -> None:
    for granularity in ("day", "hour"):
        found = source(by_job=True)
        read = _read(found, granularity)
        total = Decimal(minor_text(found.statement.total, found.statement.decimals))
        assert _sum(read, "BilledCost") == total
        assert {row["InvoiceId"] for row in read} == {"p-2026-03"}
    assert {row["InvoiceId"] for row in _read(source(issued=False))} == {""}


def test_covered_use_is_billed_at_nothing_and_costs_its_part_of_the_commitment() -> None:
    covered = [row for row in READ if row["CommitmentDiscountStatus"] == "Used"]
    assert {row["PricingCategory"] for row in covered} == {"Committed"}
    assert {row["BilledCost"] for row in covered} == {"0.000000000000"}
    for row in covered:
        bought = {"c-1": Fraction("0.84"), "c-2": Fraction("0.54")}[row["CommitmentDiscountId"]]
        effective = bought * Fraction("0.9137") * Fraction(row["CommitmentDiscountQuantity"])
        assert abs(Fraction(row["EffectiveCost"]) - effective) < Fraction(1, 10**11)
        assert (
            row["CommitmentDiscountQuantity"] == row["ConsumedQuantity"] == row["PricingQuantity"]
        )


def test_a_commitment_s_fee_is_its_used_and_unused_part() -> None:
    paid = _sum(READ, "BilledCost", ChargeCategory="Purchase", CommitmentDiscountId="c-1")
    used = _sum(READ, "EffectiveCost", CommitmentDiscountId="c-1", CommitmentDiscountStatus="Used")
    unused = _sum(
        READ, "EffectiveCost", CommitmentDiscountId="c-1", CommitmentDiscountStatus="Unused"
    )
    assert min(paid, used, unused) > 0
    assert abs(paid - used - unused) < len(READ) * Decimal("1e-12")
    assert _sum(READ, "EffectiveCost", ChargeCategory="Purchase") == 0
    # The second one was paid upfront, for its whole year; of that the month costs what is of the
    # month.
    year = Fraction("0.54") * 4 * 365 * 24 * Fraction("0.9137")
    month = (
        year
        / (365 * 24)
        * ((seconds_of(MONTH, "Europe/Berlin").stop - second("2026-03-08T12:00:00Z")) // 3600)
    )
    assert abs(Fraction(_sum(READ, "BilledCost", CommitmentDiscountId="c-2")) - year) < Fraction(
        1, 10**6
    )
    assert abs(
        Fraction(_sum(READ, "EffectiveCost", CommitmentDiscountId="c-2")) - month
    ) < Fraction(1, 10**6)
    fees = [row for row in READ if row["ChargeCategory"] == "Purchase"]
    assert {row["SkuId"] for row in fees} == {"tpu-v5e/r/on-demand-commitment-1y"}
    assert [
        row["CommitmentDiscountId"] for row in fees if row["ChargeFrequency"] == "One-Time"
    ] == ["c-2"]
    assert {row["ChargeFrequency"] for row in fees} == {"One-Time", "Recurring"}


def test_spot_reservations_and_corrections_are_marked() -> None:
    spot = [row for row in READ if row["PricingCategory"] == "Dynamic"]
    assert {row["ResourceName"] for row in spot} == {"d-spot"}
    reserved = [row for row in READ if row["CapacityReservationId"]]
    assert {(row["ResourceName"], row["CapacityReservationStatus"]) for row in reserved} == {
        ("e-reserved", "Used")
    }
    assert all(
        bool(row["CapacityReservationStatus"]) == bool(row["CapacityReservationId"]) for row in READ
    )
    corrections = [row for row in READ if row["ChargeClass"]]
    assert [
        (row["ChargeDescription"], row["ResourceName"], row["BilledCost"]) for row in corrections
    ] == [
        # an hour at 0.9 EUR for a dollar
        (f"Correction of 2026-02, {DEVICE}@4.50", "a-device", "4.050000000000"),
        (f"Correction of 2026-02, {SPOT}@0.25", "e-reserved", "-0.450000000000"),
        ("Correction of 2026-02, tax, credits and rounding", "", "48.090000000000"),
    ]
    (tax,) = [row for row in READ if row["ChargeCategory"] == "Tax"]
    assert not any(
        tax[name]
        for name in ("SkuId", "SkuPriceId", "PricingCategory", "PricingUnit", "ListUnitPrice")
    )


def test_labels_and_jobs_are_tags_of_their_resource() -> None:
    tags = [json.loads(row["Tags"]) for row in _read(source(by_job=True)) if row["Tags"]]
    assert tags[0] == {
        "a": 'say "hi", ünï',
        "team": "=HYPERLINK(1)",
        "podyard/created-by": "=HYPERLINK(1)",
        "podyard/job": "idle",
    }
    assert all(bool(row["Tags"]) == bool(row["ResourceId"]) for row in READ)


def test_a_number_that_does_not_end_is_rounded() -> None:
    assert exact(Fraction("1.050")) == "1.05"
    assert exact(Fraction(2, 3)) == "0." + "6" * (EXACT_DECIMALS_MAX - 1) + "7"
