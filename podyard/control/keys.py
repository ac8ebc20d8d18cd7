"""Keys of service accounts, which sign for themselves, and API keys. Neither secret is stored: a public key, a hash."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from podyard.base.errors import Code, PodyardError, invalid, not_found
from podyard.base.ids import row_id
from podyard.base.rng import secret_token
from podyard.control import access, jwt
from podyard.db.tables_access import api_keys, service_account_keys, tokens
from podyard.db.unit_of_work import UnitOfWork
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
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(private.decode("ascii"), public.decode("ascii"))


def create_key(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    email: str,
    roles: Sequence[str],
    public_key: str,
    token_uri: str,
) -> Mapping[str, Any]:
    """Stores the public half of a new key of `email`, and gives the email `roles` in the project.

    Without `roles`, an email that has none there yet gets `ROLE_DEFAULT`: a key that may do nothing helps nobody.
    """
    principal.require("podyard.keys.create", project, _account_name(project, email))
    _check_email(email)
    access.require_to_act_as(uow, principal, "podyard.keys.create", email, project)
    access.project_row(uow, project)
    access.require_to_vouch_for(uow, principal, email, project)
    count = select(func.count()).where(service_account_keys.c.project == project, service_account_keys.c.email == email)
    if int(uow.execute(count).scalar() or 0) >= KEYS_PER_ACCOUNT_MAX:
        text = f"{email} has {KEYS_PER_ACCOUNT_MAX} keys already; delete one first"
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    _give_roles(uow, email, project, roles)
    values = {
        "key_id": f"{uow.streams.stream('keys').getrandbits(160):040x}",
        "project": project,
        "email": email,
        "public_key": public_key,
        "token_uri": token_uri,
        "created": uow.real_now,
    }
    uow.execute(insert(service_account_keys).values(**values))
    return values


def key_file(row: Mapping[str, Any], private_key: str) -> dict[str, str]:
    """The JSON file that Google's auth libraries read (`gcloud iam service-accounts keys create` writes the same)."""
    client_id = int.from_bytes(hashlib.sha256(str(row["email"]).encode()).digest(), "big")
    server = str(row["token_uri"]).removesuffix(jwt.TOKEN_PATH)
    return {
        "type": "service_account",
        "project_id": row["project"],
        "private_key_id": row["key_id"],
        "private_key": private_key,
        "client_email": row["email"],
        "client_id": f"1{client_id % 10 ** (_CLIENT_ID_DIGITS - 1):0{_CLIENT_ID_DIGITS - 1}d}",
        "auth_uri": f"{server}/login",
        "token_uri": row["token_uri"],
        "universe_domain": "googleapis.com",
    }


def list_keys(uow: UnitOfWork, principal: Principal, project: str, email: str) -> list[Mapping[str, Any]]:
    """The keys of one account, the oldest first; `-`: of all accounts of the project, as in Google's IAM."""
    principal.require("podyard.keys.list", project, _account_name(project, email))
    table = service_account_keys
    query = select(table).where(table.c.project == project)
    if email != "-":
        query = query.where(table.c.email == email)
    return uow.all(query.order_by(table.c.created, table.c.key_id))


def delete_key(uow: UnitOfWork, principal: Principal, project: str, email: str, key_id: str) -> None:
    """Ends a key and the access tokens that it was exchanged for."""
    name = f"{_account_name(project, email)}/keys/{key_id}"
    principal.require("podyard.keys.delete", project, name)
    table = service_account_keys
    query = delete(table).where(table.c.key_id == key_id, table.c.project == project)
    if email != "-":
        query = query.where(table.c.email == email)
    if uow.execute(query).rowcount == 0:
        raise not_found(name)
    uow.execute(update(tokens).where(tokens.c.key_id == key_id).values(revoked=uow.real_now))


def exchange(uow: UnitOfWork, assertion: str) -> str:
    """An access token for an assertion that a service account signed (RFC 7523); raises OAuthError."""
    try:
        signed = jwt.for_token_endpoint(uow, assertion)
    except jwt.BadJwt as error:
        raise OAuthError("invalid_grant", error.message) from None
    if "target_audience" in signed.claims:
        raise OAuthError("invalid_request", "target_audience: ID tokens are not supported, only access tokens are")
    bound = {} if access.is_own_account(uow, signed.email, signed.project) else {"project": signed.project}
    return access.lend(uow, signed.email, ACCESS_TOKEN_SECONDS, key_id=signed.key_id, **bound)


def create_api_key(
    uow: UnitOfWork, principal: Principal, project: str, email: str, roles: Sequence[str]
) -> tuple[Mapping[str, Any], str]:
    """Makes an API key that acts as `email` in one project; returns (row, key): the only time that it can be seen."""
    principal.require("podyard.keys.create", project, f"projects/{project}/keys")
    _check_email(email)
    access.require_to_act_as(uow, principal, "podyard.keys.create", email, project)
    access.project_row(uow, project)
    access.require_to_vouch_for(uow, principal, email, project)
    if len(_api_keys(uow, project)) >= API_KEYS_PER_PROJECT_MAX:
        text = f"projects/{project} has {API_KEYS_PER_PROJECT_MAX} API keys already; delete one first"
        raise PodyardError(Code.RESOURCE_EXHAUSTED, text)
    _give_roles(uow, email, project, roles)
    key = access.API_KEY_PREFIX + secret_token()
    values = {
        "key_id": row_id(uow.streams.stream("keys"), "key"),
        "key_hash": access.hashed(key),
        "project": project,
        "email": email,
        "created": uow.real_now,
    }
    uow.execute(insert(api_keys).values(**values))
    return values, key


def list_api_keys(uow: UnitOfWork, principal: Principal, project: str) -> list[Mapping[str, Any]]:
    principal.require("podyard.keys.list", project, f"projects/{project}/keys")
    return _api_keys(uow, project)


def delete_api_key(uow: UnitOfWork, principal: Principal, project: str, key_id: str) -> None:
    name = f"projects/{project}/keys/{key_id}"
    principal.require("podyard.keys.delete", project, name)
    query = delete(api_keys).where(api_keys.c.key_id == key_id, api_keys.c.project == project)
    if uow.execute(query).rowcount == 0:
        raise not_found(name)


def _give_roles(uow: UnitOfWork, email: str, project: str, roles: Sequence[str]) -> None:
    held = access.roles_of(uow, email)
    for role in roles or (() if project in held or "*" in held else (ROLE_DEFAULT,)):
        access.bind(uow, email, project, role)


def _api_keys(uow: UnitOfWork, project: str) -> list[Mapping[str, Any]]:
    query = select(api_keys).where(api_keys.c.project == project)
    return uow.all(query.order_by(api_keys.c.created, api_keys.c.key_id))


def _check_email(email: str) -> None:
    if len(email) > EMAIL_CHARACTERS_MAX or _EMAIL.fullmatch(email) is None:
        raise invalid(f"{email!r} is not an email of at most {EMAIL_CHARACTERS_MAX} characters", "email")


def _account_name(project: str, email: str) -> str:
    return f"projects/{project}/serviceAccounts/{email}"
