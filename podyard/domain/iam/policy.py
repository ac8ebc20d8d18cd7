"""Policies: who has which role in a project or on a service account (discovery documents
cloudresourcemanager v1 and iam v1).

A policy is read, changed and set as a whole; its etag is made of what it grants, so that a change
to what is no longer there is refused.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.domain.permissions.google_roles import ACT_AS
from podyard.domain.principal import PLATFORM_OWNER, ROLE_PERMISSIONS

OWNER = "owner"
GRANTS_MAX = 1500  # Google's limit of members in the policy of one resource
_PREFIX = "roles/"
_ETAG_BYTES = 8  # as Google's
_URL_SAFE = str.maketrans("-_", "+/")
USER, SERVICE_ACCOUNT = "user", "serviceAccount"
_EMAIL_CHARACTERS_MAX = 200
ON_ACCOUNT = frozenset(
    role for role, permissions in ROLE_PERMISSIONS.items() if ACT_AS in permissions
) - {OWNER, "editor", PLATFORM_OWNER}


class RoleGrant(NamedTuple):
    """`role` without Google's prefix `roles/`."""

    role: str
    email: str


class PolicyChange(NamedTuple):
    """The difference between two policies."""

    added: frozenset[RoleGrant]
    removed: frozenset[RoleGrant]


def etag(grants: Iterable[RoleGrant]) -> str:
    text = "\n".join(f"{role} {email}" for role, email in sorted(grants))
    digest = hashlib.sha256(text.encode()).digest()
    return base64.b64encode(digest[:_ETAG_BYTES]).decode()


def change(
    before: frozenset[RoleGrant],
    after: frozenset[RoleGrant],
    tag: str | None,
    may: Callable[[str], bool],
) -> PolicyChange:
    """The change that a new policy makes. `tag`: the etag that came with it; `may`: whether the
    caller has a permission on the resource.

    Raises ABORTED for a policy that was read before another change, PERMISSION_DENIED for a role
    that holds more than the caller has, FAILED_PRECONDITION for one that takes the last owner
    away, and INVALID_ARGUMENT for too many grants.
    """
    if tag is not None and not _is_same(tag, etag(before)):
        raise PodyardError(
            Code.ABORTED,
            "There were concurrent policy changes. Please retry the whole read-modify-write with "
            "exponential backoff. The request's ETag "
            f"'{tag[:64]}' did not match the current policy's ETag '{etag(before)}'.",
        )
    if len(after) > GRANTS_MAX:
        raise invalid(f"the policy has {len(after)} grants; at most {GRANTS_MAX} are possible")
    result = PolicyChange(after - before, before - after)
    for role in sorted({grant.role for grant in result.added}):
        missing = next((name for name in sorted(ROLE_PERMISSIONS[role]) if not may(name)), None)
        if missing is not None:
            raise PodyardError(
                Code.PERMISSION_DENIED,
                f"role '{_PREFIX}{role}' holds '{missing}', which you do not have: nobody grants "
                "more than they have",
            )
    if any(grant.role == OWNER for grant in before) and not any(
        grant.role == OWNER for grant in after
    ):
        raise failed_precondition(
            "the policy takes the last owner away: a project that has owners keeps at least one"
        )
    return result


def _is_same(tag: str, current: str) -> bool:
    """Return whether two etags hold the same bytes: clients may send base64 in either alphabet, as
    gcloud sends the one for URLs."""
    return tag.translate(_URL_SAFE).rstrip("=") == current.rstrip("=")


def role_of(name: str, *, on_account: bool = False) -> str:
    """The role that `roles/NAME` names. Raises INVALID_ARGUMENT for what cannot be granted."""
    role = name.removeprefix(_PREFIX)
    if on_account and name.startswith(_PREFIX) and role in ROLE_PERMISSIONS:
        if role in ON_ACCOUNT:
            return role
    elif name.startswith(_PREFIX) and role in ROLE_PERMISSIONS and role != PLATFORM_OWNER:
        return role
    where = "on a service account: use roles/iam.serviceAccountUser" if on_account else "here"
    raise invalid(
        f"Role {name[:80]} is not supported for this resource. `gcloud iam roles list` lists the "
        f"roles that there are; not each can be granted {where}.",
        "policy.bindings",
    )


def role_name(role: str) -> str:
    return f"{_PREFIX}{role}"


def member_email(member: str) -> tuple[str, str]:
    """(kind, email) of `user:EMAIL` or `serviceAccount:EMAIL`. Raises INVALID_ARGUMENT for all
    others: allUsers, groups and domains stand for people whom nobody here can name."""
    kind, _, email = member.partition(":")
    if kind not in (USER, SERVICE_ACCOUNT):
        raise invalid(
            f"member {member[:80]!r} is not supported: use user:EMAIL or serviceAccount:EMAIL "
            "(allUsers, allAuthenticatedUsers, groups and domains cannot be granted a role here)",
            "policy.bindings",
        )
    name, at, domain = email.partition("@")
    well_formed = name and at and domain and "@" not in domain and not set(email) & set(" :/\t\n")
    if not well_formed or len(email) > _EMAIL_CHARACTERS_MAX:
        raise invalid(f"Invalid argument: email {email[:80]!r} of a member", "policy.bindings")
    return kind, email
