"""Invitations to a project. The person who has the code accepts it and gets a token.

The token works in that project only. An invitation in another person's name gives no access to
their projects.
"""

from __future__ import annotations

from collections.abc import Sequence

from podyard.base.errors import Code, PodyardError, invalid, not_found
from podyard.base.ids import row_id
from podyard.base.rng import secret_token
from podyard.control.access import identity, tokens
from podyard.db.access import credentials
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.credential import (
    INVITATION_DAYS,
    INVITATIONS_PER_PROJECT_MAX,
    KEPT_DAYS,
    SECONDS_PER_DAY,
    CredentialState,
    Invitation,
    Token,
)
from podyard.domain.principal import Principal

CODE_PREFIX = "pdyinv_"


def create(
    uow: UnitOfWork, principal: Principal, email: str, project: str, roles: Sequence[str]
) -> tuple[Invitation, str]:
    """(invitation, its code: the only time that it can be seen)."""
    principal.require("podyard.invitations.create", project, f"projects/{project}/invitations")
    identity.project_row(uow, project)
    if identity.is_service_account(email):
        raise invalid(
            f"{email} is a service account: create a key or a token for it instead", "email"
        )
    if identity.is_reserved(email):
        raise invalid(f"{email} is reserved for the platform", "email")
    for role in roles:
        identity.check_role(role, project)
    credentials.forget_invitations(
        uow, project, uow.real_now.plus_seconds(-KEPT_DAYS * SECONDS_PER_DAY)
    )
    held = credentials.invitations_of(uow, project)
    if (
        sum(item.state(uow.real_now) is CredentialState.ACTIVE for item in held)
        >= INVITATIONS_PER_PROJECT_MAX
    ):
        text = (
            f"projects/{project} has {INVITATIONS_PER_PROJECT_MAX} open invitations already; "
            "revoke one first"
        )
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    code = CODE_PREFIX + secret_token()
    invitation = Invitation(
        invitation_id=row_id(uow.streams.stream("tokens"), "invitation"),
        email=email,
        project=project,
        roles=tuple(roles),
        invited_by=principal.email,
        created=uow.real_now,
        expires=uow.real_now.plus_seconds(INVITATION_DAYS * SECONDS_PER_DAY),
        accepted=None,
        revoked=None,
    )
    credentials.store_invitation(uow, invitation, identity.hash_of(code))
    return invitation, code


def list_invitations(uow: UnitOfWork, principal: Principal, project: str) -> list[Invitation]:
    """The oldest first; those that ended are listed for some weeks more."""
    principal.require("podyard.invitations.list", project, f"projects/{project}/invitations")
    return credentials.invitations_of(uow, project)


def revoke(uow: UnitOfWork, principal: Principal, project: str, invitation_id: str) -> None:
    name = f"projects/{project}/invitations/{invitation_id}"
    principal.require("podyard.invitations.revoke", project, name)
    found = credentials.find_invitation_of(uow, project, invitation_id)
    if found is None:
        raise not_found(name)
    if found.accepted is not None:
        text = (
            f"{found.email} has accepted this invitation: revoke their tokens (`podyard auth "
            "token list`)"
        )
        raise PodyardError(Code.FAILED_PRECONDITION, text)
    if found.revoked is None:
        credentials.revoke_invitation(uow, invitation_id)


def accept(uow: UnitOfWork, code: str) -> tuple[Token, str]:
    """The token and its secret, for the caller who has the code. Raises NOT_FOUND, and
    FAILED_PRECONDITION for an invitation that was accepted or revoked, or has expired."""
    found = credentials.find_invitation(uow, identity.hash_of(code))
    if found is None:
        raise PodyardError(
            Code.NOT_FOUND, "invitation not found: check the code, or ask for a new invitation"
        )
    state = found.state(uow.real_now)
    if state is not CredentialState.ACTIVE:
        ended = {
            CredentialState.ACCEPTED: "has been accepted already",
            CredentialState.REVOKED: "was revoked",
            CredentialState.EXPIRED: f"expired after {INVITATION_DAYS} days",
        }[state]
        text = (
            f"the invitation of {found.email} to project {found.project} {ended}: ask for a new one"
        )
        raise PodyardError(Code.FAILED_PRECONDITION, text)
    credentials.accept_invitation(uow, found.invitation_id)
    for role in found.roles:
        identity.bind(uow, found.email, found.project, role)
    return tokens.mint(uow, found.email, found.project, found.invited_by)
