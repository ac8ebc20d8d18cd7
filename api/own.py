"""The routes that are loaded while Google's wire answers already.

FastAPI, the modules of our own REST, and the console are half of what the API imports. A thread imports them once the
server listens; requests that come earlier wait for it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

if TYPE_CHECKING:
    from fastapi import APIRouter

    from podyard.api.own_routers import OwnRouters


class OwnApp:
    """Answers what is not Google's wire, 404 and 405 included. `more`: the routers of the siblings of the API."""

    def __init__(self, more: Callable[[], Iterable[APIRouter]]) -> None:
        self._more = more
        self._lock = threading.Lock()
        self._answer: ASGIApp | None = None

    @functools.cached_property
    def loaded(self) -> OwnRouters:
        """Imports and builds all of it, at the first use."""
        from podyard.api import own_routers

        return own_routers.make(self._more())

    def load(self) -> ASGIApp:
        with self._lock:
            self._answer = self.loaded.answer
            return self._answer

    def load_in_background(self) -> None:
        """What fails to load is raised for each request that needs it."""
        threading.Thread(target=self.load, name="own-routes", daemon=True).start()

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return self.loaded.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer
        if answer is None:
            answer = await to_thread.run_sync(self.load)
        scope.pop("router", None)  # the one inside is asked which methods a path has
        await answer(scope, receive, send)


class Before(Mount):
    """Passes paths that begin with `prefix` to `app`, as they are, before another route takes them."""

    routes: Sequence[BaseRoute] = ()  # type: ignore[assignment]  # those of `app` are listed where it is mounted

    def __init__(self, prefix: str, app: OwnApp) -> None:
        super().__init__("", app)
        self._prefix = prefix

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if scope["path"].startswith(self._prefix) else (Match.NONE, {})
