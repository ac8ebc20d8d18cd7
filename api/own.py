"""Routes that are loaded later: our own REST while Google's wire answers already, and the console
once it is used.

FastAPI, the modules of our own REST, and the console are half of what the API imports. A thread
imports the REST once the server listens; requests that come earlier wait for it. What it has no
route for is the console's.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence

from anyio import to_thread
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override


@dataclasses.dataclass(frozen=True, slots=True)
class Answering:
    """`answer` has no handlers of errors: those of the application around it see what it raises."""

    answer: ASGIApp
    routes: Sequence[BaseRoute]


class LaterApp:
    """Answers everything that it is asked, 404 and 405 included. `make` imports and builds it, at
    the first use."""

    def __init__(self, make: Callable[[], Answering]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._answer: ASGIApp | None = None

    @functools.cached_property
    def _answering(self) -> Answering:
        return self._make()

    def load(self) -> ASGIApp:
        with self._lock:
            self._answer = self._answering.answer
            return self._answer

    def load_in_background(self) -> None:
        """Load in the background, and raise what fails for each request that needs it."""
        threading.Thread(target=self.load, name="own-routes", daemon=True).start()

    @property
    def routes(self) -> Sequence[BaseRoute]:
        self.load()
        return self._answering.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer
        if answer is None:
            answer = await to_thread.run_sync(self.load)
        scope.pop("router", None)  # the one inside is asked which methods a path has
        await answer(scope, receive, send)


class Before(Mount):
    """Passes paths that begin with `prefix` to `app`, as they are, before another route takes
    them."""

    routes: Sequence[BaseRoute] = ()  # type: ignore[assignment]  # those of `app` are listed where it is mounted

    def __init__(self, prefix: str, app: LaterApp) -> None:
        super().__init__("", app)
        self._prefix = prefix

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (
            super().matches(scope) if scope["path"].startswith(self._prefix) else (Match.NONE, {})
        )
