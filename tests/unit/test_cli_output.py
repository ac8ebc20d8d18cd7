"""How tables of the command line show what they are given."""

from __future__ import annotations

import re

import pytest

from podyard.cli.jobs.progress import progress_line
from podyard.cli.kit.output import emit
from podyard.cli.kit.tables import cell
from podyard.cli.money.budget import _row


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("976.925000000000", "976.925"),
        ("200.000000000", "200.00"),
        ("-0.100000", "-0.10"),
        ("4.50", "4.50"),
        ("0.000435000000", "0.000435"),
        ("10.128.0.100", "10.128.0.100"),
        ("1.0", "1.0"),
        (None, "-"),
        ({"a": 1, "b": 2}, "a=1,b=2"),
    ],
)
def test_a_cell_is_for_people(value: object, shown: str) -> None:
    assert cell(value) == shown


@pytest.mark.parametrize(
    ("spent", "reached", "expected"),
    [("99.99", None, "2026-03-20T00:00:00Z"), ("100.00", "2026-03-20T00:00:00Z", None)],
)
def test_a_forecast_is_not_reached(spent: str, reached: str | None, expected: str | None) -> None:
    budget = {"spent": spent, "amount": "100", "reachedAt": "2026-03-20T00:00:00Z", "actions": []}
    row = _row(budget)
    assert (row["reached"], row["expected"]) == (reached, expected)
    assert _row({"amount": "100", "actions": []})["reached"] is None


def test_the_progress_of_a_job_is_time_speed_and_cost() -> None:
    job = {
        "state": "RUNNING", "stepsDone": 40, "steps": 100, "metrics": {"latest": {}},
        "wallSeconds": 95.2,
        "stepsPerSecond": 2.5, "remainingSeconds": 24.0, "cost": "0.118750000000",
    }  # fmt: skip
    assert progress_line(job).split("  ")[-3:] == [
        "1 min 35 s",
        "2.5 steps/s, 24 s left",
        "$0.1188",
    ]


def test_tables_write_money_and_time_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"cost": "14407.541234567890", "used": 1_620_000, "more": {"cost": "0.000001234"}},
        {"used": 59},
    ]
    emit(rows, "table", {"COST": "cost|usd", "USED": "used|seconds", "STEP": "more.cost|usd"})
    lines = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["COST", "USED", "STEP"],
        ["$14,407.54", "18 d 18 h", "$0.0000012"],
        ["-", "59 s", "-"],
    ]
