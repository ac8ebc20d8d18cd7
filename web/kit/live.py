"""Live parts of pages by server-sent events.

A stream looks once a second at the parts of its page, as the HTML that the page itself was made of,
and sends the lines that have changed: without it the page is the same, only still. What grows (a
curve, a log) is a feed, of which only what is new since a cursor is sent; the browser keeps the
cursors, and names them when it comes back. Streams that show the same thing to callers with the
same permissions share one rendering per second. The number of streams is bounded, and a stream ends
when what it shows is over, or after `STREAM_SECONDS_MAX`; the browser then comes back by itself
while it is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import difflib
import functools
import json
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from podyard.base.errors import Code, PodyardError
from podyard.control.billing.kept_bills import Behind
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import PERMISSIONS
from podyard.http import context

POLL_SECONDS = 1.0
# of one API process: each is a task that waits, and holds the last state of its page
STREAMS_MAX = 100
# Python runs one thread at a time: a second one would take its turns from requests, too
RENDERINGS_AT_ONCE = 1
# of a processor, for the renderings of all streams: many pages are rendered less often
RENDERING_SHARE_MAX = 0.2
RETRY_AFTER_SECONDS = 15  # for a page whose stream is refused
STREAM_SECONDS_MAX = 900.0  # a token that was revoked meanwhile shows nothing longer than this
# a comment line after this many polls without news: a peer that is gone is noticed
QUIET_POLLS_MAX = 15

_Span = tuple[int, int, int, int]  # first and end of the lines before, first and end of those after

OVER = "event: over\ndata: {}\n\n"

CHANGES_KEPT_MAX = 128  # of some 10 kB each: streams of one page come one after the other
LINE_OVERHEAD = 8  # characters of JSON around a line that is replaced
MATCHED_LINES_MAX = 200  # matching takes the square of it: some milliseconds
LAST_EVENT_HEADER = "last-event-id"  # what a browser that comes back has seen


class Feed(Protocol):
    """A part of a page that only grows. Its name is that of its events, and of its cursor in the
    stream's address."""

    @property
    def name(self) -> str: ...

    def since(self, cursor: str) -> tuple[Any, str]:
        """Return what is new after a cursor (None: nothing), and the next cursor. The cursor may be
        anything: it comes from
        the address."""
        ...


class Parts(NamedTuple):
    """`html`: by the id of its element; `over`: nothing will change any more."""

    html: Mapping[str, str]
    over: bool = False
    feeds: Sequence[Feed] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Rendering:
    """`begun`: by the clock of the event loop; `every`: how many seconds it is good for."""

    begun: float
    every: float
    parts: asyncio.Future[Parts]


class LiveStreams:
    """The streams that an application holds open, and the renderings that they share. Used on the
    event loop only.

    What the streams show is rendered as often as they ask, as long as this takes
    `RENDERING_SHARE_MAX` of a processor. Beyond that each rendering is good for as long as it takes
    to come round.
    """

    def __init__(self, most: int = STREAMS_MAX) -> None:
        self._most = most
        self._renderings: dict[Hashable, _Rendering] = {}
        # processor seconds of the newest rendering of what is shown
        self._costs: dict[Hashable, float] = {}
        self._readers: Counter[Hashable] = Counter()
        self._limiter: CapacityLimiter | None = None
        self.open = 0

    @property
    def full(self) -> bool:
        return self.open >= self._most

    def enter(self, key: Hashable) -> None:
        """A stream shows this from now on."""
        self.open += 1
        self._readers[key] += 1

    def leave(self, key: Hashable) -> None:
        self.open -= 1
        self._readers[key] -= 1
        if not self._readers[key]:
            del self._readers[key]
            self._costs.pop(key, None)

    def interval(self, every: float) -> float:
        """Return how many seconds a rendering is good for, of which every so many are asked for."""
        return max(every, sum(self._costs.values()) / RENDERING_SHARE_MAX)

    async def parts(
        self, key: Hashable, render: Callable[[], Parts], every: float = POLL_SECONDS
    ) -> Parts:
        """Return what `render` returns or raises. Callers with one `key` share what is being
        rendered, and what was rendered less than `interval(every)` ago."""
        now = asyncio.get_running_loop().time()
        rendering = self._renderings.get(key)
        if rendering is None or _is_stale(rendering, now):
            self._renderings = {
                known: one for known, one in self._renderings.items() if not _is_stale(one, now)
            }
            self._limiter = self._limiter or CapacityLimiter(RENDERINGS_AT_ONCE)
            making = asyncio.ensure_future(self._measured(key, render, self._limiter))
            making.add_done_callback(_retrieve)
            rendering = self._renderings[key] = _Rendering(now, self.interval(every), making)
        # A reader who goes does not stop what others wait for.
        return await asyncio.shield(rendering.parts)

    async def _measured(
        self, key: Hashable, render: Callable[[], Parts], limiter: CapacityLimiter
    ) -> Parts:
        def measure() -> tuple[Parts, float]:
            begun = time.thread_time()
            return render(), time.thread_time() - begun

        parts, cost = await to_thread.run_sync(measure, limiter=limiter)
        if key in self._readers:
            self._costs[key] = cost
        return parts


def _is_stale(rendering: _Rendering, now: float) -> bool:
    return rendering.parts.done() and now - rendering.begun >= rendering.every


def _retrieve(making: asyncio.Future[Parts]) -> None:
    """If all readers have gone, nobody else looks at how it failed."""
    if not making.cancelled():
        making.exception()


class _Place:
    """One of the streams that may be open. It is given back once."""

    def __init__(self, streams: LiveStreams, key: Hashable) -> None:
        self._streams = streams
        self._key = key
        self._is_taken = True
        streams.enter(key)

    def give_back(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._streams.leave(self._key)


class _LiveResponse(StreamingResponse):
    """Gives its place back when it has been sent, or when it is dropped unsent."""

    def __init__(self, events: AsyncIterator[str], place: _Place) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._place = place
        weakref.finalize(self, place.give_back)

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._place.give_back()


async def stream_list(
    request: Request, project: str, part: str, render: Callable[[UnitOfWork], str]
) -> Response:
    """The event stream of a list, which is one part and depends on the query of its address."""

    def parts(uow: UnitOfWork) -> Parts:
        with contextlib.suppress(Behind):  # the next rendering has the newer bill
            return Parts({part: render(uow)})
        return Parts({})

    return await stream(request, project, parts, variant=str(request.query_params))


async def stream(
    request: Request,
    project: str,
    parts: Callable[[UnitOfWork], Parts],
    variant: str = "",
    every: float = POLL_SECONDS,
) -> Response:
    """The event stream of a page. `parts` reads and renders, every so many seconds; what it raises
    ends the stream.

    `parts` may depend on the path, on `variant`, and on what the caller may do in `project`, and on
    nothing else.
    """
    streams = _streams_of(request)
    if streams.full:  # before anything is read or rendered: being refused costs nothing
        text = f"{STREAMS_MAX} live pages are open. Reload the page to see its present state.\n"
        return PlainTextResponse(
            text,
            Code.UNAVAILABLE.http_status,
            {"Retry-After": str(RETRY_AFTER_SECONDS), "Cache-Control": "no-store"},
        )
    caller = context.principal(request)
    allowed = frozenset(permission for permission in PERMISSIONS if caller.may(permission, project))
    key = (request.url.path, variant, allowed)
    place = _Place(streams, key)

    async def ask() -> Parts:
        return await streams.parts(key, lambda: context.read(request, parts), every)

    try:
        # what is not there, or not allowed, is said with its status before the stream begins
        await ask()
    except BaseException:
        place.give_back()
        raise
    seen = {**request.query_params, **dict(parse_qsl(request.headers.get(LAST_EVENT_HEADER, "")))}
    return _LiveResponse(_events(ask, seen, every), place)


def _streams_of(request: Request) -> LiveStreams:
    state = request.app.state
    if not hasattr(state, "live_streams"):
        state.live_streams = LiveStreams()
    found: LiveStreams = state.live_streams
    return found


async def _events(
    ask: Callable[[], Awaitable[Parts]], seen: Mapping[str, str], every: float = POLL_SECONDS
) -> AsyncIterator[str]:
    """`seen`: the cursors of feeds, among others."""
    sent: dict[str, str] = {}
    cursors: dict[str, str] = {}
    quiet = 0
    for _ in range(int(STREAM_SECONDS_MAX / every)):
        try:
            current, over, feeds = await ask()
        except PodyardError:
            yield OVER
            return
        quiet += 1
        for key, html in current.items():
            if sent.get(key) != html:
                quiet = 0
                yield _part_event(key, sent.get(key), html)
        sent.update(current)
        for feed in feeds:
            news, cursors[feed.name] = feed.since(cursors.get(feed.name, seen.get(feed.name, "")))
            if news is not None:
                quiet = 0
                yield f"id: {urlencode(cursors)}\n{_event(feed.name, news)}"
        if over:
            yield OVER
            return
        if quiet >= QUIET_POLLS_MAX:
            quiet = 0
            yield ": still here\n\n"
        await anyio.sleep(every)


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'), ensure_ascii=False)}\n\n"


@functools.lru_cache(CHANGES_KEPT_MAX)
def _part_event(key: str, old: str | None, new: str) -> str:
    """The same for all streams that show the same: the event loop does it once, and requests wait
    for it once."""
    return _event("part", {"id": key, **change_of(old, new)})


def change_of(old: str | None, new: str) -> dict[str, Any]:
    """Return how to get from one version of a part to the next: `lines` to replace, the last first,
    each as (first, how many, the new ones), or the whole `html` where that is not longer."""
    if old is None:
        return {"html": new}
    before, after = old.split("\n"), new.split("\n")
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    spans = _changed_spans(before, after, head, tail)
    lines = [(first, end - first, after[start:stop]) for first, end, start, stop in reversed(spans)]
    length = sum(LINE_OVERHEAD + len(text) for _, _, texts in lines for text in ("", *texts))
    return {"lines": lines} if length < len(new) else {"html": new}


def _changed_spans(
    before: Sequence[str], after: Sequence[str], head: int, tail: int
) -> list[_Span]:
    """Of two texts that have their first `head` and their last `tail` lines in common."""
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if max(len(old), len(new)) > MATCHED_LINES_MAX:
        return [(head, head + len(old), head, head + len(new))]
    matches = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [
        (head + a, head + b, head + c, head + d) for kind, a, b, c, d in matches if kind != "equal"
    ]


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many first lines are the same."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (old, new) in pairs if old != new), min(len(before), len(after)))
