"""Billing accounts: the time zone, currency and tax of invoices, and exchange rates.

A project has its account from its first node on; `links.py` says which account pays for a project.
Zone, currency and tax hold for all invoices of an account: they can be set until the first one is
issued, since issued months are rated again when usage comes late.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import failed_precondition, invalid, invalid_field
from podyard.base.spelling import camel_case
from podyard.control.access import identity
from podyard.db.access import accounts as account_rows
from podyard.db.billing import invoices as invoice_rows
from podyard.db.billing import usage_events
from podyard.db.store import timers
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.account import BILLING_ACCOUNT, Account
from podyard.domain.principal import Principal

CLOSE_TIMER = "invoice.close"
GRACE_HOURS_MAX = 24 * 28  # a month is closed before the next one ends
DECIMALS_MAX = 4  # ISO 4217 has no currency with more
TAX_MAX = Fraction(1)
RATE_MAX = Fraction(10**9)  # of any currency per US dollar: beyond every one that there is
DECIMAL_DIGITS_MAX = 30  # of a number in a request
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")
_CURRENCY = re.compile(r"[A-Z]{3}")
_MONTH = re.compile(r"(19|20|21)[0-9]{2}-(0[1-9]|1[0-2])")
# ISO 4217's currencies without a minor unit.
_WHOLE = frozenset(
    {
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "ISK",
        "JPY",
        "KMF",
        "KRW",
        "PYG",
        "RWF",
        "UGX",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
    }
)
_FIXED = ("time_zone", "currency", "decimals", "tax")
USD = "USD"


def check_month(text: str, field: str = "month") -> str:
    """`text`; INVALID_ARGUMENT names the field."""
    # narrower than what can be counted: these can also be stored
    if _MONTH.fullmatch(text) is None:
        raise invalid_field(
            f"{camel_case(field)} {text[:20]!r} is not a month: use YYYY-MM, such as 2026-03", field
        )
    return text


def decimal_of(text: str, field: str) -> Fraction:
    """A decimal number from 0 on, in a text, exactly; INVALID_ARGUMENT names the field."""
    if (
        not isinstance(text, str)
        or len(text) > DECIMAL_DIGITS_MAX
        or _DECIMAL.fullmatch(text) is None
    ):
        raise invalid_field(
            f"{camel_case(field)} {str(text)[:40]!r} must be a decimal number as a string, 0 or "
            'more, such as "1.25"',
            field,
        )
    return Fraction(text)


def positive_decimal(text: str, field: str) -> Fraction:
    found = decimal_of(text, field)
    if found == 0:
        raise invalid_field(f"{camel_case(field)} is {text}: it must be more than zero", field)
    return found


def require_to_view(uow: UnitOfWork, principal: Principal, project: str, what: str) -> None:
    """`what`: of the project, for the message of a refusal. Raises PERMISSION_DENIED, and
    NOT_FOUND."""
    principal.require("podyard.billing.view", project, f"projects/{project}/{what}")
    identity.project_row(uow, project)


def require_to_edit(uow: UnitOfWork, principal: Principal, project: str, what: str) -> None:
    """As `require_to_view`."""
    principal.require("podyard.billing.edit", project, f"projects/{project}/{what}")
    identity.project_row(uow, project)


def require_open(account: Account, month: str) -> None:
    if month < account.next_month:
        raise failed_precondition(
            f"{month} is closed: the first open month is {account.next_month}"
        )


def open_for(uow: UnitOfWork, project: str) -> None:
    """Gives the project its account, and the timer that closes its months, unless it has one. The
    caller holds the project's row."""
    if not account_rows.is_open(uow, project):
        account = _new(uow, project)
        account_rows.add(uow, account)
        schedule(uow, account)


def of(uow: UnitOfWork, project: str) -> Account:
    """The account, locked on PostgreSQL when the unit may write; opens it where there is none yet,
    and for a reader shows it as it would be opened now."""
    account = account_rows.find(uow, project)
    if account is None and uow.writable:
        open_for(uow, project)
        account = account_rows.find(uow, project)
    return _new(uow, project) if account is None else account


def _new(uow: UnitOfWork, project: str) -> Account:
    month = months.month_of(uow.now.nanos // NANOS_PER_SECOND, "UTC")
    projects = account_rows.projects_of(uow, project)
    return Account(project, "UTC", USD, 2, "0", 0, month, month, "", {}, projects)


def get(uow: UnitOfWork, principal: Principal, project: str) -> Account:
    require_to_view(uow, principal, project, BILLING_ACCOUNT)
    return of(uow, project)


def patch(
    uow: UnitOfWork, principal: Principal, project: str, changes: Mapping[str, Any]
) -> Account:
    """Sets `time_zone`, `currency`, `decimals`, `tax`, `grace_hours`, and `rates` of months
    (`{month: rate}`).

    Raises INVALID_ARGUMENT for what they cannot be, FAILED_PRECONDITION for what issued invoices go
    by.
    """
    require_to_edit(uow, principal, project, BILLING_ACCOUNT)
    account = of(uow, project)
    given = {name: value for name, value in changes.items() if name != "rates"}
    if "currency" in given and "decimals" not in given:
        given["decimals"] = 0 if given["currency"] in _WHOLE else 2
    changed = dataclasses.replace(account, **given)
    _check(changed)
    fixed = [name for name in _FIXED if getattr(changed, name) != getattr(account, name)]
    if fixed and invoice_rows.any_issued(uow, project):
        raise failed_precondition(
            f"{', '.join(fixed)} cannot change: invoices of this project have been issued"
        )
    if changed.time_zone != account.time_zone and account.first_month == account.next_month:
        # Nothing is closed yet: what was used first may lie in another month of the new zone.
        first = changed.month_of(
            min((uow.now, *_first_uses(uow, account)), key=lambda at: at.nanos)
        )
        changed = dataclasses.replace(changed, first_month=first, next_month=first)
    account_rows.store(uow, account, changed)
    for month, rate in sorted(changes.get("rates", {}).items()):
        _set_rate(uow, changed, month, rate)
    schedule(uow, changed)
    return of(uow, project)


def _first_uses(uow: UnitOfWork, account: Account) -> Iterator[PlatformTime]:
    """Of each of its projects the first moment that it may have paid for."""
    for paid in account.projects:
        first = usage_events.first_use(uow, paid.project)
        if first is not None:
            yield max(
                first, PlatformTime(paid.spans[0].start * NANOS_PER_SECOND), key=lambda at: at.nanos
            )


def _check(account: Account) -> None:
    months.check_zone(account.time_zone)
    if _CURRENCY.fullmatch(account.currency) is None:
        raise invalid(
            f"currency {account.currency[:20]!r} is not an ISO 4217 code: use a code such as EUR",
            "currency",
        )
    if not 0 <= account.decimals <= DECIMALS_MAX:
        raise invalid(
            f"decimals is {account.decimals}: it must be from 0 to {DECIMALS_MAX}", "decimals"
        )
    if not 0 <= account.grace_hours <= GRACE_HOURS_MAX:
        raise invalid_field(
            f"graceHours is {account.grace_hours}: it must be from 0 to {GRACE_HOURS_MAX}",
            "grace_hours",
        )
    if decimal_of(account.tax, "tax") > TAX_MAX:
        raise invalid(
            f"tax is {account.tax}: it must be at most {TAX_MAX} (a fraction of the subtotal)",
            "tax",
        )


def _set_rate(uow: UnitOfWork, account: Account, month: str, rate: str) -> None:
    check_month(month, "exchange_rates")
    if positive_decimal(rate, f"exchange_rates.{month}") > RATE_MAX:
        raise invalid_field(
            f"exchangeRates.{month} is {rate}: it must not be above {RATE_MAX}",
            f"exchange_rates.{month}",
        )
    require_open(account, month)
    account_rows.set_rate(uow, account.project, month, rate)


def close_next_month(uow: UnitOfWork, account: Account) -> None:
    """The account's next month is closed now: the one after it is next."""
    after = dataclasses.replace(
        account, next_month=months.following(account.next_month), held_because=""
    )
    schedule(uow, account_rows.store(uow, account, after))


def hold(uow: UnitOfWork, account: Account, why: str, retry_seconds: float) -> None:
    """The loop could not close the account's next month, and tries again later."""
    account_rows.store(uow, account, dataclasses.replace(account, held_because=why))
    close_later(uow, account.project, retry_seconds)


def close_later(uow: UnitOfWork, project: str, seconds: float) -> None:
    """Sets the account's one timer some seconds from now."""
    timers.drop_kind(uow, CLOSE_TIMER, project)
    timers.put(uow, CLOSE_TIMER, project, 0, uow.now.plus_seconds(seconds))


def schedule(uow: UnitOfWork, account: Account) -> None:
    """Sets the account's one timer, at the moment at which its next month closes."""
    timers.drop_kind(uow, CLOSE_TIMER, account.project)
    timers.put(
        uow, CLOSE_TIMER, account.project, 0, max(uow.now, account.closes_at(account.next_month))
    )
