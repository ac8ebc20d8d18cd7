"""The estimate of a job: the answer to a request that is only checked."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import NotRequired

from fastapi import Request
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.base.money import minor_text
from podyard.control.compute import nodes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import region_of
from podyard.domain.job import JobRequest
from podyard.domain.node import NodeSpec
from podyard.http import step_time
from podyard.pricing.current_card import default_rate_card

PRICE_DECIMALS = 9
_OF_THE_SLICE = "Time on the real slice by the timing model, without start, input and checkpoints."
_AT_ITS_PACE = (
    " Emulated chips compute at this machine's pace, and a job is charged for the time that passes."
)
_OF_A_PROGRAM = (
    "Steps of a user's program are not known here: `podyard run --tpu TYPE --dry-run` estimates it."
)


class EstimateAnswer(TypedDict):
    """`seconds`: of all steps. `pricePerHour`, `cost`: US dollars at list price; missing where a
    type has no price. `note`: what the figures are, or why there are none."""

    stepSeconds: NotRequired[float]
    seconds: NotRequired[float]
    pricePerHour: NotRequired[str]
    cost: NotRequired[str]
    note: str


def estimate(
    request: Request,
    project: str,
    zone: str,
    asked: JobRequest,
    node: str | NodeSpec,
    stablehlo: str | None,
    steps: int,
) -> EstimateAnswer:
    """Of a request that was found right; `steps`: that it comes to."""
    if asked.run is not None:
        return {"note": _OF_A_PROGRAM}
    try:
        timed = step_time.with_step_time(
            request,
            project,
            zone,
            dataclasses.replace(asked, execution="simulated"),
            node,
            stablehlo,
        )
    except PodyardError as error:
        return {"note": error.message}
    if timed.step_seconds is None:
        return {"note": _OF_A_PROGRAM}
    seconds = timed.step_seconds * steps
    note = _OF_THE_SLICE + ("" if asked.execution == "simulated" else _AT_ITS_PACE)
    answer: EstimateAnswer = {"stepSeconds": timed.step_seconds, "seconds": seconds, "note": note}
    spec, now = _node(request, project, zone, node)
    try:
        price = default_rate_card().price(
            spec.accelerator_type, region_of(zone), spec.usage_class, now
        )
    except PodyardError as error:
        return {**answer, "note": f"{note} {error.message}"}
    per_hour = price.total_nanos_per_hour
    answer["pricePerHour"] = minor_text(per_hour, PRICE_DECIMALS)
    answer["cost"] = minor_text(round(per_hour * Fraction(seconds) / 3600), PRICE_DECIMALS)
    return answer


def _node(
    request: Request, project: str, zone: str, node: str | NodeSpec
) -> tuple[NodeSpec, PlatformTime]:
    caller = deps.principal(request)

    def body(uow: UnitOfWork) -> tuple[NodeSpec, PlatformTime]:
        return node if isinstance(node, NodeSpec) else nodes.get(
            uow, caller, project, zone, node
        ).spec, uow.now

    return deps.read(request, body)
