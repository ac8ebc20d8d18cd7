"""`podyard plan`: what a whole run would take and cost, by type, zone and usage. Needs no running
Podyard."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

import click

from podyard.base.clock import NANOS_PER_SECOND, OsClock, PlatformTime
from podyard.base.durations import parse_duration
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.cli import tables
from podyard.cli.estimate import USAGES, analysis_of
from podyard.cli.fleets import read_fleet
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.node import UsageClass
from podyard.engine.recipes.programs import PROGRAMS
from podyard.engine.report import compare
from podyard.engine.report.compare import Outcome
from podyard.engine.report.summary import REASONS_SHOWN, time_text
from podyard.hardware.accelerator_types import AcceleratorType, all_types
from podyard.hardware.generations import GENERATIONS
from podyard.pricing import planning
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.planning import Draws, PlannedRuns, TrainingRun
from podyard.pricing.sku import RateCard
from podyard.settings import fleet_name, from_environment

# One of each generation on one host and on a few: what a first plan compares.
TYPES_USUAL = ",".join(
    name for generation in GENERATIONS.values() for name in generation.usual_types
)
TYPES_MAX = 128  # every type of one generation; an estimate takes some hundredths of a second each
PREEMPTIONS_USUAL = 1.0  # per day
CHECKPOINT_STEPS_USUAL = 100  # as jobs that say nothing
COST_DECIMALS = 6
PARTS = {"p50": 0.5, "p95": 0.95}


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Seconds, from texts such as 6h."""
    if value is None:
        return None
    try:
        nanos = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    if nanos <= 0:
        raise click.BadParameter(
            f"{value!r} is not a positive duration, for example 6h or 2d", ctx, param
        )
    return nanos / NANOS_PER_SECOND


def _money(ctx: click.Context, param: click.Parameter, value: str | None) -> Fraction | None:
    """A decimal number above zero."""
    if value is None:
        return None
    try:
        found = Decimal(value)
    except InvalidOperation:
        found = Decimal(0)
    if not found.is_finite() or found <= 0:
        raise click.BadParameter(
            f"{value!r} is not an amount above zero, such as 200 or 12.50", ctx, param
        )
    return Fraction(found)


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and units of the currency; None: any."""

    deadline: float | None
    budget: Fraction | None


@dataclasses.dataclass(frozen=True)
class PlanRow:
    """One way to do it. `reasons`: why it is not one that meets both limits. `costs` None: it has
    no price."""

    accelerator_type: str
    zone: str
    usage: str
    step_seconds: float | None
    fits: bool
    runs: PlannedRuns | None = None
    costs: Mapping[str, Amount] | None = None
    reasons: tuple[str, ...] = ()
    # Why its step, and with it time and cost, is a lower bound; empty where it is not.
    doubts: tuple[str, ...] = ()

    @property
    def finishes(self) -> Mapping[str, float]:
        """Seconds, by name of the quantile; of a row with runs."""
        assert self.runs is not None
        return {name: self.runs.finish_at(part) for name, part in PARTS.items()}


@click.command(epilog=f"Recipes: {', '.join(PROGRAMS)}.")
@click.argument("program", metavar="FILE_OR_RECIPE")
@click.option(
    "--steps", type=click.IntRange(1), required=True, help="Number of training steps of the run."
)
@click.option(
    "--deadline",
    callback=_seconds,
    metavar="DURATION",
    help="Deadline for the run, for example 6h or 2d.",
)
@click.option("--budget", callback=_money, metavar="AMOUNT", help="Maximum cost of the run.")
@click.option(
    "--preemptions-per-day",
    type=click.FloatRange(0, planning.PREEMPTIONS_PER_DAY_MAX),
    default=PREEMPTIONS_USUAL,
    show_default=True,
    help="Expected preemptions per day of a preemptible or spot node.",
)
@click.option(
    "--types",
    default=TYPES_USUAL,
    show_default=True,
    help="Accelerator types, or patterns such as v4-*, separated by commas.",
)
@click.option(
    "--zone",
    "zones",
    default="*",
    show_default=True,
    help="Zones, or patterns such as us-*, separated by commas.",
)
@click.option(
    "--global-batch",
    type=click.IntRange(1),
    help="Examples per step, over the whole slice (recipes only).",
)
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of the recipe; may be repeated.",
)
@click.option(
    "--host-loop",
    is_flag=True,
    help="The host waits for every step, as with infeed or a log of each step.",
)
@click.option(
    "--checkpoint-every-steps",
    type=click.IntRange(1),
    default=CHECKPOINT_STEPS_USUAL,
    show_default=True,
    help="Steps between checkpoints.",
)
@click.option(
    "--restart-seconds",
    type=click.FloatRange(0, 86_400),
    default=planning.RESTART_SECONDS,
    show_default=True,
    help="Seconds from READY to the first step, after each start.",
)
@click.option(
    "--fleet",
    "fleet_file",
    metavar="NAME|FILE",
    help="Fleet whose zones, accelerator types and delays to use.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Random seed for preemptions.",
)
@click.option(
    "--samples",
    type=click.IntRange(100, 100_000),
    default=planning.SAMPLES,
    show_default=True,
    help="Number of simulated runs per option.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
def plan(  # noqa: PLR0913
    program: str,
    steps: int,
    deadline: float | None,
    budget: Fraction | None,
    preemptions_per_day: float,
    types: str,
    zones: str,
    global_batch: int | None,
    arguments: tuple[str, ...],
    host_loop: bool,
    checkpoint_every_steps: int,
    restart_seconds: float,
    fleet_file: str | None,
    seed: int,
    samples: int,
    form: str,
) -> None:
    """Predict when a run would end and what it would cost, by accelerator type, zone and class.

    FILE is the StableHLO program of one device. Half of all runs end by P50, 95 % by P95. The
    cheapest
    option that meets both limits at P95 is marked.
    """
    fleet = _fleet(fleet_file)
    kinds, places = (
        _kinds(types, fleet),
        _choose(zones, tuple(fleet.zones), "--zone", "zone of this fleet"),
    )
    analysis = _analysis(program, arguments, global_batch, host_loop)
    limits = Limits(deadline, budget)
    start = PlatformTime(OsClock().now().nanos // NANOS_PER_SECOND * NANOS_PER_SECOND)
    card, draws = default_rate_card(), Draws(seed, samples)

    def run_of(kind: AcceleratorType, step_seconds: float, usage: UsageClass) -> TrainingRun:
        create = fleet.timings.creation_seconds(kind.host_count)
        return TrainingRun(
            steps,
            step_seconds,
            checkpoint_every_steps,
            usage,
            preemptions_per_day,
            create,
            restart_seconds,
        )

    rows: list[PlanRow] = []
    for kind in kinds:
        outcome = compare.outcome_of(kind.name, analysis)
        if outcome.error is not None or outcome.report is None:
            rows.append(_impossible(kind, outcome))
            continue
        estimate = outcome.report.estimate
        step_seconds = estimate.modelled_seconds
        for usage in USAGES:
            where = [zone for zone in places if _offers(fleet, zone, kind, usage)]
            if where:
                runs = planning.play(run_of(kind, step_seconds, usage), draws, start)
                made = [_row(kind, zone, runs, draws, card, start, limits) for zone in where]
                rows += [dataclasses.replace(row, doubts=estimate.reasons) for row in made]
    if not rows:
        raise click.BadParameter(
            "no zone of the fleet offers any of these types", param_hint="--types"
        )
    rows.sort(key=_order)
    best = next((row for row in rows if not row.reasons), None)
    said = summary(rows, best, limits, card.currency) + _doubts_text(rows)
    if form == "json":
        told = {
            "program": program,
            "steps": steps,
            "seed": seed,
            "samples": samples,
            "currency": card.currency,
        }
        found = {**told, "rows": [_json(row, row is best) for row in rows], "summary": said}
        click.echo(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(tables.table(HEADINGS, [_cells(row, row is best) for row in rows]))
        click.echo(said)


def predict(
    kind: AcceleratorType, step_seconds: float, steps: int, usage: UsageClass, zone: str
) -> PlanRow:
    """A run of `steps` in a zone, with all that `podyard plan` takes if nothing else is said."""
    fleet, start = (
        _fleet(None),
        PlatformTime(OsClock().now().nanos // NANOS_PER_SECOND * NANOS_PER_SECOND),
    )
    create = fleet.timings.creation_seconds(kind.host_count)
    run = TrainingRun(steps, step_seconds, CHECKPOINT_STEPS_USUAL, usage, PREEMPTIONS_USUAL, create)
    draws = Draws(0)
    return _row(
        kind,
        zone,
        planning.play(run, draws, start),
        draws,
        default_rate_card(),
        start,
        Limits(None, None),
    )


def _fleet(name_or_path: str | None) -> Fleet:
    try:
        return read_fleet(
            from_environment().fleet if name_or_path is None else fleet_name(name_or_path)
        )
    except PodyardError as error:
        raise click.BadParameter(error.message, param_hint="--fleet") from None


def _kinds(types: str, fleet: Fleet) -> list[AcceleratorType]:
    """The types of the patterns that some zone offers; a usage error where there are none, or too
    many."""
    named = {kind.name: kind for kind in all_types()}
    chosen = [named[name] for name in _choose(types, tuple(named), "--types", "accelerator type")]
    found = [
        kind
        for kind in chosen
        if any(_offers(fleet, zone, kind, usage) for zone in fleet.zones for usage in USAGES)
    ]
    if not found:
        raise click.BadParameter(f"no zone of the fleet offers {types}", param_hint="--types")
    if len(found) > TYPES_MAX:
        raise click.BadParameter(
            f"{types} match {len(found)} accelerator types: a plan can compare at most {TYPES_MAX}",
            param_hint="--types",
        )
    return found


def _choose(patterns: str, names: Sequence[str], option: str, what: str) -> list[str]:
    found: dict[str, None] = {}
    for pattern in (part.strip() for part in patterns.split(",") if part.strip()):
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            raise click.BadParameter(f"{pattern!r} is not a known {what}", param_hint=option)
        found |= dict.fromkeys(matching)
    return list(found)


def _analysis(
    program: str, arguments: tuple[str, ...], global_batch: int | None, host_loop: bool
) -> Callable[[str], Any]:
    try:
        return analysis_of(program, arguments, global_batch, "podyard", host_loop)
    except PodyardError as error:
        if error.code is Code.NOT_FOUND:
            raise click.BadParameter(error.message, param_hint="FILE_OR_RECIPE") from None
        if error.code is Code.INVALID_ARGUMENT:
            raise click.BadParameter(error.message, param_hint="--arg") from None
        raise


def _offers(fleet: Fleet, zone: str, kind: AcceleratorType, usage: UsageClass) -> bool:
    offer = fleet.zone(zone).offers.get(kind.generation.name)
    return offer is not None and offer.fits(kind) and usage in offer.usage_classes


def _impossible(kind: AcceleratorType, outcome: Outcome) -> PlanRow:
    seconds = None if outcome.report is None else outcome.report.estimate.modelled_seconds
    why = outcome.error.message if outcome.error is not None else ""
    doubts = () if outcome.report is None else outcome.report.estimate.reasons
    return PlanRow(
        kind.name, "", "", seconds, outcome.report is None, reasons=(why,), doubts=doubts
    )


def _row(
    kind: AcceleratorType,
    zone: str,
    runs: PlannedRuns,
    draws: Draws,
    card: RateCard,
    start: PlatformTime,
    limits: Limits,
) -> PlanRow:
    usage = runs.run.usage
    row = PlanRow(kind.name, zone, str(usage), runs.run.step_seconds, True, runs)
    reasons: list[str] = []
    late = row.finishes["p95"]
    if math.isinf(late):
        reasons.append("does not end")
    elif limits.deadline is not None and late > limits.deadline:
        reasons.append("too late")
    costs: dict[str, Amount] | None = None
    try:
        sku, quantity = card.sku_for(kind.name, region_of(zone), usage)
    except PodyardError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        reasons.append("no price")
    else:
        costs = {}
        for name, part in PARTS.items():
            nodes = planning.lives(runs.run, draws, runs.billed_index(part), start)
            costs[name], _ = planning.cost(nodes, usage, sku, quantity, start)
        if limits.budget is not None and costs["p95"].fraction() > limits.budget:
            reasons.append("too dear")
    return dataclasses.replace(row, costs=costs, reasons=tuple(reasons))


def _order(row: PlanRow) -> tuple[bool, bool, int, float, str, str]:
    """What meets both first, then the cheaper, then the sooner."""
    late = math.inf if row.runs is None else row.finishes["p95"]
    dear = 0 if row.costs is None else row.costs["p95"].parts
    return (bool(row.reasons), row.costs is None, dear, late, row.accelerator_type, row.zone)


def summary(rows: Sequence[PlanRow], best: PlanRow | None, limits: Limits, currency: str) -> str:
    """What is best, and why the others are not."""
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
        least = f"{min(costs).text(2)} {currency}" if costs else "without a price"
        ends = "none ends" if math.isinf(soonest) else f"the soonest takes {time_text(soonest)}"
        return (
            f"None meets {_limits_text(limits, currency)} ({why}): {ends}, the cheapest costs "
            f"{least} (P95)."
        )
    assert best.costs is not None
    fine = sum(not row.reasons for row in rows) - 1
    others = f"{fine} more would do" + (f"; not so: {why}" if why else "")
    finish, cost = time_text(best.finishes["p95"]), best.costs["p95"].text(2)
    where = f"{best.accelerator_type} {best.usage} in {best.zone}"
    return f"Cheapest: {where}, by P95 {finish} and {cost} {currency}. {others}."


def _doubts_text(rows: Sequence[PlanRow]) -> str:
    """Which rows are lower bounds, and why; empty where none is."""
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
        said.append(f"the budget of {float(limits.budget):g} {currency}")
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


def _cells(row: PlanRow, best: bool) -> list[str]:
    step = "-" if row.step_seconds is None else time_text(row.step_seconds)
    if row.doubts and row.step_seconds is not None:
        step = f"at least {step}"
    figures = ["-"] * 5
    if row.runs is not None:
        ends = [
            "never" if math.isinf(row.finishes[name]) else time_text(row.finishes[name])
            for name in PARTS
        ]
        costs = ["-" if row.costs is None else row.costs[name].text(2) for name in PARTS]
        figures = [*ends, *costs, time_text(float(row.runs.lost.mean()))]
    names = [row.accelerator_type, row.zone or "-", row.usage or "-"]
    return ["*" if best else "", *names, step, *figures, ", ".join(row.reasons) or "-"]


def _json(row: PlanRow, best: bool) -> dict[str, Any]:
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


COMMANDS = {"plan": plan}
