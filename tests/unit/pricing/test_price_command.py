"""`podyard price`, without any Podyard running."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from podyard.cli.money.price import price
from podyard.pricing.current_card import default_rate_card

SHIPPED = Path(__file__).parents[3] / "pricing" / "rate_cards" / "2026-11-01.yaml"
ROW = "{generation: v6e, region: us-east1, usage: spot, unit: chip_hour, prices: [%s]}"
JANUARY = '{from: "2026-01-01T00:00:00Z", usd: "1.10", source: s}'
MARCH = '{from: "2026-03-01T00:00:00Z", usd: "2.5", source: s, verified: false}'


def card(rows: str) -> str:
    return f"{{sources: {{s: somebody}}, skus: {{{rows}}}}}"


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(price, list(arguments))


def rows_of(*arguments: str) -> list[dict[str, Any]]:
    done = ran(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture
def own_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "own.yaml"
    path.write_text(card(f"a: {ROW % f'{JANUARY}, {MARCH}'}"))
    monkeypatch.setenv("PODYARD_RATE_CARD", str(path))
    default_rate_card.cache_clear()
    yield path
    default_rate_card.cache_clear()


def test_a_list_is_narrowed_by_what_is_asked() -> None:
    assert len(rows_of("list")) == 315
    (found,) = rows_of("list", "--region", "us-central2", "--generation", "v4", "--usage", "spot")
    assert (found["sku"], found["usd"], found["unit"]) == (
        "tpu-v4-chip/us-central2/spot",
        "0.9215",
        "chip_hour",
    )
    assert len(rows_of("list", "--unverified")) == 136
    assert len(rows_of("list", "--verified")) == 179
    assert rows_of("list", "--at", "2014-12-31T23:59:59Z") == []


def test_a_type_is_listed_with_the_price_of_a_node() -> None:
    found = {(row["region"], row["usage"]): row for row in rows_of("list", "--type", "v4-64")}
    assert found["us-central2", "on-demand"]["quantity"] == 32
    assert found["us-central2", "on-demand"]["usdPerHour"] == "103.04"
    assert found["us-central2", "commitment-1y"]["usdPerHour"] == "64.9152"
    (one,) = rows_of("list", "--type", "v3-32", "--region", "us-east1", "--usage", "on-demand")
    assert (one["type"], one["quantity"], one["usdPerHour"]) == ("v3-32", 1, "32.00")


def test_the_versions_are_those_of_their_time(own_card: Path) -> None:
    assert [row["usd"] for row in rows_of("list", "--at", "2026-02-28T23:59:59Z")] == ["1.10"]
    assert [row["usd"] for row in rows_of("list", "--at", "2026-03-01T00:00:00Z")] == ["2.50"]
    shown = rows_of("show", "a")
    assert [(row["from"], row["usd"], row["verified"], row["source"]) for row in shown] == [
        ("2026-01-01T00:00:00Z", "1.10", True, "somebody"),
        ("2026-03-01T00:00:00Z", "2.50", False, "somebody"),
    ]
    table = ran("show", "v6e-8").output.splitlines()
    assert [line.split()[-2:] for line in table] == [
        ["VERIFIED", "SOURCE"],
        ["yes", "somebody"],
        ["no", "somebody"],
    ]
    assert yaml.safe_load(ran("show", "a", "-o", "yaml").output) == shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("show", "v2-8", "--region", "us-east1"),
            "no price of v2-8 in us-east1: it has some in asia-east1, europe",
        ),
        (("show", "v9-8"), "no price of v9-8, neither a SKU nor a type"),
        (("list", "--type", "v9-8"), "accelerator type 'v9-8' does not exist"),
        (("list", "--at", "today"), "--at: 'today' is not an RFC 3339 time"),
        (
            ("diff", "2026-11-01", "/nowhere"),
            "'/nowhere' is neither one of 2026-11-01 nor a file that can be read",
        ),
    ],
)
def test_what_cannot_be_answered_says_why(arguments: tuple[str, ...], told: str) -> None:
    assert told in str(ran(*arguments).exception)


def test_a_difference_says_what_is_added_removed_and_changed(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    gone, new = ROW.replace("us-east1", "us-west1"), ROW.replace("us-east1", "us-west4")
    one.write_text(card(f"a: {ROW % JANUARY}, b: {gone % JANUARY}"))
    changed = JANUARY.replace("1.10", "1.00")
    two.write_text(card(f"a: {ROW % f'{changed}, {MARCH}'}, c: {new % JANUARY}"))
    found = rows_of("diff", str(one), str(two), "--at", "2025-12-31T00:00:00Z")
    assert {row.pop("refused") for row in found} == {None}  # nothing has been priced by then
    assert [tuple(row.values()) for row in found] == [
        ("a", "changed", "2026-01-01T00:00:00Z", "1.10", "1.00", "-9.09"),
        ("a", "added", "2026-03-01T00:00:00Z", None, "2.50", None),
        ("b", "removed", "2026-01-01T00:00:00Z", "1.10", None, None),
        ("c", "added", "2026-01-01T00:00:00Z", None, "1.10", None),
    ]
    done = ran("diff", str(one), str(two), "--at", "2026-02-01T00:00:00Z")
    assert done.exit_code == 0
    line = ["a", "changed", "2026-01-01T00:00:00Z", "1.10", "1.00", "-9.09"]
    assert done.output.splitlines()[1].split() == [*line, "refused"]
    found = rows_of("diff", str(one), str(two), "--at", "2026-02-01T00:00:00Z")
    changed = "this price has changed from 1.10 USD per chip_hour to 1.00 USD per chip_hour"
    assert [row["refused"] for row in found] == [
        f"a@2026-01-01T00:00:00Z: {changed}, and usage has been priced by it",
        None,  # it begins later
        (
            "b@2026-01-01T00:00:00Z: the SKU of 1.10 USD per chip_hour is gone, and usage has been "
            "priced by it"
        ),
        None,  # there was no price
    ]
    assert rows_of("diff", "2026-11-01", str(SHIPPED)) == []
