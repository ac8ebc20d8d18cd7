"""Credentials: who calls, keys of service accounts, API keys, and the OAuth token endpoint."""

from __future__ import annotations

from typing import Annotated, Any, cast
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.control.access import jwt, keys
from podyard.domain.credential import ApiKey, ServiceAccountKey

router = APIRouter(route_class=deps.Route)
ACCOUNT_KEYS = "/podyard/v1/projects/{project}/serviceAccounts/{email}/keys"
API_KEYS = "/podyard/v1/projects/{project}/apiKeys"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_NOT_STORED = {"Cache-Control": "no-store", "Pragma": "no-cache"}  # RFC 6749, section 5.1


class KeyMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")
    roles: list[StrictStr] = Field(default_factory=list)


class ApiKeyMessage(KeyMessage):
    email: StrictStr


async def _form(request: Request) -> dict[str, str]:
    """The form's fields; what is given twice counts as not given (RFC 6749, section 3.2 forbids
    it)."""
    found = parse_qs((await request.body()).decode("utf-8", errors="replace"))
    return {name: values[0] for name, values in found.items() if len(values) == 1}


Form = Annotated[dict[str, str], Depends(_form)]


class WhoAmI(TypedDict):
    """`roles`: by project; `*` stands for all."""

    email: str
    roles: dict[str, list[str]]


class KeyFile(TypedDict):
    """What Google's auth libraries read."""

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


def _object(*names: str, **numbers: str) -> dict[str, Any]:
    """The schema of an object with these texts, all required."""
    properties = {name: {"type": "string"} for name in names} | {
        name: {"type": kind} for name, kind in numbers.items()
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


# OAuth's own forms (RFC 6749, sections 5.1 and 5.2; RFC 7523, section 2.1).
_TOKEN_ASKED = {
    "content": {"application/x-www-form-urlencoded": {"schema": _object("grant_type", "assertion")}}
}
_TOKEN_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "application/json": {
                "schema": _object("access_token", "token_type", expires_in="integer")
            }
        }
    },
    400: {"content": {"application/json": {"schema": _object("error", "error_description")}}},
}


@router.get("/podyard/v1/whoami")
def whoami(request: Request) -> WhoAmI:
    caller = deps.principal(request)
    return {
        "email": caller.email,
        "roles": {project: sorted(names) for project, names in caller.roles.items()},
    }


@router.post(jwt.TOKEN_PATH, openapi_extra={"requestBody": _TOKEN_ASKED}, responses=_TOKEN_ANSWERS)
def token(request: Request, form: Form) -> JSONResponse:
    """Trades an assertion that a service account signed for an access token (RFC 7523). Answers in
    OAuth's form."""
    try:
        issued = _access_token(request, form)
    except keys.OAuthError as error:
        refusal = {"error": error.error, "error_description": error.message}
        return JSONResponse(refusal, status_code=400, headers=_NOT_STORED)
    body = {"access_token": issued, "expires_in": keys.ACCESS_TOKEN_SECONDS, "token_type": "Bearer"}
    return JSONResponse(body, headers=_NOT_STORED)


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


def _access_token(request: Request, form: dict[str, str]) -> str:
    grant = form.get("grant_type")
    if grant is None:
        raise keys.OAuthError("invalid_request", "Required parameter is missing: grant_type")
    if grant != JWT_BEARER:
        raise keys.OAuthError(
            "unsupported_grant_type", f"Invalid grant_type: only {JWT_BEARER} is supported"
        )
    assertion = form.get("assertion")
    if assertion is None:
        raise keys.OAuthError("invalid_request", "Required parameter is missing: assertion")
    return deps.platform(request).database.run(lambda uow: keys.exchange(uow, assertion))


def _key_answer(key: ApiKey | ServiceAccountKey) -> KeyAnswer:
    return {
        "keyId": key.key_id,
        "projectId": key.project,
        "email": key.email,
        "createTime": key.created.rfc3339(),
    }
