"""The context of every request, in the API and in the console alike: the platform's parts and who
calls."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from anyio import to_thread
from starlette.requests import Request

from podyard.base.clock import RealClock
from podyard.base.errors import PodyardError
from podyard.control.billing import spending
from podyard.control.jobs.host_use import HostUseHistory
from podyard.db.store.condition import busy
from podyard.db.store.unit_of_work import UNIT_WAIT_SECONDS_MAX, Database, UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.principal import Principal
from podyard.settings import Settings

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Platform:
    """The parts that a route works with. `host_use`: what this process was told of hosts in the
    past hour."""

    settings: Settings
    database: Database
    fleet: Fleet
    clock: RealClock
    host_use: HostUseHistory = dataclasses.field(default_factory=HostUseHistory)


def platform(request: Request) -> Platform:
    found: Platform = request.app.state.platform
    return found


def principal(request: Request) -> Principal:
    found: Principal | None = request.scope["state"]["principal"]
    assert found is not None, "a public route asked who calls"
    return found


def credential(request: Request) -> str:
    """The credential by which the caller is known."""
    token: str = request.scope["state"]["token"]
    return token


def write(
    request: Request, body: Callable[[UnitOfWork], T], *, rehearse: bool = False, via: str = ""
) -> T:
    """`rehearse`: says what would be, and changes nothing. `via`: the version of Google's API that
    asks."""
    database = platform(request).database
    if rehearse:
        return database.rehearse(body, actor=principal(request).email, via=via)
    try:
        return database.run(body, actor=principal(request).email, via=via)
    except spending.Refused as refused:
        _keep(request, refused)
        raise


async def write_async(request: Request, body: Callable[[UnitOfWork], T], *, via: str = "") -> T:
    """As `write`, on the event loop: where the database has a writer thread, nobody waits in one
    more."""
    future = platform(request).database.enqueue(body, actor=principal(request).email, via=via)
    if future is None:
        return await to_thread.run_sync(partial(write, request, body, via=via))
    waiting = asyncio.wrap_future(future)
    done, _ = await asyncio.wait({waiting}, timeout=UNIT_WAIT_SECONDS_MAX)
    # A unit that had not begun never will: who was told "no" must not find the change made later.
    if not done and future.cancel():
        raise busy()
    try:
        return await waiting
    except spending.Refused as refused:
        await to_thread.run_sync(_keep, request, refused)
        raise


def _keep(request: Request, refused: spending.Refused) -> None:
    """In a separate unit, since the refused unit was rolled back. The caller gets the refusal in
    any case."""
    try:
        platform(request).database.run(
            partial(spending.keep_refusal, refused=refused), actor=principal(request).email
        )
    except PodyardError as error:
        logger.warning("a refusal could not be kept: %s", error.message)


def read(request: Request, body: Callable[[UnitOfWork], T]) -> T:
    return platform(request).database.read(body, actor=principal(request).email)


async def in_thread(work: Callable[[], T]) -> T:
    """Runs what blocks (the database) off the event loop: for routes that must be `async` to read
    their body."""
    return await to_thread.run_sync(work)
