"""A launcher through three bad days: nothing is left behind, and the bill is what the state changes
say."""

from __future__ import annotations

import time
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from podyard.db.tables.base import state_changes
from podyard.testing.stack import Podyard

SCENARIO = Path(__file__).parents[2] / "examples" / "scenarios" / "preempted_fleet.yaml"
ZONE = "us-central1-f"
FLEET = {
    "zones": {ZONE: {"v2": {"shape": "8x8", "types": ["v2-8"]}}},
    "timings": {"create_seconds": 95, "delete_seconds": 40},
}
NODE = {
    "acceleratorType": "v2-8",
    "runtimeVersion": "tpu-vm-base",
    "schedulingConfig": {"spot": True},
}
WANTED = 8
STEP_SECONDS = 600.0
STEPS = 3 * 24 * 6
SPOT_PER_HOUR = Decimal("1.35")
FREE_SECONDS = 60


class Launcher:
    """Keeps so many nodes alive: creates, watches, deletes what was taken back, tries again what
    was refused."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.path = f"/v2/projects/demo/locations/{ZONE}"
        self.made = 0
        self.refused: list[str] = []
        self.fewest = WANTED

    def nodes(self) -> list[Mapping[str, Any]]:
        found = self.http.get(f"{self.path}/nodes").json().get("nodes", [])
        return [node for node in found if "queuedResource" not in node]

    def look(self) -> None:
        alive = 0
        for node in self.nodes():
            if node["state"] in ("PREEMPTED", "TERMINATED"):
                self.http.delete(f"/v2/{node['name']}").raise_for_status()
            elif node["state"] in ("CREATING", "READY"):
                alive += 1
        self.fewest = min(self.fewest, alive) if self.made >= WANTED else self.fewest
        while alive < WANTED:
            self.made += 1
            answer = self.http.post(
                f"{self.path}/nodes", params={"nodeId": f"w-{self.made}"}, json=NODE
            )
            if answer.status_code == 429:
                self.refused.append(answer.json()["error"]["message"])
                return
            operation = self.http.get(f"/v2/{answer.raise_for_status().json()['name']}").json()
            if "error" in operation:
                self.refused.append(operation["error"]["message"])
                return
            alive += 1

    def end(self) -> None:
        for node in self.nodes():
            self.http.delete(f"/v2/{node['name']}").raise_for_status()


def queue(http: httpx.Client, launcher: Launcher) -> str:
    """Asks for one queued spot node; returns its path."""
    spec = {
        "tpu": {"nodeSpec": [{"parent": launcher.path[4:], "nodeId": "late", "node": NODE}]},
        "spot": {},
    }
    path = f"/v2alpha1{launcher.path[3:]}/queuedResources"
    http.post(path, params={"queuedResourceId": "late"}, json=spec).raise_for_status()
    return f"{path}/late"


def billed(changes: list[Mapping[str, Any]]) -> tuple[int, int]:
    """(seconds, preemptions) by the rules alone: each second that is touched as READY, but for a
    first time as READY of less than a minute that ended in PREEMPTED."""
    seconds, preemptions = 0, 0
    begun: dict[str, int] = {}
    seen: set[str] = set()
    for change in changes:
        key, at = change["resource_key"], change["at"].nanos
        if key in begun:
            start = begun.pop(key)
            taken = change["to_state"] == "PREEMPTED"
            preemptions += taken
            if not (taken and key not in seen and at - start < FREE_SECONDS * 10**9):
                seconds += -(-at // 10**9) - start // 10**9 if at > start else 0
            seen.add(key)
        if change["to_state"] == "READY":
            begun[key] = at
    assert not begun
    return seconds, preemptions


@pytest.mark.slow
@pytest.mark.podyard(fleet=FLEET, seed=3)
def test_a_launcher_keeps_its_fleet_through_three_bad_days(podyard: Podyard) -> None:
    begin = time.perf_counter()
    http = podyard.client()
    launcher = Launcher(http)
    podyard.scenario(SCENARIO)
    late = queue(http, launcher)
    waited = 0
    for _ in range(STEPS):
        launcher.look()
        podyard.advance(STEP_SECONDS)
        state = http.get(late).json()["state"]["state"]
        waited += state not in ("ACTIVE", "SUSPENDED", "SUSPENDING")
    assert waited * STEP_SECONDS >= 3 * 3600
    assert any("no more capacity" in text for text in launcher.refused)
    assert any("Quota limit" in text for text in launcher.refused)
    assert launcher.fewest < WANTED
    assert sum(node["state"] == "READY" for node in launcher.nodes()) >= WANTED - 1
    launcher.end()
    http.delete(late, params={"force": "true"}).raise_for_status()
    podyard.advance("10m")
    assert http.get("/v2/projects/demo/locations/-/nodes").json().get("nodes", []) == []
    pods = podyard.call("GET", "/podyard/v1/projects/demo/pods")["pods"]
    assert [pod["chipsHeld"] for pod in pods] == [0] * len(pods)
    query = (
        select(state_changes).where(state_changes.c.machine == "node").order_by(state_changes.c.seq)
    )
    seconds, preemptions = billed(podyard.database.read(lambda uow: uow.all(query)))
    usage = podyard.call("GET", "/podyard/v1/projects/demo/usage")
    assert preemptions == 50
    assert usage["seconds"] == seconds
    per_second = Fraction(SPOT_PER_HOUR) / 3600
    assert abs(Fraction(usage["amount"]) - per_second * seconds) < Fraction(1, 10**6)
    assert podyard.fsck() == []
    assert time.perf_counter() - begin < 60
