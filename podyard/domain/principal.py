"""Principals, and what their roles allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.clock import RealTime
from podyard.base.errors import Code, PodyardError
from podyard.domain.compute import permissions
from podyard.domain.permissions import google_roles as iam

_VIEW = iam.COMMON_VIEW | frozenset(
    {
        "tpu.nodes.list", "tpu.nodes.get", "tpu.operations.list", "tpu.operations.get",
        "tpu.locations.list",
        "tpu.locations.get", "tpu.acceleratortypes.list", "tpu.acceleratortypes.get",
        "tpu.runtimeversions.list",
        "tpu.runtimeversions.get", "tpu.tensorflowversions.list", "tpu.tensorflowversions.get",
        "podyard.jobs.list",
        "podyard.jobs.get", "podyard.pods.get", "podyard.projects.get",
        "tpu.queuedresources.list", "tpu.queuedresources.get", "tpu.reservations.list",
        "podyard.metrics.get",
        "storage.buckets.get", "storage.buckets.list", "storage.objects.get",
        "storage.objects.list",
        *permissions.VIEW,
    }
)  # fmt: skip
_OBJECTS = frozenset(
    {
        "storage.buckets.get", "storage.buckets.list", "storage.objects.get",
        "storage.objects.list",
        "storage.objects.create", "storage.objects.delete", "storage.objects.update",
    }
)  # fmt: skip
_JOBS = (
    _OBJECTS
    | iam.LOGS_WRITE
    | {
        "podyard.jobs.create",
        "podyard.jobs.cancel",
        "podyard.jobs.resize",
        "podyard.jobs.stacks",
    }
)
_NODES = frozenset(
    {
        "tpu.nodes.create", "tpu.nodes.update", "tpu.nodes.delete", "tpu.nodes.start",
        "tpu.nodes.stop",
        "tpu.operations.cancel", "tpu.operations.delete", "podyard.nodes.preempt",
        "podyard.hosts.use",
        "podyard.nodes.scheduleMaintenance",
        "tpu.nodes.reimage", "tpu.nodes.performMaintenance", "tpu.nodes.simulateMaintenanceEvent",
        "tpu.queuedresources.create", "tpu.queuedresources.delete", "tpu.queuedresources.reset",
        "storage.buckets.create", "storage.buckets.delete", "storage.buckets.update",
        *permissions.EDIT,
    }
)  # fmt: skip
_WEBHOOKS = frozenset({"podyard.webhooks.view", "podyard.webhooks.edit"})
_BILLING = frozenset({"podyard.billing.view"})
_MONITORING = iam.PROJECT_VIEW | iam.SERIES_VIEW | {"podyard.metrics.get"}
_EDIT = (
    _VIEW | _JOBS | _NODES | _WEBHOOKS | iam.COMPUTE_EDIT | iam.SERVICES_ENABLE
    | iam.ACCOUNTS_VIEW | {iam.ACT_AS}
)  # fmt: skip
_OWNER = iam.ADMINISTRATION | frozenset(
    {
        "podyard.tokens.create", "podyard.tokens.list", "podyard.tokens.revoke",
        "podyard.invitations.create", "podyard.invitations.list", "podyard.invitations.revoke",
        "podyard.keys.create", "podyard.keys.list", "podyard.keys.delete",
        "podyard.reservations.create", "podyard.reservations.delete", "podyard.billing.edit",
    }
)  # fmt: skip
# Actions on every project, and on identities.
_PLATFORM = frozenset(
    {
        "podyard.projects.create", "podyard.people.create", "podyard.agents.list",
        "podyard.clock.set",
        "podyard.agents.join", "podyard.agents.drain", "podyard.agents.remove",
        "podyard.faults.create", "podyard.faults.list", "podyard.faults.delete",
        "podyard.calls.list",
        "podyard.audit.list",
    }
)  # fmt: skip

STORAGE_USER = "storage.objectUser"  # Google's role of this name; the hosts' own account has it

ROLE_PERMISSIONS: Mapping[str, frozenset[str]] = {
    "tpu.viewer": _VIEW,
    "jobs.runner": _VIEW | _JOBS,
    "tpu.admin": _VIEW | _JOBS | _NODES | _WEBHOOKS,
    STORAGE_USER: _OBJECTS,
    "billing.viewer": _BILLING,
    "monitoring.viewer": _MONITORING,  # what Prometheus needs, and no more
    **iam.GOOGLE_ROLES,
    "viewer": _VIEW | iam.POLICY_VIEW | iam.ACCOUNTS_VIEW,
    "editor": _EDIT,
    "owner": _EDIT | _BILLING | _OWNER,
    "platform.owner": _EDIT | _BILLING | _OWNER | _PLATFORM,
}
# the only role that is had on the whole platform and in no project
PLATFORM_OWNER = "platform.owner"
PERMISSIONS = frozenset().union(*ROLE_PERMISSIONS.values())


@dataclasses.dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. `roles` maps project -> roles; `*` stands for every project (the
    platform's owner).

    An agent's token has `agent_id`, a replica's token the one `attempt_id` that it serves: neither
    has any role. `token_id`, `expires` and `last_used` are those of a listed token; None for any
    other credential.
    """

    email: str
    roles: Mapping[str, frozenset[str]]
    agent_id: str | None = None
    attempt_id: str | None = None
    token_id: str | None = None
    expires: RealTime | None = None
    last_used: RealTime | None = None
    only_in: str | None = None

    def may(self, permission: str, project: str) -> bool:
        roles = self.roles.get(project, frozenset()) | self.roles.get("*", frozenset())
        return any(permission in ROLE_PERMISSIONS[role] for role in roles)

    def require(self, permission: str, project: str, resource: str) -> None:
        """Raises PERMISSION_DENIED with the same words whether the resource exists or not
        (AIP-211)."""
        assert permission in PERMISSIONS, permission
        if not self.may(permission, project):
            raise PodyardError(
                Code.PERMISSION_DENIED,
                f"Permission '{permission}' denied on resource '{resource}' (or it "
                "might not exist).",
            )


# The platform itself, where it acts for a job: it may do what its owner may.
PLATFORM = Principal("podyard", {"*": frozenset({PLATFORM_OWNER})})
