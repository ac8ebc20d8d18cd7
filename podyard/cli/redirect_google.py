"""What one `podyard run` says for Google's hosts that no Podyard stands for: nothing is sent to them.

The command's requests carry a token of Podyard's, which is nobody else's to see. Compute Engine is an empty project,
since SkyPilot and Ray list its machines next to TPU nodes, with the machine types that the rate card has prices for,
since readers of prices multiply by what those have; all else is refused, and counted.
"""

from __future__ import annotations

import dataclasses
import re
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from podyard.base.errors import Code

COMPUTE_HOST = "compute.googleapis.com"
DISCOVERY_HOST = "www.googleapis.com"
# For the certificate: a star stands for one label. The second ones are client certificates' and buckets' own hosts.
CERTIFICATE_NAMES = (
    "*.googleapis.com", "*.mtls.googleapis.com", "*.storage.googleapis.com", "googleapis.com", "*.google.internal",
)  # fmt: skip
HOSTS_NAMED_MAX = 10  # in the line at the end
_DOMAINS = ("googleapis.com", "google.internal")
_COMPUTE_PATH = re.compile(r"/compute/(?:v1|beta)/(projects/[^/]+/(global|aggregated|zones|regions)(?:/.*)?)")
_PROJECT_PATH = re.compile(r"/compute/(?:v1|beta)/projects/([^/]+)")
# What a project has lists of, with the name of one, as googleapis.com says `kind` (discovery document, compute v1).
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
# N1's families with MiB per vCPU (cloud.google.com/compute/docs/general-purpose-machines), and their numbers of vCPUs.
_MACHINES = {"n1-standard": 3840, "n1-highmem": 6656}
_MACHINE_CPUS = (1, 2, 4, 8, 16, 32, 64, 96)
_OTHER_KIND_IN_REGIONS = frozenset({"diskTypes", "instanceGroupManagers", "instanceGroups"})
_SELF = "https://www.googleapis.com/compute/v1/"


def is_google(host: str) -> bool:
    """Whether the host, in lower case and without a last dot, is one of Google's APIs or inside its cloud."""
    return any(host == domain or host.endswith(f".{domain}") for domain in _DOMAINS)


def is_certified(host: str) -> bool:
    """Whether `CERTIFICATE_NAMES` has the host: a client takes no other for it."""
    return not {host, f"*.{host.partition('.')[2]}"}.isdisjoint(CERTIFICATE_NAMES)


class Refusals:
    """Hosts that were asked for something that is not served, with how often. All threads of a proxy add to it."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, host: str) -> None:
        with self._lock:
            self._counts[host] += 1

    def line(self) -> str | None:
        """What to say when the command has ended; None when nothing was refused."""
        with self._lock:
            hosts = self._counts.most_common()
        if not hosts:
            return None
        named = [f"{host} ({count})" for host, count in hosts[:HOSTS_NAMED_MAX]]
        rest = f" and {len(hosts) - len(named)} more hosts" if len(hosts) > len(named) else ""
        return f"podyard run: not served, and nothing was sent to Google: {', '.join(named)}{rest}"


def is_tpu_discovery(host: str, path: str) -> bool:
    """Whether it is the document of Cloud TPU that is asked for, where those of all APIs once were."""
    return host == DISCOVERY_HOST and path.startswith("/discovery/v1/apis/tpu/")


@dataclasses.dataclass(frozen=True, slots=True)
class Google:
    """Answers for all those hosts. `zones`: what the project's Compute Engine says that there is."""

    zones: Sequence[str] = ()

    def answer(self, host: str, method: str, path: str) -> tuple[int, dict[str, Any]]:
        """(HTTP status, JSON). `path` is without its query. 501: not served, whatever was asked."""
        reads = host == COMPUTE_HOST and method in ("GET", "HEAD")
        project = _PROJECT_PATH.fullmatch(path) if reads else None
        if project is not None:
            return 200, _project(project[1])
        asked = _COMPUTE_PATH.fullmatch(path) if reads else None
        found = None if asked is None else self._compute(asked[1], asked[2])
        return refusal(f"{method} https://{host}{path}") if found is None else found

    def _compute(self, name: str, scope: str) -> tuple[int, dict[str, Any]] | None:
        """`name`: projects/P/SCOPE[/...]. None: there is no such thing at Compute Engine that we know of."""
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
            return _missing("/".join(name.split("/")[: 5 + place]))  # the thing itself, also for what is below it
        kind = _COLLECTIONS[collection]
        if scope == "regions" and collection in _OTHER_KIND_IN_REGIONS:
            kind = f"region{kind[0].upper()}{kind[1:]}"
        return 200, _list(f"compute#{kind}{'Aggregated' if scope == 'aggregated' else ''}List", name)

    def _zones(self, project: str) -> list[dict[str, Any]]:
        return [
            _place("zone", f"projects/{project}/zones/{zone}")
            | {"region": f"{_SELF}projects/{project}/regions/{region_of(zone)}"}
            for zone in self.zones
        ]

    def _regions(self, project: str) -> list[dict[str, Any]]:
        zones = {region: [z for z in self.zones if region_of(z) == region] for region in map(region_of, self.zones)}
        return [
            _place("region", f"projects/{project}/regions/{region}")
            | {"zones": [f"{_SELF}projects/{project}/zones/{zone}" for zone in inside]}
            for region, inside in zones.items()
        ]


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def refusal(what: str) -> tuple[int, dict[str, Any]]:
    """501 for what is not served."""
    message = f"{what} is not served by Podyard; nothing was sent to Google"
    return envelope(Code.UNIMPLEMENTED, message, "notImplemented")


def envelope(code: Code, message: str, reason: str) -> tuple[int, dict[str, Any]]:
    """(HTTP status, Google's error), with the `errors` that the older APIs, Compute Engine's too, have besides."""
    errors = [{"message": message, "domain": "global", "reason": reason}]
    error = {"code": code.http_status, "message": message, "errors": errors, "status": code.name}
    return code.http_status, {"error": error}


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
            "selfLink": f"{_SELF}projects/{project}/zones/{zone}/machineTypes/{family}-{cpus}",
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
    return {"kind": kind, "id": name, **({"items": there} if there else {}), "selfLink": f"{_SELF}{name}"}


def _project(name: str) -> dict[str, Any]:
    """Without metadata of its own: gcloud looks there for ssh keys and OS Login before it goes to a node's."""
    metadata = {"kind": "compute#metadata", "items": []}
    return {
        "kind": "compute#project",
        "name": name,
        "commonInstanceMetadata": metadata,
        "selfLink": f"{_SELF}projects/{name}",
    }


def _place(kind: str, name: str) -> dict[str, Any]:
    short = name.rpartition("/")[2]
    return {"kind": f"compute#{kind}", "name": short, "description": short, "status": "UP", "selfLink": _SELF + name}
