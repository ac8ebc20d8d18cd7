"""`podyard explain ...`: how the hardware does it. Needs no running Podyard."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TextIO

import click

from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.options import output_option
from podyard.cli.kit.output import emit
from podyard.engine.collectives import explain as reduce
from podyard.engine.collectives import explain_html as reduce_html
from podyard.engine.numerics import explain_html
from podyard.engine.numerics.explain import CYCLES_MAX, DATAFLOW_NAMES, SIDE_MAX, as_text
from podyard.engine.numerics.explain import explain as trace_of
from podyard.engine.timing.energy import COMPARISONS
from podyard.engine.timing.systolic import Dataflow
from podyard.engine.timing.tpu_v1 import TPU_V1
from podyard.engine.timing.tpu_v1_apps import APPLICATIONS, run, speedups


@click.group(cls=CommandGroup)
def explain() -> None:
    """Explain how the hardware computes, step by step."""


def _output(command: Callable[..., None]) -> Callable[..., None]:
    """Every explanation is a text or a page, on stdout or in a file."""
    out: dict[str, Any] = {
        "type": click.File("w", encoding="utf-8"),
        "default": "-",
        "metavar": "FILE",
    }
    command = click.option("--out", help="Write to FILE (default: stdout).", **out)(command)
    kinds = click.Choice(["text", "html"])
    return click.option(
        "-o", "--output", type=kinds, default="text", show_default=True, help="Output format."
    )(command)


@explain.command(
    help=(
        "Multiply [m, k] by [k, n] on a systolic array, cycle by cycle (up to "
        f"{CYCLES_MAX} cycles)."
    )
)
@click.option("--m", type=int, default=4, show_default=True, help="Rows of x and of the result.")
@click.option("--k", type=int, default=4, show_default=True, help="Depth: columns of x, rows of w.")
@click.option("--n", type=int, default=4, show_default=True, help="Columns of w and of the result.")
@click.option(
    "--rows", type=int, default=4, show_default=True, help=f"Rows of the array, up to {SIDE_MAX}."
)
@click.option(
    "--cols",
    type=int,
    default=4,
    show_default=True,
    help=f"Columns of the array, up to {SIDE_MAX}.",
)
@click.option(
    "--dataflow",
    type=click.Choice(list(DATAFLOW_NAMES)),
    default="ws",
    show_default=True,
    help="Operand that stays in the cells: ws (weights), is (inputs) or os (outputs).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of the operands.")
@_output
def mxu(  # noqa: PLR0913
    m: int,
    k: int,
    n: int,
    rows: int,
    cols: int,
    dataflow: Dataflow,
    seed: int,
    output: str,
    out: TextIO,
) -> None:
    trace = trace_of(m, k, n, rows, cols, dataflow, seed)
    out.write(as_text(trace) if output == "text" else explain_html.page(trace))


@explain.command(
    "all-reduce",
    help="Sum a vector over a ring of ranks, or over the chips of a slice, step by step.",
)
@click.option(
    "--ranks",
    type=int,
    help=f"Number of ranks in the ring, 1 to {reduce.RANKS_MAX} (default: {reduce.DEFAULT_RANKS}).",
)
@click.option(
    "--accelerator-type",
    metavar="TYPE",
    help="Use the chips of this slice, for example v3-32, and show modelled time.",
)
@click.option(
    "--bytes",
    "nbytes",
    type=int,
    default=reduce.DEFAULT_BYTES,
    show_default=True,
    help="Size of each vector in bytes.",
)
@_output
def all_reduce(
    ranks: int | None, accelerator_type: str | None, nbytes: int, output: str, out: TextIO
) -> None:
    trace = reduce.explain(ranks, accelerator_type, nbytes)
    out.write(reduce.as_text(trace) if output == "text" else reduce_html.page(trace))


_FACTOR = click.FloatRange(min=0.01, max=1000)


@explain.command("tpu-v1")
@click.option(
    "--bandwidth",
    type=_FACTOR,
    default=4.0,
    show_default=True,
    help="Bandwidth of the weights, times.",
)
@click.option("--clock", type=_FACTOR, default=1.0, show_default=True, help="Clock, times.")
@click.option(
    "--accumulators",
    type=_FACTOR,
    default=1.0,
    show_default=True,
    help="Rows of accumulators, times.",
)
@output_option
def tpu_v1(bandwidth: float, clock: float, accumulators: float, output: str) -> None:
    """Run six published applications on the first TPU, and on one with other bandwidth, clock or
    accumulators.

    Each runs as a program of the machine's five instructions. The published figures are from the
    paper.
    """
    machine = dataclasses.replace(
        TPU_V1,
        weight_bytes_per_second=TPU_V1.weight_bytes_per_second * bandwidth,
        clock_hz=TPU_V1.clock_hz * clock,
        accumulator_rows=max(1, round(TPU_V1.accumulator_rows * accumulators)),
    )
    factors = speedups(machine)
    rows = [_application(name, factors.each[name]) for name in APPLICATIONS]
    means = {
        "weightedMean": factors.weighted_mean,
        "arithmeticMean": factors.arithmetic_mean,
        "geometricMean": factors.geometric_mean,
    }
    quoted = [dataclasses.asdict(one) for one in COMPARISONS if one.system.startswith("TPU v1")]
    if output != "table":
        emit(
            {
                "applications": rows,
                "changed": dataclasses.asdict(machine),
                **means,
                "published": quoted,
            },
            output,
        )
        return
    shown = [
        {key: f"{value:.1f}" if isinstance(value, float) else value for key, value in row.items()}
        for row in rows
    ]
    emit(shown, output, _V1_COLUMNS)
    click.echo(
        f"\nSPEEDUP: weights at {machine.weight_bytes_per_second / 1e9:g} GB/s, "
        f"{machine.clock_hz / 1e6:g} MHz, "
        f"{machine.accumulator_rows} rows of accumulators"
    )
    click.echo(
        f"Mean: {factors.weighted_mean:.1f} weighted by the work of Google's datacenters "
        "(unverified), "
        f"{factors.arithmetic_mean:.1f} arithmetic, {factors.geometric_mean:.1f} geometric"
    )
    click.echo("\nPublished, not computed:")
    for one in quoted:
        span = (
            f"{one['low']:g} times"
            if one["low"] == one["high"]
            else f"{one['low']:g} to {one['high']:g} times"
        )
        click.echo(
            f"  {one['system']}: {span} the {one['what']} of {one['against']} ({one['source']})"
        )


_V1_COLUMNS = {
    "APPLICATION": "application",
    "LAYERS": "layers",
    "BATCH": "batch",
    "TOPS": "tops",
    "PUBLISHED": "publishedTops",
    "ACTIVE_%": "activePercent",
    "PUBLISHED_%": "publishedActivePercent",
    "WAITS_FOR_WEIGHTS_%": "weightStallPercent",
    "SPEEDUP": "speedup",
}


def _application(name: str, factor: float) -> dict[str, Any]:
    known, found = APPLICATIONS[name], run(name)
    return {
        "application": name,
        "layers": known.layers,
        "batch": known.batch,
        "tops": round(found.tops, 2),
        "publishedTops": known.tops,
        "activePercent": round(100 * found.matrix_active / found.cycles, 1),
        "publishedActivePercent": round(100 * known.active_share, 1),
        "weightStallPercent": round(100 * found.weight_stall / found.cycles, 1),
        "speedup": round(factor, 2),
    }


COMMANDS = {"explain": explain}
