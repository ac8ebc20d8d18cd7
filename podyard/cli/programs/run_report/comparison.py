"""One table for a dry run on one or several types: a row for each."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.base.durations import duration_for_people
from podyard.base.money import cost_text, money_text
from podyard.cli.kit import tables
from podyard.cli.programs.plan.rows import PARTS, PlanRow, predict
from podyard.cli.programs.program_environment import ProgramOptions
from podyard.cli.programs.run_report.prices import price_text, prices
from podyard.domain.node import UsageClass
from podyard.engine.plan.forecast import RunRequest, SliceForecast, SlicePrice, forecast
from podyard.engine.report.summary import time_text
from podyard.programs.plan.forecast import step_on_slice
from podyard.programs.summary import ProgramSummary

NOTHING_FITS_CODE = 4  # with --strict: no type has room for the program
_COLUMNS = ("TYPE", "FITS", "STEP", "EXPECTED", "MFU", "HFU")
_RUN_COLUMNS = ("TOKENS A STEP", "HOURS", "ON-DEMAND", "SPOT")
_USAGES = (str(UsageClass.ON_DEMAND), str(UsageClass.SPOT))
_UNKNOWN = tables.NOTHING


def forecast_of(options: ProgramOptions, summary: ProgramSummary) -> SliceForecast:
    """Return the row of a type in its zone."""
    run = RunRequest(options.tokens, options.tokens_per_step, options.slices)
    hourly = [
        SlicePrice(price.usage, price.nanos_per_hour, price.currency)
        for price in prices(options.kind, options.zone)
    ]
    return forecast(options.kind, options.zone, step_on_slice(summary), hourly, run)


def comparison(rows: Sequence[tuple[ProgramOptions, SliceForecast]]) -> str:
    """Return the table for people, with the sources of its figures below it."""
    options = rows[0][0]
    if options.tokens is None:
        steps = f"{options.plan_steps:,} STEPS"
        more: tuple[str, ...] = ("RATE A CHIP", "1,000 STEPS", "SPOT", f"{steps} SPOT, P50", "P95")
        lines = [(*_cells(row), *_rates(own, row)) for own, row in rows]
    else:
        more = _RUN_COLUMNS
        lines = [(*_cells(row), *_run(row)) for _, row in rows]
    forecasts = [row for _, row in rows]
    return "\n".join([tables.table((*_COLUMNS, *more), lines), *_notes(options, forecasts)])


def _cells(row: SliceForecast) -> tuple[str, ...]:
    return (
        row.kind.name,
        row.step.memory or _UNKNOWN,
        _UNKNOWN if row.step.seconds is None else time_text(row.step.seconds),
        _interval(row),
        *(_UNKNOWN if share is None else f"{share:.1%}" for share in (row.step.mfu, row.step.hfu)),
    )


def _interval(row: SliceForecast) -> str:
    interval = row.interval
    return _UNKNOWN if interval is None else " to ".join(map(time_text, interval))


def _run(row: SliceForecast) -> tuple[str, ...]:
    tokens, costs = row.step.tokens, (row.cost(usage) for usage in _USAGES)
    return (
        _UNKNOWN if tokens is None or tokens.count is None else f"{tokens.count:,}",
        _UNKNOWN if row.hours is None else f"{row.hours:,.1f}",
        *(
            _UNKNOWN
            if cost is None or cost.amount is None
            else cost_text(cost.amount, cost.currency)
            for cost in costs
        ),
    )


def _rates(options: ProgramOptions, row: SliceForecast) -> tuple[str, ...]:
    """Rate and cost of steps, and a run of `plan_steps` on spot slices."""
    kind, seconds = row.kind, row.step.seconds
    if seconds is None:
        return (_UNKNOWN,) * 5
    rate = f"{options.batch / seconds / kind.chip_count:,.1f}/s" if options.batch else _UNKNOWN
    costs = {price.usage: price_text(price, 1000 * seconds) for price in prices(kind, options.zone)}
    plan = predict(kind, seconds, options.plan_steps, UsageClass.SPOT, options.zone)
    ends = [_plan(plan, part) for part in PARTS]
    return (rate, *(costs.get(usage, _UNKNOWN) for usage in _USAGES), *ends)


def _plan(row: PlanRow, part: str) -> str:
    cost = "" if row.costs is None else f", {money_text(row.costs[part])}"
    return f"{duration_for_people(row.finishes[part])}{cost}"


def _notes(options: ProgramOptions, rows: Sequence[SliceForecast]) -> list[str]:
    """Return a line for each thing that the cells leave open."""
    notes = [f"{row.kind.name}: {row.step.why}" for row in rows if row.step.why]
    notes.append(_error_note(rows))
    if options.tokens is None:
        return notes
    sources: dict[str, list[str]] = {}
    for row in rows:
        if row.step.tokens is not None:
            sources.setdefault(row.step.tokens.source, []).append(row.kind.name)
    for source, names in sources.items():
        notes.append(f"tokens of a step ({', '.join(names)}): {source}")
    if any(row.step.tokens is not None and row.step.tokens.count is None for row in rows):
        notes.append("tokens of a step are not known: use --tokens-per-step N")
    zones: dict[str, list[str]] = {}
    for row in rows:
        zones.setdefault(row.zone, []).append(row.kind.name)
    places = ", ".join(f"{zone} ({', '.join(names)})" for zone, names in zones.items())
    slices = f" for {options.slices} slices" if options.slices > 1 else ""
    notes.append(
        f"{options.tokens:,} tokens{slices} at the prices of today in {places}, without "
        "preemptions and checkpoints (`podyard plan` models them)"
    )
    return notes


def _error_note(rows: Sequence[SliceForecast]) -> str:
    names = dict.fromkeys(row.kind.generation.name for row in rows)
    errors = {row.kind.generation.name: row.error for row in rows}
    known = [f"{name} ({one.rows})" for name in names if (one := errors[name]) is not None]
    others = [name for name in names if errors[name] is None]
    parts = [f"published runs of {', '.join(known)}"] if known else []
    parts += [f"no published runs of {', '.join(others)}"] if others else []
    return f"EXPECTED: 10th to 90th percentile by published step times; {'; '.join(parts)}"
