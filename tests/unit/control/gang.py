"""A pretended agent and its replicas, over HTTP: the control plane cannot tell them from real
ones."""

from __future__ import annotations

import copy
import json
from typing import Any

import httpx

from tests.yard import Yard


class Gang:
    """A pretended agent with the replicas that it is told to run."""

    def __init__(self, yard: Yard) -> None:
        self._reach(yard)
        self.fence, self.lease_seconds = 0, 0.0
        self.register()

    def _reach(self, yard: Yard) -> None:
        self.yard = yard
        token = (yard.data / "agent-local.token").read_text().strip()
        self._http = httpx.Client(
            base_url=yard.url, headers={"Authorization": f"Bearer {token}"}, verify=False
        )
        yard.others.append(self._http)

    def copy_into(self, yard: Yard) -> Gang:
        """The same agent in a copy of the yard."""
        found = copy.copy(self)
        found._reach(yard)
        return found

    def register(self, replicas_max: int = 4) -> None:
        body = {"replicasMax": replicas_max, "hostsMax": 4, "bindAddress": "127.0.0.1", "pid": 1}
        answer = self._http.post("/podyard/v1/agents/local:register", json=body).json()
        self.fence, self.lease_seconds = answer["fence"], answer["leaseSeconds"]

    def sync(self) -> list[dict[str, Any]]:
        """A sync that says nothing; returns what is wanted."""
        answer = self._http.post(
            "/podyard/v1/agents/local:sync", json={"fence": self.fence, "replicas": []}
        )
        assert answer.status_code == 200, answer.text
        self.lease_seconds = answer.json()["leaseSeconds"]
        found: list[dict[str, Any]] = answer.json()["replicas"]
        return found

    def sync_hosts(self, hosts: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what the host server is told when it reports these hosts."""
        answer = self._http.post("/podyard/v1/agents/local:syncHosts", json={"hosts": hosts})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def end_what_stops(self) -> None:
        """Processes and hosts that are to stop are gone."""
        self.exit_all(of="STOP")
        stopping = [host for host in self.sync_hosts([])["hosts"] if host["desired"] == "STOP"]
        self.sync_hosts(
            [
                {**{key: h[key] for key in ("host", "generation")}, "state": "EXITED"}
                for h in stopping
            ]
        )

    def exit_all(self, of: str = "", **fields: Any) -> list[dict[str, Any]]:
        """`of`: only those that are to do this."""
        wanted = [replica for replica in self.sync() if of in ("", replica["desired"])]
        body = [
            {
                "replica": w["replica"],
                "fence": w["fence"],
                "state": "EXITED",
                "reason": "gone",
                **fields,
            }
            for w in wanted
        ]
        answer = self._http.post(
            "/podyard/v1/agents/local:sync", json={"fence": self.fence, "replicas": body}
        )
        found: list[dict[str, Any]] = answer.json()["replicas"]
        return found

    def report(self, replica: dict[str, Any], **fields: Any) -> httpx.Response:
        return self.report_text(
            replica, json.dumps({"fence": replica["fence"], "state": "RUNNING", **fields})
        )

    def report_text(self, replica: dict[str, Any], text: str) -> httpx.Response:
        path = f"/podyard/v1/replicas/{replica['replica']}:report"
        return self._http.post(path, content=text, headers=bearer(replica))

    def specification(self, replica: dict[str, Any]) -> dict[str, Any]:
        path = f"/podyard/v1/replicas/{replica['replica']}"
        found: dict[str, Any] = self._http.get(path, headers=bearer(replica)).json()
        return found

    def points(self, replica: dict[str, Any], first: int, last: int) -> httpx.Response:
        steps = range(first, last + 1)
        numbers = {
            "metrics": {"loss": 1.0, "accuracy": 0.5},
            "wallSeconds": 0.1,
            "modelledSeconds": 0.5,
        }
        return self.report(replica, metrics=[{"step": step, **numbers} for step in steps])


def bearer(replica: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {replica['token']}"}


def submit(gang: Gang, job: str = "j", **fields: Any) -> str:
    """Submits a job of ten steps on the node `n`, turns the loop, and returns the job's path."""
    body = {"recipe": "digits-cnn", "node": "n", "steps": 10, **fields}
    gang.yard.ok("POST", f"{gang.yard.jobs()}?jobId={job}", body)
    gang.yard.step()
    return f"{gang.yard.jobs()}/{job}"
