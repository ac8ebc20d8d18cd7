"""`podyard explain ...`: how the hardware does it. Needs no running Podyard."""

from __future__ import annotations

from typing import TextIO

import click

from podyard.engine.numerics import explain_html
from podyard.engine.numerics.explain import CYCLES_MAX, DATAFLOW_NAMES, SIDE_MAX, as_text
from podyard.engine.numerics.explain import explain as trace_of
from podyard.engine.timing.systolic import Dataflow


@click.group()
def explain() -> None:
    """How the hardware does it, step by step."""


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
    help="What stays in the cells: " + ", ".join(f"{key} is {name}" for key, name in DATAFLOW_NAMES.items()) + ".",
)
@click.option("--seed", type=int, default=0, show_default=True, help="What the operands are drawn from.")
@click.option("-o", "--output", type=click.Choice(["text", "html"]), default="text", show_default=True)
@click.option("--out", type=click.File("w", encoding="utf-8"), default="-", metavar="FILE", help="Default: stdout.")
def mxu(m: int, k: int, n: int, rows: int, cols: int, dataflow: Dataflow, seed: int, output: str, out: TextIO) -> None:
    trace = trace_of(m, k, n, rows, cols, dataflow, seed)
    out.write(as_text(trace) if output == "text" else explain_html.page(trace))


COMMANDS = {"explain": explain}
