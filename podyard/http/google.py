"""What Podyard answers for Google's APIs other than Cloud TPU: nothing is sent to Google.

Compute Engine is a project with disks only (`api/compute`), since SkyPilot and Ray list its
machines next to TPU nodes, with the machine types that the rate card has prices for, since readers
of prices multiply by what those have. All else is refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podyard.base.errors import Code

GCLOUD_AGENTS = ("google-cloud-sdk", "gcloud/", "apitools ")  # how its user agents begin
GCLOUD_STATUS = 405  # for what is not served
COMPUTE_HOST = "compute.googleapis.com"
CATALOGUE_PATH = "/v1/services"  # of Cloud Billing: the list of prices
# the names of operations that have set a project's metadata
METADATA_OPERATION = "operation-metadata-"
# those of operations that have changed a disk: the verb and the disk follow
DISK_OPERATION = "operation-disk-"
_OF_PROJECT = re.compile(
    r"/compute/(?:v1|beta|alpha)/projects/[^/]+"
    rf"(?:|/setCommonInstanceMetadata|/global/operations/{METADATA_OPERATION}[0-9a-f]+(?:/wait)?"
    rf"|/aggregated/disks|/zones/[^/]+/disks(?:/.*)?|/zones/[^/]+/operations/{DISK_OPERATION}[^/"
    rf"]+(?:/wait)?)"
)
_COMPUTE_PATH = re.compile(
    r"/compute/(?:v1|beta|alpha)/(projects/[^/]+/(global|aggregated|zones|regions)(?:/.*)?)"
)
# What a project has lists of, with the name of one, as googleapis.com says `kind` (discovery
# document, compute v1).
_COLLECTIONS = {
    "acceleratorTypes": "acceleratorType",
    "addresses": "address",
    "diskTypes": "diskType",
    "disks": "disk",
    "firewalls": "firewall",
    "images": "image",
    "instanceGroupManagers": "instanceGroupManager",
    "instanceGroups": "instanceGroup",
    "instanceTemplates": "instanceTemplate",
    "instances": "instance",
    "machineTypes": "machineType",
    "networks": "network",
    "operations": "operation",
    "reservations": "reservation",
    "resourcePolicies": "resourcePolicy",
    "routes": "route",
    "snapshots": "snapshot",
    "subnetworks": "subnetwork",
}
# N1's families with MiB per vCPU (cloud.google.com/compute/docs/general-purpose-machines), and
# their numbers of vCPUs.
_MACHINES = {"n1-standard": 3840, "n1-highmem": 6656}
_MACHINE_CPUS = (1, 2, 4, 8, 16, 32, 64, 96)
_OTHER_KIND_IN_REGIONS = frozenset({"diskTypes", "instanceGroupManagers", "instanceGroups"})
SELF = "https://www.googleapis.com/compute/v1/"


def is_of_project(host: str, path: str) -> bool:
    """Whether it is the project itself, its metadata, its disks or an operation on them: the API
    keeps those (api/compute)."""
    return host == COMPUTE_HOST and _OF_PROJECT.fullmatch(path.partition("?")[0]) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Google:
    """Answers for all those hosts. `zones`: what the project's Compute Engine says that there
    is."""

    zones: Sequence[str] = ()

    def answer(self, host: str, method: str, path: str) -> tuple[int, dict[str, Any]]:
        """(HTTP status, JSON). `path` is without its query. 501: not served, whatever was asked."""
        reads = host == COMPUTE_HOST and method in ("GET", "HEAD")
        asked = _COMPUTE_PATH.fullmatch(path) if reads else None
        found = None if asked is None else self._compute(asked[1], asked[2])
        return refusal(f"{method} https://{host}{path}") if found is None else found

    def _compute(self, name: str, scope: str) -> tuple[int, dict[str, Any]] | None:
        """`name`: projects/P/SCOPE[/...]. None: Compute Engine has no such resource, as far as we
        know."""
        project, below = name.split("/")[1], name.split("/")[3:]
        if "" in below:
            return None
        if scope in ("zones", "regions") and len(below) < 2:
            items = self._zones(project) if scope == "zones" else self._regions(project)
            if not below:
                return 200, _list(f"compute#{scope[:-1]}List", name, items)
            return next(((200, item) for item in items if item["name"] == below[0]), _missing(name))
        place = 0 if scope in ("global", "aggregated") else 1
        collection = below[place] if below else ""
        if collection not in _COLLECTIONS:
            return None
        if scope == "zones" and below[1:] == ["machineTypes"]:
            items = _machine_types(project, below[0]) if below[0] in self.zones else []
            return 200, _list("compute#machineTypeList", name, items)
        if len(below) > place + 1:
            # the thing itself, also for what is below it
            return _missing("/".join(name.split("/")[: 5 + place]))
        kind = _COLLECTIONS[collection]
        if scope == "regions" and collection in _OTHER_KIND_IN_REGIONS:
            kind = f"region{kind[0].upper()}{kind[1:]}"
        if scope == "aggregated":
            # gcloud reads `items`
            return 200, _list(f"compute#{kind}AggregatedList", name) | {"items": {}}
        return 200, _list(f"compute#{kind}List", name)

    def _zones(self, project: str) -> list[dict[str, Any]]:
        return [
            _place("zone", f"projects/{project}/zones/{zone}")
            | {"region": f"{SELF}projects/{project}/regions/{region_of(zone)}"}
            for zone in self.zones
        ]

    def _regions(self, project: str) -> list[dict[str, Any]]:
        zones = {
            region: [z for z in self.zones if region_of(z) == region]
            for region in map(region_of, self.zones)
        }
        return [
            _place("region", f"projects/{project}/regions/{region}")
            | {"zones": [f"{SELF}projects/{project}/zones/{zone}" for zone in inside]}
            for region, inside in zones.items()
        ]


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def refusal(what: str, user_agent: str = "") -> tuple[int, dict[str, Any]]:
    """501 for what is not served.

    gcloud (apitools' http_wrapper) repeats every request that was answered with 500 or more five
    times within half a minute, and then prints the whole answer and a guess about the network. It
    gets the same error with the HTTP status 405, and prints the message at once.
    """
    message = f"{what} is not served by Podyard; nothing was sent to Google"
    status, body = envelope(Code.UNIMPLEMENTED, message, "notImplemented")
    return GCLOUD_STATUS if user_agent.startswith(GCLOUD_AGENTS) else status, body


def envelope(code: Code, message: str, reason: str, status: int = 0) -> tuple[int, dict[str, Any]]:
    """(HTTP status, Google's error), with the `errors` that the older APIs, Compute Engine's too,
    have besides. `status`: another one than the code has everywhere else."""
    status = status or code.http_status
    errors = [{"message": message, "domain": "global", "reason": reason}]
    return status, {
        "error": {"code": status, "message": message, "errors": errors, "status": code.name}
    }


def _machine_types(project: str, zone: str) -> list[dict[str, Any]]:
    return [
        {
            "kind": "compute#machineType",
            "name": f"{family}-{cpus}",
            "description": f"{cpus} vCPUs, {cpus * mib / 1024:g} GB RAM",
            "guestCpus": cpus,
            "memoryMb": cpus * mib,
            "isSharedCpu": False,
            "zone": zone,
            "selfLink": f"{SELF}projects/{project}/zones/{zone}/machineTypes/{family}-{cpus}",
        }
        for family, mib in _MACHINES.items()
        for cpus in _MACHINE_CPUS
        if cpus > 1 or family == "n1-standard"
    ]


def _missing(name: str) -> tuple[int, dict[str, Any]]:
    return envelope(Code.NOT_FOUND, f"The resource '{name}' was not found", "notFound")


def _list(kind: str, name: str, items: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
    """As googleapis.com lists: without `items` when there are none."""
    there = list(items)
    return {
        "kind": kind,
        "id": name,
        **({"items": there} if there else {}),
        "selfLink": f"{SELF}{name}",
    }


def project(
    name: str, number: str, metadata: Mapping[str, str], fingerprint: str
) -> dict[str, Any]:
    """A project of Compute Engine. gcloud looks there for ssh keys and OS Login before it goes to a
    node's."""
    items = [{"key": key, "value": value} for key, value in sorted(metadata.items())]
    return {
        "kind": "compute#project",
        "id": number,
        "name": name,
        "commonInstanceMetadata": {
            "kind": "compute#metadata",
            "fingerprint": fingerprint,
            "items": items,
        },
        "selfLink": f"{SELF}projects/{name}",
    }


def metadata_operation(name: str, operation: str, user: str) -> dict[str, Any]:
    """An operation that has set a project's metadata; it is DONE."""
    return {
        "kind": "compute#operation",
        "id": str(int(operation.removeprefix(METADATA_OPERATION) or "0", 16)),
        "name": operation,
        "operationType": "compute.projects.setCommonInstanceMetadata",
        "targetLink": f"{SELF}projects/{name}",
        "status": "DONE",
        "progress": 100,
        "user": user,
        "selfLink": f"{SELF}projects/{name}/global/operations/{operation}",
    }


def _place(kind: str, name: str) -> dict[str, Any]:
    short = name.rpartition("/")[2]
    return {
        "kind": f"compute#{kind}",
        "name": short,
        "description": short,
        "status": "UP",
        "selfLink": SELF + name,
    }
