"""Fault rules on calls of Google's API: errors, latency, lost answers; wrong views
(`control/checks/faults`).

It stands behind the guard, so that a fault tells nobody anything who may not call. Without rules a
request pays for one comparison of clocks: whether there are any is read again after `RULES_SECONDS`
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podyard.base.clock import PlatformTime, RealClock
from podyard.base.errors import Code, ErrorInfo, PodyardError
from podyard.db.platform import faults as rows
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.fault import LATENCY_SECONDS_MAX, Acts, FaultRule, Subject
from podyard.http.errors import answer

RULES_SECONDS = 0.25  # of real time: so late may a rule that another process took act, and no later
LOOK_SECONDS = 0.05  # how often a call that waits for platform time looks at it
_COUNT = "SELECT fault_rules FROM clock"
_CODES = {
    429: (
        Code.RESOURCE_EXHAUSTED,
        "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'.",
    ),
    500: (Code.INTERNAL, "Internal error encountered."),
    503: (Code.UNAVAILABLE, "The service is currently unavailable."),
    504: (Code.DEADLINE_EXCEEDED, "Deadline expired before operation could complete."),
}


class Rules:
    """The rules that act on calls and views, as they were a moment ago."""

    def __init__(self, database: Database, clock: RealClock) -> None:
        self.database = database
        self._clock = clock
        self._found: Sequence[FaultRule] = ()
        self._until = float("-inf")

    def forget(self) -> None:
        """They have changed: the next call reads them again."""
        self._until = float("-inf")

    async def now_active(self) -> Sequence[FaultRule]:
        now = self._clock.monotonic_seconds()
        if now < self._until:
            return self._found
        self._until = now + RULES_SECONDS
        counted = self.database.peek(_COUNT, {})
        # Another database than SQLite is asked over the network, and not on the event loop.
        if counted is None or counted[0]:
            self._found = await to_thread.run_sync(self._read)
        else:
            self._found = ()
        return self._found

    def _read(self) -> Sequence[FaultRule]:
        found = self.database.read(rows.active_rules)
        return tuple(rule for rule in found if rule.acts in (Acts.CALL, Acts.VIEW))


class Faults:
    """`called` says which method of Google's API a request calls, and on what; None: none."""

    def __init__(
        self, app: ASGIApp, rules: Rules, called: Callable[[Scope], Subject | None]
    ) -> None:
        self._app = app
        self._rules = rules
        self._called = called

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rules = await self._rules.now_active() if scope["type"] == "http" else ()
        subject = self._called(scope) if rules else None
        if subject is None:
            await self._app(scope, receive, send)
            return
        now = await to_thread.run_sync(self._now)
        standing = [rule for rule in rules if rule.stands(now)]
        # What a view shows is matched by the one who shows it.
        scope["state"]["faults"] = tuple(rule for rule in standing if rule.acts is Acts.VIEW)
        lost: FaultRule | None = None
        for rule in standing:
            if rule.acts is not Acts.CALL or not rule.matches(subject):
                continue
            if not await to_thread.run_sync(self._strikes, rule):
                continue
            if rule.effect == "latency":
                await self._wait(rule, now)
            elif rule.effect == "error":
                await _refusal(rule, scope, receive, send)
                return
            else:
                lost = rule
        if lost is None:
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, _nowhere)
            await _lost_answer(lost, scope, receive, send)

    def _now(self) -> PlatformTime:
        return self._rules.database.read(lambda uow: uow.now)

    def _strikes(self, rule: FaultRule) -> bool:
        return self._rules.database.run(partial(_struck, rule=rule), actor=rows.ACTOR)

    async def _wait(self, rule: FaultRule, now: PlatformTime) -> None:
        seconds = rule.seconds
        if rule.parameters["real"]:
            await asyncio.sleep(seconds)
            return
        until = now.plus_seconds(seconds)
        for _ in range(int(LATENCY_SECONDS_MAX / LOOK_SECONDS)):
            if await to_thread.run_sync(self._now) >= until:
                return
            await asyncio.sleep(LOOK_SECONDS)


def _struck(uow: UnitOfWork, rule: FaultRule) -> bool:
    return rows.falls(uow, rule) and rows.count(uow, rule.fault_id)


async def _refusal(rule: FaultRule, scope: Scope, receive: Receive, send: Send) -> None:
    status = int(rule.parameters["code"])
    code, usual = _CODES[status]
    error = PodyardError(code, str(rule.parameters.get("message", usual)), [_detail(rule)])
    await answer(error, status)(scope, receive, send)


async def _lost_answer(rule: FaultRule, scope: Scope, receive: Receive, send: Send) -> None:
    if rule.parameters["close"]:
        # An answer that is promised and never comes: the server ends the connection.
        await send(
            {"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"1")]}
        )
        return
    code, usual = _CODES[503]
    await answer(PodyardError(code, usual, [_detail(rule)]), 503)(scope, receive, send)


def _detail(rule: FaultRule) -> ErrorInfo:
    """Names the fault, so that a user who looks for the cause finds it."""
    return ErrorInfo("FAULT_RULE", "podyard", {"fault": rule.fault_id, "effect": rule.effect})


async def _nowhere(_message: Message) -> None:
    """Where an answer goes that is lost."""
