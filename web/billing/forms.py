"""Forms that change the terms of billing: budgets, commitments and credits. The pages that show
them have the forms."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError, invalid
from podyard.control.billing import budgets, commitments
from podyard.control.billing.budgets import NOTIFY, BudgetRequest
from podyard.control.billing.commitments import CommitmentRequest
from podyard.control.billing.spending import MONTH, REFUSE, STOP
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.web.kit import forms
from podyard.web.kit.render import (
    ConsoleRoute,
    error_page,
    form_of,
    project_url,
    see_other_with_notice,
    title_of,
)

router = APIRouter(prefix="/console/{project}/billing", route_class=ConsoleRoute)


@router.post("/{kind}/{action}")
async def act(request: Request, project: str, kind: str, action: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _act(request, project, f"{kind}/{action}", fields))


def _act(request: Request, project: str, action: str, fields: Mapping[str, str]) -> Response:
    """A refusal is a separate page: the figures above the form may take seconds, and the browser
    keeps the form."""
    given = {name: value.strip() for name, value in fields.items()}
    try:
        if action == "budgets/set":
            said = _set_budget(request, project, given)
        elif action == "budgets/remove":
            caller, name = context.principal(request), given.get("name", "")
            context.write(request, lambda uow: budgets.remove(uow, caller, project, name))
            said = f"Budget {name} is removed."
        elif action == "commitments/buy":
            said = _buy(request, project, given)
        elif action == "commitments/credit":
            said = _add_credit(request, project, given)
        else:
            raise invalid(f"unknown action {action!r}", "action")
    except PodyardError as error:
        return error_page(request, error.code.http_status, title_of(error.code), error.message)
    return see_other_with_notice(project_url(project, "billing", action.partition("/")[0]), said)


def _set_budget(request: Request, project: str, given: Mapping[str, str]) -> str:
    caller, fleet = context.principal(request), context.platform(request).fleet
    name, wanted = given.get("name", ""), [name for name in (REFUSE, STOP) if given.get(name)]

    def body(uow: UnitOfWork) -> bool:
        # The form has no forecasts, and no webhooks, whose secret is shown once: those that were
        # set by command stay.
        present = next(
            (
                one.budget
                for one in budgets.list_budgets(uow, caller, project)
                if one.budget.name == name
            ),
            None,
        )
        actions = () if present is None else present.actions
        webhooks = [action for action in actions if action.startswith(NOTIFY)]
        asked = BudgetRequest(
            amount=given.get("amount", ""),
            scope=given.get("scope") or "project",
            period=given.get("period") or MONTH,
            thresholds=[share.strip() for share in (given.get("thresholds") or "1").split(",")],
            forecasts=() if present is None else present.forecasts,
            actions=[*wanted, *webhooks],
        )
        return budgets.set_budget(uow, fleet, caller, project, name, asked)[1]

    changed = context.write(request, body)
    return f"Budget {name} is set." if changed else f"Budget {name} is set already."


def _buy(request: Request, project: str, given: Mapping[str, str]) -> str:
    caller = context.principal(request)
    asked = CommitmentRequest(
        quantity=forms.whole(given, "quantity", "Number of nodes", 1),
        years=forms.whole(given, "years", "Term", 1),
        upfront=bool(given.get("upfront")),
        accelerator_type=given.get("accelerator_type") or None,
        zone=given.get("zone") or None,
    )
    card = default_rate_card()
    bought = context.write(request, lambda uow: commitments.buy(uow, card, caller, project, asked))
    return f"Commitment {bought.commitment.commitment_id} is bought."


def _add_credit(request: Request, project: str, given: Mapping[str, str]) -> str:
    caller = context.principal(request)
    amount, first, last = (
        given.get("amount", ""),
        given.get("from_month") or None,
        given.get("until_month", ""),
    )
    reason = given.get("reason", "")
    context.write(
        request,
        lambda uow: commitments.add_credit(uow, caller, project, amount, first, last, reason),
    )
    return f"A credit of ${amount} is added."
