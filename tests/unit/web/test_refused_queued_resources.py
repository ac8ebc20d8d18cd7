"""A request for a queued resource beyond quota: who asks by Podyard finds it in the list with its
reason; Google's clients get HTTP 429 and no queued resource."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from podyard.control.compute.queued_resources import REFUSED_KEPT_MAX
from podyard.domain.queued_resource import KEEP_REFUSED_HEADER
from podyard.http.guard import CSRF_FIELD, csrf_token
from podyard.web.front import pages
from tests.yard import ZONE, Yard, open_yard

QUEUE = f"/v2alpha1/projects/demo/locations/{ZONE}/queuedResources"
LIST = "/console/demo/queue/resources"
LIMIT = "has been exceeded. Limit: 8"
KEEP = {KEEP_REFUSED_HEADER: "true"}


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, routers=(pages.router,)) as yard:
        rule = {"effect": "quota", "match": {"zone": ZONE}, "limit": 8}
        yard.ok("POST", "/podyard/v1/faults", rule)
        yield yard


def _request(yard: Yard, name: str, headers: dict[str, str] | None = None) -> Any:
    node = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    spec = {"parent": f"projects/demo/locations/{ZONE}", "nodeId": name, "node": node}
    body = {"tpu": {"nodeSpec": [spec]}}
    return yard.call("POST", f"{QUEUE}?queuedResourceId={name}", body, headers=headers)


def _states(yard: Yard) -> dict[str, str]:
    requests = yard.ok("GET", QUEUE).get("queuedResources", ())
    return {one["name"].split("/")[-1]: one["state"]["state"] for one in requests}


def test_the_console_lists_a_refused_request_with_its_reason(yard: Yard) -> None:
    assert _request(yard, "first").status_code == 200
    form = {
        CSRF_FIELD: csrf_token(yard.token),
        "name": "second",
        "zone": ZONE,
        "accelerator_type": "v2-8",
        "runtime_version": "tpu-vm-base",
        "usage": "on-demand",
    }
    answer = yard.http.post(f"{LIST}/new", data=form)
    assert answer.status_code == 303 and answer.headers["location"] == LIST, answer.text
    html = unescape(yard.call("GET", LIST).text)
    row = next(row for row in re.findall(r"<tr>.*?</tr>", html, re.S) if ">second</th>" in row)
    assert "FAILED" in row and LIMIT in row and "Delete second" in row
    assert answer.cookies  # says on the list what happened


def test_a_refused_request_holds_no_quota_and_gives_way_to_another(yard: Yard) -> None:
    _request(yard, "first")
    operation = _request(yard, "second", KEEP).json()
    assert operation["done"] and operation["error"]["code"] == 8
    assert LIMIT in operation["error"]["message"]
    again = _request(yard, "second", KEEP).json()
    assert again["error"]["code"] == 8 and _states(yard)["second"] == "FAILED"
    error = yard.ok("GET", f"{QUEUE}/second")["state"]["failedData"]["error"]
    assert error["code"] == 8 and error["details"][0]["violations"]
    yard.ok("DELETE", f"{QUEUE}/first?force=true")
    yard.step()
    assert _request(yard, "second").json()["response"]["state"]["state"] == "WAITING_FOR_RESOURCES"
    yard.step()
    assert _states(yard) == {"second": "ACTIVE"}


def test_a_request_that_a_budget_refuses_is_kept_with_its_reason(yard: Yard) -> None:
    (rule,) = yard.ok("GET", "/podyard/v1/faults")["faults"]
    yard.ok("DELETE", f"/podyard/v1/faults/{rule['fault']}")
    _request(yard, "first")
    yard.step()
    budgets = "/podyard/v1/projects/demo/budgets"
    yard.ok("PUT", f"{budgets}/b", {"amount": "0.01", "actions": ["refuse-new-nodes"]})
    yard.clock.advance(3600)
    yard.step()
    error = _request(yard, "second", KEEP).json()["error"]
    assert error["code"] == 8 and "budget b of projects/demo is used up" in error["message"]
    assert _states(yard)["second"] == "FAILED"
    (event,) = [
        one
        for one in yard.ok("GET", "/podyard/v1/projects/demo/budgetEvents")["events"]
        if one["kind"] == "refuse"
    ]
    assert "second" in event["text"]
    yard.ok("DELETE", f"{budgets}/b")
    assert _request(yard, "second").json()["response"]["state"]["state"] == "WAITING_FOR_RESOURCES"


def test_google_clients_get_429_and_no_queued_resource(yard: Yard) -> None:
    _request(yard, "first")
    answer = _request(yard, "second")
    assert answer.status_code == 429 and LIMIT in answer.json()["error"]["message"]
    assert set(_states(yard)) == {"first"}


def test_the_oldest_refusal_gives_way(yard: Yard) -> None:
    _request(yard, "first")
    for index in range(REFUSED_KEPT_MAX + 2):
        yard.clock.advance(1)
        _request(yard, f"r{index}", KEEP)
    names = set(_states(yard)) - {"first"}
    assert names == {f"r{index}" for index in range(2, REFUSED_KEPT_MAX + 2)}
    yard.ok("DELETE", f"{QUEUE}/r9")
    assert "r9" not in _states(yard)
