"""Exports: rows that sum to the invoice's total, exactly, by day and hour; CSV, JSON and BigQuery's
schema."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from typing import Any

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount, minor_text
from podyard.domain.months import seconds_of
from podyard.pricing.commitments import is_payment
from podyard.pricing.export import DECIMALS, ExportRow, ExportSource, RowKind, rows
from podyard.pricing.export_bigquery import as_bigquery, entry
from podyard.pricing.export_slices import Slices
from podyard.pricing.export_table import COLUMNS, as_csv, as_json, cell, json_text, number, record
from tests.unit.pricing.export_source import CHIPS, EVIL, MONTH, NODES, Node, second, source

HOUR = 3600


def _total(found: ExportSource) -> Decimal:
    return Decimal(minor_text(found.statement.total, found.statement.decimals))


def _read(found: ExportSource, granularity: str = "day") -> list[dict[str, str]]:
    text = b"".join(as_csv([(found, rows(found, granularity))])).decode()
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


@pytest.mark.parametrize("granularity", ["day", "hour"])
@pytest.mark.parametrize("by_job", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_the_amounts_sum_to_the_invoice_s_total_exactly(
    granularity: str, by_job: bool, plain: bool
) -> None:
    found = source(by_job=by_job, plain=plain)
    read = _read(found, granularity)
    assert sum(Decimal(row["amount"]) for row in read) == _total(found)
    rounding = Decimal(read[-1]["amount"])
    assert read[-1]["kind"] == "rounding_error"
    # the subtotal's, and half of a digit a row
    assert abs(rounding) <= Decimal("0.005") + len(read) * Decimal("1e-12")


def test_a_row_is_of_one_resource_price_and_day() -> None:
    read = [row for row in _read(source()) if row["kind"] == "usage"]
    keys = [(row["resource_key"], row["start"], row["price_version"]) for row in read]
    assert len(set(keys)) == len(keys)
    assert keys == sorted(keys)
    of_device = [row for row in read if row["resource_key"] == "a-device"]
    first = of_device[0]
    assert (first["start"], first["end"]) == ("2026-02-28T23:00:00Z", "2026-03-01T23:00:00Z")
    assert (first["seconds"], first["amount"]) == ("86400", minor_text(4_5 * 24 * 9137 * 10**7, 12))
    changed = [row for row in of_device if row["start"] == "2026-03-19T23:00:00Z"]
    assert [(row["unit_price_usd"], row["seconds"]) for row in changed] == [
        ("4.500000000", str(11 * HOUR)),
        ("4.123456789", str(13 * HOUR)),
    ]


def test_days_and_hours_follow_the_account_s_clocks() -> None:
    days = Slices(seconds_of(MONTH, "Europe/Berlin"), "Europe/Berlin", "day")
    lengths = [len(days.seconds(place)) // HOUR for place in range(len(days))]
    assert lengths == [23 if day == 29 else 24 for day in range(1, 32)]
    hours = Slices(seconds_of(MONTH, "Europe/Berlin"), "Europe/Berlin", "hour")
    assert len(hours) == 743
    assert sum(len(hours.seconds(place)) for place in range(len(hours))) == 743 * HOUR
    assert (
        len(Slices(seconds_of("2026-11", "America/Los_Angeles"), "America/Los_Angeles", "hour"))
        == 721
    )
    adelaide = Slices(seconds_of("2026-03", "Australia/Adelaide"), "Australia/Adelaide", "hour")
    assert adelaide.seconds(0).start % HOUR == HOUR // 2
    samoa = Slices(seconds_of("2011-12", "Pacific/Apia"), "Pacific/Apia", "day")
    assert len(samoa) == 30  # without the 30th
    lord_howe = Slices(seconds_of("2026-10", "Australia/Lord_Howe"), "Australia/Lord_Howe", "day")
    assert [len(lord_howe.seconds(place)) for place in (2, 3, 4)] == [86_400, 84_600, 86_400]
    with pytest.raises(PodyardError, match="minute"):
        Slices(range(1), "UTC", "minute")


def test_what_is_not_in_the_month_is_not_in_its_export() -> None:
    read = [row for row in _read(source()) if row["kind"] == "usage"]
    seconds = {
        name: sum(int(row["seconds"]) for row in read if row["resource_key"] == name)
        for name in ("a-device", "e-reserved")
    }
    assert seconds["a-device"] == second("2026-03-25T12:34:56Z") - second("2026-02-28T23:00:00Z")
    assert seconds["e-reserved"] == 2 * HOUR  # April begins at 22:00 UTC


def test_commitments_fees_and_what_they_cover_are_told_apart() -> None:
    found = source()
    made = list(rows(found, "day"))
    fees = [row for row in made if row.kind is RowKind.COMMITMENT]
    bought = found.commitments
    for name, committed in bought.items():
        mine = [row for row in fees if row.commitment == name and not is_payment(row.sku_id)]
        until = seconds_of(MONTH, "Europe/Berlin").stop
        assert sum(row.seconds for row in mine) == until - committed.billed.start_second
        covered = sum(
            units for row in made for commitment, units in row.covered if commitment == name
        )
        assert covered == sum(row.unit_seconds - row.unused for row in mine)
        assert all(row.unused >= 0 for row in mine)
        assert all((row.shown == 0) == committed.upfront for row in mine)
    # What was paid upfront is one row, of its first second: 4 chips for a year at 0.54 dollars.
    (paid,) = [row for row in fees if is_payment(row.sku_id)]
    assert (paid.commitment, paid.seconds, paid.unused) == ("c-2", 1, 0)
    assert (paid.unit_seconds, paid.text) == (4 * 365 * 86_400, "Commitment c-2, paid upfront")
    assert paid.parts == Amount.of_hourly(540_000_000, paid.unit_seconds).parts
    # On the 6th both pods have 12 chips, of which the first commitment covers 5 of the first pod's
    # 8.
    on_6th = [
        row for row in made if row.start == second("2026-03-05T23:00:00Z") and row.sku_id == CHIPS
    ]
    assert [row.covered for row in on_6th] == [(("c-1", 5 * 86_400),), ()]
    # On the 9th the second one covers the other 3, and 1 of the other pod.
    on_9th = [
        row for row in made if row.start == second("2026-03-08T23:00:00Z") and row.sku_id == CHIPS
    ]
    assert [row.covered for row in on_9th] == [
        (("c-1", 5 * 86_400), ("c-2", 3 * 86_400)),
        (("c-2", 86_400),),
    ]
    assert on_9th[0].shown == 0
    assert on_9th[1].parts == Amount.of_hourly(1_200_000_000, 3 * 86_400).parts


def test_a_day_is_shared_by_its_jobs_and_idle_time() -> None:
    read = [
        row
        for row in _read(source(by_job=True))
        if row["resource_key"] == "a-device" and row["kind"] == "usage"
    ]
    day = {
        row["job"]: int(row["seconds"]) for row in read if row["start"] == "2026-02-28T23:00:00Z"
    }
    assert day == {
        "projects/p/jobs/one": HOUR + 1,
        "projects/p/jobs/two": HOUR - 1,
        "idle": 22 * HOUR,
    }


def test_rows_that_are_not_those_of_the_invoice_are_refused() -> None:
    found = source()
    other = source(NODES[1:])
    broken = ExportSource(
        found.statement,
        other.charges,
        other.commitments,
        other.resources,
        other.owners,
        found.exported_at,
    )
    with pytest.raises(
        PodyardError, match=r"differ from the invoice by -.* USD; no export is made"
    ) as raised:
        list(rows(broken, "day"))
    assert raised.value.code is Code.DATA_LOSS


def test_what_is_still_used_is_an_estimate_until_the_invoice_is_issued() -> None:
    running = [Node("n", CHIPS, 8, "2026-03-30T00:00:00Z", None)]
    draft = list(
        rows(source(running, issued=False, as_of="2026-03-31T12:00:00Z", plain=True), "day")
    )
    assert [row.estimated for row in draft if row.kind is RowKind.USAGE] == [True, True]
    issued = list(rows(source(running, issued=True, plain=True), "day"))
    assert not any(row.estimated for row in issued)


def test_a_csv_file_is_rfc_4180_and_runs_no_formula() -> None:
    found = source(by_job=True)
    data = b"".join(as_csv([(found, rows(found, "day"))]))
    assert data.decode().splitlines(keepends=True)[0] == ",".join(COLUMNS) + "\r\n"
    lines = data.split(b"\r\n")
    assert lines[-1] == b""
    assert all(b"\n" not in line for line in lines)
    labels = [json.loads(row["labels"]) for row in _read(found) if row["labels"]]
    assert labels[0] == {"team": EVIL, "a": 'say "hi", ünï'}
    assert [cell(text) for text in ("=1", "+1", "-1", "@a", "\ta", "\ra", "a=1")] == [
        "'=1",
        "'+1",
        "'-1",
        "'@a",
        "'\ta",
        "'\ra",
        "a=1",
    ]
    assert cell(number(-5)) == "-0.000000000005"
    assert [cell(value) for value in (None, True, False, -3)] == ["", "true", "false", "-3"]
    known = set(COLUMNS)
    assert all(set(record(found, row)) <= known for row in rows(found, "day"))


def test_json_has_the_same_rows_and_the_invoice_s_head() -> None:
    found = source()
    empty = source([], plain=True)
    document = json.loads(
        b"".join(as_json([(found, rows(found, "day")), (empty, rows(empty, "hour"))]))
    )
    first, second_month = document["months"]
    assert (first["invoice"], first["state"], first["total"]) == (
        "p-2026-03",
        "ISSUED",
        str(_total(found)),
    )
    assert len(first["rows"]) == len(_read(found))
    assert sum(Decimal(row["amount"]) for row in first["rows"]) == _total(found)
    assert all(isinstance(row["amount"], str) for row in first["rows"])
    assert [row["kind"] for row in second_month["rows"]] == ["rounding_error"]
    assert json.loads(b"".join(as_json([]))) == {"months": []}


def _bigquery(found: ExportSource) -> list[dict[str, Any]]:
    data = b"".join(as_bigquery([(found, rows(found, "hour"))]))
    return [json.loads(line, parse_float=Decimal) for line in data.decode().splitlines()]


@pytest.mark.slow
def test_bigquery_s_costs_and_credits_sum_to_the_invoice_s_total() -> None:
    found = source()
    read = _bigquery(found)
    costs = sum(Decimal(row["cost"]) for row in read)
    credits = sum(
        (Decimal(credit["amount"]) for row in read for credit in row["credits"]), Decimal(0)
    )
    assert costs + credits == _total(found)
    assert {credit["type"] for row in read for credit in row["credits"]} == {
        "COMMITTED_USAGE_DISCOUNT",
        "PROMOTION",
    }
    assert {row["cost_type"] for row in read} == {"regular", "tax", "adjustment", "rounding_error"}


@pytest.mark.slow
def test_bigquery_s_rows_have_its_schema() -> None:
    (row, *_) = _bigquery(source())
    assert set(row) == {
        *(
            "billing_account_id",
            "service",
            "sku",
            "usage_start_time",
            "usage_end_time",
            "project",
            "labels",
        ),
        *(
            "system_labels",
            "location",
            "resource",
            "export_time",
            "cost",
            "currency",
            "currency_conversion_rate",
        ),
        *("usage", "credits", "invoice", "cost_type"),
    }
    assert row["sku"] == {"id": "95D2-902D-C8CA", "description": "Tpu running in r"}
    assert row["location"] == {
        "location": "r-a1-a",
        "country": None,
        "region": "r-a1",
        "zone": "r-a1-a",
    }
    assert row["usage"] == {
        "amount": 3600,
        "unit": "seconds",
        "amount_in_pricing_units": Decimal(1),
        "pricing_unit": "hour",
    }
    assert row["labels"] == [{"key": "a", "value": 'say "hi", ünï'}, {"key": "team", "value": EVIL}]
    assert (row["invoice"], row["currency"]) == ({"month": "202603"}, "EUR")
    assert row["currency_conversion_rate"] == Decimal("0.9137")
    found = source()
    assert all(set(entry(found, one)) == set(row) for one in rows(found, "day"))


def test_numbers_of_json_keep_all_of_their_digits() -> None:
    assert json_text({"a": [number(10**30 + 1), None, True, "ü\n"]}) == (
        '{"a":[1000000000000000000.000000000001,null,true,"ü\\n"]}'
    )


@pytest.mark.slow
def test_fifty_thousand_rows_come_one_after_the_other() -> None:
    many = [
        Node(f"n-{i:04d}", CHIPS, 8, "2026-03-01T00:00:00Z", "2026-03-31T00:00:00Z")
        for i in range(70)
    ]
    found = source(many, plain=True)
    count = 0
    last: ExportRow | None = None
    for row in rows(found, "hour"):
        count, last = count + 1, row
    assert count == 70 * 720 + 2  # and tax and rounding error
    assert last is not None
    assert abs(last.shown) < 10 ** (DECIMALS - 2)
