"""Tokens that people and programs hold: each is good for the project that made it, until it expires
or is revoked."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.base.errors import Code, PodyardError, invalid, not_found
from podyard.base.ids import row_id
from podyard.base.rng import secret_token
from podyard.control.access import identity, service_accounts
from podyard.db.access import credentials, projects
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.credential import (
    KEPT_DAYS,
    SECONDS_PER_DAY,
    TOKEN_DAYS_DEFAULT,
    TOKEN_DAYS_MAX,
    TOKENS_PER_PROJECT_MAX,
    CredentialState,
    Token,
)
from podyard.domain.principal import Principal


def create(
    uow: UnitOfWork,
    principal: Principal,
    email: str,
    project: str,
    roles: Sequence[str],
    seconds: float | None,
) -> tuple[Token, str]:
    """(token, its secret: the only time that it can be seen). `project`: `*` stands for the whole
    platform.

    Owners of a project make them for its service accounts and for themselves, the platform's owner
    for everybody; `roles` are given to the email in the project.
    """
    name = f"projects/{project}/tokens"
    principal.require("podyard.tokens.create", project, name)
    if project == "*":
        principal.require("podyard.people.create", project, name)
    else:
        identity.project_row(uow, project)
        identity.require_to_vouch_for(uow, principal, email, project)
        service_accounts.ensure(uow, project, email)
    for role in roles:
        identity.bind(uow, email, project, role)
    if project not in projects.roles_of(uow, email):
        raise invalid(
            f"{email} has no role in project {project} yet: give at least one role", "roles"
        )
    return mint(uow, email, project, principal.email, seconds)


def renew(uow: UnitOfWork, principal: Principal, seconds: float | None) -> tuple[Token, str]:
    """A new token with the caller's email and project, and its secret. The old token works until it
    expires."""
    held = None if principal.token_id is None else credentials.find_token(uow, principal.token_id)
    if held is None:
        text = f"{principal.email} is not signed in with a token: only tokens can be renewed"
        raise PodyardError(Code.PERMISSION_DENIED, text)
    if held.project is None:
        raise PodyardError(
            Code.FAILED_PRECONDITION, "the local owner's token cannot be renewed: it never expires"
        )
    return mint(uow, held.email, held.project, held.email, seconds)


def mint(
    uow: UnitOfWork, email: str, project: str, minted_by: str, seconds: float | None = None
) -> tuple[Token, str]:
    """A token without any question, and its secret. Tokens of the project that ended long ago are
    forgotten."""
    days = TOKEN_DAYS_DEFAULT if seconds is None else seconds / SECONDS_PER_DAY
    if not 0 < days <= TOKEN_DAYS_MAX:
        raise invalid(
            f"the lifetime of a token must be more than 0 and at most {TOKEN_DAYS_MAX} days", "ttl"
        )
    credentials.forget_tokens(uow, project, uow.real_now.plus_seconds(-KEPT_DAYS * SECONDS_PER_DAY))
    if credentials.count_tokens(uow, project) >= TOKENS_PER_PROJECT_MAX:
        text = (
            f"projects/{project} has {TOKENS_PER_PROJECT_MAX} tokens already; revoked ones go "
            f"after {KEPT_DAYS} days"
        )
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    secret = identity.TOKEN_PREFIX + secret_token()
    token = Token(
        token_id=row_id(uow.streams.stream("tokens"), "token"),
        email=email,
        project=project,
        minted_by=minted_by,
        created=uow.real_now,
        expires=uow.real_now.plus_seconds(days * SECONDS_PER_DAY),
        revoked=None,
        last_used=None,
    )
    credentials.store_token(uow, token, identity.hash_of(secret))
    return token, secret


def list_tokens(uow: UnitOfWork, principal: Principal, project: str | None) -> list[Token]:
    """Those that the caller may see, the oldest first: owners see their projects', others their
    own."""
    found = credentials.tokens_of(uow, project)
    return [token for token in found if _may(principal, "podyard.tokens.list", token)]


def describe(uow: UnitOfWork, principal: Principal, token_id: str) -> Token:
    """Raises PERMISSION_DENIED, or NOT_FOUND if the caller may see every token."""
    return _get(uow, principal, "podyard.tokens.list", token_id)


def revoke(
    uow: UnitOfWork, principal: Principal, token_id: str, *, with_minted: bool = False
) -> tuple[Token, list[Token]]:
    """End a token; one that has ended stays as it is. Return it, and the tokens that its holder may
    have minted with it and that still work; `with_minted` ends those, too."""
    token = _get(uow, principal, "podyard.tokens.revoke", token_id)
    if token.project is None and token.email == identity.OWNER_EMAIL:
        text = (
            "this token is the local owner's, with which `podyard up` itself works. To replace "
            "it: `podyard down`, "
            "delete the file `token` in the data folder, `podyard up`"
        )
        raise PodyardError(Code.FAILED_PRECONDITION, text)
    credentials.revoke_token(uow, token_id)
    minted = _successors(uow, principal, token)
    if with_minted:
        for successor in minted:
            credentials.revoke_token(uow, successor.token_id)
        minted = []
    return _get(uow, principal, "podyard.tokens.revoke", token_id), minted


def _successors(uow: UnitOfWork, principal: Principal, token: Token) -> list[Token]:
    """Return the active tokens of the project that the token's email has minted since it has the
    token, and those that their holders have minted. A token says who minted it, not with which
    token. The caller's own token is left out."""
    emails, minted = {token.email}, list[Token]()
    for one in credentials.tokens_of(uow, token.project):  # the oldest first
        if one.created < token.created or one.minted_by not in emails:
            continue
        if one.token_id in (token.token_id, principal.token_id):
            continue
        emails.add(one.email)
        is_active = one.state(uow.real_now) is CredentialState.ACTIVE
        if is_active and _may(principal, "podyard.tokens.revoke", one):
            minted.append(one)
    return minted


def _get(uow: UnitOfWork, principal: Principal, permission: str, token_id: str) -> Token:
    token, name = credentials.find_token(uow, token_id), f"tokens/{token_id}"
    if token is None or not _may(principal, permission, token):
        principal.require(permission, "*", name)
    if token is None:
        raise not_found(name)
    return token


def _may(principal: Principal, permission: str, token: Token) -> bool:
    own = (
        token.email == principal.email
        and principal.token_id is not None
        and token.project in principal.roles
    )
    return own or principal.may(permission, token.project or "*")
