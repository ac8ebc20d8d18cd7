"""`podyard plan`: what a whole run would take and cost, by type, zone and usage. Needs no running
Podyard."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from fractions import Fraction

import click

from podyard.base.clock import NANOS_PER_SECOND
from podyard.base.durations import parse_duration
from podyard.base.errors import Code, PodyardError
from podyard.cli.kit import tables, terminal
from podyard.cli.kit.output import say
from podyard.cli.programs.estimate import USAGES, Analysis, analysis_of
from podyard.cli.programs.plan.rows import (
    CHECKPOINT_STEPS_USUAL,
    PREEMPTIONS_USUAL,
    Limits,
    PlanRequest,
    PlanRow,
    fleet_of,
    now_in_seconds,
    offers,
    order,
)
from podyard.cli.programs.plan.texts import (
    HEADINGS,
    cells,
    doubts_text,
    json_text,
    summary,
    type_text,
)
from podyard.domain.fleet import Fleet
from podyard.engine.recipes.programs import PROGRAMS
from podyard.engine.report import compare
from podyard.hardware.accelerator_types import AcceleratorType, all_types
from podyard.hardware.generations import GENERATIONS
from podyard.pricing import planning
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.planning import Draws

# One of each generation on one host and on a few: what a first plan compares.
TYPES_USUAL = ",".join(
    name for generation in GENERATIONS.values() for name in generation.usual_types
)
TYPES_MAX = 128  # every type of one generation; an estimate takes some hundredths of a second each
# Tracing and pricing make millions of small objects and few cycles: with Python's usual threshold
# of 700 new objects its collector takes a sixth of the time.
COLLECT_OBJECTS = 100_000


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
    fleet = fleet_of(fleet_file)
    kinds = _kinds(types, fleet)
    card = default_rate_card()
    request = PlanRequest(
        steps,
        Limits(deadline, budget),
        preemptions_per_day,
        checkpoint_every_steps,
        restart_seconds,
        _choose(zones, tuple(fleet.zones), "--zone", "zone of this fleet"),
        fleet,
        card,
        Draws(seed, samples),
        now_in_seconds(),
    )
    rows = _rows(
        request,
        kinds,
        lambda: _analysis(program, arguments, global_batch, host_loop),
        has_lines=form == "table",
    )
    if not rows:
        text = "no zone of the fleet offers any of these types"
        raise click.BadParameter(text, param_hint="--types")
    rows.sort(key=order)
    best = next((row for row in rows if not row.reasons), None)
    said = summary(rows, best, request.limits, card.currency) + doubts_text(rows)
    if form == "json":
        head = {"program": program, "steps": steps, "seed": seed, "samples": samples}
        click.echo(json_text({**head, "currency": card.currency}, rows, best, said))
    else:
        texts = [cells(row, row is best, card.currency) for row in rows]
        click.echo(tables.table(HEADINGS, texts))
        click.echo(said)


def _rows(
    request: PlanRequest,
    kinds: Sequence[AcceleratorType],
    read: Callable[[], Analysis],
    *,
    has_lines: bool,
) -> list[PlanRow]:
    """Return the rows of all types. Meanwhile stderr has, with `has_lines`, a line for each type
    that is done, and on a terminal a bar below."""
    rows, has_bar = list[PlanRow](), sys.stderr.isatty()

    def draw(done: int) -> None:
        if has_bar:
            name = kinds[done].name if done < len(kinds) else ""
            terminal.progress(terminal.bar(done, len(kinds), [f"{done} of {len(kinds)}", name]))

    before = gc.get_threshold()
    gc.set_threshold(COLLECT_OBJECTS)
    try:
        draw(0)
        analysis = read()
        for done, kind in enumerate(kinds, 1):
            new = request.rows_of(kind, compare.outcome_of(kind.name, analysis))
            rows += new
            if new and has_lines:
                if has_bar:
                    terminal.progress("")
                say(type_text(new, request.card.currency))
            draw(done)
    finally:
        gc.set_threshold(*before)
        if has_bar:
            terminal.progress("")
    return rows


def _kinds(types: str, fleet: Fleet) -> list[AcceleratorType]:
    """The types of the patterns that some zone offers; a usage error where there are none, or too
    many."""
    named = {kind.name: kind for kind in all_types()}
    chosen = [named[name] for name in _choose(types, tuple(named), "--types", "accelerator type")]
    found = [
        kind
        for kind in chosen
        if any(offers(fleet, zone, kind, usage) for zone in fleet.zones for usage in USAGES)
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
) -> Analysis:
    try:
        return analysis_of(program, arguments, global_batch, "podyard", host_loop)
    except PodyardError as error:
        if error.code is Code.NOT_FOUND:
            raise click.BadParameter(error.message, param_hint="FILE_OR_RECIPE") from None
        if error.code is Code.INVALID_ARGUMENT:
            raise click.BadParameter(error.message, param_hint="--arg") from None
        raise


COMMANDS = {"plan": plan}
