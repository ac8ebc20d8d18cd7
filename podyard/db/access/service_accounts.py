"""Service accounts, and the roles on them, as records."""

from __future__ import annotations

from sqlalchemy import delete, func, or_, select

from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.access import account_bindings, service_accounts
from podyard.domain.iam.policy import RoleGrant
from podyard.domain.iam.service_account import AccountRecord


def find(uow: UnitOfWork, email_or_id: str) -> AccountRecord | None:
    table = service_accounts.c
    one = or_(table.email == email_or_id, table.unique_id == email_or_id)
    row = uow.first(select(service_accounts).where(one))
    return None if row is None else AccountRecord(**row)


def of_project(uow: UnitOfWork, project: str) -> list[AccountRecord]:
    """By their emails."""
    table = service_accounts
    query = select(table).where(table.c.project == project).order_by(table.c.email)
    return [AccountRecord(**row) for row in uow.all(query)]


def count(uow: UnitOfWork, project: str) -> int:
    query = select(func.count()).where(service_accounts.c.project == project)
    return int(uow.execute(query).scalar() or 0)


def add(uow: UnitOfWork, account: AccountRecord) -> None:
    uow.insert(service_accounts, columns(account))


def describe(uow: UnitOfWork, email: str, display_name: str, description: str) -> None:
    texts = {"display_name": display_name, "description": description}
    uow.update(service_accounts, {"email": email}, texts)


def remove(uow: UnitOfWork, email: str) -> None:
    """The account, and the roles on it and of it on others."""
    uow.execute(delete(service_accounts).where(service_accounts.c.email == email))
    bound = or_(account_bindings.c.account == email, account_bindings.c.email == email)
    uow.execute(delete(account_bindings).where(bound))


def roles_on(uow: UnitOfWork, account: str, email: str) -> frozenset[str]:
    """The roles of an email on an account."""
    query = select(account_bindings.c.role).filter_by(account=account, email=email)
    return frozenset(row["role"] for row in uow.all(query))


def grants_on(uow: UnitOfWork, account: str) -> frozenset[RoleGrant]:
    rows = uow.all(select(account_bindings).where(account_bindings.c.account == account))
    return frozenset(RoleGrant(row["role"], row["email"]) for row in rows)


def bind(uow: UnitOfWork, account: str, grant: RoleGrant) -> None:
    uow.insert(account_bindings, {"account": account, **grant._asdict()})


def unbind(uow: UnitOfWork, account: str, grant: RoleGrant) -> None:
    uow.execute(delete(account_bindings).filter_by(account=account, **grant._asdict()))
