"""Lists of what Podyard has none of, as an empty project of Compute Engine has them."""

from __future__ import annotations

import re
from typing import Any

from podyard.api.compute import errors
from podyard.api.compute.schema import VERSIONS
from podyard.domain.compute.place import link
from podyard.domain.compute.refusal import resource_not_found

_PATH = re.compile(
    rf"/compute/(?:{'|'.join(VERSIONS)})/(projects/[^/]+/(global|aggregated|zones|regions)(?:/.*)?)"
)
# What a project has lists of, with the name of one, as googleapis.com says `kind` (discovery
# document, compute v1).
_COLLECTIONS = {
    "autoscalers": "autoscaler",
    "backendServices": "backendService",
    "disks": "disk",  # of regions: those of zones are served
    "forwardingRules": "forwardingRule",
    "instanceGroupManagers": "instanceGroupManager",
    "instanceGroups": "instanceGroup",
    "instanceTemplates": "instanceTemplate",
    "instances": "instance",
    "instantSnapshots": "instantSnapshot",
    "machineImages": "machineImage",
    "networkEndpointGroups": "networkEndpointGroup",
    "nodeGroups": "nodeGroup",
    "reservations": "reservation",
    "resourcePolicies": "resourcePolicy",
    "snapshots": "snapshot",
    "sslCertificates": "sslCertificate",
    "targetPools": "targetPool",
    "vpnGateways": "vpnGateway",
    "vpnTunnels": "vpnTunnel",
}
_OTHER_KIND_IN_REGIONS = frozenset({"autoscalers", "instanceGroupManagers", "instanceGroups"})


def answer(verb: str, path: str) -> tuple[int, dict[str, Any]] | None:
    """(HTTP status, JSON). `path` is without its query. None: it is not served, whatever was
    asked."""
    match = _PATH.fullmatch(path) if verb in ("GET", "HEAD") else None
    return None if match is None else _answer(match[1], match[2])


def _answer(name: str, scope: str) -> tuple[int, dict[str, Any]] | None:
    """`name`: projects/P/SCOPE[/...]. None: Compute Engine has no such resource, as far as we
    know."""
    below = name.split("/")[3:]
    place = 0 if scope in ("global", "aggregated") else 1
    if "" in below or len(below) <= place or below[place] not in _COLLECTIONS:
        return None
    if len(below) > place + 1:
        # the thing itself, also for what is below it
        error = resource_not_found("/".join(name.split("/")[: 5 + place]))
        return errors.status_of(error), errors.envelope(error)
    kind = _COLLECTIONS[below[place]]
    if scope == "regions" and below[place] in _OTHER_KIND_IN_REGIONS:
        kind = f"region{kind[0].upper()}{kind[1:]}"
    shown: dict[str, Any] = {"id": name, "selfLink": link(name)}
    if scope == "aggregated":
        # gcloud reads `items`
        return 200, {"kind": f"compute#{kind}AggregatedList", "items": {}, **shown}
    return 200, {"kind": f"compute#{kind}List", **shown}
