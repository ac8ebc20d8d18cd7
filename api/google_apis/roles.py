"""IAM's predefined roles: those that can be granted here, with what they allow."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from podyard.api.google_apis.call import ApiCall
from podyard.base.errors import Code, PodyardError, invalid
from podyard.domain.iam import policy
from podyard.domain.permissions.google_roles import TITLES
from podyard.domain.principal import PLATFORM_OWNER, ROLE_PERMISSIONS

GRANTABLE = tuple(sorted(role for role in ROLE_PERMISSIONS if role != PLATFORM_OWNER))
_VIEWS = ("", "BASIC", "FULL", "ROLE_VIEW_UNSPECIFIED")
_ON_PROJECT = "//cloudresourcemanager.googleapis.com/projects/"
_ON_ACCOUNT = "//iam.googleapis.com/projects/"


def get(call: ApiCall) -> dict[str, Any]:
    role = call.resource.removeprefix("roles/")
    if role not in GRANTABLE:
        raise PodyardError(Code.NOT_FOUND, f"The role named {call.resource[:80]} was not found.")
    return _message(role, full=True)


def list_roles(call: ApiCall) -> dict[str, Any]:
    """`parent` is empty for predefined roles; a project has no other ones."""
    shown = () if call.value("parent") else GRANTABLE
    page, token = call.page(shown, lambda role: role)
    return _page(page, token, full=_is_full(call.value("view")))


def list_custom(call: ApiCall) -> dict[str, Any]:
    _is_full(call.value("view"))
    return {}


def query_grantable(call: ApiCall) -> dict[str, Any]:
    resource = call.body.get("fullResourceName", "")
    if resource.startswith(_ON_ACCOUNT) and "/serviceAccounts/" in resource:
        shown = [role for role in GRANTABLE if role in policy.ON_ACCOUNT]
    elif resource.startswith(_ON_PROJECT):
        shown = list(GRANTABLE)
    else:
        raise invalid(
            f"fullResourceName {resource[:80]!r} is neither {_ON_PROJECT}P nor "
            f"{_ON_ACCOUNT}P/serviceAccounts/EMAIL",
            "fullResourceName",
        )
    size = call.body.get("pageSize") or len(shown)
    page, token = call.page(shown, lambda role: role, max(1, size), call.body.get("pageToken", ""))
    return _page(page, token, full=_is_full(call.body.get("view", "")))


def _is_full(view: str) -> bool:
    if view not in _VIEWS:
        raise invalid(f"view {view[:40]!r} is not BASIC or FULL", "view")
    return view == "FULL"


def _page(shown: Iterable[str], token: str, *, full: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"roles": [_message(role, full=full) for role in shown]}
    return answer | ({"nextPageToken": token} if token else {})


def _message(role: str, *, full: bool) -> dict[str, Any]:
    permissions = sorted(ROLE_PERMISSIONS[role])
    tag = base64.b64encode(hashlib.sha256("\n".join(permissions).encode()).digest()[:8]).decode()
    answer: dict[str, Any] = {
        "name": policy.role_name(role),
        "title": TITLES[role],
        "stage": "GA",
        "etag": tag,
    }
    return answer | ({"includedPermissions": permissions} if full else {})


HANDLERS: dict[str, Callable[[ApiCall], dict[str, Any]]] = {
    "iam.v1.roles.list": list_roles,
    "iam.v1.roles.get": get,
    "iam.v1.roles.queryGrantableRoles": query_grantable,
    "iam.v1.projects.roles.list": list_custom,
}
