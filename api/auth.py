"""Credentials: who calls, keys of service accounts, API keys, and the OAuth token endpoint."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from podyard.api import deps
from podyard.control import jwt, keys

router = APIRouter()
ACCOUNT_KEYS = "/podyard/v1/projects/{project}/serviceAccounts/{email}/keys"
API_KEYS = "/podyard/v1/projects/{project}/apiKeys"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_NOT_STORED = {"Cache-Control": "no-store", "Pragma": "no-cache"}  # RFC 6749, section 5.1


class KeyMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")
    roles: list[StrictStr] = Field(default_factory=list)


class ApiKeyMessage(KeyMessage):
    email: StrictStr


async def _json(request: Request) -> Any:
    return deps.parse_json(await request.body())


async def _form(request: Request) -> dict[str, str]:
    """The form's fields; what is given twice counts as not given (RFC 6749, section 3.2 forbids it)."""
    found = parse_qs((await request.body()).decode("utf-8", errors="replace"))
    return {name: values[0] for name, values in found.items() if len(values) == 1}


Body = Annotated[Any, Depends(_json)]
Form = Annotated[dict[str, str], Depends(_form)]


@router.get("/podyard/v1/whoami")
def whoami(request: Request) -> dict[str, Any]:
    caller = deps.principal(request)
    return {"email": caller.email, "roles": {project: sorted(names) for project, names in caller.roles.items()}}


@router.post(jwt.TOKEN_PATH)
def token(request: Request, form: Form) -> JSONResponse:
    """Trades an assertion that a service account signed for an access token (RFC 7523). Answers in OAuth's form."""
    try:
        issued = _exchanged(request, form)
    except keys.OAuthError as error:
        refusal = {"error": error.error, "error_description": error.message}
        return JSONResponse(refusal, status_code=400, headers=_NOT_STORED)
    body = {"access_token": issued, "expires_in": keys.ACCESS_TOKEN_SECONDS, "token_type": "Bearer"}
    return JSONResponse(body, headers=_NOT_STORED)


@router.post(ACCOUNT_KEYS)
def create_key(request: Request, project: str, email: str, body: Body) -> dict[str, str]:
    """The key file. Its private key is nowhere else: it is shown this once."""
    caller = deps.principal(request)
    caller.require("podyard.keys.create", project, f"projects/{project}/serviceAccounts/{email}")
    message = deps.parse(KeyMessage, body)
    pair = keys.make_pair()
    token_uri = f"{str(request.base_url).rstrip('/')}{jwt.TOKEN_PATH}"
    row = deps.write(
        request, lambda uow: keys.create_key(uow, caller, project, email, message.roles, pair.public, token_uri)
    )
    return keys.key_file(row, pair.private)


@router.get(ACCOUNT_KEYS)
def list_keys(request: Request, project: str, email: str) -> dict[str, Any]:
    """`-` as the email: the keys of all accounts of the project."""
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: keys.list_keys(uow, caller, project, email))
    return {"keys": [_shown(row) for row in found]}


@router.delete(f"{ACCOUNT_KEYS}/{{key}}")
def delete_key(request: Request, project: str, email: str, key: str) -> dict[str, Any]:
    caller = deps.principal(request)
    deps.write(request, lambda uow: keys.delete_key(uow, caller, project, email, key))
    return {}


@router.post(API_KEYS)
def create_api_key(request: Request, project: str, body: Body) -> dict[str, Any]:
    caller = deps.principal(request)
    caller.require("podyard.keys.create", project, f"projects/{project}/keys")
    message = deps.parse(ApiKeyMessage, body)
    row, key = deps.write(request, lambda uow: keys.create_api_key(uow, caller, project, message.email, message.roles))
    return {**_shown(row), "key": key}


@router.get(API_KEYS)
def list_api_keys(request: Request, project: str) -> dict[str, Any]:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: keys.list_api_keys(uow, caller, project))
    return {"keys": [_shown(row) for row in found]}


@router.delete(f"{API_KEYS}/{{key}}")
def delete_api_key(request: Request, project: str, key: str) -> dict[str, Any]:
    caller = deps.principal(request)
    deps.write(request, lambda uow: keys.delete_api_key(uow, caller, project, key))
    return {}


def _exchanged(request: Request, form: dict[str, str]) -> str:
    grant = form.get("grant_type")
    if grant is None:
        raise keys.OAuthError("invalid_request", "Required parameter is missing: grant_type")
    if grant != JWT_BEARER:
        raise keys.OAuthError("unsupported_grant_type", f"Invalid grant_type: only {JWT_BEARER} is supported")
    assertion = form.get("assertion")
    if assertion is None:
        raise keys.OAuthError("invalid_request", "Required parameter is missing: assertion")
    return deps.platform(request).database.run(lambda uow: keys.exchange(uow, assertion))


def _shown(row: Any) -> dict[str, Any]:
    return {
        "keyId": row["key_id"],
        "projectId": row["project"],
        "email": row["email"],
        "createTime": row["created"].rfc3339(),
    }
