"""Podyard's own REST for which billing account pays for a project."""

from __future__ import annotations

from typing import Annotated, NotRequired

from fastapi import APIRouter, Request
from pydantic import StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import invalid_field
from podyard.control.billing import links
from podyard.domain.account import BillingLink

router = APIRouter(prefix="/podyard/v1/projects/{project}", route_class=deps.Route)

_PROJECTS = "projects/"


class BillingInfoMessage(deps.Asked):
    paid_by: StrictStr


class BillingInfo(TypedDict):
    """`paidBy`: the project whose billing account pays for this one, as projects/ID; `since`: from
    when on, if it has not always been so."""

    project: str
    paidBy: str
    since: NotRequired[Timestamp]


@router.get("/billingInfo")
def get_billing_info(request: Request, project: str) -> BillingInfo:
    """Return which billing account pays for the project."""
    caller = deps.principal(request)
    return _answer(deps.read(request, lambda uow: links.get(uow, caller, project)))


@router.put("/billingInfo")
def put_billing_info(
    request: Request, project: str, body: Annotated[deps.Body, BillingInfoMessage]
) -> BillingInfo:
    """Lets the billing account of another project pay for this one from the next second on, or its
    own one again."""
    caller = deps.principal(request)
    deps.read(request, lambda uow: links.require_to_change(uow, caller, project))
    named = deps.parse(BillingInfoMessage, body).paid_by
    payer = named.removeprefix(_PROJECTS)
    if not payer or "/" in payer or not named.startswith(_PROJECTS):
        raise invalid_field(f"paidBy {named[:80]!r} is not a project: use projects/ID", "paid_by")
    return _answer(deps.write(request, lambda uow: links.link(uow, caller, project, payer)))


def _answer(found: BillingLink) -> BillingInfo:
    answer: BillingInfo = {"project": found.project, "paidBy": f"{_PROJECTS}{found.account}"}
    if found.from_second:
        answer["since"] = PlatformTime(found.from_second * NANOS_PER_SECOND).rfc3339()
    return answer
