"""JSON web tokens that a service account signs itself (RFC 7519, RS256), as Google's auth libraries
make them.

Such a token is a credential of its own on every call (google-cloud-tpu), or is traded at `/token`
(google-api-python-client). It says who signed it (`kid`), for whom (`aud`), and until when; nothing
of it counts before the signature does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from podyard.base.clock import NANOS_PER_SECOND, RealTime
from podyard.base.errors import Code, PodyardError
from podyard.db.access import credentials
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.credential import ServiceAccountKey

# clocks of two machines; google.auth allows itself 10 s only, but laptops drift by minutes
SKEW_SECONDS = 300
LIFETIME_SECONDS_MAX = 3600  # Google's: "short-lived token (60 minutes)"
CHARACTERS_MAX = 4096  # Google's libraries make about 900
# google-cloud-tpu puts its service's name there whatever endpoint it calls.
SERVICE_AUDIENCES = frozenset({"https://tpu.googleapis.com/", "https://tpu.googleapis.com"})
# google.oauth2.service_account puts this into every assertion, whatever the key's token_uri is.
TOKEN_AUDIENCES = frozenset({"https://oauth2.googleapis.com/token"})
TOKEN_PATH = "/token"
NO_JWT = "Invalid JWT: it must be three parts of base64url, the first two of them JSON objects."
NOT_RS256 = "Invalid JWT: it must be signed with RS256 and name its key (kid)."
WRONG_SIGNATURE = "Invalid JWT Signature."
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclasses.dataclass(frozen=True, slots=True)
class SelfSigned:
    """The claims of a verified token."""

    email: str
    key_id: str
    claims: Mapping[str, Any]
    project: str  # of the key


class BadJwt(PodyardError):
    """UNAUTHENTICATED, and why, in the words of Google's token endpoint where they are known."""

    def __init__(self, why: str, *, expired: bool = False) -> None:
        super().__init__(Code.UNAUTHENTICATED, why)
        self.expired = expired

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.message,))


def looks_like(token: str) -> bool:
    """Return whether `token` is meant as a JWT: opaque tokens have no dots."""
    return token.count(".") == 2


def for_service(uow: UnitOfWork, token: str) -> SelfSigned:
    """The signer of a token sent as a bearer token; raises BadJwt. Without `aud` it must name its
    scopes."""

    def meant_for_us(audience: object, key: ServiceAccountKey, claims: Mapping[str, Any]) -> bool:
        if audience is None:
            return isinstance(claims.get("scope"), str) and bool(claims["scope"].strip())
        own = key.token_uri.removesuffix(TOKEN_PATH)
        return (
            audience in SERVICE_AUDIENCES
            or audience in (own, f"{own}/")
            or _on_loopback(audience, ("", "/"))
        )

    return _verify(uow, token, meant_for_us)


def for_token_endpoint(uow: UnitOfWork, assertion: str) -> SelfSigned:
    """The signer of an assertion sent to `/token`; raises BadJwt."""

    def meant_for_us(audience: object, key: ServiceAccountKey, _claims: Mapping[str, Any]) -> bool:
        return (
            audience in TOKEN_AUDIENCES
            or audience == key.token_uri
            or _on_loopback(audience, (TOKEN_PATH,))
        )

    return _verify(uow, assertion, meant_for_us)


def _verify(
    uow: UnitOfWork,
    token: str,
    meant_for_us: Callable[[object, ServiceAccountKey, Mapping[str, Any]], bool],
) -> SelfSigned:
    key = credentials.find_key(uow, _key_id(token))
    # The same words for a key that is unknown and for one that did not sign this.
    if key is None:
        raise BadJwt(WRONG_SIGNATURE)
    claims = _signed_claims(token, key.public_key, key.email)
    _check_times(claims, uow.real_now)
    audience = claims.get("aud")
    if not (audience is None or isinstance(audience, str)) or not meant_for_us(
        audience, key, claims
    ):
        raise BadJwt(f"Invalid JWT: {audience!r} is not an audience of this server.")
    return SelfSigned(key.email, key.key_id, claims, key.project)


def _key_id(token: str) -> str:
    """The key that the token names, before anything of it is believed."""
    # Not at the top: the API's first answer must not wait for libraries that most requests never
    # need.
    import jwt

    if len(token) > CHARACTERS_MAX:
        raise BadJwt(f"Invalid JWT: it must have at most {CHARACTERS_MAX} characters.")
    try:
        key_id = jwt.get_unverified_header(token).get("kid")
    except (jwt.InvalidTokenError, ValueError, RecursionError):  # ValueError: what is not ASCII
        raise BadJwt(NO_JWT) from None
    if not isinstance(key_id, str):
        raise BadJwt(NOT_RS256)
    return key_id


def _signed_claims(token: str, public_key: str, email: str) -> Mapping[str, Any]:
    """The claims, when `public_key` has signed them and they are of `email`. The times are for
    `_check_times`: the library would read another clock."""
    import jwt
    from jwt import exceptions

    options: jwt.types.Options = {
        "require": ["iss", "iat", "exp"],
        "verify_aud": False,
        "verify_jti": False,
    }
    own_clock: jwt.types.Options = {"verify_exp": False, "verify_iat": False, "verify_nbf": False}
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            public_key,
            algorithms=["RS256"],
            issuer=email,
            subject=email,
            options={**options, **own_clock},
        )
    except jwt.InvalidAlgorithmError:
        raise BadJwt(NOT_RS256) from None
    except jwt.InvalidSignatureError:
        raise BadJwt(WRONG_SIGNATURE) from None
    except jwt.MissingRequiredClaimError as error:
        raise BadJwt(f"Invalid JWT: it must have {error.claim}.") from None
    except (exceptions.InvalidIssuerError, exceptions.InvalidSubjectError):
        raise BadJwt("Invalid JWT: iss and sub must be the service account's email.") from None
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        raise BadJwt(NO_JWT) from None
    return claims


def _check_times(claims: Mapping[str, Any], now: RealTime) -> None:
    issued, expires = claims.get("iat"), claims.get("exp")
    for value in (issued, expires):
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
            raise BadJwt("Invalid JWT: iat and exp must be numbers of seconds.")
    assert isinstance(issued, int | float) and isinstance(expires, int | float)
    seconds = now.nanos / NANOS_PER_SECOND
    if expires + SKEW_SECONDS <= seconds:
        raise BadJwt(
            "Invalid JWT: Token has expired. Check your exp value in the JWT claim.", expired=True
        )
    if (
        issued - SKEW_SECONDS > seconds
        or not 0 < expires - issued <= LIFETIME_SECONDS_MAX + SKEW_SECONDS
    ):
        raise BadJwt(
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a "
            "reasonable timeframe. "
            "Check your iat and exp values in the JWT claim."
        )


def _on_loopback(audience: object, paths: tuple[str, ...]) -> bool:
    """A server of this machine: whatever name and port it had when the key was made, it is nobody
    else's."""
    try:
        parts = urlsplit(str(audience))
        return (
            parts.scheme in ("http", "https")
            and parts.hostname in _LOOPBACK
            and parts.path in paths
        )
    except ValueError:
        return False
