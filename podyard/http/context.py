"""What every request works with, in the API and in the console alike: the platform's parts and who calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread
from starlette.requests import Request

from podyard.base.clock import RealClock
from podyard.db.unit_of_work import Database, UnitOfWork
from podyard.domain.fleet import Fleet
from podyard.domain.principal import Principal
from podyard.settings import Settings

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Platform:
    """The parts that a route works with."""

    settings: Settings
    database: Database
    fleet: Fleet
    clock: RealClock


def platform(request: Request) -> Platform:
    found: Platform = request.app.state.platform
    return found


def principal(request: Request) -> Principal:
    found: Principal | None = request.scope["state"]["principal"]
    assert found is not None, "a public route asked who calls"
    return found


def write(request: Request, body: Callable[[UnitOfWork], T], *, rehearse: bool = False) -> T:
    """`rehearse`: says what would be, and changes nothing."""
    database = platform(request).database
    return (database.rehearse if rehearse else database.run)(body, actor=principal(request).email)


def read(request: Request, body: Callable[[UnitOfWork], T]) -> T:
    return platform(request).database.read(body, actor=principal(request).email)


async def in_thread(work: Callable[[], T]) -> T:
    """Runs what blocks (the database) off the event loop: for routes that must be `async` to read their body."""
    return await to_thread.run_sync(work)
