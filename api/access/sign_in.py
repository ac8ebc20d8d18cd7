"""Sign-in by a link: `podyard open` makes one for the caller's own browser, and an invitation is
one as well.

A link that another site or a mail program leads to shows a button first. So nothing that only looks
at links uses one up, and no other site signs anybody in.
"""

from __future__ import annotations

from functools import partial
from html import escape

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.errors import PodyardError
from podyard.control.access import sign_in
from podyard.http.context import in_thread
from podyard.http.session import check_own_form, start_session

PATH = "/sign-in"
CODE_CHARACTERS_MAX = 200  # ours have about 50

router = APIRouter(route_class=deps.Route)
pages = APIRouter(include_in_schema=False)  # for browsers, not part of the API
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in - Podyard</title><link rel="stylesheet" href="/static/podyard.css"></head>
<body><main><form class="card narrow" method="post" action="{path}">
<h1>Sign in to Podyard</h1>{message}</form></main></body></html>
"""  # noqa: E501
_BUTTON = """<p>This link signs this browser in. It works once.</p>
<input type="hidden" name="code" value="{code}"><button class="primary">Sign in</button>"""
_REFUSAL = (
    """<p class="error" role="alert">{text}</p><p><a href="/login">Sign in with a token</a></p>"""
)


class SignInLink(TypedDict):
    """`path`: to open in a browser, once and before `expireTime`."""

    path: str
    expireTime: Timestamp


@router.post("/podyard/v1/signInLinks")
def create_link(request: Request) -> SignInLink:
    """A link that signs a browser in with the caller's own token."""
    caller, token = deps.principal(request), str(request.scope["state"]["token"])
    code, expires = deps.write(request, lambda uow: sign_in.create_link(uow, caller, token))
    return {"path": f"{PATH}?code={code}", "expireTime": expires.rfc3339()}


@pages.get(PATH)
def show_form(request: Request, code: str = "") -> Response:
    """Signs in at once where the browser says that no site has led it here."""
    is_direct = request.headers.get("sec-fetch-site") == "none"
    if is_direct and code.startswith(sign_in.LINK_PREFIX):
        return _sign_in(request, code)
    return _page(_BUTTON.format(code=escape(code[:CODE_CHARACTERS_MAX], quote=True)))


@pages.post(PATH)
async def submit(request: Request) -> Response:
    check_own_form(request)
    async with request.form() as form:
        code = form.get("code")
    return await in_thread(partial(_sign_in, request, code if isinstance(code, str) else ""))


def _sign_in(request: Request, code: str) -> Response:
    try:
        token = deps.platform(request).database.run(
            lambda uow: sign_in.redeem(uow, code[:CODE_CHARACTERS_MAX])
        )
    except PodyardError as error:
        return _page(_REFUSAL.format(text=escape(error.message)), error.code.http_status)
    return start_session(request, RedirectResponse("/console", status_code=303), token)


def _page(message: str, status: int = 200) -> Response:
    return HTMLResponse(
        _PAGE.format(path=PATH, message=message), status, headers={"Cache-Control": "no-store"}
    )
