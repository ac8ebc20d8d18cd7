"""A Podyard for a test: the real application behind a real server, its loop, and a clock that the
test controls."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from podyard.api.app import create_app, prepare
from podyard.base import error_details
from podyard.base.clock import NANOS_PER_SECOND, ClockMode, OsClock, PlatformTime
from podyard.base.durations import parse_duration
from podyard.base.errors import Code, PodyardError, invalid
from podyard.base.rng import Streams
from podyard.cli.kit.client import Target
from podyard.cli.nodes.env import exports
from podyard.control.checks import faults, fsck
from podyard.control.platform import clock as clock_control
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.fault import MATCH_KEYS, rule_json
from podyard.domain.principal import PLATFORM
from podyard.loop.steps import Loop
from podyard.pricing.current_card import default_rate_card
from podyard.settings import Settings, from_environment
from podyard.testing.options import PROJECT, Options
from podyard.testing.scenario import read_scenario
from podyard.testing.server import Prompt, Turner, serving, write_empty_database

ADVANCE_SECONDS_MAX = 600.0  # of real time: a year with many nodes is walked in minutes
REQUEST_SECONDS_MAX = 60.0  # past what the server takes to say that it is busy
SHOWN_MAX = 20  # violations in the message of a test that failed: more are seldom read


class Podyard:
    """A running Podyard, for a test. Paths and names are those of the project `project` and the
    location `location`."""

    def __init__(
        self, url: str, settings: Settings, database: Database, turner: Turner, options: Options
    ) -> None:
        self.url = url
        self.data = settings.data
        self.database = database
        self.project = PROJECT
        self.location = options.location
        self.options = options
        self.token = settings.token_path.read_text(encoding="ascii").strip()
        self._settings = settings
        self._turner = turner
        self._clients: list[httpx.Client] = []

    @property
    def env(self) -> dict[str, str]:
        """The variables with which gcloud, Google's libraries and Terraform find it, as `podyard
        env` prints them."""
        return exports(Target(self.url, self.token, self.project, self.location), self._settings)

    def client(self) -> httpx.Client:
        """A new HTTP client with the address and the token; it is closed with the test."""
        found = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=REQUEST_SECONDS_MAX,
            trust_env=False,  # a proxy of the environment must not see the token
            verify=False,  # http on loopback: no certificates are read
        )
        self._clients.append(found)
        return found

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The answer to a request that is allowed; raises the platform's error otherwise."""
        if not self._clients:
            self.client()
        response = self._clients[0].request(method, path, json=body)
        found: dict[str, Any] = response.json()
        if not response.is_success:
            error = found["error"]
            raise PodyardError(
                Code[error["status"]],
                error["message"],
                tuple(error_details.of_json(error.get("details", ()))),
            )
        return found

    @property
    def now(self) -> datetime:
        """Platform time, to the microsecond."""
        nanos = self._now().nanos
        whole = datetime.fromtimestamp(nanos // NANOS_PER_SECOND, UTC)
        return whole + timedelta(microseconds=nanos % NANOS_PER_SECOND // 1000)

    def _now(self) -> PlatformTime:
        return self.database.read(lambda uow: uow.now)

    def advance(self, duration: str | float | timedelta) -> datetime:
        """Lets platform time pass: `"90s"`, `"36h"`, `"30d"`, seconds, or a timedelta. Whatever is
        due on the way happens at its time. Returns the time that is reached; raises
        INVALID_ARGUMENT for a malformed duration, and FAILED_PRECONDITION where the clock is not
        virtual."""
        nanos = _nanos(duration)
        way = self.database.run(lambda uow: clock_control.advance(uow, PLATFORM, by_nanos=nanos))
        clock = OsClock()
        deadline = clock.monotonic_seconds() + ADVANCE_SECONDS_MAX
        while True:
            self._turner.turn()
            if self._now() >= way.target:
                return self.now
            if clock.monotonic_seconds() > deadline:
                raise PodyardError(
                    Code.DEADLINE_EXCEEDED, f"{way.target.rfc3339()} is not reached: {self.now}"
                )

    def settle(self) -> None:
        """Lets the control loop do what can be done at this moment: two rounds, since what the
        first one frees the second one places."""
        self._turner.turn()
        self._turner.turn()

    def preempt(self, node: str, location: str | None = None) -> dict[str, Any]:
        """Takes a READY node back, as Google does with spot and preemptible ones; returns the
        node."""
        place = f"/podyard/v1/projects/{self.project}/locations/{quote(location or self.location)}"
        found = self.call("POST", f"{place}/nodes/{quote(node)}:preempt")
        self.settle()
        return found

    def fault(self, effect: str, **fields: Any) -> dict[str, Any]:
        """Adds a fault rule. Fields that a rule is matched by (zone, acceleratorType, project,
        resource, method, usage) are its match; the others are its own: count, probability, until,
        and the parameters of its effect. A word of Python's gets an underscore behind it:
        `from_="10m"`."""
        rule = self.database.run(lambda uow: faults.create(uow, PLATFORM, _rule(effect, fields)))
        self.settle()
        return {"id": rule.fault_id, **rule_json(rule)}

    def scenario(self, path: str | os.PathLike[str]) -> None:
        """Adds the faults of a scenario file; its times count from now. Raises INVALID_ARGUMENT
        with the line and the field that is wrong, and has then added nothing."""
        items = read_scenario(Path(path), self._now()).faults
        self.database.run(lambda uow: faults.create_all(uow, PLATFORM, items))
        self.settle()

    def fsck(self) -> list[dict[str, str]]:
        """The invariants that are broken: invariant, at, resource and detail of each."""
        self.settle()
        found = self.database.read(
            lambda uow: fsck.check(uow, self.options.fleet, default_rate_card())
        )
        return [violation.as_json() for violation in found]

    def check(self) -> None:
        """Raises AssertionError that lists the invariants that are broken."""
        found = self.fsck()
        lines = [
            f"{v['invariant']} {v['at']} {v['resource']}: {v['detail']}" for v in found[:SHOWN_MAX]
        ]
        more = f"\n... and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
        assert not found, f"podyard fsck found {len(found)} violations:\n" + "\n".join(lines) + more

    def close(self) -> None:
        while self._clients:
            self._clients.pop().close()


def _nanos(duration: str | float | timedelta) -> int:
    if isinstance(duration, str):
        try:
            return parse_duration(duration)
        except ValueError as error:
            raise invalid(str(error), "duration") from None
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 <= seconds < float("inf"):
        raise invalid(
            f"{duration!r} is negative: the platform clock cannot run backwards", "duration"
        )
    return round(seconds * NANOS_PER_SECOND)


def _rule(effect: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    given = {_camel(name.rstrip("_")): value for name, value in fields.items()}
    match = {key: given.pop(key) for key in MATCH_KEYS if key in given}
    return {"effect": effect, **({"match": match} if match else {}), **given}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@contextlib.contextmanager
def open_podyard(data: Path, options: Options) -> Iterator[Podyard]:
    """A Podyard whose files are in the folder `data`, which is empty; it is gone with the
    context."""
    settings = from_environment({"PODYARD_DATA": str(data), "PODYARD_CLOCK": str(options.clock)})
    clock = OsClock()
    write_empty_database(data / "podyard.db")
    with contextlib.ExitStack() as ending:
        database = Database(settings.database_url, clock, Streams(options.seed))
        ending.callback(database.close)
        prepare(settings, database)
        database.run(lambda uow: _set_clock(uow, options))
        turner = Turner(
            Loop(
                database,
                options.fleet,
                _sends_nothing,
                clock,
                "test",
                _streams=Streams(options.seed),
            )
        )
        app = create_app(settings, database, options.fleet, clock)
        url = ending.enter_context(serving(Prompt(app, turner)))
        turner.start()
        ending.callback(turner.stop)
        turner.turn()  # until it leads
        found = Podyard(url, settings, database, turner, options)
        ending.callback(found.close)
        if options.scenario is not None:
            found.scenario(options.scenario)
        yield found


def _set_clock(uow: UnitOfWork, options: Options) -> None:
    if options.clock is ClockMode.VIRTUAL:
        rate = round(options.rate * 1_000_000)
        begun = dataclasses.replace(uow.clock, anchor_platform=options.start, rate_millionths=rate)
        platform_clock.write(uow, begun)


def _sends_nothing(queue: str, task: str, args: Sequence[str]) -> None:
    """There is no agent here to be poked."""
