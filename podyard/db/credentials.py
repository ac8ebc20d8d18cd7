"""Tokens and invitations as they are stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, func, or_, select, update

from podyard.base.clock import RealTime
from podyard.db.records import columns
from podyard.db.tables_access import invitations, tokens
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.credential import LAST_USE_SECONDS, Invitation, Token

_TOKEN_COLUMNS = [tokens.c[field.name] for field in dataclasses.fields(Token)]


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
    query = update(tokens).where(tokens.c.email == email, tokens.c.project.is_(None), tokens.c.revoked.is_(None))
    uow.execute(query.values(revoked=uow.real_now))


def note_use(uow: UnitOfWork, token_id: str) -> None:
    """Keeps when a token was last used. Of many requests at once, one writes."""
    before = uow.real_now.plus_seconds(-LAST_USE_SECONDS)
    unknown_or_old = or_(tokens.c.last_used.is_(None), tokens.c.last_used <= before)
    uow.execute(update(tokens).where(tokens.c.token_id == token_id, unknown_or_old).values(last_used=uow.real_now))


def forget_tokens(uow: UnitOfWork, project: str, before: RealTime) -> None:
    """Deletes the tokens of a project that have expired or were revoked before a moment."""
    ended = or_(tokens.c.expires <= before, tokens.c.revoked <= before)
    uow.execute(delete(tokens).where(tokens.c.project == project, tokens.c.token_id.is_not(None), ended))


def store_invitation(uow: UnitOfWork, invitation: Invitation, code_hash: str) -> None:
    uow.insert(invitations, {**columns(invitation), "code_hash": code_hash})


def invitations_of(uow: UnitOfWork, project: str) -> list[Invitation]:
    """The oldest first."""
    query = select(invitations).where(invitations.c.project == project)
    return [_invitation(row) for row in uow.all(query.order_by(invitations.c.created, invitations.c.invitation_id))]


def find_invitation(uow: UnitOfWork, code_hash: str) -> Invitation | None:
    """By the hash of its code, locked on PostgreSQL: one caller accepts it."""
    row = uow.first(select(invitations).where(invitations.c.code_hash == code_hash).with_for_update())
    return None if row is None else _invitation(row)


def find_invitation_of(uow: UnitOfWork, project: str, invitation_id: str) -> Invitation | None:
    """By its id, locked on PostgreSQL."""
    query = select(invitations).where(invitations.c.project == project, invitations.c.invitation_id == invitation_id)
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


def _token(row: Mapping[str, Any]) -> Token:
    return Token(**row)


def _invitation(row: Mapping[str, Any]) -> Invitation:
    found = {name: value for name, value in row.items() if name != "code_hash"}
    return Invitation(**{**found, "roles": tuple(row["roles"])})
