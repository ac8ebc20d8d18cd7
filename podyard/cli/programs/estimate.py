"""`podyard estimate`: what a program would take on a slice. Needs no running Podyard."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import click

from podyard import engine
from podyard.base.clock import OsClock, PlatformTime
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.cli.kit import tables
from podyard.cli.kit.client import LOCATION_DEFAULT
from podyard.cli.kit.names import complete_type
from podyard.cli.kit.options import FULL_ATTENTION, mfu_option, pairs, value_of
from podyard.domain.fleet import region_of
from podyard.domain.node import UsageClass
from podyard.engine.cpu_limit import module_limit
from podyard.engine.program.from_stablehlo import MAX_TEXT_BYTES
from podyard.engine.recipes.programs import PROGRAMS, program_of
from podyard.engine.report import compare, html, trace
from podyard.engine.report.compare import Outcome
from podyard.engine.report.document import document
from podyard.engine.report.edge_report import edge_report
from podyard.engine.report.edge_tpu import is_edge_tpu
from podyard.engine.report.summary import HourlyPrice, Report
from podyard.engine.report.table import TextBlock, blocks
from podyard.engine.step.host_input import HOST_INPUT
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.sku import RateCard

USAGES = (UsageClass.ON_DEMAND, UsageClass.PREEMPTIBLE, UsageClass.SPOT)
STANDARD_INPUT = "-"
Analysis = Callable[[str], Report]


@click.command(epilog=f"Recipes: {', '.join(PROGRAMS)}.")
@click.argument("program", metavar="[FILE_OR_RECIPE]", required=False)
@click.option(
    "--function",
    metavar="MODULE:NAME",
    help="Python function to estimate, instead of a file or a recipe.",
)
@click.option(
    "--shapes",
    multiple=True,
    metavar="SHAPES",
    help=(
        "Arguments of the function: f32[128,784],s32[128], or MODULE:NAME of a tuple; may "
        "be repeated."
    ),
)
@click.option(
    "--accelerator-type",
    default="v3-8",
    show_default=True,
    shell_complete=complete_type,
    help="Accelerator type of the slice.",
)
@click.option(
    "--global-batch",
    type=click.IntRange(1),
    help="Examples per step over the slice (not with a file).",
)
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of the recipe; may be repeated.",
)
@click.option(
    "--compare",
    "others",
    metavar="TYPE,...",
    help="More accelerator types to estimate, separated by commas.",
)
@click.option(
    "--compiler",
    type=click.Choice(["podyard", "xla-tpu"]),
    default="podyard",
    show_default=True,
    help="Compiler to estimate with.",
)
@click.option(
    "--host-loop",
    is_flag=True,
    help="The host waits for every step, as with infeed or a log of each step.",
)
@click.option(
    "--infeed",
    multiple=True,
    metavar="ARGUMENT",
    help=(
        "Argument that the host sends at each step, by index or name; may be repeated "
        "(a recipe's "
        "batch is one)."
    ),
)
@mfu_option
@click.option(
    "--zone",
    envvar=["PODYARD_LOCATION", "CLOUDSDK_COMPUTE_ZONE"],
    default=LOCATION_DEFAULT,
    show_default=True,
    help="Zone of the price.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "json", "html"]),
    default="table",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--out",
    type=click.File("w", encoding="utf-8"),
    default="-",
    metavar="FILE",
    help="Write to FILE (default: stdout).",
)
@click.option(
    "--trace",
    "trace_file",
    type=click.File("w", encoding="utf-8"),
    metavar="FILE",
    help="Write a Perfetto trace to FILE.",
)
def estimate(  # noqa: PLR0913
    program: str | None,
    function: str | None,
    shapes: tuple[str, ...],
    accelerator_type: str,
    global_batch: int | None,
    arguments: tuple[str, ...],
    others: str | None,
    compiler: str,
    host_loop: bool,
    infeed: tuple[str, ...],
    mfu: str,
    zone: str,
    form: str,
    out: TextIO,
    trace_file: TextIO | None,
) -> int:
    """Estimate time, memory, energy and cost of one step of a program on a slice.

    FILE is a StableHLO program, as text or as bytes from jax.export or MLIR; "-" reads standard
    input. It is the program of one device, or one with shardings for as many devices as the
    accelerator type has. A recipe's step covers the whole slice. Exit code 1 if the program cannot
    run on the accelerator type. With --accelerator-type edgetpu, FILE is one inference in int8:
    StableHLO, or a TensorFlow Lite model.

    Arguments lie on the devices before the step, but for those that --infeed names. A recipe's
    batch comes from the host.

    --function is traced with arguments of the shapes in --shapes; it never runs. With
    --global-batch, arguments whose first axis has that size are split over the slice. Without it,
    the shapes are those of one device, or carry shardings.
    """
    if (program is None) == (function is None):
        raise click.UsageError("specify either FILE_OR_RECIPE or --function")
    region = region_of(zone)
    if is_edge_tpu(accelerator_type):
        out.write(_of_edge_tpu(program, form))
        return 0
    if function is not None:
        if arguments:
            raise click.UsageError("--arg can only be used with a recipe")
        analysis = _of_function(function, shapes, global_batch, compiler, host_loop, infeed)
    elif shapes:
        raise click.UsageError("--shapes can only be used with --function")
    else:
        analysis = analysis_of(str(program), arguments, global_batch, compiler, host_loop, infeed)
    make = _with_prices(analysis, zone, region, mfu)
    names = dict.fromkeys([accelerator_type, *(name for name in (others or "").split(",") if name)])
    outcomes = [compare.outcome_of(name, make) for name in names]
    main = outcomes[0]
    if main.report is None and main.error is not None and len(outcomes) == 1:
        raise main.error
    out.write(_format(outcomes, form))
    if trace_file is not None and main.report is not None:
        json.dump(
            trace.trace_events(main.report), trace_file, separators=(",", ":"), allow_nan=False
        )
    return 0 if main.error is None else 1


def _with_prices(analysis: Analysis, zone: str, region: str, mfu: str) -> Analysis:
    """Add today's prices in a zone to each report, and count attention as `mfu` says."""
    card, now = default_rate_card(), PlatformTime(OsClock().now().nanos)

    def make(name: str) -> Report:
        report = analysis(name)
        estimate = report.estimate
        if mfu == FULL_ATTENTION:
            estimate = estimate.with_full_attention()
        return Report(
            report.program, estimate, report.example_count, zone, prices_of(card, name, region, now)
        )

    return make


def analysis_of(
    program: str,
    arguments: tuple[str, ...],
    global_batch: int | None,
    compiler: str,
    host_loop: bool = False,
    infeed: Sequence[str] = (),
) -> Analysis:
    """Return what finds the estimate of a recipe or a file, by accelerator type. Raises a usage
    error for figures that are given with a file, NOT_FOUND for what is neither, and what the recipe
    refuses."""
    given = {
        key: value_of(value) for pair in arguments for key, value in pairs(pair, "--arg").items()
    }
    if program in PROGRAMS:
        return _of_recipe(program, given, global_batch, compiler, host_loop, infeed)
    if given or global_batch is not None:
        raise click.UsageError(
            "--arg and --global-batch can only be used with a recipe, not with a file"
        )
    return _of_file(program, compiler, host_loop, infeed)


def _of_function(
    named: str,
    shapes: tuple[str, ...],
    global_batch: int | None,
    compiler: str,
    host_loop: bool,
    infeed: Sequence[str],
) -> Analysis:
    """Raises as `load_function` and `arguments_of`, and INVALID_ARGUMENT for a function that cannot
    be traced so."""
    from podyard.cli.programs.estimate_function import arguments_of, load_function

    function, given = load_function(named), arguments_of(shapes)

    def analysis(accelerator_type: str) -> Report:
        try:
            found = engine.analyze(
                function, *given, accelerator_type=accelerator_type, global_batch=global_batch,
                compiler=compiler,
                host_loop=host_loop, infeed=infeed,
            )  # fmt: skip
        except PodyardError:
            raise
        except Exception as error:  # of the user's own code, which JAX runs to trace it
            raise invalid(
                f"--function {named} cannot be traced: {type(error).__name__}: {error}"
            ) from error
        return Report(named, found)

    return analysis


def _of_recipe(
    name: str,
    given: Mapping[str, object],
    global_batch: int | None,
    compiler: str,
    host_loop: bool,
    infeed: Sequence[str],
) -> Analysis:
    """Raises INVALID_ARGUMENT for arguments that the recipe does not take, FAILED_PRECONDITION
    without JAX."""
    if importlib.util.find_spec("jax") is None:
        raise failed_precondition(
            "the estimate of a recipe needs JAX: pip install 'podyard[engine]'"
        )
    recipe = program_of(name, given)
    batch = global_batch or recipe.default_global_batch
    shapes = recipe.abstract_arguments(batch)

    def analysis(accelerator_type: str) -> Report:
        found = engine.analyze(
            recipe.step, *shapes, accelerator_type=accelerator_type, global_batch=batch,
            compiler=compiler,
            host_loop=host_loop, infeed=infeed or HOST_INPUT,
        )  # fmt: skip
        return Report(name, found, recipe.example_count)

    return analysis


def _of_file(program: str, compiler: str, host_loop: bool, infeed: Sequence[str]) -> Analysis:
    module = _read(program)
    name = "standard input" if program == STANDARD_INPUT else Path(program).name
    refusals: list[PodyardError] = []

    def analysis(accelerator_type: str) -> Report:
        if refusals:  # too long for one type is too long for each
            raise refusals[0]
        try:
            with module_limit(module):
                estimate = engine.analyze_stablehlo(
                    module,
                    accelerator_type=accelerator_type,
                    compiler=compiler,
                    host_loop=host_loop,
                    infeed=infeed,
                )
        except PodyardError as error:
            if error.code is Code.OUT_OF_RANGE:
                refusals.append(error)
            raise
        return Report(name, estimate)

    return analysis


def _of_edge_tpu(program: str | None, form: str) -> str:
    """Return the report of a file's program on an Edge TPU; a function or a recipe has none."""
    if program is None or program in PROGRAMS:
        raise click.UsageError(
            "an Edge TPU runs a TensorFlow Lite or StableHLO file of int8: specify FILE"
        )
    return edge_report(Path(program).name, _read(program), form)


def _read(program: str) -> bytes:
    """Raises NOT_FOUND, or INVALID_ARGUMENT for what is too long."""
    try:
        with click.open_file(program, "rb") as source:
            data: bytes = source.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        known = ", ".join(PROGRAMS)
        why = (
            f"{program!r} is neither a recipe ({known}) nor a file that can be read: "
            f"{error.strerror}"
        )
        raise PodyardError(Code.NOT_FOUND, why) from error
    if len(data) > MAX_TEXT_BYTES:
        raise invalid(f"{program} is larger than the maximum of {MAX_TEXT_BYTES} bytes", "module")
    return data


def prices_of(
    card: RateCard, accelerator_type: str, region: str, at: PlatformTime
) -> tuple[HourlyPrice, ...]:
    """Return what the card says for each way to buy the slice, at `at`; what it does not have says
    so."""
    found = []
    for usage in USAGES:
        try:
            price = card.price(accelerator_type, region, usage, at)
        except PodyardError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            found.append(HourlyPrice(str(usage), None, error.message, card.currency))
            continue
        found.append(
            HourlyPrice(
                usage=str(usage),
                nanos_per_hour=price.total_nanos_per_hour,
                note=price.source,
                currency=card.currency,
                effective_from=price.effective_from.rfc3339(),
                verified=price.verified,
            )
        )
    return tuple(found)


def _format(outcomes: list[Outcome], form: str) -> str:
    main = outcomes[0]
    if form == "html":
        return html.page(outcomes)
    if form == "json":
        found = (
            compare.documents(outcomes)
            if len(outcomes) > 1 or main.report is None
            else document(main.report)
        )
        return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    told = [] if main.report is None else blocks(main.report)
    if len(outcomes) > 1:
        told.append(compare.block(outcomes))
    return "\n".join(_text(block) for block in told)


def _text(block: TextBlock) -> str:
    table = (tables.table(block.headings, block.rows),) if block.headings else ()
    return "".join(f"{part}\n" for part in (*block.before, *table, *block.after))


COMMANDS = {"estimate": estimate}
