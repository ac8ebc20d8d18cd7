"""Keys of service accounts, which sign for themselves, and API keys. Neither secret is stored: a
public key, a hash."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Sequence

from podyard.base.errors import Code, PodyardError, invalid, not_found
from podyard.base.ids import row_id
from podyard.base.rng import secret_token
from podyard.control.access import identity, jwt, service_accounts
from podyard.db.access import credentials, projects
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.credential import ApiKey, ServiceAccountKey
from podyard.domain.principal import Principal

RSA_BITS = 2048  # what Google's keys have
ACCESS_TOKEN_SECONDS = 3600  # as Google's
KEYS_PER_ACCOUNT_MAX = 10  # Google's limit for user-managed keys of one service account
API_KEYS_PER_PROJECT_MAX = 300  # Google's limit
ROLE_DEFAULT = "tpu.admin"  # of an account whose first key is made without naming any
EMAIL_CHARACTERS_MAX = 200
_EMAIL = re.compile(r"[^\s@/:]+@[^\s@/:]+")
_CLIENT_ID_DIGITS = 21  # as Google's


class OAuthError(PodyardError):
    """A refusal of the token endpoint; `error` is one of RFC 6749, section 5.2."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(Code.INVALID_ARGUMENT, description)
        self.error = error

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.error, self.message))


@dataclasses.dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM, PKCS 8 and SubjectPublicKeyInfo."""

    private: str
    public: str


def make_pair() -> KeyPair:
    """A new RSA key. Takes tenths of a second: not inside a unit of work."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(private.decode("ascii"), public.decode("ascii"))


def create_key(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    email: str,
    roles: Sequence[str] | None,
    public_key: str,
    token_uri: str,
) -> ServiceAccountKey:
    """Stores the public half of a new key of `email`, and gives the email `roles` in the project.

    With an empty list, an email that has none there yet gets `ROLE_DEFAULT`: a key that may do
    nothing helps nobody. None: it gets no role, as at Google.
    """
    principal.require("podyard.keys.create", project, _account_name(project, email))
    _check_email(email)
    identity.require_to_act_as(uow, principal, "podyard.keys.create", email, project)
    identity.project_row(uow, project)
    identity.require_to_vouch_for(uow, principal, email, project)
    if len(credentials.keys_of(uow, project, email)) >= KEYS_PER_ACCOUNT_MAX:
        text = f"{email} has {KEYS_PER_ACCOUNT_MAX} keys already; delete one first"
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    service_accounts.ensure(uow, project, email)
    if roles is not None:
        _give_roles(uow, email, project, roles)
    identity.require_no_more(uow, principal, email)
    key_id = f"{uow.streams.stream('keys').getrandbits(160):040x}"
    key = ServiceAccountKey(key_id, project, email, public_key, token_uri, created=uow.real_now)
    credentials.store_key(uow, key)
    return key


def key_file(key: ServiceAccountKey, private_key: str) -> dict[str, str]:
    """The JSON file that Google's auth libraries read (`gcloud iam service-accounts keys create`
    writes the same)."""
    client_id = int.from_bytes(hashlib.sha256(key.email.encode()).digest(), "big")
    server = key.token_uri.removesuffix(jwt.TOKEN_PATH)
    return {
        "type": "service_account",
        "project_id": key.project,
        "private_key_id": key.key_id,
        "private_key": private_key,
        "client_email": key.email,
        "client_id": f"1{client_id % 10 ** (_CLIENT_ID_DIGITS - 1):0{_CLIENT_ID_DIGITS - 1}d}",
        "auth_uri": f"{server}/login",
        "token_uri": key.token_uri,
        "universe_domain": "googleapis.com",
    }


def list_keys(
    uow: UnitOfWork, principal: Principal, project: str, email: str
) -> list[ServiceAccountKey]:
    """The keys of one account, the oldest first; `-`: of all accounts of the project, as in
    Google's IAM."""
    principal.require("podyard.keys.list", project, _account_name(project, email))
    return credentials.keys_of(uow, project, None if email == "-" else email)


def delete_key(
    uow: UnitOfWork, principal: Principal, project: str, email: str, key_id: str
) -> None:
    """Ends a key and the access tokens that were made with it."""
    name = f"{_account_name(project, email)}/keys/{key_id}"
    principal.require("podyard.keys.delete", project, name)
    if not credentials.delete_key(uow, project, None if email == "-" else email, key_id):
        raise not_found(name)


def exchange(uow: UnitOfWork, assertion: str) -> str:
    """An access token for an assertion that a service account signed (RFC 7523); raises
    OAuthError."""
    try:
        signed = jwt.for_token_endpoint(uow, assertion)
    except jwt.BadJwt as error:
        raise OAuthError("invalid_grant", error.message) from None
    if "target_audience" in signed.claims:
        raise OAuthError(
            "invalid_request",
            "target_audience: ID tokens are not supported, only access tokens are",
        )
    bound = None if identity.is_own_account(uow, signed.email, signed.project) else signed.project
    return identity.lend(
        uow, signed.email, ACCESS_TOKEN_SECONDS, key_id=signed.key_id, project=bound
    )


def create_api_key(
    uow: UnitOfWork, principal: Principal, project: str, email: str, roles: Sequence[str]
) -> tuple[ApiKey, str]:
    """An API key that acts as `email` in one project, and its secret: the only time that it can be
    seen."""
    principal.require("podyard.keys.create", project, f"projects/{project}/keys")
    _check_email(email)
    identity.require_to_act_as(uow, principal, "podyard.keys.create", email, project)
    identity.project_row(uow, project)
    identity.require_to_vouch_for(uow, principal, email, project)
    if len(credentials.api_keys_of(uow, project)) >= API_KEYS_PER_PROJECT_MAX:
        text = (
            f"projects/{project} has {API_KEYS_PER_PROJECT_MAX} API keys already; delete one first"
        )
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    service_accounts.ensure(uow, project, email)
    _give_roles(uow, email, project, roles)
    identity.require_no_more(uow, principal, email)
    secret = identity.API_KEY_PREFIX + secret_token()
    key = ApiKey(row_id(uow.streams.stream("keys"), "key"), project, email, created=uow.real_now)
    credentials.store_api_key(uow, key, identity.hash_of(secret))
    return key, secret


def list_api_keys(uow: UnitOfWork, principal: Principal, project: str) -> list[ApiKey]:
    principal.require("podyard.keys.list", project, f"projects/{project}/keys")
    return credentials.api_keys_of(uow, project)


def delete_api_key(uow: UnitOfWork, principal: Principal, project: str, key_id: str) -> None:
    name = f"projects/{project}/keys/{key_id}"
    principal.require("podyard.keys.delete", project, name)
    if not credentials.delete_api_key(uow, project, key_id):
        raise not_found(name)


def _give_roles(uow: UnitOfWork, email: str, project: str, roles: Sequence[str]) -> None:
    held = projects.roles_of(uow, email)
    for role in roles or (() if project in held or "*" in held else (ROLE_DEFAULT,)):
        identity.bind(uow, email, project, role)


def _check_email(email: str) -> None:
    if len(email) > EMAIL_CHARACTERS_MAX or _EMAIL.fullmatch(email) is None:
        raise invalid(
            f"invalid email {email!r}: use an address of at most {EMAIL_CHARACTERS_MAX} characters",
            "email",
        )


def _account_name(project: str, email: str) -> str:
    return f"projects/{project}/serviceAccounts/{email}"
