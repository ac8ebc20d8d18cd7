"""Billing accounts with their exchange rates, and credits, as records."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from podyard.db import credit_notes
from podyard.db.records import changed_columns, columns
from podyard.db.tables_billing import billing_accounts, credits, exchange_rates
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.account import Account
from podyard.domain.invoice import Credit

_ONE = select(billing_accounts).where(billing_accounts.c.project == bindparam("project"))
_LOCKED = _ONE.with_for_update()
_RATES = select(exchange_rates).where(exchange_rates.c.project == bindparam("project")).order_by(exchange_rates.c.month)
_CREDITS = (
    select(credits)
    .where(credits.c.project == bindparam("project"))
    .order_by(credits.c.until_month, credits.c.credit_id)
)


def find(uow: UnitOfWork, project: str) -> Account | None:
    """The project's account, locked on PostgreSQL when the unit may write."""
    row = uow.first(_LOCKED if uow.writable else _ONE, {"project": project})
    if row is None:
        return None
    rates = {rate["month"]: rate["rate"] for rate in uow.all(_RATES, {"project": project})}
    return Account(**{name: value for name, value in row.items() if name != "created"}, rates=rates)


def is_open(uow: UnitOfWork, project: str) -> bool:
    """Whether the project has an account; nothing is locked."""
    return uow.first(_ONE, {"project": project}) is not None


def add(uow: UnitOfWork, account: Account) -> None:
    """A new account has no rates yet."""
    row = {name: value for name, value in columns(account).items() if name != "rates"}
    uow.insert(billing_accounts, {**row, "created": uow.now})


def store(uow: UnitOfWork, account: Account, changed: Account) -> Account:
    """Writes what has changed of an account, but for its rates, and returns it as it is now."""
    uow.update(billing_accounts, {"project": account.project}, changed_columns(account, changed))
    return changed


def set_rate(uow: UnitOfWork, project: str, month: str, rate: str) -> None:
    if not uow.update(exchange_rates, {"project": project, "month": month}, {"rate": rate}):
        uow.insert(exchange_rates, {"project": project, "month": month, "rate": rate})


def add_credit(uow: UnitOfWork, project: str, credit: Credit) -> None:
    row = {name: value for name, value in columns(credit).items() if name != "ended_month"}
    uow.insert(credits, {**row, "project": project, "created": uow.now})


def credits_of(uow: UnitOfWork, project: str) -> list[Credit]:
    """The project's credits, in the order in which they are used."""
    ends = credit_notes.ends_of_credits(uow, project)
    return [
        Credit(
            credit_id=row["credit_id"],
            amount=row["amount"],
            from_month=row["from_month"],
            until_month=row["until_month"],
            reason=row["reason"],
            ended_month=ends.get(row["credit_id"]),
        )
        for row in uow.all(_CREDITS, {"project": project})
    ]
