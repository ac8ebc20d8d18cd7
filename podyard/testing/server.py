"""The parts of a Podyard in one process: an empty database, the application behind a real server,
the loop in a thread.

Nothing here leads: `stack.py` puts them together, and so does who needs another loop or another
clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from podyard import migrations
from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError
from podyard.db.store.unit_of_work import Database

if TYPE_CHECKING:
    from podyard.loop.steps import Loop

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.002
# of a server on loopback: a machine that takes longer has other troubles
STARTED_SECONDS_MAX = 30.0
STOP_SECONDS = 0.01  # between two checks of whether the server has to stop
# between two rounds that nobody asked for: what a clock that runs by itself is seen to move by
TICK_SECONDS = 0.1
# of a round that a caller waits for: the longest walk of one round takes a few seconds
TURN_SECONDS_MAX = 20.0
# so long a change's answer waits for the round after it: a long walk must not hold it up
PROMPT_SECONDS_MAX = 1.0
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@functools.cache
def _schema() -> bytes:
    """An empty database at the newest revision: made once in a process."""
    with tempfile.TemporaryDirectory(prefix="podyard-schema-") as folder:
        path = Path(folder) / "podyard.db"
        database = Database(f"sqlite:///{path}", OsClock())
        migrations.upgrade(database)
        database.close()
        return path.read_bytes()


def write_empty_database(path: Path) -> None:
    """An SQLite database without rows, at the newest revision."""
    path.write_bytes(_schema())


class _Server(uvicorn.Server):
    """One that ends when it is told to and its requests are answered: uvicorn's own looks ten times
    a second, and then waits a tenth of a second more, which many a test lasts."""

    async def main_loop(self) -> None:
        looks = 0
        while not await self.on_tick(looks // 10):  # each tenth one updates the date of the answers
            looks += 1
            await asyncio.sleep(STOP_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(POLL_SECONDS)
        for server in self.servers:
            await server.wait_closed()


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serves an ASGI application on a free port of loopback, in a thread; gives its URL."""
    # Named as TCP, so that asyncio switches Nagle off: without it every answer waits 40 ms for an
    # ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = _Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="podyard-api", daemon=True
    )
    thread.start()
    try:
        _wait_until(lambda: server.started or not thread.is_alive())
        if not server.started:
            raise PodyardError(Code.INTERNAL, "the server of the test's Podyard did not start")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _wait_until(true: Callable[[], bool]) -> None:
    clock = OsClock()
    deadline = clock.monotonic_seconds() + STARTED_SECONDS_MAX
    while not true() and clock.monotonic_seconds() < deadline:
        clock.sleep(POLL_SECONDS)


class Turner:
    """A control loop in a thread, which turns at each tick and on request."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._wake = threading.Event()
        self._turned = threading.Condition()
        self._begun = 0
        self._ended = 0
        self._stopping = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="podyard-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and the loop in order. What a round failed of is raised here at the
        latest."""
        self._stopping = True
        self._wake.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._loop.stop()

    def turn(self, seconds_max: float = TURN_SECONDS_MAX) -> bool:
        """Waits for a round that begins from now on; False when it took too long. Raises what a
        round failed of."""
        with self._turned:
            wanted = self._begun + 1
            self._wake.set()
            over = self._turned.wait_for(
                lambda: self._ended >= wanted or self._failure is not None, seconds_max
            )
        if self._failure is not None:
            raise self._failure
        return over

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(TICK_SECONDS)
            self._wake.clear()
            with self._turned:
                self._begun += 1
            failure = self._round()
            with self._turned:
                self._ended = self._begun
                self._failure = failure
                self._turned.notify_all()
            if failure is not None:
                return

    def _round(self) -> Exception | None:
        try:
            self._loop.round()
        except PodyardError as error:
            # As in the loop's process: the next round looks again.
            if error.code is Code.UNAVAILABLE:
                logger.warning("a round was cut short: %s", error.message)
                return None
            return error
        except Exception as error:  # of the code under test: it is raised in the waiting thread
            return error
        return None


class Prompt:
    """An ASGI application in which the loop turns between a change and its answer.

    So a client that asks again finds done what takes no time, and no test waits for the next tick.
    """

    def __init__(self, app: Any, turner: Turner) -> None:
        self._app = app
        self._turner = turner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        from anyio import to_thread

        answer: list[Any] = []

        async def keep(message: Any) -> None:
            answer.append(message)

        await self._app(scope, receive, keep)
        await to_thread.run_sync(self._turner.turn, PROMPT_SECONDS_MAX)
        for message in answer:
            await send(message)
