"""IAM's service accounts, their keys, and who may act as them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from podyard.api import deps
from podyard.api.google_apis import policy_messages
from podyard.api.google_apis.call import ApiCall
from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.access import identity, jwt, keys, policies, service_accounts
from podyard.db.access import credentials
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.credential import ServiceAccountKey
from podyard.domain.iam.service_account import AccountRecord
from podyard.http.guard import forget_principals

KEY_TYPE = "TYPE_GOOGLE_CREDENTIALS_FILE"
KEY_ALGORITHM = "KEY_ALG_RSA_2048"
USER_MANAGED = "USER_MANAGED"
KEY_TYPES = (USER_MANAGED, "SYSTEM_MANAGED", "KEY_TYPE_UNSPECIFIED")
_PUBLIC_KEY_TYPES = ("", "TYPE_NONE", "TYPE_X509_PEM_FILE", "TYPE_RAW_PUBLIC_KEY")
_MASKS = {"display_name", "displayName", "description", "etag"}
_ENDLESS = "9999-12-31T23:59:59Z"  # of a key that does not expire, as Google says it


def create(call: ApiCall) -> dict[str, Any]:
    texts = call.body.get("serviceAccount", {})
    account_id = call.body.get("accountId", "")
    account = call.write(
        lambda uow: service_accounts.create(
            uow, call.caller, call.project, account_id, texts.get("displayName", ""),
            texts.get("description", ""),
        )
    )  # fmt: skip
    return _message(account)


def list_accounts(call: ApiCall) -> dict[str, Any]:
    accounts = call.read(lambda uow: service_accounts.list_accounts(uow, call.caller, call.project))
    page, token = call.page(sorted(accounts, key=_email), _email)
    answer: dict[str, Any] = {"accounts": [_message(account) for account in page]}
    return answer | ({"nextPageToken": token} if token else {})


def get(call: ApiCall) -> dict[str, Any]:
    return _message(call.read(lambda uow: _account(call, uow)))


def patch(call: ApiCall) -> dict[str, Any]:
    mask = {name.strip() for name in call.body.get("updateMask", "").split(",") if name.strip()}
    if not mask or not mask <= _MASKS:
        raise invalid("updateMask names display_name, description, or both", "updateMask")
    texts = call.body.get("serviceAccount", {})
    display_name = texts.get("displayName", "") if mask & {"display_name", "displayName"} else None
    description = texts.get("description", "") if "description" in mask else None

    def unit(uow: UnitOfWork) -> AccountRecord:
        account = _account(call, uow)
        return service_accounts.describe(uow, account, display_name, description)

    return _message(call.write(unit))


def delete(call: ApiCall) -> dict[str, Any]:
    call.write(lambda uow: service_accounts.delete(uow, _account(call, uow)))
    forget_principals(call.request)
    return {}


def get_policy(call: ApiCall) -> dict[str, Any]:
    grants = call.read(lambda uow: policies.of_account(uow, _account(call, uow)))
    return policy_messages.to_message(grants)


def set_policy(call: ApiCall) -> dict[str, Any]:
    if not policy_messages.changes_bindings(call.body):
        return get_policy(call)
    bindings, tag = policy_messages.read(call.body)
    grants = call.write(
        lambda uow: policies.set_of_account(uow, call.caller, _account(call, uow), bindings, tag)
    )
    return policy_messages.to_message(grants)


def test_permissions(call: ApiCall) -> dict[str, Any]:
    names = call.body.get("permissions", ())

    def unit(uow: UnitOfWork) -> list[str]:
        _, project, _, email = call.resource.split("/")
        home = identity.home_of(uow, email)
        if home is None or project not in ("-", home):
            return policies.permissions_among(names, lambda _name: False)
        is_there = service_accounts.find(uow, home, email) is not None
        return policies.permissions_among(
            names,
            lambda name: is_there and identity.may_on_account(uow, call.caller, name, home, email),
        )

    permissions = call.read(unit)
    return {"permissions": permissions} if permissions else {}


def create_key(call: ApiCall) -> dict[str, Any]:
    if call.body.get("privateKeyType", KEY_TYPE) not in (KEY_TYPE, "TYPE_UNSPECIFIED"):
        raise invalid(f"privateKeyType: only {KEY_TYPE} is supported", "privateKeyType")
    if call.body.get("keyAlgorithm", KEY_ALGORITHM) not in (KEY_ALGORITHM, "KEY_ALG_UNSPECIFIED"):
        raise invalid(f"keyAlgorithm: only {KEY_ALGORITHM} is supported", "keyAlgorithm")
    pair = keys.make_pair()

    def unit(uow: UnitOfWork) -> ServiceAccountKey:
        account = _account(call, uow)
        return keys.create_key(
            uow, call.caller, account.project, account.email, None, pair.public, _token_uri(call)
        )

    key = call.write(unit)
    file = json.dumps(keys.key_file(key, pair.private), indent=2)
    return _key_message(key) | {
        "privateKeyType": KEY_TYPE,
        "privateKeyData": base64.b64encode(file.encode()).decode(),
    }


def list_keys(call: ApiCall) -> dict[str, Any]:
    kinds = call.query.get("keyTypes", ())
    if wrong := next((kind for kind in kinds if kind not in KEY_TYPES), None):
        raise invalid(f"keyTypes: {wrong[:40]!r} is not one of {', '.join(KEY_TYPES)}", "keyTypes")
    shown_keys = call.read(lambda uow: _keys(call, uow))
    if kinds and USER_MANAGED not in kinds:
        shown_keys = []
    return {"keys": [_key_message(key) for key in shown_keys]}


def get_key(call: ApiCall) -> dict[str, Any]:
    kind = call.value("publicKeyType")
    if kind not in _PUBLIC_KEY_TYPES:
        raise invalid(f"publicKeyType {kind[:40]!r} is not known", "publicKeyType")
    key_id = call.resource.rpartition("/")[2]
    shown_keys = call.read(lambda uow: [key for key in _keys(call, uow) if key.key_id == key_id])
    if not shown_keys:
        raise PodyardError(Code.NOT_FOUND, f"Service account key {key_id[:80]} does not exist.")
    data = base64.b64encode(shown_keys[0].public_key.encode()).decode()
    shown = {"publicKeyData": data} if kind == "TYPE_RAW_PUBLIC_KEY" else {}
    return _key_message(shown_keys[0]) | shown


def delete_key(call: ApiCall) -> dict[str, Any]:
    key_id = call.resource.rpartition("/")[2]

    def unit(uow: UnitOfWork) -> None:
        account = _account(call, uow)
        keys.delete_key(uow, call.caller, account.project, account.email, key_id)

    call.write(unit)
    return {}


def _check(call: ApiCall) -> None:
    """The permission on the account itself, which may be had without any in its project."""
    call.read(lambda uow: _account(call, uow))


def _account(call: ApiCall, uow: UnitOfWork) -> AccountRecord:
    name = call.resource
    _, project, _, email = name.split("/")[:4]
    return service_accounts.require(uow, call.caller, call.method.permission, project, email)


def _keys(call: ApiCall, uow: UnitOfWork) -> list[ServiceAccountKey]:
    account = _account(call, uow)
    return credentials.keys_of(uow, account.project, account.email)


def _token_uri(call: ApiCall) -> str:
    """Return the address at which the key's owner gets access tokens: ours, even where Google's
    was called."""
    url = call.request.base_url
    port = url.port or deps.platform(call.request).settings.port
    return f"{str(url.replace(port=port)).rstrip('/')}{jwt.TOKEN_PATH}"


def _email(account: AccountRecord) -> str:
    return account.email


def _message(account: AccountRecord) -> dict[str, Any]:
    texts = {"displayName": account.display_name, "description": account.description}
    return {
        "name": account.name,
        "projectId": account.project,
        "uniqueId": account.unique_id,
        "email": account.email,
        **{name: text for name, text in texts.items() if text},
        "etag": account.etag,
        "oauth2ClientId": account.unique_id,
    }


def _key_message(key: ServiceAccountKey) -> dict[str, Any]:
    return {
        "name": f"projects/{key.project}/serviceAccounts/{key.email}/keys/{key.key_id}",
        "keyAlgorithm": KEY_ALGORITHM,
        "keyOrigin": "GOOGLE_PROVIDED",
        "keyType": USER_MANAGED,
        "validAfterTime": key.created.rfc3339(),
        "validBeforeTime": _ENDLESS,
    }


_ACCOUNTS = "iam.v1.projects.serviceAccounts"
HANDLERS: dict[str, Callable[[ApiCall], dict[str, Any]]] = {
    f"{_ACCOUNTS}.create": create,
    f"{_ACCOUNTS}.list": list_accounts,
    f"{_ACCOUNTS}.get": get,
    f"{_ACCOUNTS}.patch": patch,
    f"{_ACCOUNTS}.delete": delete,
    f"{_ACCOUNTS}.getIamPolicy": get_policy,
    f"{_ACCOUNTS}.setIamPolicy": set_policy,
    f"{_ACCOUNTS}.testIamPermissions": test_permissions,
    f"{_ACCOUNTS}.keys.create": create_key,
    f"{_ACCOUNTS}.keys.list": list_keys,
    f"{_ACCOUNTS}.keys.get": get_key,
    f"{_ACCOUNTS}.keys.delete": delete_key,
}
CHECKS: dict[str, Callable[[ApiCall], None]] = {
    key: _check
    for key in HANDLERS
    if not key.endswith((".create", "serviceAccounts.list", "testIamPermissions"))
    or key.endswith("keys.create")
}
