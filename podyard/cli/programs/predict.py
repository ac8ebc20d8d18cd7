"""`podyard predict`: asks a model that was trained and exported. Needs no running Podyard."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from podyard.base.errors import PodyardError, failed_precondition, invalid
from podyard.cli.kit import output, tables

# Examples that are answered for at once: more would only take more memory.
PIECE = 256
_NPZ = ".npz"


@click.command()
@click.option(
    "--export",
    "folder",
    required=True,
    metavar="DIR",
    help="Folder of the export, with manifest.json in it.",
)
@click.option(
    "--input",
    "source",
    required=True,
    metavar="FILE.npz",
    help="Input file: arrays by the names of features.",
)
@click.option(
    "-o",
    "--output",
    "form",
    default="table",
    show_default=True,
    metavar="[table|json|yaml|FILE.npz]",
    help="Output format, or the file to write (array 'answers').",
)
def predict(folder: str, source: str, form: str) -> None:
    """Predict with an exported model on the CPU. Prints one answer per example."""
    is_file = form.endswith(_NPZ)
    if not is_file and form not in output.FORMATS:
        raise click.UsageError(
            f"unknown output {form!r}: use {', '.join(output.FORMATS)}, or a file name that "
            f"ends in {_NPZ}"
        )
    try:
        answers = _answers(Path(folder), source)
        if is_file:
            _write(Path(form), answers)
    except PodyardError as error:
        raise click.ClickException(f"({error.code.name}) {error.message}") from error
    if is_file:
        output.say(f"{len(answers)} answers in {form}")
    elif form == "table":
        rows = [[str(index), tables.cell(answer)] for index, answer in enumerate(answers.tolist())]
        click.echo(tables.table(["EXAMPLE", "ANSWER"], rows))
    else:
        output.emit(answers.tolist(), form)


def _answers(folder: Path, source: str) -> NDArray[Any]:
    """Raises what `exported.load`, `Exported.predict` and `read_npz` raise, FAILED_PRECONDITION
    without JAX."""
    if importlib.util.find_spec("jax") is None:
        raise failed_precondition("an exported model is run by JAX: pip install 'podyard[engine]'")
    from podyard.engine.training import xla

    xla.prepare_environment()
    # Only now, in the environment that JAX needs.
    from podyard.engine.exported import load
    from podyard.engine.training.input.npz import read_npz

    model = load(folder)
    batch = read_npz(source)
    count = model.check(batch)
    pieces = (
        {name: array[start : start + PIECE] for name, array in batch.items()}
        for start in range(0, count, PIECE)
    )
    answers = np.concatenate([model.predict(piece) for piece in pieces])
    # Files of arrays and JSON know no bfloat16; float32 has all of its numbers.
    return answers.astype(np.float32) if answers.dtype.name == "bfloat16" else answers


def _write(target: Path, answers: NDArray[Any]) -> None:
    try:
        np.savez(target, answers=answers)
    except OSError as error:
        raise invalid(f"{target} cannot be written: {error.strerror}", "output") from error


COMMANDS = {"predict": predict}
