"""Live parts of pages by server-sent events.

A stream polls the database once a second and sends the parts of the page that have changed, as the HTML that the page
itself was made of: without it the page is the same, only still. The number of streams is bounded, and a stream ends
when what it shows is over, or after `STREAM_SECONDS_MAX`; the browser then comes back by itself while it is shown.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from podyard.base.errors import Code, PodyardError
from podyard.db.unit_of_work import UnitOfWork
from podyard.http import context

POLL_SECONDS = 1.0
STREAMS_MAX = 32  # of one API process: each costs one read of the database per second
STREAM_SECONDS_MAX = 900.0  # a token that was revoked meanwhile shows nothing longer than this
QUIET_POLLS_MAX = 15  # a comment line after this many polls without news: a peer that is gone is noticed

OVER = "event: over\ndata: {}\n\n"

Parts = tuple[Mapping[str, str], bool]  # id of the element -> its HTML; whether nothing will change any more


class Streams:
    """How many streams this process holds open."""

    def __init__(self, most: int = STREAMS_MAX) -> None:
        self._most = most
        self.open = 0

    @property
    def full(self) -> bool:
        return self.open >= self._most


_streams = Streams()


def stream(request: Request, parts: Callable[[UnitOfWork], Parts]) -> Response:
    """The event stream of a page. `parts` reads and renders; what it raises ends the stream."""
    context.read(request, parts)  # what is not there, or not allowed, is said with its status before the stream begins
    if _streams.full:
        raise PodyardError(Code.UNAVAILABLE, f"{STREAMS_MAX} live pages are open; reload this one to see its state")
    return StreamingResponse(
        _events(request, parts, _streams),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(
    request: Request, parts: Callable[[UnitOfWork], Parts], streams: Streams, poll_seconds: float = POLL_SECONDS
) -> AsyncIterator[str]:
    # Counted here and not in `stream`: a response that is never read would never be counted out.
    if streams.full:
        yield OVER
        return
    streams.open += 1
    try:
        sent: dict[str, str] = {}
        quiet = 0
        for _ in range(int(STREAM_SECONDS_MAX / POLL_SECONDS)):
            try:
                found, over = await to_thread.run_sync(lambda: context.read(request, parts))
            except PodyardError:
                yield OVER
                return
            changed = {key: html for key, html in found.items() if sent.get(key) != html}
            quiet = 0 if changed else quiet + 1
            for key, html in changed.items():
                yield f"event: part\ndata: {json.dumps({'id': key, 'html': html})}\n\n"
            sent.update(changed)
            if over:
                yield OVER
                return
            if quiet >= QUIET_POLLS_MAX:
                quiet = 0
                yield ": still here\n\n"
            await anyio.sleep(poll_seconds)
    finally:
        streams.open -= 1
