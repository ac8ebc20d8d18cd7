"""Policies as messages: of projects and of service accounts alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podyard.base.errors import invalid
from podyard.control.access import identity
from podyard.domain.iam import policy
from podyard.domain.iam.policy import RoleGrant

BINDINGS = "bindings"


def to_message(grants: Iterable[RoleGrant]) -> dict[str, Any]:
    """`bindings` is there even when it is empty: Ray reads it unasked."""
    members: dict[str, list[str]] = {}
    for role, email in sorted(grants):
        kind = "serviceAccount" if identity.is_service_account(email) else "user"
        members.setdefault(policy.role_name(role), []).append(f"{kind}:{email}")
    bindings = [{"role": role, "members": names} for role, names in members.items()]
    return {"version": 1, "etag": policy.etag(grants), BINDINGS: bindings}


def changes_bindings(body: Mapping[str, Any]) -> bool:
    """Return whether the mask of a request has the bindings, which it has without one."""
    mask = [name.strip() for name in str(body.get("updateMask", "")).split(",") if name.strip()]
    return not mask or BINDINGS in mask


def read(body: Mapping[str, Any]) -> tuple[list[tuple[str, Sequence[str]]], str | None]:
    """(roles with their members, the etag) of a request to set a policy."""
    policy_body = body.get("policy")
    if policy_body is None:
        raise invalid("policy is missing: send the whole policy with its bindings", "policy")
    version = policy_body.get("version", 1)
    if version not in (0, 1, 3):
        raise invalid(f"policy version {version} is not supported: use 1", "policy.version")
    bindings = []
    for binding in policy_body.get(BINDINGS, ()):
        if binding.get("condition"):
            raise invalid(
                "conditions are not supported: a role is granted without one", "policy.bindings"
            )
        bindings.append((binding.get("role", ""), binding.get("members", ())))
    return bindings, policy_body.get("etag")
