"""Live pages: how many there may be, and how often one is rendered. Renderings are counted, nothing
is timed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.web.front import pages
from podyard.web.kit import live
from podyard.web.nodes import nodes
from tests.yard import ZONE, Yard, open_yard

STREAMS = 300


class CountedRows:
    """The rows of the nodes' page, counted and held back until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.begun = threading.Event()
        self.go = threading.Event()
        self._lock = threading.Lock()
        self._rows = nodes._list_values
        monkeypatch.setattr(nodes, "_list_values", self)

    def __call__(self, *arguments: Any) -> Any:
        with self._lock:
            self.calls += 1
        self.begun.set()
        assert self.go.wait(60)
        return self._rows(*arguments)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, routers=(pages.router,)) as found:
        yield found


@pytest.mark.slow
def test_300_streams_of_one_viewer_cost_one_rendering_a_second(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = CountedRows(monkeypatch)
    try:
        asyncio.run(_open_all(yard, rows))
    finally:
        rows.go.set()


async def _open_all(yard: Yard, rows: CountedRows) -> None:
    refused = asyncio.Semaphore(0)
    streams: list[asyncio.Queue[str]] = []
    statuses: list[int] = []

    async def watch(client: httpx.AsyncClient) -> None:
        async with client.stream("GET", "/console/demo/nodes/live") as answer:
            statuses.append(answer.status_code)
            if answer.status_code != 200:
                refused.release()
                return
            parts: asyncio.Queue[str] = asyncio.Queue()
            streams.append(parts)
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    parts.put_nowait(line)

    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {yard.token}"}
    async with httpx.AsyncClient(
        base_url=yard.url, headers=headers, limits=limits, timeout=60, trust_env=False
    ) as client:
        begun = time.monotonic()
        watching = [asyncio.create_task(watch(client)) for _ in range(STREAMS)]
        async with asyncio.timeout(60):
            # The first rendering stands still. All that is too much is refused meanwhile, and other
            # requests answered.
            for _ in range(STREAMS - live.STREAMS_MAX):
                await refused.acquire()
            assert (await client.get(yard.nodes())).json()["nodes"] == []
            assert rows.calls == 1, "a separate rendering for each stream"
            rows.go.set()
            while len(streams) < live.STREAMS_MAX:
                await asyncio.sleep(0.01)
            first = {await parts.get() for parts in streams}
            assert len(first) == 1 and "No nodes yet" in first.pop()
            await asyncio.to_thread(yard.create, "seen-by-all")
            second = {await parts.get() for parts in streams}
        assert all("seen-by-all" in html for html in second)
        assert rows.calls <= 1 + (time.monotonic() - begun) / live.POLL_SECONDS, (
            "more than one rendering a second"
        )
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    assert (statuses.count(200), statuses.count(503)) == (
        live.STREAMS_MAX,
        STREAMS - live.STREAMS_MAX,
    )
    # Who goes makes room.
    async with httpx.AsyncClient(
        base_url=yard.url, headers=headers, timeout=60, trust_env=False
    ) as client:
        async with asyncio.timeout(30):
            while True:
                async with client.stream("GET", "/console/demo/nodes/live") as answer:
                    if answer.status_code == 200:
                        break
                await asyncio.sleep(0.05)


def test_callers_who_may_do_other_things_share_nothing(yard: Yard) -> None:
    """The list shows costs to those only who may see the bill."""
    yard.create("costly")
    body = {"email": "viewer@example.com", "project": "demo", "roles": ["tpu.viewer"]}
    viewer = yard.ok("POST", "/podyard/v1/tokens", body)["token"]
    yard.step(30)
    with _first_part(yard, yard.token) as owners, _first_part(yard, viewer) as viewers:
        cost = '<td class="l-cost r">'
        assert f"{cost}–" not in owners and "$0." in owners.split(cost)[1]
        assert f"{cost}–" in viewers


@contextlib.contextmanager
def _first_part(yard: Yard, token: str) -> Iterator[str]:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.stream(
        "GET", f"{yard.url}/console/demo/nodes/live", headers=headers, trust_env=False
    ) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        yield next(
            json.loads(line.removeprefix("data: "))["html"]
            for line in lines
            if line.startswith("data: ")
        )


def test_a_stream_of_what_is_not_there_keeps_no_place(yard: Yard) -> None:
    for _ in range(live.STREAMS_MAX + 1):
        assert "is gone" in yard.call("GET", f"/console/demo/nodes/{ZONE}/nobody/live").text
        assert yard.call("GET", f"/console/demo/jobs/{ZONE}/nobody/live").status_code == 404


def test_readers_share_a_rendering_and_its_failure_and_the_next_one_is_new() -> None:
    async def check() -> None:
        streams, calls = live.LiveStreams(2), []

        def fail() -> live.Parts:
            calls.append(1)
            raise PodyardError(Code.NOT_FOUND, "gone")

        answers = await asyncio.gather(
            *(streams.parts("a", fail) for _ in range(5)), return_exceptions=True
        )
        assert [str(answer) for answer in answers] == ["gone"] * 5 and len(calls) == 1
        assert await streams.parts("b", lambda: live.Parts({"x": "b"})) == live.Parts({"x": "b"})
        await asyncio.sleep(live.POLL_SECONDS)
        assert await streams.parts("a", lambda: live.Parts({"x": "a"}, True)) == live.Parts(
            {"x": "a"}, True
        )

    asyncio.run(check())


def test_a_response_that_is_never_sent_gives_its_place_back() -> None:
    streams = live.LiveStreams(1)

    async def nothing() -> live.Parts:
        return live.Parts({}, over=True)

    response = live._LiveResponse(live._events(nothing, {}), live._Place(streams, "page"))
    assert streams.full
    del response
    gc.collect()
    assert not streams.full


def test_many_pages_are_rendered_less_often_so_that_requests_have_the_processor() -> None:
    """Each rendering here takes the processor for a fortieth of a second; nobody may have more than
    the share."""

    def work() -> live.Parts:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.025:
            pass
        return live.Parts({"x": "y"})

    async def check() -> None:
        streams = live.LiveStreams()
        places = [live._Place(streams, index) for index in range(20)]
        assert streams.interval(1.0) == 1.0
        for index in range(20):
            await streams.parts(index, work)
        assert streams.interval(1.0) >= 20 * 0.025 / live.RENDERING_SHARE_MAX
        for place in places[1:]:
            place.give_back()
        assert streams.interval(1.0) == 1.0, "who goes takes his cost with him"

    asyncio.run(check())


PATCHED = [
    ("a\nb\nc", "a\nB\nc"),
    ("a\nb\nc\nd", "a\nc\nd"),
    ("a\nb", "new\na\nb"),
    ("a\nb\nc\nd\ne", "a\nx\nc\ny\ne"),
    ("a", "a\n"),
    ("", "a\nb"),
    ("a\na\na", "a"),
]


@pytest.mark.parametrize(("old", "new"), PATCHED)
@pytest.mark.parametrize("matched_max", [0, 200])
def test_a_change_makes_the_new_text_out_of_the_old_one(
    old: str, new: str, matched_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MATCHED_LINES_MAX", matched_max)
    frame = "the same line\n" * 50
    old, new = f"{frame}{old}\n{frame}", f"{frame}{new}\n{frame}"
    change = live.change_of(old, new)
    assert len(json.dumps(change)) < 100, "only what differs"
    lines = old.split("\n")
    for first, count, fresh in change["lines"]:
        lines[first : first + count] = fresh
    assert "\n".join(lines) == new


def test_a_part_that_is_another_one_is_sent_whole() -> None:
    assert live.change_of(None, "a") == {"html": "a"}
    assert live.change_of("a\nb", "c\nd") == {"html": "c\nd"}


class NumberFeed:
    """A feed of numbers up to `last`; the cursor is the last one that was sent."""

    name = "numbers"

    def __init__(self) -> None:
        self.last = 3

    def since(self, cursor: str) -> tuple[Any, str]:
        fresh = list(range(int(cursor or 0) + 1, self.last + 1))
        self.last += 1
        return fresh or None, str(max(fresh, default=int(cursor or 0)))


def test_a_feed_sends_what_is_new_since_the_cursor_that_the_browser_names() -> None:
    async def collect(seen: dict[str, str], polls: int) -> list[str]:
        feed, asked = NumberFeed(), 0

        async def ask() -> live.Parts:
            nonlocal asked
            asked += 1
            return live.Parts({}, asked == polls, (feed,))

        return [event async for event in live._events(ask, seen, 0.01)]

    events = asyncio.run(collect({"numbers": "1"}, 2))
    assert events == [
        "id: numbers=3\nevent: numbers\ndata: [2,3]\n\n",
        "id: numbers=4\nevent: numbers\ndata: [4]\n\n",
        live.OVER,
    ]
    assert asyncio.run(collect({"numbers": "3"}, 1)) == [live.OVER], "nothing is new"
