"""Terms of billing in the console: budgets that are edited where they stand, and the rate card."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from podyard.web.front import pages
from tests.yard import Yard, open_yard

PAGE = "/console/demo/billing/budgets"
BUDGETS = "/podyard/v1/projects/demo/budgets"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, routers=(pages.router,)) as found:
        yield found


def text(yard: Yard, path: str = PAGE) -> str:
    answer = yard.call("GET", path)
    assert answer.status_code == 200, answer.text
    return unescape(answer.text)


def test_a_budget_is_edited_where_it_stands(yard: Yard) -> None:
    body = {
        "amount": "100.5",
        "scope": "label:team=vision",
        "thresholds": ["0.25", "1"],
        "forecasts": ["1"],
        "actions": ["refuse-new-nodes", "notify:http://127.0.0.1:9/x"],
    }
    yard.ok("PUT", f"{BUDGETS}/vision", body)
    html = text(yard)
    (form,) = re.findall(r'<details data-key="edit-vision">.*?</form>', html, re.DOTALL)
    fields = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form.replace(" title=", " ")))
    assert (fields["name"], fields["amount"]) == ("vision", "100.5")
    assert 'value="label:team=vision"' in form and fields["thresholds"] == "0.25, 1"
    assert re.search(r'name="refuse-new-nodes" value="1" checked', form)
    posted = {"name": "vision", "amount": "200", "period": "month", "scope": "label:team=vision"}
    posted |= {"thresholds": "0.25, 1", "stop": "1"}
    assert yard.http.post(f"{PAGE}/set", data=posted).status_code == 303
    budget = yard.ok("GET", f"{BUDGETS}/vision")
    assert budget["amount"].startswith("200.") and budget["forecasts"] == ["1"], "they stay"
    assert sorted(budget["actions"]) == ["notify:http://127.0.0.1:9/x", "stop"]


def test_a_budget_is_removed_behind_a_question(yard: Yard) -> None:
    yard.ok("PUT", f"{BUDGETS}/monthly", {"amount": "100"})
    html = text(yard)
    assert f'href="{PAGE}?confirm=remove-monthly"' in html
    assert re.search(r'<dialog id="remove-monthly"[^>]* open>', html) is None
    asked = text(yard, f"{PAGE}?confirm=remove-monthly")
    assert re.search(r'<dialog id="remove-monthly"[^>]* open>', asked), "without a script, too"
    assert yard.http.post(f"{PAGE}/remove", data={"name": "monthly"}).status_code == 303
    assert "No budgets" in text(yard)


def test_a_bar_tells_how_near_the_budget_is(yard: Yard) -> None:
    yard.create("n")
    yard.step(4000)  # 5.00 dollars at 4.50 an hour
    for name, amount in (("far", "100"), ("close", "6"), ("gone", "2")):
        yard.ok("PUT", f"{BUDGETS}/{name}", {"amount": amount})
    html = text(yard)
    bars = re.findall(r'<div class="progress([^"]*)"><progress[^>]*aria-label="Budget (\w+)"', html)
    assert {name: kind.strip() for kind, name in bars} == {
        "far": "",
        "close": "near",
        "gone": "beyond",
    }
    assert "nearly used up" in html


def test_the_rate_card_begins_with_tpus(yard: Yard) -> None:
    html = text(yard, "/console/demo/billing/prices")
    names = re.findall(r'<th scope="row"[^>]*>\s*(?:<[^>]+>)*([a-z0-9-]+/[^<]+)', html)
    assert names and names[0].startswith("tpu-v2"), names[:3]


def test_an_idle_node_has_a_link_and_a_button(yard: Yard) -> None:
    yard.create("unused")
    yard.create("gone")
    yard.step(4000)
    yard.ok("DELETE", f"{yard.nodes()}/gone")
    yard.step(5)
    html = text(yard, "/console/demo/billing/idle")
    node = "/console/demo/nodes/us-central1-f/unused"
    assert f'<th scope="row"><a href="{node}">' in html
    assert "nodes/us-central1-f/gone" not in html, "it has no page any more"
    assert f'href="{node}?confirm=confirm-stop">Stop</a>' in html
    assert re.search(
        r'<dialog id="confirm-stop"[^>]* open>', text(yard, f"{node}?confirm=confirm-stop")
    )
