"""Tokens, keys of service accounts, API keys, and invitations to a project. Secrets are never kept:
only hashes are."""

from __future__ import annotations

import dataclasses
from enum import StrEnum

from podyard.base.clock import RealTime

SECONDS_PER_DAY = 86_400
TOKEN_DAYS_DEFAULT = 90
TOKEN_DAYS_MAX = 365  # a longer one would be forgotten by its owner
TOKEN_WARNING_DAYS = 14  # how long before its expiry a token is announced to expire
TOKENS_PER_PROJECT_MAX = 1000  # one answer lists them all
INVITATION_DAYS = 7
INVITATIONS_PER_PROJECT_MAX = 100  # that may still be accepted
# how much later than noted the last use of a token may be: one write for each such time
LAST_USE_SECONDS = 600
EXPIRES_HEADER = "podyard-token-expires"  # in every response in the last days of a token
KEPT_DAYS = 30  # how long what has ended stays listed


class CredentialState(StrEnum):
    ACTIVE = "ACTIVE"
    EXPIRED = "EXPIRED"
    REVOKED = "REVOKED"
    ACCEPTED = "ACCEPTED"  # of an invitation


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A token that a person or a program holds until it expires or is revoked (agents, replicas and
    keys have others).

    `project` is the one that made it and the only one that it is good for; None: every one in which
    its email has roles, as the local owner's. `minted_by` is the email of its creator, or None if
    unknown.
    """

    token_id: str
    email: str
    project: str | None
    minted_by: str | None
    created: RealTime
    expires: RealTime | None
    revoked: RealTime | None
    last_used: RealTime | None

    def state(self, now: RealTime) -> CredentialState:
        if self.revoked is not None:
            return CredentialState.REVOKED
        ended = self.expires is not None and self.expires <= now
        return CredentialState.EXPIRED if ended else CredentialState.ACTIVE


@dataclasses.dataclass(frozen=True, slots=True)
class Bearer:
    """The bearer of a stored token, and whether it still stands.

    `token_id` is None for tokens that no list shows: those of agents (`agent_id`), of attempts
    (`attempt_id`), and those that were made with a key.
    """

    email: str
    token_id: str | None
    agent_id: str | None
    attempt_id: str | None
    project: str | None
    expires: RealTime | None
    revoked: RealTime | None
    last_used: RealTime | None


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceAccountKey:
    """The public half of a key. `key_id` is `kid` in the headers of its JWTs, `token_uri` one of
    their audiences."""

    key_id: str
    project: str
    email: str
    public_key: str
    token_uri: str
    created: RealTime


@dataclasses.dataclass(frozen=True, slots=True)
class ApiKey:
    """It acts as `email`, in one project only."""

    key_id: str
    project: str
    email: str
    created: RealTime


@dataclasses.dataclass(frozen=True, slots=True)
class Invitation:
    """An offer of roles in a project to `email`. It is accepted once, with its code."""

    invitation_id: str
    email: str
    project: str
    roles: tuple[str, ...]
    invited_by: str
    created: RealTime
    expires: RealTime
    accepted: RealTime | None
    revoked: RealTime | None

    def state(self, now: RealTime) -> CredentialState:
        if self.accepted is not None:
            return CredentialState.ACCEPTED
        if self.revoked is not None:
            return CredentialState.REVOKED
        return CredentialState.EXPIRED if self.expires <= now else CredentialState.ACTIVE


def use_is_to_be_noted(last_used: RealTime | None, now: RealTime) -> bool:
    return last_used is None or now.seconds_since(last_used) >= LAST_USE_SECONDS


def expires_soon(expires: RealTime | None, now: RealTime) -> bool:
    return (
        expires is not None and expires.seconds_since(now) <= TOKEN_WARNING_DAYS * SECONDS_PER_DAY
    )
