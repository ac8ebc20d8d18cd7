"""`/metrics`, and the dashboard and alerts that read it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.house import dashboard
from tests.yard import Yard

DEPLOY = Path(__file__).parents[2] / "deploy"
LINE = re.compile(r'(podyard_[a-z_]+)(\{[a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*\})? (-?[0-9.e+-]+)')
NAME = re.compile(r"podyard_[a-z_]+")


def _values(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("# TYPE "):
            match = LINE.fullmatch(line)
            assert match is not None, line
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


def test_the_state_of_the_platform_is_told_in_prometheus_text(yard: Yard) -> None:
    yard.create("n1")
    yard.call("GET", yard.nodes())
    answer = yard.call("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = _values(answer.text)
    assert found['podyard_nodes{project="demo",state="READY"}'] == 1
    assert found["podyard_loop_leads"] == 1
    assert found["podyard_loop_leaders_total"] == 1
    assert found["podyard_messages_unsent"] == 0
    assert found['podyard_http_requests_total{method="GET",code="200"}'] >= 2
    assert found["podyard_http_request_seconds_count"] >= 3
    assert found["podyard_disk_free_bytes"] > 0
    yard.clock.advance(60)
    found = _values(yard.call("GET", "/metrics").text)
    assert (found["podyard_loop_leads"], found["podyard_clock_lag_seconds"] > 50) == (0, True)


def test_a_monitor_sees_the_platform_and_a_biller_does_not(yard: Yard) -> None:
    names = {}
    for role in ("monitoring.viewer", "tpu.viewer", "billing.viewer"):
        body = {"email": f"{role}@corp.example", "project": "demo", "roles": [role]}
        token = yard.ok("POST", "/podyard/v1/tokens", body)["token"]
        answer = yard.bare.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        names[role] = {name.partition("{")[0] for name in _values(answer.text)}
        if role == "monitoring.viewer":
            refused = yard.bare.get(yard.nodes(), headers={"Authorization": f"Bearer {token}"})
            assert refused.status_code == 403
    assert names["monitoring.viewer"] == names["tpu.viewer"] > names["billing.viewer"]
    assert yard.bare.get("/metrics").status_code == 401


def _told(yard: Yard) -> set[str]:
    return set(re.findall(r"# TYPE (podyard_[a-z_]+) ", yard.call("GET", "/metrics").text))


def _named(expression: str) -> set[str]:
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in NAME.findall(expression)}


def test_the_dashboard_is_as_it_is_made_and_names_only_what_is_told(yard: Yard) -> None:
    assert dashboard.FILE.read_text(encoding="utf-8") == dashboard.text()
    board = json.loads(dashboard.FILE.read_text(encoding="utf-8"))
    named = set().union(
        *(_named(target["expr"]) for panel in board["panels"] for target in panel["targets"])
    )
    assert named - _told(yard) == set()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 10


def test_alerts_name_only_what_is_told_and_are_in_the_manual(yard: Yard) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
    manual = (DEPLOY.parent / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
    for rule in rules:
        assert _named(rule["expr"]) - _told(yard) == set(), rule["alert"]
        assert rule["annotations"]["summary"].endswith(".")
        assert f"| `{rule['alert']}` |" in manual
    assert len(rules) >= 8


@pytest.mark.parametrize("name", ["podyard_nothing", "podyard_http_requests"])
def test_a_name_that_is_not_told_is_found(yard: Yard, name: str) -> None:
    assert _named(f"rate({name}[5m])") - _told(yard) == {name}
