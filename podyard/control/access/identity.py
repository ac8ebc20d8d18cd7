"""Projects, tokens and roles; who a credential stands for. Tokens are random and stored as hashes
only."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping

from podyard.base.errors import Code, ErrorInfo, PodyardError, invalid, not_found
from podyard.base.ids import check_resource_id, row_id
from podyard.base.rng import secret_token
from podyard.control.access import jwt
from podyard.db.access import credentials, projects, service_accounts
from podyard.db.compute import resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.firewall import default_rules
from podyard.domain.compute.network import default_network
from podyard.domain.credential import Token
from podyard.domain.host import DEFAULT_ACCOUNTS, default_service_account
from podyard.domain.permissions.google_roles import ACT_AS
from podyard.domain.principal import PLATFORM, PLATFORM_OWNER, ROLE_PERMISSIONS, Principal
from podyard.domain.project import Project

OWNER_EMAIL = "owner@podyard.local"
FIRST_PROJECT = "demo"
TOKEN_PREFIX = "pdy_"
SERVICE_ACCOUNTS = "gserviceaccount.com"  # how their domains end
API_KEY_PREFIX = "pdykey_"
# Google's first sentence; what follows there is a link to its own console.
INVALID_CREDENTIALS = (
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie "
    "or other valid "
    "authentication credential: see `podyard env`."
)


def authenticate(uow: UnitOfWork, credential: str) -> Principal:
    """The principal of a token, a self-signed JWT or an API key.

    Raises UNAUTHENTICATED for what is unknown, expired or revoked, and INVALID_ARGUMENT, as Google
    does, for an API key that is not valid.
    """
    if credential.startswith(API_KEY_PREFIX):
        return _of_api_key(uow, credential)
    if jwt.looks_like(credential):
        return _of_jwt(uow, credential)
    bearer = credentials.bearer(uow, hash_of(credential))
    if bearer is None or bearer.revoked is not None:
        raise credential_error("ACCESS_TOKEN_TYPE_UNSUPPORTED", INVALID_CREDENTIALS)
    if bearer.expires is not None and bearer.expires <= uow.real_now:
        raise credential_error("ACCESS_TOKEN_EXPIRED", INVALID_CREDENTIALS)
    roles = projects.roles_of(uow, bearer.email)
    return Principal(
        email=bearer.email,
        roles=roles if bearer.project is None else _only_in(bearer.project, roles),
        agent_id=bearer.agent_id,
        attempt_id=bearer.attempt_id,
        token_id=bearer.token_id,
        expires=bearer.expires if bearer.token_id is not None else None,
        last_used=bearer.last_used,
        only_in=bearer.project,
    )


def credential_error(reason: str, message: str) -> PodyardError:
    """A 401 with the detail that Google's has; `reason` is one of google.api.ErrorReason."""
    return PodyardError(Code.UNAUTHENTICATED, message, [error_info(reason)])


def api_key_not_valid() -> PodyardError:
    text = "API key not valid. Please pass a valid API key."
    return PodyardError(Code.INVALID_ARGUMENT, text, [error_info("API_KEY_INVALID")])


def error_info(reason: str, **metadata: str) -> ErrorInfo:
    return ErrorInfo(reason, "googleapis.com", {"service": "tpu.googleapis.com", **metadata})


def require_to_act_as(
    uow: UnitOfWork, principal: Principal, permission: str, email: str, project: str
) -> None:
    """Raises PERMISSION_DENIED unless the caller has `permission` in `project` and wherever else
    `email` has roles.

    The creator of a credential may do from then on what its email may: no more than what the
    creator owns.
    """
    for place in (project, *sorted(projects.roles_of(uow, email))):
        principal.require(permission, place, f"projects/{project}/serviceAccounts/{email}")


def require_no_more(uow: UnitOfWork, principal: Principal, email: str) -> None:
    """Raises PERMISSION_DENIED when `email` may do anything that the caller may not: whose nodes
    act as it could do so from then on.

    Who has iam.serviceAccounts.actAs on the account may have less than it has in its own project,
    as at Google, but not less than it has in others.
    """
    if PLATFORM_OWNER in principal.roles.get("*", ()):
        return
    home = home_of(uow, email)
    acts_in = (
        home if home is not None and may_on_account(uow, principal, ACT_AS, home, email) else None
    )
    for place, roles in projects.roles_of(uow, email).items():
        if place == acts_in:
            continue
        permissions = frozenset().union(*(ROLE_PERMISSIONS[role] for role in roles))
        if not all(principal.may(permission, place) for permission in permissions):
            raise PodyardError(
                Code.PERMISSION_DENIED,
                "Permission 'iam.serviceAccounts.actAs' denied on resource "
                f"'projects/-/serviceAccounts/{email}' (or it might not exist).",
            )


def _of_jwt(uow: UnitOfWork, token: str) -> Principal:
    try:
        signed = jwt.for_service(uow, token)
    except jwt.BadJwt as error:
        reason = "ACCESS_TOKEN_EXPIRED" if error.expired else "ACCESS_TOKEN_TYPE_UNSUPPORTED"
        raise credential_error(reason, f"{INVALID_CREDENTIALS} {error.message}") from None
    return by_key(uow, signed)


def by_key(uow: UnitOfWork, signed: jwt.SelfSigned) -> Principal:
    """A service account of the key's project has what any project has granted it, as at Google; any
    other email only what that project has: the key proves nothing about it elsewhere."""
    roles = projects.roles_of(uow, signed.email)
    if is_own_account(uow, signed.email, signed.project):
        return Principal(signed.email, roles)
    return Principal(signed.email, _only_in(signed.project, roles), only_in=signed.project)


def _of_api_key(uow: UnitOfWork, key: str) -> Principal:
    found = credentials.find_api_key(uow, hash_of(key))
    if found is None:
        raise api_key_not_valid()
    # Only an owner of the project makes its keys, so that roles on the whole platform add nothing
    # to it.
    granted = projects.roles_of(uow, found.email)
    everywhere = ("owner" if role == PLATFORM_OWNER else role for role in granted.get("*", ()))
    here = granted.get(found.project, frozenset()).union(everywhere)
    roles = {found.project: here} if here else {}
    return Principal(found.email, roles, only_in=found.project)


def _only_in(project: str, roles: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return what this project has granted, and nothing that others, or the platform's owner,
    have."""
    return {project: roles[project]} if project in roles else {}


def issue(uow: UnitOfWork, email: str, attempt_id: str) -> str:
    """Makes the token of an attempt of a job and returns it: the only time that it can be seen."""
    token = TOKEN_PREFIX + secret_token()
    credentials.store_unlisted(uow, hash_of(token), email, attempt_id=attempt_id)
    return token


def keep_agent_token(uow: UnitOfWork, token: str, agent_id: str) -> None:
    """Stores the hash of an agent's token, unless it is stored already."""
    if not credentials.is_stored(uow, hash_of(token)):
        email = f"{agent_id}@agents.podyard.local"
        credentials.store_unlisted(uow, hash_of(token), email, agent_id=agent_id)


def lend(
    uow: UnitOfWork,
    email: str,
    seconds: float,
    *,
    key_id: str | None = None,
    project: str | None = None,
) -> str:
    """A new access token of `email` that expires after so many real seconds, made with a key or
    (None) without one,
    for one project or (None) all. Tokens that have expired are forgotten on the way."""
    credentials.sweep_expired(uow)
    token = TOKEN_PREFIX + secret_token()
    expires = uow.real_now.plus_seconds(seconds)
    credentials.store_unlisted(
        uow, hash_of(token), email, key_id=key_id, project=project, expires=expires
    )
    return token


def bootstrap(uow: UnitOfWork, owner_token: str, agent_token: str | None, agent_id: str) -> None:
    """Make what a data folder needs before anybody can call: the first project, its owner's token,
    the agent's token, if it runs one."""
    if projects.find(uow, FIRST_PROJECT) is None:
        _insert_project(uow, FIRST_PROJECT, {})
        bind(uow, OWNER_EMAIL, "*", PLATFORM_OWNER)
    _keep_owner_token(uow, owner_token)
    if agent_token is not None:
        keep_agent_token(uow, agent_token, agent_id)


def _keep_owner_token(uow: UnitOfWork, secret: str) -> None:
    """The local owner's never expires. A new one (its file was deleted) takes the place of the one
    before."""
    token_hash = hash_of(secret)
    if credentials.is_stored(uow, token_hash):
        return
    credentials.revoke_unbound(uow, OWNER_EMAIL)
    token_id = row_id(uow.streams.stream("tokens"), "token")
    token = Token(
        token_id, OWNER_EMAIL, None, None, uow.real_now, expires=None, revoked=None, last_used=None
    )
    credentials.store_token(uow, token, token_hash)


def has_tenants(uow: UnitOfWork) -> bool:
    """Return whether two projects belong to different people: then one must not reach the network
    of the other's machine. A project without an owner belongs to the platform's."""
    owned = projects.owners(uow)
    return len({owned.get(found.project, frozenset()) for found in projects.list_all(uow)}) > 1


def check_role(role: str, project: str) -> None:
    """Raises INVALID_ARGUMENT for a role that does not exist, or is not had in this project."""
    if role not in ROLE_PERMISSIONS:
        raise invalid(f"unknown role {role!r}: use {', '.join(sorted(ROLE_PERMISSIONS))}", "role")
    if role == PLATFORM_OWNER and project != "*":
        raise invalid(
            f"role {role!r} can only be granted on the whole platform (project '*'), not in "
            f"project {project!r}",
            "role",
        )


def bind(uow: UnitOfWork, email: str, project: str, role: str) -> None:
    check_role(role, project)
    projects.bind(uow, email, project, role)


def create_project(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    labels: Mapping[str, str],
    chips_max: int | None = None,
) -> Project:
    principal.require("podyard.projects.create", project, f"projects/{project}")
    check_resource_id(project, "project_id")
    if projects.find(uow, project) is not None:
        raise PodyardError(Code.ALREADY_EXISTS, f"Resource 'projects/{project}' already exists")
    return _insert_project(uow, project, labels, chips_max)


def update_project(
    uow: UnitOfWork, principal: Principal, project: str, chips_max: int | None
) -> Project:
    """Sets the quota of chips. What the project holds beyond it stays."""
    principal.require("podyard.projects.create", "*", f"projects/{project}")
    found = project_row(uow, project)
    projects.set_chips_max(uow, project, chips_max)
    return dataclasses.replace(found, chips_max=chips_max)


def list_projects(uow: UnitOfWork, principal: Principal) -> list[Project]:
    """The projects that the caller may see."""
    return [
        found
        for found in projects.list_all(uow)
        if principal.may("podyard.projects.get", found.project)
    ]


def project_row(uow: UnitOfWork, project: str) -> Project:
    """Locked on PostgreSQL when the unit may write. Raises NOT_FOUND."""
    found = projects.find(uow, project)
    if found is None:
        raise not_found(f"projects/{project}")
    return found


def require_to_vouch_for(uow: UnitOfWork, principal: Principal, email: str, project: str) -> None:
    """Raises PERMISSION_DENIED unless the caller may say who `email` is in a project: it is their
    own, or one of the project's service accounts, or they own the platform."""
    require_own_account(uow, email, project)
    if (
        email == principal.email
        or is_own_account(uow, email, project)
        or principal.may("podyard.people.create", "*")
    ):
        return
    raise PodyardError(
        Code.PERMISSION_DENIED,
        f"{email} is not a service account of project {project}: only the platform's owner can "
        "make this credential. "
        f"Invite them instead: `podyard auth invitation create {email} --project {project} "
        "--role ROLE`.",
    )


def is_own_account(uow: UnitOfWork, email: str, project: str) -> bool:
    """Return whether the email is a service account of the project, by its domain
    (cloud.google.com/iam/docs/ service-account-types)."""
    number = project_row(uow, project).number
    return email == default_service_account(number) or email.endswith(
        f"@{project}.iam.{SERVICE_ACCOUNTS}"
    )


def home_of(uow: UnitOfWork, email: str) -> str | None:
    """Return the project whose service account the email is, by its domain; None: it is none, or
    of a project that is not there."""
    name, _, domain = email.partition("@")
    if domain == DEFAULT_ACCOUNTS:
        number = name.removesuffix("-compute")
        row = projects.of_number(uow, int(number)) if number.isdecimal() else None
    elif domain.endswith(f".iam.{SERVICE_ACCOUNTS}"):
        row = projects.read(uow, domain.removesuffix(f".iam.{SERVICE_ACCOUNTS}"))
    else:
        row = None
    return None if row is None else row.project


def may_on_account(
    uow: UnitOfWork, principal: Principal, permission: str, home: str, email: str
) -> bool:
    """Return whether the caller has a permission on a service account: by a role in its project,
    or one on the account itself, unless the credential is for another project only."""
    if principal.may(permission, home):
        return True
    roles = service_accounts.roles_on(uow, email, principal.email)
    is_here = principal.only_in in (None, home)
    return is_here and any(permission in ROLE_PERMISSIONS[role] for role in roles)


def is_service_account(email: str) -> bool:
    return email.endswith(SERVICE_ACCOUNTS)


def principal_of(uow: UnitOfWork, email: str) -> Principal:
    """Return who an email is now, for what goes on after its request: with the roles that it still
    has."""
    return PLATFORM if email == PLATFORM.email else Principal(email, projects.roles_of(uow, email))


def is_reserved(email: str) -> bool:
    """Return whether the email is the local owner's, an agent's or a job's."""
    return email.endswith(("@podyard.local", ".podyard.local"))


def require_own_account(uow: UnitOfWork, email: str, project: str) -> None:
    """Raises PERMISSION_DENIED for a service account of another project: its credentials are made
    there."""
    if is_service_account(email) and not is_own_account(uow, email, project):
        raise PodyardError(
            Code.PERMISSION_DENIED,
            f"{email} is not a service account of project {project}: use "
            f"NAME@{project}.iam.{SERVICE_ACCOUNTS}",
        )


def _insert_project(
    uow: UnitOfWork, project: str, labels: Mapping[str, str], chips_max: int | None = None
) -> Project:
    # twelve digits, as Google's are
    number = uow.streams.stream("projects").randrange(10**11, 10**12)
    made = Project(project, number, dict(labels), uow.now, compute_metadata={}, chips_max=chips_max)
    projects.insert(uow, made)
    # As at Google, each project begins with a network, and its four rules.
    resources.insert(uow, default_network(project, uow.now, uow.actor))
    for rule in default_rules(project, uow.now, uow.actor):
        resources.insert(uow, rule)
    return made


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
