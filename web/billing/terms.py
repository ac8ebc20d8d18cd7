"""The agreements of the account: commitments and what they bring, rate cards, and budgets with what
they have done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import price_text
from podyard.control.billing import budgets, commitments, dashboard
from podyard.control.billing.dashboard import Covered
from podyard.control.billing.snapshots import Snapshot
from podyard.control.billing.spending import REFUSE, STOP, BudgetState
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.budget import Budget, BudgetLogEntry
from podyard.domain.invoice import Purchase
from podyard.domain.usage import PriceVersion
from podyard.domain.webhook import WebhookRequest
from podyard.hardware.generations import GENERATIONS
from podyard.http import context
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import RateCard, Sku
from podyard.web.billing.common import budget_bar, cents, frame, pages, read
from podyard.web.billing.stream import stream
from podyard.web.kit.commands import Command
from podyard.web.kit.formats import moment, percent
from podyard.web.kit.render import ConsoleRoute, page

# the events of budgets that pages are made of: the oldest first, as they are kept
LOG_SHOWN_MAX = 1_000
PRICES_SHOWN = 40
_FILTERS = ("generation", "region", "usage")

router = APIRouter(route_class=ConsoleRoute)


@router.get("/commitments")
@stream("commitments")
def show_commitments(request: Request, project: str) -> Response:
    caller = context.principal(request)

    def body(uow: UnitOfWork, found: Snapshot) -> tuple[Snapshot, list[Purchase], list[Covered]]:
        return found, commitments.list_commitments(uow, caller, project), dashboard.coverage(found)

    found, bought, sums = read(request, project, body)
    shown, numbers = pages(request, bought)
    card = default_rate_card()
    text = f"podyard commitment buy --project={project} --type=v2-32 --zone=us-central1-a --years=1"
    return page(
        request,
        "billing_commitments.html",
        **frame(project, "commitments"),
        may_edit=caller.may("podyard.billing.edit", project),
        found=found,
        rows=[_purchase(one, card, found) for one in shown],
        pages=numbers,
        sums=[_coverage(one) for one in sums],
        commands=[Command("podyard", text)],
    )


def _purchase(one: Purchase, card: RateCard, found: Snapshot) -> dict[str, Any]:
    """`break_even`: the share of the term in which it must be used to cost no more than on
    demand."""
    had = one.commitment
    sku = card.skus.get(had.sku_id)
    dear = (
        None if sku is None else sku.version_at(PlatformTime(had.start_second * NANOS_PER_SECOND))
    )
    now = found.as_of.nanos // NANOS_PER_SECOND
    return {
        "id": had.commitment_id,
        "sku": had.sku_id,
        "quantity": had.quantity,
        "years": one.years,
        "price": price_text(had.price.nanos),
        "verified": had.price.verified,
        "upfront": None if one.upfront is None else cents(one.upfront.parts),
        "start": _day(had.start_second),
        "end": _day(had.end_of_charges),
        "over": now >= had.end_of_charges,
        "break_even": "–"
        if dear is None or not dear.nanos
        else percent(had.price.nanos / dear.nanos),
    }


def _day(second: int) -> str:
    return moment(PlatformTime(second * NANOS_PER_SECOND))[:10]


def _coverage(one: Covered) -> dict[str, str]:
    return {
        "sku": one.sku_id,
        "utilisation": percent(one.covered / one.committed) if one.committed else "–",
        "coverage": percent(one.covered / one.used) if one.used else "–",
        "own": cents(one.own.parts),
        "instead": cents(one.instead.parts),
        "saved": cents(one.instead.parts - one.own.parts),
    }


@router.get("/prices")
def show_prices(request: Request, project: str) -> Response:
    """The rate card of this process, narrowed by `?generation=`, `?region=` and `?usage=`."""
    context.principal(request).require(
        "tpu.acceleratortypes.get", project, f"projects/{project}/prices"
    )
    card, fields = default_rate_card(), request.query_params
    now = context.read(request, lambda uow: uow.now)
    skus = sorted(
        card.skus.values(), key=lambda sku: (sku.generation not in GENERATIONS, sku.sku_id)
    )
    wanted = [
        sku
        for sku in skus
        if all(fields.get(name) in (None, "", getattr(sku, name)) for name in _FILTERS)
    ]
    shown, numbers = pages(request, wanted, PRICES_SHOWN)
    return page(
        request,
        "billing_prices.html",
        **frame(project, "prices"),
        rows=[_sku(sku, now) for sku in shown],
        pages=numbers,
        fields=fields,
        choices={name: sorted({getattr(sku, name) for sku in skus}) for name in _FILTERS},
        currency=card.currency,
        unverified=sum(1 for sku in wanted if not _standing(sku, now).verified),
        commands=[Command("podyard", "podyard price list\npodyard price show v2-8")],
    )


def _standing(sku: Sku, now: PlatformTime) -> PriceVersion:
    """The price now; before the first one, that one, which then stands with its date."""
    return sku.version_at(now) or sku.versions[0]


def _sku(sku: Sku, now: PlatformTime) -> dict[str, Any]:
    standing = _standing(sku, now)
    return {
        "id": sku.sku_id,
        "unit": str(sku.unit).replace("_", " ").replace("gib", "GiB").replace("vcpu", "vCPU"),
        **_version(standing),
        "announced": [
            _version(one)
            for one in sku.versions
            if one.effective_from > max(standing.effective_from, now)
        ],
        "history": [
            _version(one)
            for one in reversed(sku.versions)
            if one.effective_from < standing.effective_from
        ],
    }


def _version(one: PriceVersion) -> dict[str, Any]:
    return {
        "price": price_text(one.nanos),
        "from": one.effective_from.rfc3339()[:10],
        "source": one.source,
        "verified": one.verified,
    }


@router.get("/budgets")
@stream("budgets")
def show_budgets(request: Request, project: str) -> Response:
    caller = context.principal(request)

    def body(
        uow: UnitOfWork, found: Snapshot
    ) -> tuple[Snapshot, list[BudgetState], Sequence[budgets.Event]]:
        log = budgets.events(uow, caller, project, 0, LOG_SHOWN_MAX)
        return found, dashboard.budgets_of(uow, found), list(reversed(log))

    found, rows, log = read(request, project, body)
    shown, numbers = pages(request, log)
    text = (
        f"podyard budget set monthly --project={project} --amount=1000 --threshold=0.5 "
        "--threshold=1"
    )
    return page(
        request,
        "billing_budgets.html",
        **frame(project, "budgets"),
        may_edit=caller.may("podyard.billing.edit", project),
        found=found,
        rows=[{**budget_bar(one), **_actions(one.budget), **_fields(one.budget)} for one in rows],
        log=[_event(*one) for one in shown],
        pages=numbers,
        commands=[Command("podyard", text)],
    )


def _actions(budget: Budget) -> dict[str, str]:
    reached = budget.reached_at
    return {
        "actions": ", ".join(action.partition("?")[0] for action in budget.actions) or "none",
        "reached": "" if reached is None else moment(reached),
    }


def _fields(budget: Budget) -> dict[str, Any]:
    """The budget as its form holds it."""
    value = f":{budget.scope_value}" if budget.scope_value else ""
    return {
        "dollars": budget.amount.text(9).rstrip("0").rstrip("."),
        "each": budget.period,
        "scope_text": f"{budget.scope}{value}",
        "shares": ", ".join(budget.thresholds),
        "refuses": REFUSE in budget.actions,
        "stops": STOP in budget.actions,
    }


def _event(entry: BudgetLogEntry, told: Sequence[WebhookRequest]) -> dict[str, Any]:
    return {
        "at": entry.at,
        "name": entry.name,
        "period": entry.period,
        "kind": entry.kind,
        "text": entry.text,
        "cost": cents(entry.cost.parts),
        "amount": cents(entry.amount.parts),
        "told": len(told),
    }
