"""Service accounts of projects: made, described, deleted, and who may act as them."""

from __future__ import annotations

import dataclasses

from podyard.base.errors import Code, PodyardError
from podyard.control.access import identity
from podyard.db.access import credentials, projects, service_accounts
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host import DEFAULT_ACCOUNTS, default_service_account
from podyard.domain.iam.service_account import (
    ACCOUNTS_PER_PROJECT_MAX,
    DEFAULT_NAME,
    UNIQUE_ID_DIGITS,
    AccountRecord,
    check_account_id,
    check_texts,
    unique_id_of,
)
from podyard.domain.principal import Principal


def require(
    uow: UnitOfWork, principal: Principal, permission: str, project: str, email: str
) -> AccountRecord:
    """The account `email` (or its unique id) of a project (`-`: whichever its email names), if the
    caller has the permission on it. Raises PERMISSION_DENIED, with the same words for an account
    that is not there, and NOT_FOUND for those who may look at all accounts of the project."""
    name = f"projects/{project}/serviceAccounts/{email}"  # as it was asked: an id tells no email
    row = service_accounts.find(uow, email)
    if row is not None:
        email = row.email
    home = identity.home_of(uow, email)
    if home is None or project not in ("-", home):
        home = None if project == "-" else project
    if home is None or not identity.may_on_account(uow, principal, permission, home, email):
        principal.require(permission, home or "*", name)
    there = None if home is None else find(uow, home, email)
    if there is None:
        raise PodyardError(Code.NOT_FOUND, f"Unknown service account: {email[:200]}")
    return there


def find(uow: UnitOfWork, project: str, email: str) -> AccountRecord | None:
    """The account of an email or unique id in a project. Nothing is checked."""
    row = service_accounts.find(uow, email) or _default(uow, project, email)
    return None if row is None or row.project != project else row


def create(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    account_id: str,
    display_name: str,
    description: str,
) -> AccountRecord:
    principal.require("iam.serviceAccounts.create", project, f"projects/{project}/serviceAccounts")
    identity.project_row(uow, project)
    check_account_id(account_id)
    check_texts(display_name, description)
    email = f"{account_id}@{project}.iam.{identity.SERVICE_ACCOUNTS}"
    if service_accounts.find(uow, email) is not None:
        raise PodyardError(
            Code.ALREADY_EXISTS,
            f"Service account {account_id} already exists within project projects/{project}.",
        )
    return _add(uow, project, email, display_name, description)


def ensure(uow: UnitOfWork, project: str, email: str) -> None:
    """Makes the account of an email of the project's own, for which a credential is made, unless
    it is there."""
    own = email.endswith(f"@{project}.iam.{identity.SERVICE_ACCOUNTS}")
    if own and service_accounts.find(uow, email) is None:
        _add(uow, project, email, "", "")


def list_accounts(uow: UnitOfWork, principal: Principal, project: str) -> list[AccountRecord]:
    """By their emails; the one that hosts have by default comes first."""
    principal.require("iam.serviceAccounts.list", project, f"projects/{project}/serviceAccounts")
    number = identity.project_row(uow, project).number
    usual = _default(uow, project, default_service_account(number))
    row = service_accounts.of_project(uow, project)
    return row if usual is None else [usual, *row]


def describe(
    uow: UnitOfWork,
    account: AccountRecord,
    display_name: str | None,
    description: str | None,
) -> AccountRecord:
    """Sets the texts that are given. The default account keeps its own."""
    _require_made(account)
    changed = dataclasses.replace(
        account,
        display_name=account.display_name if display_name is None else display_name,
        description=account.description if description is None else description,
    )
    check_texts(changed.display_name, changed.description)
    service_accounts.describe(uow, account.email, changed.display_name, changed.description)
    return changed


def delete(uow: UnitOfWork, account: AccountRecord) -> None:
    """Ends the account with its keys, tokens and roles: a later one of the same email has none of
    them."""
    _require_made(account)
    for key in credentials.keys_of(uow, account.project, account.email):
        credentials.delete_key(uow, account.project, account.email, key.key_id)
    credentials.end_all(uow, account.email)
    projects.unbind_everywhere(uow, account.email)
    service_accounts.remove(uow, account.email)


def _require_made(account: AccountRecord) -> None:
    if account.email.endswith(f"@{DEFAULT_ACCOUNTS}"):
        raise PodyardError(
            Code.FAILED_PRECONDITION,
            f"{account.email} is the account that hosts have by default: it cannot be changed or "
            "deleted",
        )


def _add(
    uow: UnitOfWork, project: str, email: str, display_name: str, description: str
) -> AccountRecord:
    if service_accounts.count(uow, project) >= ACCOUNTS_PER_PROJECT_MAX:
        raise PodyardError(
            Code.RESOURCE_EXHAUSTED,
            f"Maximum number of service accounts on project reached: {ACCOUNTS_PER_PROJECT_MAX}. "
            "Delete one first.",
        )
    low = 10 ** (UNIQUE_ID_DIGITS - 1)
    account = AccountRecord(
        email=email,
        project=project,
        unique_id=str(uow.streams.stream("accounts").randrange(low, 2 * low)),
        display_name=display_name,
        description=description,
        created=uow.real_now,
    )
    service_accounts.add(uow, account)
    return account


def _default(uow: UnitOfWork, project: str, email: str) -> AccountRecord | None:
    """The account that hosts of the project have unless they name another; None for any other."""
    row = projects.read(uow, project)
    if row is None:
        return None
    usual = default_service_account(row.number)
    if email not in (usual, unique_id_of(usual)):
        return None
    return AccountRecord(
        email=usual,
        project=project,
        unique_id=unique_id_of(usual),
        display_name=DEFAULT_NAME,
        description="",
        created=uow.real_now,
    )
