"""The same program on several accelerator types."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from podyard.base.errors import Code, PodyardError
from podyard.engine.report.document import document
from podyard.engine.report.summary import (
    Report,
    bound_text,
    bytes_text,
    cost_text,
    percent,
    reasons_text,
)
from podyard.engine.report.table import NOTHING, TextBlock

COST_DIGITS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one type. `error` is None where the program can run there; a program that
    does not fit has a report and an error."""

    accelerator_type: str
    report: Report | None
    error: PodyardError | None = None


def outcome_of(accelerator_type: str, make: Callable[[str], Report]) -> Outcome:
    """Return what `make` reports of the type, or the expected failure that it raises."""
    try:
        report = make(accelerator_type)
    except PodyardError as error:
        return Outcome(accelerator_type, None, error)
    if report.estimate.fits:
        return Outcome(accelerator_type, report)
    return Outcome(accelerator_type, report, PodyardError(Code.RESOURCE_EXHAUSTED, report.verdict))


def ratio(outcome: Outcome, first: Outcome) -> float | None:
    """Time per step against the first's; None where one of the two cannot run."""
    if outcome.report is None or first.report is None or outcome.error or first.error:
        return None
    base = first.report.estimate.modelled_seconds
    return outcome.report.estimate.modelled_seconds / base if base else None


def cost_ratio(outcome: Outcome, first: Outcome, usage: str) -> float | None:
    """Cost per step against the first's, both bought as `usage`; None where one of the two has no
    price."""
    if ratio(outcome, first) is None:
        return None
    own, base = (_step_costs(one).get(usage) for one in (outcome, first))
    return None if own is None or not base else float(own / base)


def block(outcomes: Sequence[Outcome]) -> TextBlock:
    """A row per type, the first one being what the others are held against."""
    usages = usages_of(outcomes)
    headings = (
        "TYPE",
        "STEP",
        "RATIO",
        "EPOCH",
        "MFU",
        "HFU",
        "MXU",
        "BOUND",
        "PEAK_HBM",
        "ENERGY_J",
    )
    costs = tuple(f"USD_{usage.upper().replace('-', '_')}" for usage in usages)
    rows = tuple(_row(outcome, outcomes[0], usages) for outcome in outcomes)
    after = tuple(
        f"{outcome.accelerator_type}: lower bound, also its costs and ratios, because: "
        f"{reasons_text(outcome.report.estimate)}"
        for outcome in outcomes
        if outcome.report is not None and outcome.report.estimate.doubts
    )
    if any(outcome.error for outcome in outcomes):
        return TextBlock(("Compared, costs per step:",), (*headings, *costs, "ERROR"), rows, after)
    return TextBlock(
        ("Compared, costs per step:",), (*headings, *costs), tuple(row[:-1] for row in rows), after
    )


def usages_of(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Usage classes that at least one type has a price for, in order."""
    return tuple(dict.fromkeys(usage for outcome in outcomes for usage in _step_costs(outcome)))


def _row(outcome: Outcome, first: Outcome, usages: Sequence[str]) -> tuple[str, ...]:
    report = outcome.report
    if report is None or outcome.error is not None:
        reason = outcome.error.message if outcome.error is not None else ""
        return (outcome.accelerator_type, *[NOTHING] * (9 + len(usages)), reason)
    estimate, against, costs = report.estimate, ratio(outcome, first), _step_costs(outcome)
    epoch, joules, peak = (
        report.epoch_seconds,
        report.slice_joules,
        bytes_text(estimate.needed_hbm_bytes),
    )
    return (
        outcome.accelerator_type,
        report.step_text,
        NOTHING if against is None else f"{against:.3g}",
        NOTHING if epoch is None else bound_text(estimate, epoch),
        percent(estimate.mfu),
        percent(estimate.hfu),
        percent(estimate.mxu_utilization),
        estimate.bound,
        f"at least {peak}" if estimate.is_memory_lower_bound else peak,
        NOTHING if joules is None else f"{joules:.4g}",
        *(cost_text(costs[usage], COST_DIGITS) if usage in costs else NOTHING for usage in usages),
        "",
    )


def documents(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A JSON object per type: the report's, with `ratios` against the first, or with `error` as the
    API has it."""
    usages = usages_of(outcomes)
    found = []
    for outcome in outcomes:
        told: dict[str, Any] = (
            {"acceleratorType": outcome.accelerator_type}
            if outcome.report is None
            else document(outcome.report)
        )
        if outcome.error is not None:
            told["error"] = {"status": outcome.error.code.name, "message": outcome.error.message}
        else:
            by_usage = {usage: cost_ratio(outcome, outcomes[0], usage) for usage in usages}
            told["ratios"] = {
                "modelledSeconds": ratio(outcome, outcomes[0]),
                "costPerStep": by_usage,
            }
        found.append(told)
    return found


def _step_costs(outcome: Outcome) -> dict[str, Any]:
    report = outcome.report
    if report is None:
        return {}
    costs = {price.usage: report.cost_of_step(price) for price in report.prices}
    return {usage: cost for usage, cost in costs.items() if cost is not None}
