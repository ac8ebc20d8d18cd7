"""What if: the same seconds on other terms, by type, on the page, by API and command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from podyard.web.front import pages
from tests.yard import Yard, open_yard

PAGE = "/console/demo/billing/what-if"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with open_yard(Path(tmp_path_factory.mktemp("what-if")), routers=(pages.router,)) as yard:
        yard.create("small")
        yard.create("large", "v3-8", "europe-west4-a")
        yard.clock.advance(36_000)
        yard.step()
        for name, zone in (("small", "us-central1-f"), ("large", "europe-west4-a")):
            yard.ok("POST", f"{yard.nodes(zone)}/{name}:stop", {})
        yard.step()
        yield yard


def _ask(yard: Yard, **change: Any) -> dict[str, Any]:
    return yard.ok("POST", "/podyard/v1/projects/demo/costs:whatIf", change)


def _rows(yard: Yard, query: str) -> list[str]:
    html = unescape(yard.call("GET", f"{PAGE}?{query}").text)
    rows = re.findall(r"<tr><th scope=.row.>.*?</tr>", html, re.S)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in rows]


def test_only_nodes_of_the_type_that_is_named_change(yard: Yard) -> None:
    answer = _ask(yard, acceleratorType="v3-8", ofType="v2-8")
    by_type = {line["before"]["acceleratorType"]: line for line in answer["lines"]}
    small, large = by_type["v2-8"], by_type["v3-8"]
    assert (small["seconds"], small["actual"], small["changed"]) == (
        36_000,
        "45.000000000000",
        "80.000000000000",
    )
    assert small["before"]["pricePerHour"] == "4.500000000"
    assert small["after"]["acceleratorType"] == "v3-8" == large["after"]["acceleratorType"]
    assert large["difference"] == "0.000000000000"


@pytest.mark.parametrize(
    "change", [{"usage": "spot"}, {"commitmentYears": 1, "acceleratorType": "v2-32"}]
)
def test_the_lines_add_up_to_the_whole(yard: Yard, change: dict[str, Any]) -> None:
    answer = _ask(yard, **change)
    for column in ("actual", "changed"):
        assert sum(Decimal(line[column]) for line in answer["lines"]) == Decimal(answer[column])


def test_the_page_explains_each_line(yard: Yard) -> None:
    large, small = _rows(yard, "type=v3-8&of=v2-8")
    assert large == "v3-8 europe-west4 on-demand 10 h $8.80 per hour $88.00 $88.00 $0.00"
    assert small.startswith("v2-8 us-central1 on-demand → v3-8 us-central1 on-demand 10 h")
    assert small.endswith("$4.50 per hour → $8.00 per hour $45.00 $80.00 $35.00")


def test_the_page_has_a_line_for_commitments(yard: Yard) -> None:
    rows = _rows(yard, "type=v2-32&years=1")
    assert any(row.startswith("Commitments, storage – –") for row in rows)


def test_every_type_can_be_picked_by_its_generation(yard: Yard) -> None:
    html = yard.call("GET", PAGE).text
    select = re.search(r'<select id="type".*?</select>', html, re.S)
    assert select is not None
    assert '<optgroup label="v5p">' in select[0] and '<option value="v6e-256">' in select[0]
    used = re.search(r'<select id="of".*?</select>', html, re.S)
    assert used is not None
    assert re.findall(r'value="([^"]*)"', used[0]) == ["", "v2-8", "v3-8"]


def test_an_unknown_type_is_refused(yard: Yard) -> None:
    assert "v9-8" in yard.refused(
        400, "INVALID_ARGUMENT", "POST", "/podyard/v1/projects/demo/costs:whatIf",
        {"acceleratorType": "v3-8", "ofType": "v9-8"},
    )  # fmt: skip
