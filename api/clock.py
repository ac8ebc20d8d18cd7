"""Podyard's own REST for the platform clock."""

from __future__ import annotations

from typing import Annotated, NotRequired

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.clock import RATE_ONE, ClockMode, PlatformClock, PlatformTime, RealTime
from podyard.base.durations import parse_duration
from podyard.base.errors import invalid
from podyard.control.platform import clock as control

router = APIRouter(prefix="/podyard/v1", route_class=deps.Route)


class AdvanceMessage(BaseModel):
    """One of the two: `duration` as `3600s`, `36h` or `30d`, or `time`."""

    model_config = ConfigDict(extra="forbid")
    duration: StrictStr | None = None
    time: StrictStr | None = None


class RateMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rate: StrictInt | StrictFloat = Field(ge=0, le=control.RATE_MAX, allow_inf_nan=False)


class ClockAnswer(TypedDict):
    """`rate`: platform seconds per real second of a virtual clock; `targetTime`: where an advance
    takes it. `lagSeconds`: how far a local clock is behind UTC, because Podyard was down or the
    machine slept."""

    platformTime: Timestamp
    mode: str
    running: bool
    rate: NotRequired[float]
    targetTime: NotRequired[Timestamp]
    lagSeconds: NotRequired[float]


class AdvanceMetadata(TypedDict):
    platformTime: Timestamp
    targetTime: Timestamp


class Reached(TypedDict):
    platformTime: Timestamp


class AdvanceOperation(TypedDict):
    """`metadata` says how far it is; `response` has the time that was reached, the target."""

    name: str
    done: bool
    metadata: AdvanceMetadata
    response: NotRequired[Reached]


@router.get("/clock")
def show(request: Request) -> ClockAnswer:
    return _clock_answer(*deps.read(request, lambda uow: (uow.clock, uow.now, uow.real_now)))


@router.post("/clock:advance")
def advance(request: Request, body: Annotated[deps.Body, AdvanceMessage]) -> AdvanceOperation:
    """Sets the target of a virtual clock. The loop walks there, and fires each timer at its due
    time on the way."""
    caller = deps.principal(request)
    caller.require("podyard.clock.set", "*", "clock")
    message = deps.parse(AdvanceMessage, body)
    nanos = None if message.duration is None else _nanos(message.duration)
    to = deps.moment(message.time, "time")
    return _operation(
        deps.write(request, lambda uow: control.advance(uow, caller, by_nanos=nanos, to=to))
    )


@router.post("/clock:setRate")
def set_rate(request: Request, body: Annotated[deps.Body, RateMessage]) -> ClockAnswer:
    """Lets a virtual clock run at `rate` platform seconds per real second; 0 pauses it."""
    caller = deps.principal(request)
    caller.require("podyard.clock.set", "*", "clock")
    rate = float(deps.parse(RateMessage, body).rate)
    return _clock_answer(
        *deps.write(
            request, lambda uow: (control.set_rate(uow, caller, rate), uow.now, uow.real_now)
        )
    )


@router.get("/clock/operations/{operation}")
def get_operation(request: Request, operation: str) -> AdvanceOperation:
    caller = deps.principal(request)
    return _operation(deps.read(request, lambda uow: control.find_advance(uow, caller, operation)))


def _nanos(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise invalid(str(error), "duration") from None


def _clock_answer(state: PlatformClock, now: PlatformTime, real: RealTime) -> ClockAnswer:
    answer: ClockAnswer = {
        "platformTime": now.rfc3339(),
        "mode": str(state.mode),
        "running": state.running,
    }
    lag_seconds = state.lag_seconds(real)
    if lag_seconds is not None:
        answer["lagSeconds"] = round(lag_seconds, 3)
    if state.mode is ClockMode.VIRTUAL:
        answer["rate"] = state.rate_millionths / RATE_ONE
        if state.target is not None:
            answer["targetTime"] = state.target.rfc3339()
    return answer


def _operation(found: control.Advance) -> AdvanceOperation:
    target = found.target.rfc3339()
    reached = min(found.now, found.target).rfc3339()
    answer: AdvanceOperation = {
        "name": found.name,
        "done": found.is_done,
        "metadata": {"platformTime": reached, "targetTime": target},
    }
    if found.is_done:
        answer["response"] = {"platformTime": target}
    return answer
