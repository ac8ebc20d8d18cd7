"""Credentials: who calls, keys of service accounts, API keys."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.control.access import jwt, keys
from podyard.domain.credential import ApiKey, ServiceAccountKey

router = APIRouter(route_class=deps.Route)
ACCOUNT_KEYS = "/podyard/v1/projects/{project}/serviceAccounts/{email}/keys"
API_KEYS = "/podyard/v1/projects/{project}/apiKeys"


class KeyMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")
    roles: list[StrictStr] = Field(default_factory=list)


class ApiKeyMessage(KeyMessage):
    email: StrictStr


class WhoAmI(TypedDict):
    """`roles`: by project; `*` stands for all."""

    email: str
    roles: dict[str, list[str]]


class KeyFile(TypedDict):
    """The key file that Google's auth libraries read."""

    type: str
    project_id: str
    private_key_id: str
    private_key: str
    client_email: str
    client_id: str
    auth_uri: str
    token_uri: str
    universe_domain: str


class KeyAnswer(TypedDict):
    keyId: str
    projectId: str
    email: str
    createTime: Timestamp


class NewKey(KeyAnswer):
    """`key` is shown this once."""

    key: str


class Keys(TypedDict):
    keys: list[KeyAnswer]


@router.get("/podyard/v1/whoami")
def whoami(request: Request) -> WhoAmI:
    caller = deps.principal(request)
    return {
        "email": caller.email,
        "roles": {project: sorted(names) for project, names in caller.roles.items()},
    }


@router.post(ACCOUNT_KEYS, responses=deps.errors(429))
def create_key(
    request: Request, project: str, email: str, body: Annotated[deps.Body, KeyMessage]
) -> KeyFile:
    """The key file. Its private key is nowhere else: it is shown this once."""
    caller = deps.principal(request)
    caller.require("podyard.keys.create", project, f"projects/{project}/serviceAccounts/{email}")
    message = deps.parse(KeyMessage, body)
    pair = keys.make_pair()
    token_uri = f"{str(request.base_url).rstrip('/')}{jwt.TOKEN_PATH}"
    key = deps.write(
        request,
        lambda uow: keys.create_key(
            uow, caller, project, email, message.roles, pair.public, token_uri
        ),
    )
    return cast(KeyFile, keys.key_file(key, pair.private))


@router.get(ACCOUNT_KEYS)
def list_keys(request: Request, project: str, email: str) -> Keys:
    """`-` as the email: the keys of all accounts of the project."""
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: keys.list_keys(uow, caller, project, email))
    return {"keys": [_key_answer(key) for key in found]}


@router.delete(f"{ACCOUNT_KEYS}/{{key}}")
def delete_key(request: Request, project: str, email: str, key: str) -> deps.Empty:
    caller = deps.principal(request)
    deps.write(request, lambda uow: keys.delete_key(uow, caller, project, email, key))
    return {}


@router.post(API_KEYS, responses=deps.errors(429))
def create_api_key(
    request: Request, project: str, body: Annotated[deps.Body, ApiKeyMessage]
) -> NewKey:
    caller = deps.principal(request)
    caller.require("podyard.keys.create", project, f"projects/{project}/keys")
    message = deps.parse(ApiKeyMessage, body)
    key, secret = deps.write(
        request, lambda uow: keys.create_api_key(uow, caller, project, message.email, message.roles)
    )
    return {**_key_answer(key), "key": secret}


@router.get(API_KEYS)
def list_api_keys(request: Request, project: str) -> Keys:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: keys.list_api_keys(uow, caller, project))
    return {"keys": [_key_answer(key) for key in found]}


@router.delete(f"{API_KEYS}/{{key}}")
def delete_api_key(request: Request, project: str, key: str) -> deps.Empty:
    caller = deps.principal(request)
    deps.write(request, lambda uow: keys.delete_api_key(uow, caller, project, key))
    return {}


def _key_answer(key: ApiKey | ServiceAccountKey) -> KeyAnswer:
    return {
        "keyId": key.key_id,
        "projectId": key.project,
        "email": key.email,
        "createTime": key.created.rfc3339(),
    }
