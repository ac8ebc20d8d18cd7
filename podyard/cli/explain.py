"""`podyard explain ...`: how the hardware does it. Needs no running Podyard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO

import click

from podyard.engine.collectives import explain as reduce
from podyard.engine.collectives import explain_html as reduce_html
from podyard.engine.numerics import explain_html
from podyard.engine.numerics.explain import CYCLES_MAX, DATAFLOW_NAMES, SIDE_MAX, as_text
from podyard.engine.numerics.explain import explain as trace_of
from podyard.engine.timing.systolic import Dataflow


@click.group()
def explain() -> None:
    """Explain how the hardware computes, step by step."""


def _output(command: Callable[..., None]) -> Callable[..., None]:
    """Every explanation is a text or a page, on stdout or in a file."""
    out: dict[str, Any] = {"type": click.File("w", encoding="utf-8"), "default": "-", "metavar": "FILE"}
    command = click.option("--out", help="Write to FILE (default: stdout).", **out)(command)
    kinds = click.Choice(["text", "html"])
    return click.option("-o", "--output", type=kinds, default="text", show_default=True, help="Output format.")(command)


@explain.command(help=f"Multiply [m, k] by [k, n] on a systolic array, cycle by cycle (up to {CYCLES_MAX} cycles).")
@click.option("--m", type=int, default=4, show_default=True, help="Rows of x and of the result.")
@click.option("--k", type=int, default=4, show_default=True, help="Depth: columns of x, rows of w.")
@click.option("--n", type=int, default=4, show_default=True, help="Columns of w and of the result.")
@click.option("--rows", type=int, default=4, show_default=True, help=f"Rows of the array, up to {SIDE_MAX}.")
@click.option("--cols", type=int, default=4, show_default=True, help=f"Columns of the array, up to {SIDE_MAX}.")
@click.option(
    "--dataflow",
    type=click.Choice(list(DATAFLOW_NAMES)),
    default="ws",
    show_default=True,
    help="Operand that stays in the cells: ws (weights), is (inputs) or os (outputs).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of the operands.")
@_output
def mxu(m: int, k: int, n: int, rows: int, cols: int, dataflow: Dataflow, seed: int, output: str, out: TextIO) -> None:
    trace = trace_of(m, k, n, rows, cols, dataflow, seed)
    out.write(as_text(trace) if output == "text" else explain_html.page(trace))


@explain.command("all-reduce", help="Sum a vector over a ring of ranks, or over the chips of a slice, step by step.")
@click.option(
    "--ranks", type=int, help=f"Number of ranks in the ring, 1 to {reduce.RANKS_MAX} (default: {reduce.DEFAULT_RANKS})."
)
@click.option(
    "--accelerator-type", metavar="TYPE", help="Use the chips of this slice, for example v3-32, and show modelled time."
)
@click.option(
    "--bytes", "nbytes", type=int, default=reduce.DEFAULT_BYTES, show_default=True, help="Size of each vector in bytes."
)
@_output
def all_reduce(ranks: int | None, accelerator_type: str | None, nbytes: int, output: str, out: TextIO) -> None:
    trace = reduce.explain(ranks, accelerator_type, nbytes)
    out.write(reduce.as_text(trace) if output == "text" else reduce_html.page(trace))


COMMANDS = {"explain": explain}
