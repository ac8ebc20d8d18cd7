"""Tokens, keys and invitations as they are stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import bindparam, delete, func, or_, select, update

from podyard.base.clock import RealTime
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.access import (
    api_keys,
    invitations,
    service_account_keys,
    sign_in_links,
    tokens,
)
from podyard.domain.credential import (
    LAST_USE_SECONDS,
    ApiKey,
    Bearer,
    Invitation,
    ServiceAccountKey,
    Token,
)

_TOKEN_COLUMNS = [tokens.c[field.name] for field in dataclasses.fields(Token)]
_BEARER = select(*(tokens.c[field.name] for field in dataclasses.fields(Bearer))).where(
    tokens.c.token_hash == bindparam("token_hash")
)
_API_KEYS = select(*(api_keys.c[field.name] for field in dataclasses.fields(ApiKey)))
_REVOKE_ATTEMPT = (
    update(tokens)
    .where(tokens.c.attempt_id == bindparam("id"), tokens.c.revoked.is_(None))
    .values(revoked=bindparam("now"))
)
SWEPT_TOKENS_MAX = 100  # per new token: the table shrinks faster than it grows, and no unit is long


def bearer(uow: UnitOfWork, token_hash: str) -> Bearer | None:
    """Return who a token stands for, by its hash."""
    row = uow.first(_BEARER, {"token_hash": token_hash})
    return None if row is None else Bearer(**row)


def is_stored(uow: UnitOfWork, token_hash: str) -> bool:
    return uow.first(_BEARER, {"token_hash": token_hash}) is not None


def store_unlisted(  # noqa: PLR0913
    uow: UnitOfWork,
    token_hash: str,
    email: str,
    *,
    agent_id: str | None = None,
    attempt_id: str | None = None,
    key_id: str | None = None,
    project: str | None = None,
    expires: RealTime | None = None,
) -> None:
    """Stores a token that no list shows: of an agent, of an attempt, or made with a key."""
    row = {"token_hash": token_hash, "email": email, "created": uow.real_now, "expires": expires}
    of = {"agent_id": agent_id, "attempt_id": attempt_id, "key_id": key_id, "project": project}
    uow.insert(tokens, row | of)


def sweep_expired(uow: UnitOfWork) -> None:
    """Deletes tokens that have expired. Rows that another unit is sweeping are left to it."""
    old = (
        select(tokens.c.token_hash)
        .where(tokens.c.expires <= uow.real_now)
        .order_by(tokens.c.expires)
    )
    hashes = [
        row["token_hash"]
        for row in uow.all(old.limit(SWEPT_TOKENS_MAX).with_for_update(skip_locked=True))
    ]
    if hashes:
        uow.execute(delete(tokens).where(tokens.c.token_hash.in_(hashes)))


def revoke_attempt(uow: UnitOfWork, attempt_id: str) -> None:
    """Ends the tokens of an attempt."""
    uow.execute(_REVOKE_ATTEMPT, {"id": attempt_id, "now": uow.real_now})


def revoke_agent(uow: UnitOfWork, agent_id: str) -> None:
    """Ends all tokens of an agent."""
    query = update(tokens).where(tokens.c.agent_id == agent_id, tokens.c.revoked.is_(None))
    uow.execute(query.values(revoked=uow.real_now))


def expire_agent(uow: UnitOfWork, agent_id: str, at: RealTime) -> None:
    """Lets the tokens that an agent has now expire at a moment, unless they do so before."""
    query = update(tokens).where(
        tokens.c.agent_id == agent_id, or_(tokens.c.expires.is_(None), tokens.c.expires > at)
    )
    uow.execute(query.values(expires=at))


def store_key(uow: UnitOfWork, key: ServiceAccountKey) -> None:
    uow.insert(service_account_keys, columns(key))


def find_key(uow: UnitOfWork, key_id: str) -> ServiceAccountKey | None:
    row = uow.first(select(service_account_keys).where(service_account_keys.c.key_id == key_id))
    return None if row is None else ServiceAccountKey(**row)


def keys_of(uow: UnitOfWork, project: str, email: str | None) -> list[ServiceAccountKey]:
    """The keys of one account, or (None) of all accounts of the project, the oldest first."""
    table = service_account_keys
    query = select(table).where(table.c.project == project)
    if email is not None:
        query = query.where(table.c.email == email)
    return [
        ServiceAccountKey(**row) for row in uow.all(query.order_by(table.c.created, table.c.key_id))
    ]


def delete_key(uow: UnitOfWork, project: str, email: str | None, key_id: str) -> bool:
    """Ends a key of an account, or (None) of any account of the project, and the access tokens that
    were made with it. False: there is no such key."""
    table = service_account_keys
    query = delete(table).where(table.c.key_id == key_id, table.c.project == project)
    if email is not None:
        query = query.where(table.c.email == email)
    if uow.execute(query).rowcount == 0:
        return False
    uow.execute(update(tokens).where(tokens.c.key_id == key_id).values(revoked=uow.real_now))
    return True


def store_api_key(uow: UnitOfWork, key: ApiKey, key_hash: str) -> None:
    uow.insert(api_keys, {**columns(key), "key_hash": key_hash})


def find_api_key(uow: UnitOfWork, key_hash: str) -> ApiKey | None:
    row = uow.first(_API_KEYS.where(api_keys.c.key_hash == key_hash))
    return None if row is None else ApiKey(**row)


def api_keys_of(uow: UnitOfWork, project: str) -> list[ApiKey]:
    """The oldest first."""
    query = _API_KEYS.where(api_keys.c.project == project).order_by(
        api_keys.c.created, api_keys.c.key_id
    )
    return [ApiKey(**row) for row in uow.all(query)]


def delete_api_key(uow: UnitOfWork, project: str, key_id: str) -> bool:
    """False: there is no such key."""
    query = delete(api_keys).where(api_keys.c.key_id == key_id, api_keys.c.project == project)
    return uow.execute(query).rowcount > 0


def store_token(uow: UnitOfWork, token: Token, token_hash: str) -> None:
    uow.insert(tokens, {**columns(token), "token_hash": token_hash})


def tokens_of(uow: UnitOfWork, project: str | None) -> list[Token]:
    """The tokens of a project, the oldest first; None: of all."""
    query = select(*_TOKEN_COLUMNS).where(tokens.c.token_id.is_not(None))
    if project is not None:
        query = query.where(tokens.c.project == project)
    return [_token(row) for row in uow.all(query.order_by(tokens.c.created, tokens.c.token_id))]


def find_token(uow: UnitOfWork, token_id: str) -> Token | None:
    row = uow.first(select(*_TOKEN_COLUMNS).where(tokens.c.token_id == token_id))
    return None if row is None else _token(row)


def count_tokens(uow: UnitOfWork, project: str) -> int:
    query = select(func.count()).where(tokens.c.project == project, tokens.c.token_id.is_not(None))
    return int(uow.execute(query).scalar() or 0)


def revoke_token(uow: UnitOfWork, token_id: str) -> None:
    """One that is revoked already keeps its time."""
    query = update(tokens).where(tokens.c.token_id == token_id, tokens.c.revoked.is_(None))
    uow.execute(query.values(revoked=uow.real_now))


def revoke_unbound(uow: UnitOfWork, email: str) -> None:
    """Ends the tokens of an email that are good for every project."""
    query = update(tokens).where(
        tokens.c.email == email, tokens.c.project.is_(None), tokens.c.revoked.is_(None)
    )
    uow.execute(query.values(revoked=uow.real_now))


def end_all(uow: UnitOfWork, email: str) -> None:
    """Ends every token and API key of an email that is no more."""
    query = update(tokens).where(tokens.c.email == email, tokens.c.revoked.is_(None))
    uow.execute(query.values(revoked=uow.real_now))
    uow.execute(delete(api_keys).where(api_keys.c.email == email))


def note_use(uow: UnitOfWork, token_id: str) -> None:
    """Keeps when a token was last used. Of many requests at once, one writes."""
    before = uow.real_now.plus_seconds(-LAST_USE_SECONDS)
    unknown_or_old = or_(tokens.c.last_used.is_(None), tokens.c.last_used <= before)
    uow.execute(
        update(tokens)
        .where(tokens.c.token_id == token_id, unknown_or_old)
        .values(last_used=uow.real_now)
    )


def forget_tokens(uow: UnitOfWork, project: str, before: RealTime) -> None:
    """Deletes the tokens of a project that have expired or were revoked before a moment."""
    ended = or_(tokens.c.expires <= before, tokens.c.revoked <= before)
    uow.execute(
        delete(tokens).where(tokens.c.project == project, tokens.c.token_id.is_not(None), ended)
    )


def store_invitation(uow: UnitOfWork, invitation: Invitation, code_hash: str) -> None:
    uow.insert(invitations, {**columns(invitation), "code_hash": code_hash})


def invitations_of(uow: UnitOfWork, project: str) -> list[Invitation]:
    """The oldest first."""
    query = select(invitations).where(invitations.c.project == project)
    return [
        _invitation(row)
        for row in uow.all(query.order_by(invitations.c.created, invitations.c.invitation_id))
    ]


def find_invitation(uow: UnitOfWork, code_hash: str) -> Invitation | None:
    """By the hash of its code, locked on PostgreSQL: one caller accepts it."""
    row = uow.first(
        select(invitations).where(invitations.c.code_hash == code_hash).with_for_update()
    )
    return None if row is None else _invitation(row)


def find_invitation_of(uow: UnitOfWork, project: str, invitation_id: str) -> Invitation | None:
    """By its id, locked on PostgreSQL."""
    query = select(invitations).where(
        invitations.c.project == project, invitations.c.invitation_id == invitation_id
    )
    row = uow.first(query.with_for_update())
    return None if row is None else _invitation(row)


def accept_invitation(uow: UnitOfWork, invitation_id: str) -> None:
    uow.update(invitations, {"invitation_id": invitation_id}, {"accepted": uow.real_now})


def revoke_invitation(uow: UnitOfWork, invitation_id: str) -> None:
    uow.update(invitations, {"invitation_id": invitation_id}, {"revoked": uow.real_now})


def forget_invitations(uow: UnitOfWork, project: str, before: RealTime) -> None:
    """Deletes the invitations of a project that ended before a moment."""
    table = invitations
    ended = or_(table.c.expires <= before, table.c.revoked <= before, table.c.accepted <= before)
    uow.execute(delete(table).where(table.c.project == project, ended))


def store_sign_in_link(
    uow: UnitOfWork, code_hash: str, sealed_token: str, expires: RealTime
) -> None:
    """Also deletes those that have expired."""
    uow.execute(delete(sign_in_links).where(sign_in_links.c.expires <= uow.real_now))
    uow.insert(sign_in_links, {"code_hash": code_hash, "token": sealed_token, "expires": expires})


def take_sign_in_link(uow: UnitOfWork, code_hash: str) -> str | None:
    """The sealed token of a link, which is good no more; None: it is unknown, used or expired."""
    table = sign_in_links
    row = uow.first(select(table).where(table.c.code_hash == code_hash).with_for_update())
    uow.execute(delete(table).where(table.c.code_hash == code_hash))
    return None if row is None or row["expires"] <= uow.real_now else str(row["token"])


def _token(row: Mapping[str, Any]) -> Token:
    return Token(**row)


def _invitation(row: Mapping[str, Any]) -> Invitation:
    found = {name: value for name, value in row.items() if name != "code_hash"}
    return Invitation(**{**found, "roles": tuple(row["roles"])})
