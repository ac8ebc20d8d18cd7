"""Queued resources: a request for nodes that waits in a queue until all of them can be placed at
once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code
from podyard.domain.machine import Machine
from podyard.domain.node import NodeSpec, UsageClass


class QueuedResourceState(StrEnum):
    CREATING = "CREATING"
    ACCEPTED = "ACCEPTED"
    WAITING_FOR_RESOURCES = "WAITING_FOR_RESOURCES"
    PROVISIONING = "PROVISIONING"
    ACTIVE = "ACTIVE"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    FAILED = "FAILED"
    DELETING = "DELETING"
    GONE = "GONE"


_S = QueuedResourceState
_DELETE = {"delete": _S.DELETING}

# Edges: google.cloud.tpu.v2.QueuedResourceState as its documents move it. ACCEPTED lasts while the
# start of the queueing policy lies ahead; from then on the state is WAITING_FOR_RESOURCES.
# `repair`: a slice of a multislice is created again, or its nodes are in maintenance, and it is
# ACTIVE again when all nodes are READY. `fail` of CREATING: a request that was refused is kept.
QUEUED_RESOURCE = Machine(
    "queuedResource",
    _S.CREATING,
    {
        _S.CREATING: {"accept": _S.ACCEPTED, "fail": _S.FAILED},
        _S.ACCEPTED: {"wait": _S.WAITING_FOR_RESOURCES, "fail": _S.FAILED, **_DELETE},
        _S.WAITING_FOR_RESOURCES: {"provision": _S.PROVISIONING, "fail": _S.FAILED, **_DELETE},
        _S.PROVISIONING: {
            "activate": _S.ACTIVE,
            "fail": _S.FAILED,
            "suspend": _S.SUSPENDING,
            **_DELETE,
        },
        _S.ACTIVE: {
            "suspend": _S.SUSPENDING,
            "repair": _S.PROVISIONING,
            "reset": _S.WAITING_FOR_RESOURCES,
            **_DELETE,
        },
        _S.SUSPENDING: {"suspended": _S.SUSPENDED, **_DELETE},
        _S.SUSPENDED: {"reset": _S.WAITING_FOR_RESOURCES, **_DELETE},
        _S.FAILED: _DELETE,
        _S.DELETING: {"deleted": _S.GONE},
        _S.GONE: {},
    },
)

# It may be deleted without `force` in these, although nodes of it may still be listed (API:
# queuedResources.delete).
STATES_DELETED_WITHOUT_FORCE = frozenset(
    {_S.ACCEPTED, _S.WAITING_FOR_RESOURCES, _S.FAILED, _S.SUSPENDED}
)

# Of Podyard's own command line: a refused request stays in the list as FAILED. Google's
# clients do not send it, and get HTTP 429.
KEEP_REFUSED_HEADER = "X-Podyard-Keep-Refused"

# placed in one unit of work; Google's largest multislice has far fewer slices
QUEUED_RESOURCE_NODES_MAX = 256


@dataclasses.dataclass(frozen=True, slots=True)
class NodeRequest:
    """One node to make. The slices of a multislice with prefix p are p-0, p-1, ...: `slice_count`
    of them."""

    node_id: str
    spec: NodeSpec
    slice_index: int = 0
    slice_count: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class QueuedResourceSpec:
    """A queued resource as a client asks for it.

    The tiers of the API become usage classes: guaranteed is on-demand (with a run duration too:
    FLEX_START), guaranteed with `reserved` or a reservation's name is reserved, spot is spot, and
    bestEffort is preemptible, the class that may be taken back and has no separate price for spot.
    `given` is the client's message in canonical JSON.

    The queueing policy comes as moments, or as seconds from the creation, which `create` turns into
    moments. `min_duration_seconds`: placed only where the nodes may stay for that long.
    `max_run_seconds`, `termination_time`: when the nodes end, for nodes whose own spec does not
    say.
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueuedResourceBase:
    """The fields of a queued resource that are kept and shown. `state_initiator` is USER or SERVICE
    once it is being suspended; `error_*` say why it FAILED; `wait_reason` says why it still
    waits."""

    queued_resource_key: str
    project: str
    zone: str
    queued_resource_id: str
    state: QueuedResourceState
    version: int
    spec: QueuedResourceSpec
    created: PlatformTime
    state_initiator: str
    error_code: int | None
    error_message: str
    error_details: Sequence[Mapping[str, Any]]
    wait_reason: str

    @property
    def name(self) -> str:
        return queued_resource_name(self.project, self.zone, self.queued_resource_id)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueuedResourceRecord(QueuedResourceBase):
    """A queued resource as the platform keeps it. `live_name` is its name while it is, and None
    once it is gone.

    `valid_after`, `valid_until`: its queueing policy, until it was first ACTIVE (`activated`).
    `repaired`: keys of the nodes that were recreated or maintained: when all are READY, the other
    slices restart. `late_until`: by a fault or a budget, it is not fulfilled before.
    `pending_operation` ends when it is ACTIVE or gone.
    """

    live_name: str | None
    usage_class: UsageClass
    valid_after: PlatformTime | None
    valid_until: PlatformTime | None
    activated: PlatformTime | None
    pending_operation: str | None
    repaired: Sequence[str]
    late_until: PlatformTime | None

    @property
    def is_refused(self) -> bool:
        """True for a request beyond quota or budget, kept with its reason: it holds no quota."""
        return self.error_code == Code.RESOURCE_EXHAUSTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueuedResource(QueuedResourceBase):
    """A queued resource as it is shown. `nodes` are the names of its live nodes."""

    nodes: tuple[str, ...]


def queued_resource_name(project: str, zone: str, queued_resource_id: str) -> str:
    return f"projects/{project}/locations/{zone}/queuedResources/{queued_resource_id}"
