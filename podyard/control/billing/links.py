"""The billing account that pays for a project: its own one, or that of another project, from a
second on.

A link holds from the next whole second on, so nothing that an invoice has charged, or could have,
moves between accounts. What was used before and becomes known later is still paid for by the
account of its second.
"""

from __future__ import annotations

from podyard.base.clock import NANOS_PER_SECOND
from podyard.base.errors import Code, PodyardError
from podyard.control.access import identity
from podyard.control.billing import accounts, spending
from podyard.db.access import accounts as account_rows
from podyard.db.billing import budgets
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.account import BILLING_INFO, BillingLink
from podyard.domain.principal import Principal

EDIT = "podyard.billing.edit"
PROJECTS_MAX = 100  # that one account pays for: their bills are computed together


def get(uow: UnitOfWork, principal: Principal, project: str) -> BillingLink:
    """Return which account pays for the project, and since when (second 0: always)."""
    accounts.require_to_view(uow, principal, project, BILLING_INFO)
    return account_rows.last_link(uow, project)


def require_to_change(uow: UnitOfWork, principal: Principal, project: str) -> BillingLink:
    """Return who owns the project, or the account that pays for it, may end that. Raises
    PERMISSION_DENIED, and NOT_FOUND."""
    before = account_rows.last_link(uow, project)
    if not principal.may(EDIT, before.account):
        principal.require(EDIT, project, f"projects/{project}/{BILLING_INFO}")
    identity.project_row(uow, project)
    return before


def link(uow: UnitOfWork, principal: Principal, project: str, payer: str) -> BillingLink:
    """From the next whole second on the account of project `payer` pays for the project; its own
    one, if they are the same. Raises as `require_to_change` for both, and RESOURCE_EXHAUSTED for an
    account that pays for too many projects.
    """
    before = require_to_change(uow, principal, project)
    if payer != project:
        accounts.require_to_edit(uow, principal, project, BILLING_INFO)
        accounts.require_to_edit(uow, principal, payer, BILLING_INFO)
    if before.account == payer:
        return before
    accounts.open_for(uow, payer)
    account = accounts.of(uow, payer)
    if sum(one.is_paid_now for one in account.projects) >= PROJECTS_MAX:
        raise PodyardError(
            Code.RESOURCE_EXHAUSTED,
            f"the billing account of projects/{payer} already pays for {PROJECTS_MAX} projects",
        )
    made = BillingLink(project, -(-uow.now.nanos // NANOS_PER_SECOND), payer)
    account_rows.link(uow, made)
    for name in sorted({project, payer, before.account}):
        budgets.look_again(uow, name)
        spending.wake_queue(uow, accounts.of(uow, name))
    return made
