"""Billing accounts with their exchange rates and the projects that they pay for, and credits, as
records."""

from __future__ import annotations

from sqlalchemy import bindparam, or_, select

from podyard.db.billing import credit_notes
from podyard.db.store.records import changed_columns, columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import billing_accounts, billing_links, credits, exchange_rates
from podyard.domain.account import Account, BillingLink, PaidProject, paid_projects
from podyard.domain.invoice import Credit

_ONE = select(billing_accounts).where(billing_accounts.c.project == bindparam("project"))
_LOCKED = _ONE.with_for_update()
_RATES = (
    select(exchange_rates)
    .where(exchange_rates.c.project == bindparam("project"))
    .order_by(exchange_rates.c.month)
)
_L = billing_links.c
_LINKED = select(_L.project).where(_L.account == bindparam("project"))
_LINKS = (
    select(billing_links)
    .where(or_(_L.project == bindparam("project"), _L.project.in_(_LINKED)))
    .order_by(_L.project, _L.from_second)
)
_LAST_LINK = (
    select(billing_links)
    .where(_L.project == bindparam("project"))
    .order_by(_L.from_second.desc())
    .limit(1)
)
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
    fields = {name: value for name, value in row.items() if name != "created"}
    return Account(**fields, rates=rates, projects=projects_of(uow, project))


def projects_of(uow: UnitOfWork, project: str) -> tuple[PaidProject, ...]:
    """Return what the project's account pays and has paid for."""
    links = (BillingLink(**row) for row in uow.all(_LINKS, {"project": project}))
    return paid_projects(project, links)


def last_link(uow: UnitOfWork, project: str) -> BillingLink:
    """Whose account pays for the project now. Without a link it is its own one, since second 0."""
    row = uow.first(_LAST_LINK, {"project": project})
    return BillingLink(project, 0, project) if row is None else BillingLink(**row)


def link(uow: UnitOfWork, made: BillingLink) -> None:
    """Of several links of a project in one second the last one counts."""
    place = {"project": made.project, "from_second": made.from_second}
    if not uow.update(billing_links, place, {"account": made.account}):
        uow.insert(billing_links, columns(made))


def is_open(uow: UnitOfWork, project: str) -> bool:
    """Return whether the project has an account; nothing is locked."""
    return uow.first(_ONE, {"project": project}) is not None


def add(uow: UnitOfWork, account: Account) -> None:
    """A new account has no rates yet."""
    row = {
        name: value for name, value in columns(account).items() if name not in ("rates", "projects")
    }
    uow.insert(billing_accounts, {**row, "created": uow.now})


def store(uow: UnitOfWork, account: Account, changed: Account) -> Account:
    """Writes what has changed of an account, but for its rates and projects, and returns it as it
    is now."""
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
