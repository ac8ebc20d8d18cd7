"""The platform clock over REST: a virtual one is advanced from timer to timer, paused, and run at a
rate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from podyard.base.clock import PlatformTime
from podyard.db.tables.base import state_changes
from podyard.domain.fleet_file import load_fleet
from tests.yard import ZONE, Yard, open_yard

FLEET = f"""
zones:
  {ZONE}:
    v2: {{shape: 4x4}}
timings: {{create_seconds: 60, delete_seconds: 30}}
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, load_fleet(FLEET), clock_mode="virtual") as found:
        yield found


def _clock(yard: Yard) -> dict[str, Any]:
    return yard.ok("GET", "/podyard/v1/clock")


def _events(yard: Yard, node: str) -> list[tuple[str, str]]:
    def body(uow: Any) -> list[Any]:
        mine = state_changes.c.resource_name.like(f"%/nodes/{node}")
        return list(uow.all(select(state_changes).where(mine).order_by(state_changes.c.seq)))

    return [(row["to_state"], row["at"].rfc3339()) for row in yard.database.read(body)]


def _request(yard: Yard, node: str, **fields: Any) -> dict[str, Any]:
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base", **fields}
    return yard.ok("POST", f"{yard.nodes()}?nodeId={node}", body)


def test_an_advance_fires_each_timer_at_its_time_and_is_an_operation_until_then(yard: Yard) -> None:
    _request(yard, "one", schedulingConfig={"preemptible": True})
    operation = yard.ok("POST", "/podyard/v1/clock:advance", {"duration": "30d"})
    target = "2026-03-31T00:00:00Z"
    assert operation["done"] is False
    assert operation["metadata"] == {"platformTime": "2026-03-01T00:00:00Z", "targetTime": target}
    assert _clock(yard)["targetTime"] == target
    yard.step()
    ended = yard.ok("GET", f"/podyard/v1/{operation['name']}")
    assert (ended["done"], ended["response"]) == (True, {"platformTime": target})
    assert _clock(yard) == {"platformTime": target, "mode": "virtual", "running": True, "rate": 1.0}
    assert _events(yard, "one") == [
        ("CREATING", "2026-03-01T00:00:00Z"),
        ("READY", "2026-03-01T00:01:00Z"),
        ("TERMINATED", "2026-03-02T00:00:00Z"),
    ]


def test_what_a_timer_frees_is_given_to_who_waits_before_the_next_timer(yard: Yard) -> None:
    """Four nodes end one after the other; what waits for their chips is READY 60 s after each, not
    at the target."""
    for index in range(4):
        _request(yard, f"first-{index}", schedulingConfig={"preemptible": True})
        yard.ok("POST", "/podyard/v1/clock:advance", {"duration": "1h"})
        yard.step()
    body = {"tpu": {"nodeSpec": [{"parent": f"projects/demo/locations/{ZONE}", "nodeId": "later",
        "node": {
        "acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}}]}, "spot": {}}  # fmt: skip
    yard.ok(
        "POST", f"/v2/projects/demo/locations/{ZONE}/queuedResources?queuedResourceId=later", body
    )
    yard.ok("POST", "/podyard/v1/clock:advance", {"duration": "10d"})
    yard.step()
    assert _events(yard, "later") == [
        ("CREATING", "2026-03-02T00:00:00Z"),
        ("READY", "2026-03-02T00:01:00Z"),
    ]


def test_time_runs_at_the_rate_while_the_loop_turns_and_stands_still_when_paused(
    yard: Yard,
) -> None:
    assert yard.ok("POST", "/podyard/v1/clock:setRate", {"rate": 3600})["rate"] == 3600
    yard.step(1.0)
    assert _clock(yard)["platformTime"] == "2026-03-01T01:00:00Z"
    yard.clock.advance(60)  # a machine that sleeps: nobody is billed for it
    yard.step()
    yard.ok("POST", "/podyard/v1/clock:setRate", {"rate": 0})
    stood = _clock(yard)["platformTime"]
    yard.step(2.0)
    assert _clock(yard)["platformTime"] == stood
    yard.ok("POST", "/podyard/v1/clock:setRate", {"rate": 0.5})
    yard.step(2.0)
    passed = PlatformTime.from_rfc3339(_clock(yard)["platformTime"]).seconds_since(
        PlatformTime.from_rfc3339(stood)
    )
    assert passed == 1.0


def test_a_walk_goes_on_in_the_next_round_and_ends_where_it_is_paused(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podyard.loop.steps.TIMERS_PER_ROUND_MAX", 1)
    monkeypatch.setattr("podyard.loop.steps.TIMERS_TOGETHER_MAX", 1)
    for node in ("one", "two"):
        _request(yard, node, schedulingConfig={"preemptible": True})
    yard.step()
    operation = yard.ok("POST", "/podyard/v1/clock:advance", {"time": "2026-03-05T00:00:00Z"})
    yard.loop.walk()
    assert _clock(yard)["platformTime"] == "2026-03-01T00:01:00Z"
    assert (
        yard.ok("GET", f"/podyard/v1/{operation['name']}")["metadata"]["platformTime"]
        == "2026-03-01T00:01:00Z"
    )
    yard.ok("POST", "/podyard/v1/clock:setRate", {"rate": 0})
    yard.step(1.0)
    assert _clock(yard) == {
        "platformTime": "2026-03-01T00:01:00Z",
        "mode": "virtual",
        "running": True,
        "rate": 0.0,
    }
    assert yard.ok("GET", f"/podyard/v1/{operation['name']}")["done"] is False


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("advance", {}, "either a duration or"),
        ("advance", {"duration": "1h", "time": "2027-01-01T00:00:00Z"}, "either a duration or"),
        ("advance", {"duration": "-1h"}, "not a duration"),
        ("advance", {"duration": "300y"}, "not a duration"),
        ("advance", {"duration": "100000d"}, "cannot advance beyond 2200"),
        ("advance", {"time": "2020-01-01T00:00:00Z"}, "is in the past"),
        ("advance", {"time": "soon"}, "time"),
        ("setRate", {"rate": -1}, "rate"),
        ("setRate", {"rate": "fast"}, "rate"),
        ("setRate", {}, "rate"),
    ],
)
def test_a_wrong_request_is_refused_and_leaves_the_clock_alone(
    yard: Yard, path: str, body: dict[str, Any], text: str
) -> None:
    before = _clock(yard)
    assert text in yard.refused(400, "INVALID_ARGUMENT", "POST", f"/podyard/v1/clock:{path}", body)
    assert _clock(yard) == before


def test_an_advance_does_not_shorten_another(yard: Yard) -> None:
    yard.ok("POST", "/podyard/v1/clock:advance", {"duration": "2d"})
    text = yard.refused(
        400, "FAILED_PRECONDITION", "POST", "/podyard/v1/clock:advance", {"duration": "1d"}
    )
    assert "already advancing to 2026-03-03" in text


def test_only_the_owner_of_the_platform_sets_a_clock_and_only_a_virtual_one(
    yard: Yard, tmp_path: Path
) -> None:
    body = {"email": "eve@example.com", "project": "demo", "roles": ["owner"]}
    other = {"Authorization": f"Bearer {yard.ok('POST', '/podyard/v1/tokens', body)['token']}"}
    for path in ("advance", "setRate"):
        yard.refused(
            403,
            "PERMISSION_DENIED",
            "POST",
            f"/podyard/v1/clock:{path}",
            {"rate": "x"},
            headers=other,
        )
    yard.refused(404, "NOT_FOUND", "GET", "/podyard/v1/clock/operations/none")
    folder = tmp_path / "local"
    folder.mkdir()
    with open_yard(folder) as local:
        text = local.refused(
            400, "FAILED_PRECONDITION", "POST", "/podyard/v1/clock:advance", {"duration": "1d"}
        )
        assert "--clock virtual" in text
