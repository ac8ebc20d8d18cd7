"""The yard that the recorded outputs of the command line are of: a bit of everything, at a time
that stands still."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podyard.domain.fleet_file import load_fleet
from tests.unit.control.gang import Gang
from tests.yard import ZONE, Yard, open_yard

FLEET = f"""
zones:
  {ZONE}:
    v2: {{shape: 4x4}}
  europe-west4-a:
    v3: {{shape: 8x8}}
timings: {{create_seconds: 60, delete_seconds: 30}}
"""
EUROPE = "europe-west4-a"
LOG = {
    "seq": 0, "lines": 3, "at": "2026-04-11T12:00:00Z", "millis": 20,
    "text": "o0 the first line of the program\ne10 a warning\np20 the loss is 1.0\n",
}  # fmt: skip
OWN = "/podyard/v1/projects/demo"


@contextlib.contextmanager
def open_golden_yard(data: Path) -> Iterator[Yard]:
    with open_yard(data, load_fleet(FLEET), clock_mode="virtual") as yard:
        _Story(yard).tell()
        yield yard


class _Story:
    """A month of a node and its bill, then a morning with jobs and requests."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard

    def tell(self) -> None:
        self._nodes()
        self._bill()
        self._jobs()
        self._requests()
        self._access()
        self._advance("90s")

    def _advance(self, duration: str) -> None:
        self.yard.ok("POST", "/podyard/v1/clock:advance", {"duration": duration})
        self.yard.step()

    def _post(self, path: str, body: Any = None) -> dict[str, Any]:
        return self.yard.ok("POST", path, body or {})

    def _nodes(self) -> None:
        yard = self.yard
        yard.create("pod", labels={"team": "vision"})
        self._advance("1s")
        yard.create(
            "a-name-that-people-copy-and-that-is-never-cut-off",
            "v3-32",
            EUROPE,
            description="for the paper",
        )
        self._advance("1s")
        yard.create("preempted", schedulingConfig={"preemptible": True})
        self._advance("36h")
        yard.create("gone")
        yard.ok("DELETE", f"{yard.nodes()}/gone")

    def _bill(self) -> None:
        yard = self.yard
        yard.ok("PUT", f"{OWN}/budgets/lab", {"amount": "500", "thresholds": ["0.5", "1"]})
        self._post(f"{OWN}/credits", {"amount": "25", "untilMonth": "2026-12", "reason": "welcome"})
        self._advance("40d")

    def _jobs(self) -> None:
        yard = self.yard
        gang = Gang(yard)
        job = {"recipe": "digits-cnn", "node": "pod", "steps": 400, "globalBatch": 256}
        self._post(f"{yard.jobs()}?jobId=trains", {**job, "labels": {"team": "vision"}})
        yard.step()
        (replica,) = gang.sync()
        self._advance("10s")
        gang.points(replica, 1, 40)
        gang.report(replica, log=LOG)
        self._post(f"{yard.jobs()}?jobId=waits-for-its-turn", job)
        self._advance("1s")
        swept = {**job, "values": {"learningRate": [0.01]}}
        self._post(f"{yard.jobs().removesuffix('jobs')}sweeps?sweepId=rates", swept)
        self._advance("1s")
        self._post(f"{yard.jobs()}?jobId=ends", job)
        self._post(f"{yard.jobs()}/ends:cancel")
        yard.step()

    def _requests(self) -> None:
        events = ["job.failed", "node.preempted"]
        self.yard.ok(
            "PUT", f"{OWN}/webhooks/chat", {"url": "https://example.com/hook", "events": events}
        )
        self._post(f"{OWN}/webhooks/chat:test")
        here = f"projects/demo/locations/{ZONE}"
        node = {"acceleratorType": "v2-32", "runtimeVersion": "tpu-vm-base"}
        for name in ("wish", "a-second-wish-with-a-long-name"):
            self._advance("1s")
            spec = {"parent": here, "nodeId": f"of-{name}", "node": node}
            self._post(
                f"/v2/{here}/queuedResources?queuedResourceId={name}", {"tpu": {"nodeSpec": [spec]}}
            )
        self._post(
            f"/podyard/v1/{here}/reservations?reservationId=lab", {"generation": "v2", "size": 4}
        )
        self.yard.step()

    def _access(self) -> None:
        token = {
            "email": "ann@example.com",
            "project": "demo",
            "roles": ["tpu.viewer", "jobs.runner"],
        }
        self._post("/podyard/v1/tokens", token)
        self._post(f"{OWN}/invitations", {"email": "ben@example.com", "roles": ["tpu.viewer"]})
        self._post("/podyard/v1/faults", {"effect": "stockout", "match": {"zone": "nowhere"}})
        self._post(
            "/podyard/v1/projects", {"projectId": "student-01", "labels": {"class": "vision"}}
        )
        self.yard.call("GET", "/compute/v1/projects/demo/nothing")
