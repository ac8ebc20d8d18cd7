"""Texts of a plan: its table, its summary, its JSON, and the line of each accelerator type while it
is made."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.money import cost_text
from podyard.cli.programs.plan.rows import LIMIT, PARTS, Limits, PlanRow, order
from podyard.engine.report.summary import REASONS_SHOWN, time_text

COST_DECIMALS = 6


def type_text(rows: Sequence[PlanRow], currency: str) -> str:
    """Return one line for an accelerator type: its step, and its cheapest row."""
    best = min(rows, key=order)
    if best.runs is None:
        return f"{best.accelerator_type}: {', '.join(best.reasons)}"
    step, finish = time_text(best.runs.run.step_seconds), best.finishes[LIMIT]
    ends = "never ends" if math.isinf(finish) else f"by P95 {time_text(finish)}"
    cost = "no price" if best.costs is None else cost_text(best.costs[LIMIT], currency)
    at_least = "at least " if best.doubts else ""
    where = f"{best.usage} in {best.zone}"
    return f"{best.accelerator_type}: {at_least}{step} a step; {ends}, {cost}, {where}"


def summary(rows: Sequence[PlanRow], best: PlanRow | None, limits: Limits, currency: str) -> str:
    """Return a sentence on the best row, and why others are not."""
    counts: dict[str, int] = {}
    for row in rows:
        for reason in row.reasons if row.runs is not None else ("cannot run it",):
            counts[reason] = counts.get(reason, 0) + 1
    why = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    if best is None:
        soonest = min(
            (row.finishes["p95"] for row in rows if row.runs is not None), default=math.inf
        )
        costs = [row.costs["p95"] for row in rows if row.costs is not None]
        least = f"{cost_text(min(costs), currency)}" if costs else "without a price"
        ends = "none ends" if math.isinf(soonest) else f"the soonest takes {time_text(soonest)}"
        return (
            f"None meets {_limits_text(limits, currency)} ({why}): {ends}, the cheapest costs "
            f"{least} (P95)."
        )
    assert best.costs is not None
    fine = sum(not row.reasons for row in rows) - 1
    others = f"{fine} more would do" + (f"; not so: {why}" if why else "")
    finish, cost = time_text(best.finishes["p95"]), cost_text(best.costs["p95"], currency)
    where = f"{best.accelerator_type} {best.usage} in {best.zone}"
    return f"Cheapest: {where}, by P95 {finish} and {cost}. {others}."


def doubts_text(rows: Sequence[PlanRow]) -> str:
    """Return the types whose rows are lower bounds, and why; empty where none is."""
    doubtful = [row for row in rows if row.doubts]
    if not doubtful:
        return ""
    reasons = tuple(dict.fromkeys(reason for row in doubtful for reason in row.doubts))
    more = len(reasons) - REASONS_SHOWN
    listed = "; ".join(reasons[:REASONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return (
        f" Lower bound: {len(doubtful)} of {len(rows)} rows take at least these "
        "times and costs, "
        f"because: {listed}"
    )


def _limits_text(limits: Limits, currency: str) -> str:
    said = []
    if limits.deadline is not None:
        said.append(f"the deadline of {time_text(limits.deadline)}")
    if limits.budget is not None:
        said.append(f"the budget of {cost_text(limits.budget, currency)}")
    return " and ".join(said) or "what a plan needs"


HEADINGS = (
    "",
    "TYPE",
    "ZONE",
    "USAGE",
    "STEP",
    "FINISH_P50",
    "FINISH_P95",
    "COST_P50",
    "COST_P95",
    "LOST",
    "WHY_NOT",
)


def cells(row: PlanRow, best: bool, currency: str) -> list[str]:
    step = "-" if row.step_seconds is None else time_text(row.step_seconds)
    if row.doubts and row.step_seconds is not None:
        step = f"at least {step}"
    figures = ["-"] * 5
    if row.runs is not None:
        ends = [
            "never" if math.isinf(row.finishes[name]) else time_text(row.finishes[name])
            for name in PARTS
        ]
        costs = [
            "-" if row.costs is None else cost_text(row.costs[name], currency) for name in PARTS
        ]
        figures = [*ends, *costs, time_text(float(row.runs.lost.mean()))]
    names = [row.accelerator_type, row.zone or "-", row.usage or "-"]
    return ["*" if best else "", *names, step, *figures, ", ".join(row.reasons) or "-"]


def json_text(
    head: Mapping[str, object], rows: Sequence[PlanRow], best: PlanRow | None, said: str
) -> str:
    """Return the JSON of a plan. `head`: its first fields."""
    document = {**head, "rows": [_json_row(row, row is best) for row in rows], "summary": said}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _json_row(row: PlanRow, best: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "acceleratorType": row.accelerator_type,
        "zone": row.zone or None,
        "usage": row.usage or None,
        "fits": row.runs is not None,
        "stepSeconds": row.step_seconds,
        "meets": not row.reasons,
        "cheapest": best,
        "whyNot": list(row.reasons),
    }
    if row.doubts:
        found |= {"confidence": "lower bound", "reasons": list(row.doubts)}
    if row.runs is not None:
        ends = {name: None if math.isinf(end) else end for name, end in row.finishes.items()}
        costs = (
            None
            if row.costs is None
            else {name: cost.text(COST_DECIMALS) for name, cost in row.costs.items()}
        )
        found |= {
            "finishSeconds": ends,
            "cost": costs,
            "preemptions": float(row.runs.preemptions.mean()),
            "lostSeconds": float(row.runs.lost.mean()),
        }
    return found
