"""Cloud Billing: which account pays for a project. The catalogue of prices, which has the same
host, is `api/catalogue.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from podyard.api.google_apis.call import ApiCall
from podyard.base.errors import Code, PodyardError
from podyard.control.billing import accounts, links
from podyard.db.access import projects as project_rows
from podyard.db.store.unit_of_work import UnitOfWork

VIEW = "podyard.billing.view"
_ID_CHARACTERS, _PART = 18, 6


def get_info(call: ApiCall) -> dict[str, Any]:
    link = call.read(lambda uow: links.get(uow, call.caller, call.project))
    return {
        "name": f"projects/{link.project}/billingInfo",
        "projectId": link.project,
        "billingAccountName": account_name(link.account),
        "billingEnabled": True,
    }


def list_accounts(call: ApiCall) -> dict[str, Any]:
    visible = call.read(lambda uow: _accounts(call, uow))
    page, token = call.page(sorted(visible, key=_name), _name)
    answer: dict[str, Any] = {"billingAccounts": page}
    return answer | ({"nextPageToken": token} if token else {})


def get_account(call: ApiCall) -> dict[str, Any]:
    visible = call.read(lambda uow: _accounts(call, uow))
    one = next((item for item in visible if _name(item) == call.resource), None)
    if one is None:
        raise PodyardError(Code.PERMISSION_DENIED, "The caller does not have permission")
    return one


def account_name(project: str) -> str:
    """The name of a project's own account: 18 hexadecimal digits, as Google's are, always the same
    for a project."""
    digits = hashlib.sha256(project.encode()).hexdigest()[:_ID_CHARACTERS].upper()
    parts = (digits[at : at + _PART] for at in range(0, _ID_CHARACTERS, _PART))
    return f"billingAccounts/{'-'.join(parts)}"


def _accounts(call: ApiCall, uow: UnitOfWork) -> list[dict[str, Any]]:
    """The accounts of the projects whose costs the caller may see."""
    return [
        {
            "name": account_name(item.project),
            "open": True,
            "displayName": item.project,
            "masterBillingAccount": "",
            "currencyCode": accounts.of(uow, item.project).currency,
        }
        for item in project_rows.list_all(uow)
        if call.caller.may(VIEW, item.project)
    ]


def _name(item: dict[str, Any]) -> str:
    return str(item.get("name"))


HANDLERS: dict[str, Callable[[ApiCall], dict[str, Any]]] = {
    "cloudbilling.v1.projects.getBillingInfo": get_info,
    "cloudbilling.v1.billingAccounts.list": list_accounts,
    "cloudbilling.v1.billingAccounts.get": get_account,
}
