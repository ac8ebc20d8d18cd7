"""A yard in which every name of a path leads to something, and every operation of the OpenAPI
document."""

from __future__ import annotations

import contextlib
import copy
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from podyard.api import openapi
from podyard.api.own_routers import OWN_ROUTERS
from tests.unit.control.gang import Gang, bearer
from tests.yard import ZONE, Yard, open_yard

DOCUMENT = openapi.document(OWN_ROUTERS)
OPERATIONS = {
    operation["operationId"]: (verb.upper(), path)
    for path, verbs in DOCUMENT["paths"].items()
    for verb, operation in verbs.items()
}
NODE = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
QUEUED = {
    "tpu": {
        "nodeSpec": [
            {"parent": f"projects/demo/locations/{ZONE}", "nodeId": "of-queue", "node": NODE}
        ]
    }
}


class World:
    """What there is for requests to meet: a node, a job that runs on it, a queued resource, a
    reservation, keys."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        here = f"projects/demo/locations/{ZONE}"
        done = yard.create("n")
        yard.ok("POST", f"/v2/{here}/queuedResources?queuedResourceId=q", QUEUED)
        yard.ok(
            "POST",
            f"/podyard/v1/{here}/reservations?reservationId=r",
            {"generation": "v2", "size": 4},
        )
        self.gang = gang = Gang(yard)
        yard.ok(
            "POST", f"{yard.jobs()}?jobId=j", {"recipe": "digits-cnn", "node": "n", "steps": 10}
        )
        yard.step()
        (self.replica,) = gang.sync()
        swept = {"recipe": "digits-cnn", "node": "n", "steps": 10, "values": {"seed": [1]}}
        yard.ok("POST", f"{yard.jobs().removesuffix('jobs')}sweeps?sweepId=s", swept)
        gang.points(self.replica, 1, 3)
        yard.ok("PUT", "/podyard/v1/projects/demo/budgets/b", {"amount": "1000"})
        endpoint = {"url": "http://127.0.0.1:9/", "events": ["job.failed"]}
        yard.ok("PUT", "/podyard/v1/projects/demo/webhooks/h", endpoint)
        self.agent_headers = {
            "Authorization": f"Bearer {(yard.data / 'agent-local.token').read_text().strip()}"
        }
        token = {"email": "ann@example.com", "project": "demo", "roles": ["tpu.viewer"]}
        invited = {"email": "ben@example.com", "roles": ["tpu.viewer"]}
        self.names = {
            "project": "demo",
            "token": yard.ok("POST", "/podyard/v1/tokens", token)["tokenId"],
            "invitation": yard.ok("POST", "/podyard/v1/projects/demo/invitations", invited)[
                "invitationId"
            ],
            "zone": ZONE,
            "node": "n",
            "job": "j",
            "sweep": "s",
            "reservation": "r",
            "agent": "local",
            "replica": self.replica["replica"],
            "accelerator_type": "v2-8",
            "email": "someone@example.com",
            "key": "none",
            "pod": f"{ZONE}-v2-0",
            "operation": "advance-1772323200000000000",
            "fault": yard.ok(
                "POST", "/podyard/v1/faults", {"effect": "stockout", "match": {"zone": "nowhere"}}
            )["fault"],
            "version": "v2",
            "service": "E000-3F24-B8AA",
            "month": "2026-03",
            "budget": "b",
            "webhook": "h",
            "export": yard.ok(
                "POST", "/podyard/v1/projects/demo/exports", {"format": "csv", "month": "2026-03"}
            )["name"].rpartition("/")[2],
        }
        self.members = {
            "nodes": "n",
            "queuedResources": "q",
            "operations": done["name"].rpartition("/")[2],
            "acceleratorTypes": "v2-8",
            "runtimeVersions": "tpu-vm-base",
            "tensorflowVersions": "2.12.0",
        }

        self.right = {
            "node": "n",
            "job": "j",
            "recipe": "digits-cnn",
            "acceleratorType": "v2-8",
            "runtimeVersion": "tpu-vm-base",
            "generation": "v2",
            "project": "demo",
            "mode": "train",
            "execution": "real",
            "replica": self.replica["replica"],
            "host": "none",
            "parent": here,
            "at": "2026-03-01T00:00:00Z",
            "email": "someone@example.com",
            "nodeId": "other",
            "topology": "2x2",
        }

    def copy_into(self, yard: Yard) -> World:
        """The same world in a yard on a copy of its folder."""
        found = copy.copy(self)
        found.yard, found.gang = yard, self.gang.copy_into(yard)
        return found

    def fence(self, path: str) -> int:
        return int(self.replica["fence"] if "/replicas/" in path else self.gang.fence)

    def parameters(self, path: str) -> dict[str, str]:
        """Path parameters that lead to what is there."""
        collection = re.search(r"/(\w+)/\{id\}", path)
        names = self.names | ({"id": self.members[collection[1]]} if collection else {})
        return {name: names[name] for name in re.findall(r"\{(\w+)\}", path)}

    def headers(self, path: str) -> dict[str, str]:
        """Return who may call this path: agents and replicas have tokens of their own."""
        if "/agents/" in path:
            return self.agent_headers
        return bearer(self.replica) if "/replicas/" in path else dict(self.yard.http.headers)


@contextlib.contextmanager
def open_copy(prepared: World, data: Path) -> Iterator[World]:
    """A world like the prepared one, in half the time that making it takes. Nobody may serve the
    prepared one."""
    shutil.copytree(prepared.yard.data, data, dirs_exist_ok=True)
    with open_yard(data) as yard:
        yield prepared.copy_into(yard)
