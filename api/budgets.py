"""Podyard's own REST for budgets, and for what work has cost."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, NotRequired

from fastapi import APIRouter, Request
from pydantic import Field, StrictInt, StrictStr
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.api.job_answers import MachineAnswer, machine_json
from podyard.base.errors import invalid
from podyard.base.money import Amount, minor_text, round_half_up
from podyard.base.sealing import unseal
from podyard.control.billing import budgets, costs
from podyard.control.billing import what_if as terms
from podyard.control.billing.invoice_document import EXACT_DECIMALS
from podyard.control.billing.spending import BudgetState
from podyard.domain.budget import Budget, BudgetLogEntry
from podyard.domain.node import UsageClass
from podyard.domain.webhook import WebhookRequest
from podyard.pricing.attribution import Share
from podyard.pricing.current_card import default_rate_card

router = APIRouter(prefix="/podyard/v1/projects/{project}", route_class=deps.Route)

MONTH: deps.Query = {
    "name": "month",
    "description": "Of this month only, such as 2026-03; of all time when it is left out.",
    "schema": {"type": "string"},
}


class BudgetMessage(deps.Asked):
    amount: StrictStr
    scope: StrictStr = "project"
    period: StrictStr = "month"
    thresholds: list[StrictStr] = Field(default=["1"])
    forecasts: list[StrictStr] = Field(default=[])
    actions: list[StrictStr] = Field(default=[])


class WhatIfMessage(deps.Asked):
    month: StrictStr | None = None
    accelerator_type: StrictStr | None = None
    region: StrictStr | None = None
    usage: StrictStr | None = None
    commitment_years: StrictInt | None = None
    commitment_quantity: StrictInt = 1
    of_type: StrictStr | None = None


class BudgetAnswer(TypedDict):
    """Amounts are US dollars. `reachedAt`: when the amount is used up in this period if all goes on
    as it is.
    `secret` signs what is sent to `notify:` addresses; only who sets the budget sees it."""

    name: str
    scope: str
    amount: str
    period: str
    thresholds: list[str]
    forecasts: list[str]
    actions: list[str]
    createTime: Timestamp
    spent: NotRequired[str]
    reachedAt: NotRequired[Timestamp]
    secret: NotRequired[str]


class BudgetList(TypedDict):
    budgets: list[BudgetAnswer]


class Webhook(TypedDict):
    url: str
    tries: int
    outcome: str
    done: bool


class BudgetEvent(TypedDict):
    """An action of a budget. `detail`: the threshold, or the moment of a notice or stop."""

    event: str
    budget: str
    period: str
    kind: str
    detail: str
    at: Timestamp
    cost: str
    amount: str
    text: str
    webhooks: list[Webhook]


class BudgetEventList(deps.NextPage):
    events: list[BudgetEvent]


class ShareAnswer(TypedDict):
    seconds: int
    amount: str


class AttemptCostAnswer(ShareAnswer):
    """`lostSteps` were done again by a later attempt. `onDemand`: the same seconds on demand."""

    attempt: int
    outcome: NotRequired[str]
    lostSteps: int
    onDemand: NotRequired[str]


class JobCostAnswer(ShareAnswer):
    """All attempts together. `estimate` is what the job's steps cost by the timing model;
    `variance` what they cost beyond it. `saved`: on demand without the lost work, less what was
    paid."""

    name: str
    node: str
    usage: str
    state: str
    steps: int
    attempts: list[AttemptCostAnswer]
    perStep: NotRequired[str]
    perEpoch: NotRequired[str]
    per1000Examples: NotRequired[str]
    estimate: NotRequired[str]
    variance: NotRequired[str]
    lost: str
    saved: NotRequired[str]
    machine: NotRequired[MachineAnswer]


class NodeCostAnswer(ShareAnswer):
    """`idle`: what no job has used of it."""

    name: str
    acceleratorType: str
    usage: str
    idle: ShareAnswer


class CostsAnswer(TypedDict):
    """Amounts are US dollars, net of what commitments cover. The nodes, the commitments' own
    charges and `storage` (of disks and buckets) make up the total; the jobs and the idle time of a
    node its amount."""

    asOf: Timestamp
    month: NotRequired[str]
    jobs: list[JobCostAnswer]
    nodes: list[NodeCostAnswer]
    commitments: str
    storage: str
    total: str


class Held(TypedDict):
    node: str
    reason: str


class UsageTermsAnswer(TypedDict):
    """`pricePerHour`: of one node, now."""

    acceleratorType: str
    region: str
    usage: str
    pricePerHour: NotRequired[str]


class WhatIfLineAnswer(TypedDict):
    """Nodes of the same terms. `before` and `after` are left out for storage and commitments."""

    seconds: int
    actual: str
    changed: str
    difference: str
    before: NotRequired[UsageTermsAnswer]
    after: NotRequired[UsageTermsAnswer]


class WhatIfAnswer(TypedDict):
    month: str
    actual: str
    changed: str
    difference: str
    held: list[Held]
    notSold: list[str]
    lines: list[WhatIfLineAnswer]


@router.put("/budgets/{budget}")
def set_budget(
    request: Request, project: str, budget: str, body: Annotated[deps.Body, BudgetMessage]
) -> BudgetAnswer:
    """Sets a budget; another one of its name is replaced. It acts at once on what its period has
    cost so far."""
    caller, fleet = deps.principal(request), deps.platform(request).fleet
    caller.require("podyard.billing.edit", project, f"projects/{project}/budgets/{budget}")
    wanted = budgets.BudgetRequest(**deps.parse(BudgetMessage, body).model_dump())
    found, new = deps.write(
        request, lambda uow: budgets.set_budget(uow, fleet, caller, project, budget, wanted)
    )
    answer = _budget(found)
    if new:
        answer["secret"] = unseal(found.secret)
    return answer


@router.get("/budgets")
def list_budgets(request: Request, project: str) -> BudgetList:
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: budgets.list_budgets(uow, caller, project))
    return {"budgets": [_state(one) for one in found]}


@router.get("/budgets/{budget}")
def get_budget(request: Request, project: str, budget: str) -> BudgetAnswer:
    caller = deps.principal(request)
    return _state(deps.read(request, lambda uow: budgets.get(uow, caller, project, budget)))


@router.delete("/budgets/{budget}")
def delete_budget(request: Request, project: str, budget: str) -> deps.Empty:
    """Return what it has done stays on record."""
    caller = deps.principal(request)
    deps.write(request, lambda uow: budgets.remove(uow, caller, project, budget))
    return {}


@router.get("/budgetEvents", openapi_extra=deps.asks(*deps.PAGING))
def budget_events(request: Request, project: str) -> BudgetEventList:
    """Return what budgets have done, in order."""
    caller, after, limit = (
        deps.principal(request),
        deps.page_after_number(request),
        deps.page_size(request),
    )
    found = deps.read(request, lambda uow: budgets.events(uow, caller, project, after, limit))
    token = deps.page_token(str(found[-1][0].seq)) if len(found) == limit else None
    return {"events": [_event(*one) for one in found], **deps.next_page(token)}


@router.get("/costs", openapi_extra=deps.asks(MONTH))
def get_costs(request: Request, project: str) -> CostsAnswer:
    """Return what jobs and nodes have cost up to now."""
    caller, month = deps.principal(request), request.query_params.get("month")
    found = deps.read(
        request, lambda uow: costs.costs(uow, default_rate_card(), caller, project, month)
    )
    answer: CostsAnswer = {
        "asOf": found.as_of.rfc3339(),
        "jobs": [_job(job) for job in found.jobs],
        "nodes": [
            {
                "name": node.name,
                "acceleratorType": node.accelerator_type,
                "usage": str(node.usage_class),
                "idle": _share(node.idle),
                **_share(node.share),
            }
            for node in found.nodes
        ],
        "commitments": found.commitments.text(EXACT_DECIMALS),
        "storage": found.storage.text(EXACT_DECIMALS),
        "total": found.total.text(EXACT_DECIMALS),
    }
    if month is not None:
        answer["month"] = month
    return answer


@router.post("/costs:whatIf")
def what_if(
    request: Request, project: str, body: Annotated[deps.Body, WhatIfMessage]
) -> WhatIfAnswer:
    """The cost of the seconds that were used in a month, had the nodes been of another type, region
    or usage class, or had there been a commitment."""
    caller = deps.principal(request)
    caller.require("podyard.billing.view", project, f"projects/{project}/costs")
    message = deps.parse(WhatIfMessage, body)
    if message.usage is not None and message.usage not in tuple(UsageClass):
        raise invalid(f"unknown usage {message.usage[:40]!r}: use {', '.join(UsageClass)}", "usage")
    change = terms.TermsChange(
        message.accelerator_type,
        message.region,
        None if message.usage is None else UsageClass(message.usage),
        message.commitment_years,
        message.commitment_quantity,
        message.of_type,
    )
    found = deps.read(
        request,
        lambda uow: terms.what_if(uow, default_rate_card(), caller, project, message.month, change),
    )
    return {
        "month": found.month,
        "actual": found.actual.text(EXACT_DECIMALS),
        "changed": found.changed.text(EXACT_DECIMALS),
        "difference": (found.changed - found.actual).text(EXACT_DECIMALS),
        "held": [{"node": node, "reason": reason} for node, reason in found.held],
        "notSold": list(found.not_sold),
        "lines": [_what_if_line(line) for line in found.lines],
    }


def _what_if_line(line: terms.WhatIfLine) -> WhatIfLineAnswer:
    answer: WhatIfLineAnswer = {
        "seconds": line.seconds,
        "actual": line.actual.text(EXACT_DECIMALS),
        "changed": line.changed.text(EXACT_DECIMALS),
        "difference": (line.changed - line.actual).text(EXACT_DECIMALS),
    }
    if line.before is None or line.after is None:
        return answer
    return {**answer, "before": _usage_terms(line.before), "after": _usage_terms(line.after)}


def _usage_terms(one: terms.UsageTerms) -> UsageTermsAnswer:
    answer: UsageTermsAnswer = {
        "acceleratorType": one.accelerator_type,
        "region": one.region,
        "usage": str(one.usage_class),
    }
    if one.nanos_per_hour is None:
        return answer
    return {**answer, "pricePerHour": minor_text(one.nanos_per_hour, 9)}


def _state(found: BudgetState) -> BudgetAnswer:
    return _budget(found.budget, found.spent)


def _budget(budget: Budget, spent: Amount | None = None) -> BudgetAnswer:
    answer: BudgetAnswer = {
        "name": budget.name,
        "scope": ":".join(part for part in (budget.scope, budget.scope_value) if part),
        "amount": budget.amount.text(9),
        "period": budget.period,
        "thresholds": list(budget.thresholds),
        "forecasts": list(budget.forecasts),
        "actions": list(budget.actions),
        "createTime": budget.created.rfc3339(),
    }
    if spent is not None:
        answer["spent"] = spent.text(EXACT_DECIMALS)
    if budget.reached_at is not None:
        answer["reachedAt"] = budget.reached_at.rfc3339()
    return answer


def _event(entry: BudgetLogEntry, told: Sequence[WebhookRequest]) -> BudgetEvent:
    return {
        "event": entry.event_id,
        "budget": entry.name,
        "period": entry.period,
        "kind": entry.kind,
        "detail": entry.detail,
        "at": entry.at.rfc3339(),
        "cost": entry.cost.text(EXACT_DECIMALS),
        "amount": entry.amount.text(9),
        "text": entry.text,
        "webhooks": [
            {
                "url": hook.url,
                "tries": hook.tries,
                "outcome": hook.outcome,
                "done": hook.next_try is None,
            }
            for hook in told
        ],
    }


def _share(share: Share) -> ShareAnswer:
    return {"seconds": share.seconds, "amount": share.amount.text(EXACT_DECIMALS)}


def _dollars(exact: Fraction) -> str:
    return minor_text(
        round_half_up(exact.numerator * 10**EXACT_DECIMALS, exact.denominator), EXACT_DECIMALS
    )


def _job(job: costs.JobCost) -> JobCostAnswer:
    answer: JobCostAnswer = {
        "name": job.name,
        "node": job.node,
        "usage": str(job.usage_class),
        "state": job.state,
        "steps": job.steps,
        "attempts": [_attempt(attempt) for attempt in job.attempts],
        "lost": _dollars(job.lost_cost),
        "seconds": job.share.seconds,
        "amount": job.share.amount.text(EXACT_DECIMALS),
    }
    if job.per_step is not None and job.per_1000_examples is not None:
        answer["perStep"] = _dollars(job.per_step)
        answer["per1000Examples"] = _dollars(job.per_1000_examples)
    if job.per_epoch is not None:
        answer["perEpoch"] = _dollars(job.per_epoch)
    if job.estimate is not None:
        answer["estimate"] = job.estimate.text(EXACT_DECIMALS)
        answer["variance"] = (job.share.amount - job.estimate).text(EXACT_DECIMALS)
    if job.saving is not None:
        answer["saved"] = _dollars(job.saving)
    if job.machine is not None:
        answer["machine"] = machine_json(job.machine)
    return answer


def _attempt(attempt: costs.AttemptCost) -> AttemptCostAnswer:
    answer: AttemptCostAnswer = {
        "attempt": attempt.attempt,
        "lostSteps": attempt.lost_steps,
        "seconds": attempt.share.seconds,
        "amount": attempt.share.amount.text(EXACT_DECIMALS),
    }
    if attempt.outcome is not None:
        answer["outcome"] = attempt.outcome
    if attempt.on_demand is not None:
        answer["onDemand"] = attempt.on_demand.text(EXACT_DECIMALS)
    return answer
