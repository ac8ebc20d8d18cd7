"""Costs of work: runs, idle time, savings of spot, and what it would have cost otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.durations import duration_for_people
from podyard.base.errors import PodyardError, invalid
from podyard.base.money import Amount, money_text, price_text
from podyard.control.billing import accounts, costs, dashboard, explorer, snapshots
from podyard.control.billing.costs import Costs, JobCost, Needed, NodeCost
from podyard.control.billing.dashboard import IDLE_HINT_SECONDS, Efficiency
from podyard.control.billing.snapshots import Snapshot
from podyard.control.billing.what_if import TermsChange, WhatIf, WhatIfLine, what_if
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.node import UsageClass
from podyard.domain.usage import BilledKind
from podyard.hardware.accelerator_types import all_types, parse
from podyard.http import context
from podyard.pricing import explore
from podyard.pricing.commitments import seconds_until
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.explore import CostBucket
from podyard.pricing.sku import COMMITMENT_YEARS
from podyard.web.billing.common import (
    Pages,
    cents,
    frame,
    hourly,
    make_once,
    month_of,
    months_of,
    pages,
    read,
)
from podyard.web.billing.stream import stream
from podyard.web.kit import charts, formats, forms
from podyard.web.kit.formats import count, percent
from podyard.web.kit.places import noun_of, resource_url
from podyard.web.kit.render import ConsoleRoute, page, project_url

SECONDS_PER_HOUR = 3600
RUNS_SHOWN = 20  # each with its attempts
HINTS_SHOWN_MAX = 5  # the dearest
PREEMPTIONS_SHOWN = 50

# the nodes of one page, with their starting seconds
_Shown = tuple[Sequence[Efficiency], Pages, Mapping[str, int]]

router = APIRouter(route_class=ConsoleRoute)


@router.get("/runs")
@stream("runs")
def runs(request: Request, project: str) -> Response:
    found, month, worked = _costs(request, project, Needed.JOBS)
    jobs, numbers = pages(request, list(reversed(worked.jobs)), RUNS_SHOWN)
    shared = (
        node.idle.amount.parts for node in worked.nodes if node.idle.seconds < node.share.seconds
    )
    idle = Amount(sum(shared))
    return page(
        request,
        "billing_runs.html",
        **frame(project, "runs"),
        as_of=worked.as_of,
        month=month,
        months=months_of(found),
        jobs=[_job(job, project) for job in jobs],
        pages=numbers,
        total=money_text(Amount(sum(job.share.amount.parts for job in worked.jobs))),
        lost=_dollars(sum((job.lost_cost for job in worked.jobs), Fraction(0))),
        idle=money_text(idle),
    )


def _costs(request: Request, project: str, needed: Needed) -> tuple[Snapshot, str, Costs]:
    """Without the project's whole bill: few of its nodes may have anything to do with this."""
    caller = context.principal(request)

    def body(uow: UnitOfWork) -> tuple[Snapshot, str, Costs]:
        found = snapshots.without_use(uow, caller, project)
        month = month_of(request, found)
        return found, month, costs.costs(uow, default_rate_card(), caller, project, month, needed)

    return context.read(request, body)


def _job(job: JobCost, project: str) -> dict[str, Any]:
    zone, name = job.name.split("/")[3], job.name.rsplit("/", 1)[-1]
    amount = job.share.amount
    return {
        "id": name,
        "url": project_url(project, "jobs", zone, name),
        "state": job.state,
        "usage": job.usage_class,
        "seconds": duration_for_people(job.share.seconds),
        "amount": money_text(amount),
        "estimate": "–" if job.estimate is None else money_text(job.estimate),
        "lost": _dollars(job.lost_cost),
        "per_step": _dollars(job.per_step),
        "per_epoch": _dollars(job.per_epoch),
        "per_1000": _dollars(job.per_1000_examples),
        "attempts": [
            {
                "number": one.attempt,
                "outcome": one.outcome or "running",
                "steps": f"steps {one.first_step} to {one.last_step}",
                "lost": f"{count(one.lost_steps, 'step')} done again" if one.lost_steps else "",
                "amount": money_text(one.share.amount),
                "seconds": duration_for_people(one.share.seconds),
            }
            for one in job.attempts
        ],
    }


def _dollars(exact: Fraction | None) -> str:
    return "–" if exact is None else money_text(exact)


@router.get("/idle")
@stream("idle")
def idle(request: Request, project: str) -> Response:
    def body(
        uow: UnitOfWork, found: Snapshot
    ) -> tuple[Snapshot, str, tuple[PlatformTime, list[Efficiency]], _Shown]:
        month = month_of(request, found)
        as_of, rows = make_once(
            found, ("idle", month), lambda: dashboard.efficiency(uow, found, month)
        )
        shown, numbers = pages(request, rows)
        starting = dashboard.starting_seconds(uow, found, [row.key for row in shown], month)
        return found, month, (as_of, rows), (shown, numbers, starting)

    found, month, (as_of, rows), (shown, numbers, starting) = read(request, project, body)
    busy, unused = sum(row.busy for row in rows), sum(row.idle for row in rows)
    now = seconds_until(as_of)
    hints = [
        row
        for row in rows
        if row.idle_since is not None and row.rate and now - row.idle_since >= IDLE_HINT_SECONDS
    ]
    return page(
        request,
        "billing_idle.html",
        **frame(project, "idle"),
        found=found,
        as_of=as_of,
        month=month,
        months=months_of(found),
        busy=busy,
        unused=unused,
        share=percent(busy / (busy + unused)) if busy + unused else "–",
        wasted=cents(sum(row.idle_amount.parts for row in rows)),
        hints=[_hint(row, now, found) for row in hints[:HINTS_SHOWN_MAX]],
        more_hints=max(0, len(hints) - HINTS_SHOWN_MAX),
        nodes=[
            (_node(row, found), row, starting.get(row.key, 0), _share(row), _node_url(row))
            for row in shown
        ],
        pages=numbers,
    )


def _hint(row: Efficiency, now: int, found: Snapshot) -> dict[str, Any]:
    """Return what to do about it: a node of several hosts cannot be stopped, as on Cloud TPU."""
    is_instance = noun_of(row.facts.name) == "instance"
    stops = is_instance or parse(row.facts.type).host_count == 1
    verb, client = "stop" if stops else "delete", "podyard tpu"
    if is_instance:
        client = "gcloud compute instances"
    of_project = "" if row.facts.project == found.project else f" --project={row.facts.project}"
    return {
        "name": _node(row, found),
        "url": _node_url(row),
        "action_url": f"{_node_url(row)}?confirm=confirm-{verb}",
        "seconds": now - (row.idle_since or now),
        "rate": hourly(row.rate),
        "verb": verb.capitalize(),
        "command": f"{client} {verb} {row.facts.node_id} --zone={row.facts.zone}{of_project}",
    }


def _node(row: Efficiency, found: Snapshot) -> str:
    return explorer.name_in(found, row.facts.project, explorer.label_of(row.facts))


def _node_url(row: Efficiency) -> str:
    """Return the address of a node's page; empty for a node that is not in use any more."""
    return resource_url(row.facts.name) if row.rate else ""


def _share(row: Efficiency) -> float:
    return row.busy / (row.busy + row.idle) if row.busy + row.idle else 0.0


@router.get("/spot")
@stream("spot")
def spot(request: Request, project: str) -> Response:
    found, month, worked = _costs(request, project, Needed.SPOT)
    taken = context.read(request, lambda uow: dashboard.preemptions(uow, found, month))
    jobs = [job for job in worked.jobs if job.saving is not None]
    idle = sorted(
        (node for node in worked.nodes if node.idle_saved), key=lambda node: -node.idle_saved
    )
    shown, numbers = pages(request, jobs)
    others, of_nodes = pages(request, idle, query="nodes")
    return page(
        request,
        "billing_spot.html",
        **frame(project, "spot"),
        as_of=worked.as_of,
        month=month,
        months=months_of(found),
        jobs=[_saving_of(job, project) for job in shown],
        pages=numbers,
        nodes=[_idle_saved(node) for node in others],
        of_nodes=of_nodes,
        saved=_dollars(
            sum(
                (job.saving or Fraction(0) for job in jobs),
                sum((node.idle_saved for node in idle), Fraction(0)),
            )
        ),
        lost=_dollars(sum((job.lost_cost for job in jobs), Fraction(0))),
        chart=_timeline(found, month, taken),
        taken=taken[:PREEMPTIONS_SHOWN],
        taken_count=len(taken),
    )


def _saving_of(job: JobCost, project: str) -> dict[str, Any]:
    dearer = sum((a.on_demand.parts for a in job.attempts if a.on_demand is not None), 0)
    return {
        **_job(job, project),
        "on_demand": money_text(Amount(dearer)),
        "saved": _dollars(job.saving),
        "preempted": sum(1 for one in job.attempts if one.outcome == "PREEMPTED"),
    }


def _idle_saved(node: NodeCost) -> dict[str, Any]:
    return {
        "name": node.name.rsplit("/", 1)[-1],
        "usage": str(node.usage_class),
        "amount": money_text(node.idle.amount),
        "on_demand": money_text(node.idle_on_demand or Amount(0)),
        "saved": _dollars(node.idle_saved),
    }


def _timeline(found: Snapshot, month: str, taken: Sequence[tuple[PlatformTime, str, str]]) -> Any:
    zone = found.account.time_zone
    days = [explore.label(at.nanos // NANOS_PER_SECOND, CostBucket.DAY, zone) for at, _, _ in taken]
    bars = [
        charts.Bar(day[5:], [("preemptions", float(days.count(day)))])
        for day in (explore.label(second, CostBucket.DAY, zone) for second in _days(found, month))
    ]
    return charts.stacked_bars(
        "Preemptions by day", bars, unit="preemptions a day", are_counts=True
    )


def _days(found: Snapshot, month: str) -> list[int]:
    window, zone = found.month_seconds(month), found.account.time_zone
    first, last = (explore.local(second, zone).date() for second in (window.start, window.stop - 1))
    return explore.edges(CostBucket.DAY, first, last, zone)[:-1]


def _askable(_uow: UnitOfWork, request: Request, _project: str, _month: str) -> int:
    """The page's status: what cannot be asked is shown with its reason."""
    try:
        accounts.check_month(request.query_params.get("month") or "2000-01")
        _change(request.query_params)
    except PodyardError as error:
        return error.code.http_status
    return 200


@router.get("/what-if")
@stream("what-if", check=_askable)
def show_what_if(request: Request, project: str) -> Response:
    caller, fields = context.principal(request), request.query_params

    def body(
        uow: UnitOfWork, found: Snapshot
    ) -> tuple[Snapshot, str, WhatIf | None, PlatformTime, str]:
        try:
            month = month_of(request, found)
            if not any(fields.get(name) for name in ("type", "region", "usage", "years", "of")):
                return found, month, None, found.as_of, ""
            change = _change(fields)
            card = default_rate_card()
            key = ("what-if", month, change)
            as_of, answer = make_once(
                found, key, lambda: what_if(uow, card, caller, project, month, change)
            )
            return found, month, answer, as_of, ""
        except PodyardError as error:
            return found, found.month, None, found.as_of, error.message

    found, month, answer, as_of, error = read(request, project, body)
    card = default_rate_card()
    return page(
        request,
        "billing_whatif.html",
        status=400 if error else 200,
        **frame(project, "what-if"),
        as_of=as_of,
        month=month,
        months=months_of(found),
        fields=fields,
        error=error,
        groups=forms.groups_of(list(all_types())),
        types=sorted(
            {facts.type for facts in found.facts.values() if facts.kind is BilledKind.NODE}
        ),
        regions=sorted({sku.region for sku in card.skus.values()}),
        usages=[str(usage) for usage in UsageClass if usage is not UsageClass.RESERVED],
        years=COMMITMENT_YEARS,
        answer=answer,
        shown=None if answer is None else _comparison(answer),
        lines=[] if answer is None else [_line_view(line) for line in answer.lines],
        held=[]
        if answer is None
        else [(name.rsplit("/", 1)[-1], why) for name, why in answer.held[:HINTS_SHOWN_MAX]],
    )


def _change(fields: Mapping[str, str]) -> TermsChange:
    usage, years, quantity = fields.get("usage"), fields.get("years"), fields.get("quantity") or "1"
    if usage and usage not in tuple(UsageClass):
        raise invalid(f"unknown usage {usage[:40]!r}: use {', '.join(UsageClass)}", "usage")
    if any(not text.isdecimal() or len(text) > 9 for text in (years or "1", quantity)):
        raise invalid("years and quantity must be whole numbers", "years")
    return TermsChange(
        fields.get("type") or None,
        fields.get("region") or None,
        UsageClass(usage) if usage else None,
        int(years) if years else None,
        int(quantity),
        fields.get("of") or None,
    )


def _comparison(answer: WhatIf) -> dict[str, str]:
    less = answer.changed - answer.actual
    share = percent(answer.changed.parts / answer.actual.parts - 1) if answer.actual.parts else "–"
    return {
        "actual": cents(answer.actual.parts),
        "changed": cents(answer.changed.parts),
        "difference": cents(less.parts),
        "share": share,
    }


def _line_view(line: WhatIfLine) -> dict[str, Any]:
    """Return a line in words: hours of nodes, the price of one before and after, and the cost."""
    less = line.changed - line.actual
    costs_of = {
        "actual": cents(line.actual.parts),
        "changed": cents(line.changed.parts),
        "difference": cents(less.parts),
        "is_less": less.parts < 0,
        "is_more": less.parts > 0,
    }
    if line.before is None or line.after is None:
        nothing = dict.fromkeys(("change", "hours", "price", "changed_price"), "")
        return {"name": "Commitments, storage", **nothing, **costs_of}
    prices = [
        "no price" if one.nanos_per_hour is None else f"{price_text(one.nanos_per_hour)} per hour"
        for one in (line.before, line.after)
    ]
    words = [
        (one.accelerator_type, one.region, str(one.usage_class))
        for one in (line.before, line.after)
    ]
    return {
        "name": " ".join(words[0]),
        "change": " ".join(words[1]) if words[0] != words[1] else "",
        "hours": f"{formats.number(line.seconds / SECONDS_PER_HOUR)} h",
        "price": prices[0],
        "changed_price": prices[1] if words[0] != words[1] else "",
        **costs_of,
    }
