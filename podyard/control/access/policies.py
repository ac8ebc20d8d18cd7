"""Reading and setting policies of projects and of service accounts, and testing permissions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from podyard.base.errors import invalid
from podyard.control.access import identity, service_accounts
from podyard.db.access import projects
from podyard.db.access import service_accounts as account_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.iam import policy
from podyard.domain.iam.policy import RoleGrant
from podyard.domain.iam.service_account import AccountRecord
from podyard.domain.permissions.google_roles import ACT_AS
from podyard.domain.principal import PERMISSIONS, Principal

GET = "resourcemanager.projects.getIamPolicy"
SET = "resourcemanager.projects.setIamPolicy"
ASKED_MAX = 100  # permissions of one test, as at Google


def of_project(uow: UnitOfWork, principal: Principal, project: str) -> frozenset[RoleGrant]:
    principal.require(GET, project, f"projects/{project}")
    identity.project_row(uow, project)
    return projects.grants_in(uow, project)


def set_of_project(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    bindings: Iterable[tuple[str, Sequence[str]]],
    tag: str | None,
) -> frozenset[RoleGrant]:
    """The policy as it is from now on. `bindings`: roles with their members, as the request has
    them; `tag`: the etag that came with them. The project's row is locked: of two policies that
    were read together, the second is refused."""
    principal.require(SET, project, f"projects/{project}")
    identity.project_row(uow, project)
    before = projects.grants_in(uow, project)
    after = _read(uow, principal, project, bindings, before)
    changed = policy.change(before, after, tag, lambda name: principal.may(name, project))
    for grant in changed.removed:
        projects.unbind(uow, grant.email, project, grant.role)
    for grant in changed.added:
        projects.bind(uow, grant.email, project, grant.role)
    return after


def of_account(uow: UnitOfWork, account: AccountRecord) -> frozenset[RoleGrant]:
    return account_rows.grants_on(uow, account.email)


def set_of_account(
    uow: UnitOfWork,
    principal: Principal,
    account: AccountRecord,
    bindings: Iterable[tuple[str, Sequence[str]]],
    tag: str | None,
) -> frozenset[RoleGrant]:
    """As `set_of_project`, for the roles on one account."""
    identity.project_row(uow, account.project)
    before = account_rows.grants_on(uow, account.email)
    after = _read(uow, principal, account.project, bindings, before, on_account=True)

    def may(permission: str) -> bool:
        return identity.may_on_account(uow, principal, permission, account.project, account.email)

    changed = policy.change(before, after, tag, may)
    for grant in changed.removed:
        account_rows.unbind(uow, account.email, grant)
    for grant in changed.added:
        account_rows.bind(uow, account.email, grant)
    return after


def permissions_among(names: Sequence[str], may: Callable[[str], bool]) -> list[str]:
    """Those of the names permissions that the caller has, by the table that every route checks. A
    permission that the table does not know is had by nobody."""
    if len(names) > ASKED_MAX:
        raise invalid(
            f"the request names {len(names)} permissions; at most {ASKED_MAX} are possible",
            "permissions",
        )
    for name in names:
        if "*" in name or not name:
            raise invalid(
                f"Permission {name[:80]!r} is not valid for this resource: wildcards are not "
                "allowed",
                "permissions",
            )
    return [name for name in names if name in PERMISSIONS and may(name)]


def _read(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    bindings: Iterable[tuple[str, Sequence[str]]],
    before: frozenset[RoleGrant],
    *,
    on_account: bool = False,
) -> frozenset[RoleGrant]:
    """The grants of a request. A member that is new to the policy must be there."""
    changed = set[RoleGrant]()
    for name, members in bindings:
        role = policy.role_of(name, on_account=on_account)
        for member in members:
            kind, email = policy.member_email(member)
            grant = RoleGrant(role, email)
            if grant not in before:
                _check_member(uow, principal, project, kind, email)
            changed.add(grant)
    return frozenset(changed)


def _check_member(
    uow: UnitOfWork, principal: Principal, project: str, kind: str, email: str
) -> None:
    """Raises INVALID_ARGUMENT for a member that is not there, and PERMISSION_DENIED for a service
    account of another project that the caller may not act as: its owners could not make
    credentials of it any more (`identity.require_to_act_as`)."""
    if identity.is_reserved(email):
        raise invalid(f"{email} is reserved for the platform", "policy.bindings")
    is_account = identity.is_service_account(email)
    if is_account != (kind == policy.SERVICE_ACCOUNT):
        right = policy.SERVICE_ACCOUNT if is_account else policy.USER
        raise invalid(f"{email} is not a {kind}: use {right}:{email}", "policy.bindings")
    if not is_account:
        return
    if identity.home_of(uow, email) != project:
        service_accounts.require(uow, principal, ACT_AS, "-", email)
    elif service_accounts.find(uow, project, email) is None:
        raise invalid(f"Service account {email} does not exist.", "policy.bindings")
