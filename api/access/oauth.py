"""OAuth for people and service accounts: `gcloud auth login` and other installed applications are
sent to a page of ours, and every token is issued at `/token`."""

from __future__ import annotations

from functools import partial
from html import escape
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from starlette.responses import HTMLResponse, RedirectResponse, Response

from podyard.api import deps
from podyard.base.errors import PodyardError
from podyard.control.access import identity, jwt, keys, oauth
from podyard.http.context import in_thread
from podyard.http.guard import AUTHORIZATION_PATHS, REVOKE_PATH, SESSION_COOKIE
from podyard.http.session import check_own_form

router = APIRouter(route_class=deps.Route)
pages = APIRouter(include_in_schema=False)  # for browsers, not part of the API
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_NOT_STORED = {"Cache-Control": "no-store", "Pragma": "no-cache"}  # RFC 6749, section 5.1
_FIELDS = ("response_type", "redirect_uri", "code_challenge", "code_challenge_method", "state")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - Podyard</title><link rel="stylesheet" href="/static/podyard.css"></head>
<body><main><form class="card narrow" method="post" action="{path}">
<h1>{title}</h1>{content}</form></main></body></html>
"""  # noqa: E501
_SIGNED_IN = """<p>A program on this machine, such as gcloud, asks to act as <b>{email}</b>.</p>
<button class="primary" name="use" value="session">Continue as {email}</button>
<p class="muted">Or with another token:</p>"""
_TOKEN = """<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password">
<p class="hint">Print it with <code>podyard env</code>; it is the value of <code>PODYARD_TOKEN</code>.</p>
<button name="use" value="token">Allow with this token</button>"""  # noqa: E501
_CODE = """<p>Copy this code to the terminal that waits for it. It works once, for 5 minutes.</p>
<label for="code">Verification code</label>
<textarea id="code" rows="2" readonly>{code}</textarea>"""
_NO = '<p class="error" role="alert">{text}</p>'


async def _form(request: Request) -> dict[str, str]:
    """Return the form's fields; one that is there twice counts as missing (RFC 6749, section 3.2
    forbids it)."""
    fields = parse_qs((await request.body()).decode("utf-8", errors="replace"))
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


Form = Annotated[dict[str, str], Depends(_form)]


def _object(*names: str, optional: tuple[str, ...] = (), **numbers: str) -> dict[str, Any]:
    """Return the schema of an object with these texts; `optional` ones may be missing."""
    properties = {name: {"type": "string"} for name in (*names, *optional)} | {
        name: {"type": kind} for name, kind in numbers.items()
    }
    return {"type": "object", "properties": properties, "required": [*names, *numbers]}


# OAuth's own forms (RFC 6749, sections 4.1.3, 5.1, 5.2 and 6; RFC 7523, section 2.1).
_TOKEN_ASKED = {
    "content": {
        "application/x-www-form-urlencoded": {
            "schema": _object(
                "grant_type",
                optional=(
                    "assertion", "code", "redirect_uri", "code_verifier", "refresh_token",
                    "client_id", "client_secret",
                ),
            )
        }
    }
}  # fmt: skip
_REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"content": {"application/json": {"schema": _object("error", "error_description")}}}
}
_TOKEN_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "application/json": {
                "schema": _object(
                    "access_token",
                    "token_type",
                    optional=("refresh_token", "id_token"),
                    expires_in="integer",
                )
            }
        }
    },
    **_REFUSED,
}
_REVOKE_ASKED = {"content": {"application/x-www-form-urlencoded": {"schema": _object("token")}}}


@router.post(jwt.TOKEN_PATH, openapi_extra={"requestBody": _TOKEN_ASKED}, responses=_TOKEN_ANSWERS)
def token(request: Request, form: Form) -> JSONResponse:
    """Trade an assertion of a service account (RFC 7523), a code or a refresh token for an access
    token. Answers in OAuth's form."""
    try:
        grant = _grant(request, form)
    except keys.OAuthError as error:
        return _refusal(error)
    tokens = (
        {"access_token": grant}
        if isinstance(grant, str)
        else {
            "access_token": grant.access_token,
            "refresh_token": grant.refresh_token,
            "id_token": grant.id_token,
        }
    )
    body = tokens | {"expires_in": keys.ACCESS_TOKEN_SECONDS, "token_type": "Bearer"}
    return JSONResponse(body, headers=_NOT_STORED)


@router.post(
    REVOKE_PATH,
    openapi_extra={"requestBody": _REVOKE_ASKED},
    responses={200: {"content": {"application/json": {"schema": _object()}}}, **_REFUSED},
)
def revoke(request: Request, form: Form) -> JSONResponse:
    """Revoke a token (RFC 7009)."""
    try:
        secret = _field(form, "token")
    except keys.OAuthError as error:
        return _refusal(error)
    deps.platform(request).database.run(lambda uow: oauth.revoke(uow, secret))
    return JSONResponse({}, headers=_NOT_STORED)


def _refusal(error: keys.OAuthError) -> JSONResponse:
    body = {"error": error.error, "error_description": error.message}
    return JSONResponse(body, status_code=400, headers=_NOT_STORED)


def show_form(request: Request) -> Response:
    """Ask the person of a browser whether a client may act for them."""
    query = {name: request.query_params.get(name, "") for name in _FIELDS}
    return _ask(request, query)


async def submit(request: Request) -> Response:
    check_own_form(request)
    query = {name: request.query_params.get(name, "") for name in _FIELDS}
    async with request.form(max_files=0, max_fields=8) as form:
        use, secret = str(form.get("use", "")), str(form.get("token", "")).strip()
    if use == "session":
        secret = request.cookies.get(SESSION_COOKIE, "")
    return await in_thread(partial(_allow, request, query, secret))


for _path in AUTHORIZATION_PATHS:
    pages.add_api_route(_path, show_form, methods=["GET"])
    pages.add_api_route(_path, submit, methods=["POST"])


def _allow(request: Request, query: dict[str, str], secret: str) -> Response:
    try:
        client = oauth.authorization(*(query[name] for name in _FIELDS))
        code = deps.platform(request).database.run(lambda uow: oauth.allow(uow, secret, client))
    except PodyardError as error:
        return _ask(request, query, error.message, error.code.http_status)
    if client.is_shown:
        return _page(request, "Copy the code", _CODE.format(code=escape(code, quote=True)))
    return RedirectResponse(client.answer(code), status_code=303, headers=_NOT_STORED)


def _ask(request: Request, query: dict[str, str], refusal: str = "", status: int = 200) -> Response:
    try:
        client = oauth.authorization(*(query[name] for name in _FIELDS))
    except PodyardError as error:
        text = _NO.format(text=escape(error.message))
        return _page(request, "Sign in to Podyard", text, error.code.http_status)
    email = _session_email(request)
    content = _NO.format(text=escape(refusal)) if refusal else ""
    content += "" if email is None else _SIGNED_IN.format(email=escape(email))
    return _page(request, "Sign in to Podyard", content + _TOKEN, status, client.origin)


def _session_email(request: Request) -> str | None:
    """Return the email of the browser's session, if it has one."""
    session = request.cookies.get(SESSION_COOKIE)
    if session is None:
        return None
    try:
        return deps.platform(request).database.run(
            lambda uow: identity.authenticate(uow, session).email
        )
    except PodyardError:
        return None


def _page(
    request: Request, title: str, content: str, status: int = 200, origin: str = ""
) -> Response:
    """Return a page of one form. `origin`: where its answer may lead, besides here."""
    path = f"{request.url.path}?{request.url.query}"
    text = _PAGE.format(title=title, path=escape(path, quote=True), content=content)
    policy = (
        f"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self' {origin}"
    )
    own = {"Content-Security-Policy": policy} if origin else {}
    return HTMLResponse(text, status, headers={"Cache-Control": "no-store"} | own)


def _grant(request: Request, form: dict[str, str]) -> str | oauth.Grant:
    """Return an access token, or what a person's client gets. Raises OAuthError."""
    run = deps.platform(request).database.run
    grant, client = _field(form, "grant_type"), form.get("client_id", "")
    if grant == "authorization_code":
        code, address = _field(form, "code"), form.get("redirect_uri", "")
        verifier = form.get("code_verifier", "")
        return run(lambda uow: oauth.trade(uow, code, address, verifier, client))
    if grant == "refresh_token":
        secret = _field(form, "refresh_token")
        return run(lambda uow: oauth.refresh(uow, secret, client))
    if grant != JWT_BEARER:
        raise keys.OAuthError(
            "unsupported_grant_type",
            f"Invalid grant_type: {JWT_BEARER}, authorization_code and refresh_token are supported",
        )
    assertion = _field(form, "assertion")
    return run(lambda uow: keys.exchange(uow, assertion))


def _field(form: dict[str, str], name: str) -> str:
    if name not in form:
        raise keys.OAuthError("invalid_request", f"Required parameter is missing: {name}")
    return form[name]
