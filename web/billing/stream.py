"""Billing pages whose figures take time: the frame is sent and painted at once, with a line that
says what is done, and the figures follow in the same answer. It is one HTML document, which needs
no script.

Who may not see the page, or asks for what is not there, is told so with its status before the frame
is sent. What goes wrong later stands in the place of the figures.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Request
from markupsafe import Markup
from starlette.responses import Response, StreamingResponse

from podyard.base.errors import PodyardError
from podyard.control.access import identity
from podyard.control.billing import accounts
from podyard.db.billing import cost_dimensions
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.http import context
from podyard.web.billing import turns as billing_turns
from podyard.web.billing.common import MARK, frame
from podyard.web.kit.formats import count
from podyard.web.kit.render import NOT_KEPT, page_text, title_of

# a page that is not whole by then shows its frame: what comes sooner seems to come at once
FRAME_SECONDS = 0.08
# Pages made at the same time; others wait, with their frames painted. They leave threads for what
# answers at once.
PAGES_AT_ONCE = 12

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _PagesInProgress:
    """The pages that are being made, by token and address."""

    limiter: CapacityLimiter
    pages: dict[tuple[str, str], asyncio.Future[Response]]


_making: RunVar[_PagesInProgress] = RunVar("podyard billing pages")

Show = Callable[..., Response]
Check = Callable[[UnitOfWork, Request, str, str], int]


def month_named(_uow: UnitOfWork, request: Request, _project: str, month: str) -> int:
    """The usual check: the month in the path or in the query, if there is one, is a month."""
    for text in (month, request.query_params.get("month")):
        if text:
            accounts.check_month(text)
    return 200


@dataclasses.dataclass(frozen=True, slots=True)
class _Frame:
    """A page without its figures: what stands before and after them."""

    status: int
    before: str
    after: str


def stream(
    tab: str, title: str = "", check: Check = month_named
) -> Callable[[Show], Callable[..., Awaitable[Response]]]:
    """A route that makes a whole page and may take its time for it.

    `title`: another than the tab's, with `{month}` of the path. `check` looks at the address alone,
    quickly: it returns the page's status, or raises what the page would. An answer that is not a
    page (`?format=`) comes when it is whole.
    """

    def decorate(show: Show) -> Callable[..., Awaitable[Response]]:
        @functools.wraps(show)
        async def answer(request: Request, project: str, **more: str) -> Response:
            work = functools.partial(show, request, project, **more)
            making = _page(request, work)
            done, _ = await asyncio.wait({making}, timeout=FRAME_SECONDS)
            if done or request.query_params.get("format"):
                return await asyncio.shield(making)
            billing_turns.begin()
            making.add_done_callback(_over)
            month = more.get("month", "")
            frame_now = functools.partial(
                _frame, request, project, month, tab, title.format(month=month), check
            )
            found = await to_thread.run_sync(frame_now)
            return StreamingResponse(
                _parts(request, found, making),
                found.status,
                media_type="text/html; charset=utf-8",
                headers=NOT_KEPT,
            )

        return answer

    return decorate


def _page(request: Request, work: Callable[[], Response]) -> asyncio.Future[Response]:
    """The page, being made. Who asks for the same address with the same token meanwhile gets the
    same page."""
    making = _making.get(None)
    if making is None:  # each event loop has its own
        making = _PagesInProgress(CapacityLimiter(PAGES_AT_ONCE), {})
        _making.set(making)
    key = (request.scope["state"]["token"], str(request.url))
    page = making.pages.get(key)
    if page is None:
        page = asyncio.ensure_future(to_thread.run_sync(work, limiter=making.limiter))
        making.pages[key] = page
        page.add_done_callback(lambda _: making.pages.pop(key))
    return page


def _over(making: asyncio.Future[Response]) -> None:
    """A reader who has gone asks for no result: then nobody else looks at how it failed."""
    billing_turns.end()
    if not making.cancelled():
        making.exception()


def _frame(
    request: Request, project: str, month: str, tab: str, title: str, check: Check
) -> _Frame:
    def body(uow: UnitOfWork) -> tuple[int, int]:
        context.principal(request).require(
            "podyard.billing.view", project, f"projects/{project}/costs"
        )
        identity.project_row(uow, project)
        return check(uow, request, project, month), cost_dimensions.node_count(uow, project)

    status, there = context.read(request, body)
    waiting = f"Working out the bill of {count(there, 'node')}…"
    text = page_text(request, "billing_base.html", **frame(project, tab, title, waiting))
    before, _, after = text.partition(MARK)
    return _Frame(status, before, after)


async def _parts(
    request: Request, found: _Frame, making: asyncio.Future[Response]
) -> AsyncIterator[str]:
    yield found.before
    try:
        # A reader who goes does not stop what others may be waiting for.
        response = await asyncio.shield(making)
        yield bytes(response.body).decode().partition(MARK)[2]
    except PodyardError as error:
        yield _error_box(title_of(error.code), error.message) + found.after
    except Exception as error:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        yield (
            _error_box("That did not work", "Internal error; the server's log says more")
            + found.after
        )


def _error_box(title: str, text: str) -> str:
    box: Any = Markup('<p class="error" role="alert"><strong>{}.</strong> {}</p>\n')
    return str(box.format(title, text))
