"""Queued resources: a request for nodes that waits in a queue until all of them can be placed at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.domain.machine import Machine
from podyard.domain.node import NodeSpec, UsageClass

_DELETE = {"delete": "DELETING"}

# Edges: google.cloud.tpu.v2.QueuedResourceState as its documents move it. ACCEPTED lasts while the start of the
# queueing policy lies ahead; from then on the state is WAITING_FOR_RESOURCES. `repair`: a slice of a multislice is
# made anew, or its nodes are in maintenance, and it is ACTIVE again when all nodes are READY.
QUEUED_RESOURCE = Machine(
    "queuedResource",
    "CREATING",
    {
        "CREATING": {"accept": "ACCEPTED"},
        "ACCEPTED": {"wait": "WAITING_FOR_RESOURCES", "fail": "FAILED", **_DELETE},
        "WAITING_FOR_RESOURCES": {"provision": "PROVISIONING", "fail": "FAILED", **_DELETE},
        "PROVISIONING": {"activate": "ACTIVE", "fail": "FAILED", "suspend": "SUSPENDING", **_DELETE},
        "ACTIVE": {
            "suspend": "SUSPENDING",
            "repair": "PROVISIONING",
            "reset": "WAITING_FOR_RESOURCES",
            **_DELETE,
        },
        "SUSPENDING": {"suspended": "SUSPENDED", **_DELETE},
        "SUSPENDED": {"reset": "WAITING_FOR_RESOURCES", **_DELETE},
        "FAILED": _DELETE,
        "DELETING": {"deleted": "GONE"},
        "GONE": {},
    },
)

# It may be deleted without `force` in these, although nodes of it may still be listed (API: queuedResources.delete).
STATES_DELETED_WITHOUT_FORCE = frozenset({"ACCEPTED", "WAITING_FOR_RESOURCES", "FAILED", "SUSPENDED"})

QUEUED_RESOURCE_NODES_MAX = 256  # placed in one unit of work; Google's largest multislice has far fewer slices


@dataclasses.dataclass(frozen=True, slots=True)
class NodeRequest:
    """One node to make. The slices of a multislice with prefix p are p-0, p-1, ...: `slice_count` of them."""

    node_id: str
    spec: NodeSpec
    slice_index: int = 0
    slice_count: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class QueuedResourceSpec:
    """What a client asks for.

    The tiers of the API become usage classes: guaranteed is on-demand (with a run duration too: FLEX_START), guaranteed
    with `reserved` or a reservation's name is reserved, spot is spot, and bestEffort is preemptible, the class that
    may be taken back and has no price of its own for spot. `given` is the client's message in canonical JSON.

    The queueing policy comes as moments, or as seconds from the creation, which `create` turns into moments.
    `min_duration_seconds`: placed only where the nodes may stay for that long. `max_run_seconds`, `termination_time`:
    when the nodes end, for nodes whose own spec does not say.
    """

    nodes: tuple[NodeRequest, ...]
    usage_class: UsageClass
    valid_after: PlatformTime | None = None
    valid_until: PlatformTime | None = None
    min_duration_seconds: float | None = None
    max_run_seconds: float | None = None
    termination_time: PlatformTime | None = None
    reservation_name: str = ""
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    valid_after_seconds: float | None = None
    valid_until_seconds: float | None = None

    @property
    def is_multislice(self) -> bool:
        return any(node.slice_count > 1 for node in self.nodes)


@dataclasses.dataclass(frozen=True, slots=True)
class QueuedResource:
    """A queued resource as it stands. `nodes` are the names of its live nodes; `state_initiator` is USER or SERVICE
    once it is being suspended; `error_*` say why it FAILED; `wait_reason` says why it still waits."""

    queued_resource_key: str
    project: str
    zone: str
    queued_resource_id: str
    state: str
    version: int
    spec: QueuedResourceSpec
    created: PlatformTime
    state_initiator: str = ""
    error_code: int | None = None
    error_message: str = ""
    error_details: Sequence[Mapping[str, Any]] = ()
    nodes: tuple[str, ...] = ()
    wait_reason: str = ""

    @property
    def name(self) -> str:
        return queued_resource_name(self.project, self.zone, self.queued_resource_id)


def queued_resource_name(project: str, zone: str, queued_resource_id: str) -> str:
    return f"projects/{project}/locations/{zone}/queuedResources/{queued_resource_id}"
