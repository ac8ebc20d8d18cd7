"""Links that sign a browser in with the token of the caller: each works once, within a minute.

A link that is seen later, in a history or a list of processes, is worth nothing.
"""

from __future__ import annotations

from podyard.base import sealing
from podyard.base.clock import RealTime
from podyard.base.errors import Code, PodyardError
from podyard.base.rng import secret_token
from podyard.control.access import identity, invitations
from podyard.db.access import credentials
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal

LINK_PREFIX = "pdylink_"
LINK_SECONDS = 60.0  # a browser opens within a few; a link that lies around is of no use


def create_link(uow: UnitOfWork, principal: Principal, token: str) -> tuple[str, RealTime]:
    """(code, when it expires). Raises PERMISSION_DENIED for credentials that are not a person's
    token."""
    if principal.token_id is None or not token.startswith(identity.TOKEN_PREFIX):
        raise PodyardError(
            Code.PERMISSION_DENIED,
            f"{principal.email} is not signed in with a token: only tokens can",
        )
    code, expires = LINK_PREFIX + secret_token(), uow.real_now.plus_seconds(LINK_SECONDS)
    credentials.store_sign_in_link(uow, identity.hash_of(code), sealing.seal(token), expires)
    return code, expires


def redeem(uow: UnitOfWork, code: str) -> str:
    """The token to sign in with, of a link or of an invitation, which is accepted. The code works
    this once."""
    if not code.startswith(LINK_PREFIX):
        return invitations.accept(uow, code)[1]
    sealed = credentials.take_sign_in_link(uow, identity.hash_of(code))
    if sealed is None:
        text = "this link was used, or is older than a minute: run `podyard open` again"
        raise PodyardError(Code.NOT_FOUND, text)
    return sealing.unseal(sealed)
