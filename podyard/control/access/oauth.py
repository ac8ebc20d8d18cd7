"""Authorization of a client that a person runs, such as `gcloud auth login` (RFC 6749, sections
4.1 and 6; RFC 7636).

The person's own token stands behind it: a code is traded for a new token with the same project and
roles, and that token is both the refresh token and the access token. Revoking it ends both.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from urllib.parse import urlencode, urlsplit

from podyard.base import sealing
from podyard.base.clock import NANOS_PER_SECOND
from podyard.base.errors import Code, PodyardError, invalid
from podyard.base.rng import secret_token
from podyard.control.access import identity, tokens
from podyard.control.access.keys import ACCESS_TOKEN_SECONDS, OAuthError
from podyard.db.access import credentials
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import Principal

CODE_PREFIX = "pdycode_"
CODE_SECONDS = 300.0  # a person copies it from a browser to a terminal
# Pages of Google's that show a code to copy. Podyard shows it itself: nothing is sent to Google.
_SHOWN = frozenset(
    {
        "https://sdk.cloud.google.com/authcode.html",
        "https://sdk.cloud.google.com/applicationdefaultauthcode.html",
        "urn:ietf:wg:oauth:2.0:oob",
    }
)
# Nothing but a host, a port and a path: the page's headers name the host and port.
_ON_LOOPBACK = re.compile(
    r"(http://(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?)(?:/[!-~]*)?", re.ASCII
)
_CHALLENGE = "S256"


@dataclasses.dataclass(frozen=True, slots=True)
class Authorization:
    """Request of a client for a code. `challenge`: of the verifier that the client keeps, or "".
    `state` goes back to the client as it is."""

    redirect_uri: str
    challenge: str
    state: str

    @property
    def is_shown(self) -> bool:
        """True where the person copies the code by hand."""
        return self.redirect_uri in _SHOWN

    @property
    def origin(self) -> str:
        """The address of the client without its path; empty where the code is shown."""
        own = _ON_LOOPBACK.fullmatch(self.redirect_uri)
        return "" if own is None else own[1]

    def answer(self, code: str) -> str:
        """Return the address that takes the code to the client."""
        query = {"code": code} | ({"state": self.state} if self.state else {})
        mark = "&" if urlsplit(self.redirect_uri).query else "?"
        return f"{self.redirect_uri}{mark}{urlencode(query)}"


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """Tokens of a person for a client. `id_token` is not signed: it names the person only."""

    access_token: str
    refresh_token: str
    id_token: str


def authorization(
    response_type: str, redirect_uri: str, challenge: str, method: str, state: str
) -> Authorization:
    """Return a client's request. Raises INVALID_ARGUMENT for one that is not for a code, or that
    would take the code to another machine."""
    if response_type != "code":
        raise invalid(f"response_type is {response_type!r}: it must be 'code'", "response_type")
    if challenge and method != _CHALLENGE:
        raise invalid(
            f"code_challenge_method is {method!r}: it must be {_CHALLENGE!r}",
            "code_challenge_method",
        )
    if redirect_uri not in _SHOWN and not _ON_LOOPBACK.fullmatch(redirect_uri):
        raise invalid(
            f"redirect_uri is {redirect_uri!r}: it must be an address of this machine, such as "
            "http://localhost:8085/",
            "redirect_uri",
        )
    return Authorization(redirect_uri, challenge, state)


def allow(uow: UnitOfWork, token: str, asked: Authorization) -> str:
    """Return a code for the client, good once and for `CODE_SECONDS`. Raises UNAUTHENTICATED for a
    token that is not valid, PERMISSION_DENIED for other credentials."""
    principal = identity.authenticate(uow, token)
    if principal.token_id is None or not token.startswith(identity.TOKEN_PREFIX):
        raise PodyardError(
            Code.PERMISSION_DENIED,
            f"{principal.email} is not signed in with a token: only tokens can allow a client",
        )
    code = CODE_PREFIX + secret_token()
    expires = uow.real_now.plus_seconds(CODE_SECONDS)
    bound = _bound(code, asked.redirect_uri, asked.challenge)
    credentials.store_sign_in_link(uow, bound, sealing.seal(token), expires)
    return code


def trade(uow: UnitOfWork, code: str, redirect_uri: str, verifier: str, client_id: str) -> Grant:
    """Return the tokens of a code. Raises OAuthError `invalid_grant` for a code that is unknown,
    used or old, or for another client's."""
    digest = hashlib.sha256(verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() if verifier else ""
    sealed = credentials.take_sign_in_link(uow, _bound(code, redirect_uri, challenge))
    if sealed is None:
        raise OAuthError("invalid_grant", "The code is unknown, used or older than 5 minutes.")
    token = sealing.unseal(sealed)
    principal = _principal(uow, token)
    minted_by_owner = principal.expires is None  # the local owner's token: it cannot be renewed
    fresh = token if minted_by_owner else tokens.renew(uow, principal, None)[1]
    return _grant(uow, principal, fresh, client_id)


def refresh(uow: UnitOfWork, token: str, client_id: str) -> Grant:
    """Return the tokens again while the refresh token is valid. Raises OAuthError
    `invalid_grant`."""
    return _grant(uow, _principal(uow, token), token, client_id)


def revoke(uow: UnitOfWork, token: str) -> None:
    """Revoke a token that a client holds (RFC 7009); one that is not valid is revoked already. The
    local owner's stays: without it nobody could sign in."""
    try:
        principal = identity.authenticate(uow, token)
    except PodyardError:
        return
    if principal.token_id is not None and principal.expires is not None:
        tokens.revoke(uow, principal, principal.token_id)


def _principal(uow: UnitOfWork, token: str) -> Principal:
    try:
        return identity.authenticate(uow, token)
    except PodyardError as error:
        raise OAuthError("invalid_grant", "Token has been expired or revoked.") from error


def _grant(uow: UnitOfWork, principal: Principal, token: str, client_id: str) -> Grant:
    seconds = uow.real_now.nanos // NANOS_PER_SECOND
    claims = {
        "iss": "podyard",
        "aud": client_id,
        "sub": hashlib.sha256(principal.email.encode()).hexdigest(),
        "email": principal.email,
        "email_verified": True,
        "iat": seconds,
        "exp": seconds + ACCESS_TOKEN_SECONDS,
    }
    return Grant(token, token, f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}.")


def _part(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def _bound(code: str, redirect_uri: str, challenge: str) -> str:
    """The hash under which a code is stored: with another address or verifier there is none."""
    return identity.hash_of(f"{code}\n{redirect_uri}\n{challenge}")
