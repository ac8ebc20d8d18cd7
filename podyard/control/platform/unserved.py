"""Calls of Google's APIs that Podyard does not serve: who looks may see which."""

from __future__ import annotations

from podyard.db.store import unserved
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.store.unserved import CountedCall
from podyard.domain.principal import Principal

VIEW = "podyard.calls.list"
HOST_CHARACTERS_MAX = 128
METHOD_CHARACTERS_MAX = 16
PATH_CHARACTERS_MAX = 256  # the rest of a longer path is cut off


def record(uow: UnitOfWork, host: str, method: str, path: str) -> None:
    """Counts a call. `path`: without its query, which may hold credentials."""
    unserved.add(
        uow, host[:HOST_CHARACTERS_MAX], method[:METHOD_CHARACTERS_MAX], path[:PATH_CHARACTERS_MAX]
    )


def list_calls(uow: UnitOfWork, principal: Principal) -> list[CountedCall]:
    """All of them, the newest first. They name projects of everybody, so they are for the
    platform's owner."""
    principal.require(VIEW, "*", "calls")
    return unserved.list_all(uow)
