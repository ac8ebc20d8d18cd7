"""Requests per minute: what a project may send, by method. Off unless the fleet file says so
(`quotas.requests_per_minute`).

Counted per minute of the machine's time in the process that answers: there is one, and a quota that
a restart forgets lets through one minute more. A method with a line of its own is counted by
itself, all others share `default`.
"""

from __future__ import annotations

import re
import threading
import weakref
from typing import Protocol

from podyard.base.clock import NANOS_PER_SECOND, RealClock
from podyard.base.errors import Code, PodyardError, QuotaFailure
from podyard.control.access import identity
from podyard.db.access import projects
from podyard.db.store.unit_of_work import Database
from podyard.domain.fleet import Fleet

WINDOW_NANOS = 60 * NANOS_PER_SECOND
COUNTERS_MAX = 10_000  # of one minute; projects that do not exist cost memory too
_DEFAULT = "default"


class QuotaOwner(Protocol):
    """The owner of a quota, as this room needs it."""

    @property
    def fleet(self) -> Fleet: ...
    @property
    def database(self) -> Database: ...
    @property
    def clock(self) -> RealClock: ...


class _Minute:
    """The counts of the minute that runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = -1
        self._counts: dict[tuple[str, str], int] = {}

    def take(self, number: int, key: tuple[str, str], limit: int) -> bool:
        """Return whether there was one left; what is refused does not count, nor do keys beyond
        `COUNTERS_MAX`."""
        with self._lock:
            if number != self._number:
                self._number, self._counts = number, {}
            count = self._counts.get(key, 0)
            if count >= limit:
                return False
            if count or len(self._counts) < COUNTERS_MAX:
                self._counts[key] = count + 1
            return True


# Next to the parts of a platform, which are frozen: they come and go with it.
_minutes: weakref.WeakKeyDictionary[Database, _Minute] = weakref.WeakKeyDictionary()
_minutes_lock = threading.Lock()


def check(platform: QuotaOwner, project: str, method: str) -> None:
    """Counts one request; raises RESOURCE_EXHAUSTED with Google's text when the minute's are used
    up.

    `method`: `nodes.create`, or an id that ends so. Reads the database only to refuse, so it must
    not be called inside a unit of work.
    """
    limits = platform.fleet.requests_per_minute
    if not limits:
        return
    name = ".".join(method.split(".")[-2:])
    name = name if name in limits else _DEFAULT
    limit = limits.get(name)
    if limit is None:
        return
    with _minutes_lock:
        minute = _minutes.setdefault(platform.database, _Minute())
    if not minute.take(platform.clock.now().nanos // WINDOW_NANOS, (project, name), limit):
        raise _exhausted_error(platform.database, project, name, limit)


def metric_of(name: str) -> str:
    """`nodes.create` -> `CreateNode requests`, as Google's quota page names it; `default` ->
    `Requests`."""
    if name == _DEFAULT:
        return "Requests"
    collection, verb = name.split(".")
    thing = collection[0].upper() + collection[1:]
    thing = thing if verb == "list" else thing.removesuffix("s")
    return f"{verb[0].upper()}{verb[1:]}{thing} requests"


def _exhausted_error(database: Database, project: str, name: str, limit: int) -> PodyardError:
    found = database.read(lambda uow: projects.find(uow, project))
    metric = metric_of(name)
    consumer = f"project_number:{0 if found is None else found.number}"
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])| ", "_", metric).lower()
    message = (
        f"Quota exceeded for quota metric '{metric}' and limit '{metric} per minute' of service "
        "'tpu.googleapis.com' "
        f"for consumer '{consumer}'."
    )
    info = identity.error_info(
        "RATE_LIMIT_EXCEEDED",
        consumer=consumer.replace("project_number:", "projects/"),
        quota_limit=f"{metric.replace(' r', 'R')}PerMinutePerProject",
        quota_limit_value=str(limit),
        quota_location="global",
        quota_metric=f"tpu.googleapis.com/{snake}",
    )
    return PodyardError(Code.RESOURCE_EXHAUSTED, message, [info, QuotaFailure(consumer, message)])
