"""Colours, widths and lines that change, for terminals alone: colours, progress bars, questions.
Pipes and files get plain text and nothing else."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable

import click

BAR_CHARACTERS = 24  # next to numbers and times in a line of 80
_CLEAR_LINE, _CLEAR_SCREEN = "\r\033[K", "\033[H\033[2J"
_STATE_COLOURS = {
    "green": "ACTIVE HEALTHY ISSUED OK READY RUNNING SUCCEEDED",
    "yellow": "ACCEPTED CANCELLING CREATING DELETING DRAINED DRAINING PREPARING PROVISIONING "
    "QUEUED RECOVERING "
    "REPAIRING RESTARTING RESETTING STARTING STOPPING SUSPENDED SUSPENDING WAITING_FOR_RESOURCES",
    "red": "BROKEN EXPIRED FAILED LOST PREEMPTED REVOKED",
}
_COLOUR_OF = {
    state: colour for colour, states in _STATE_COLOURS.items() for state in states.split()
}


def has_colours() -> bool:
    """Return whether standard output shows colours. NO_COLOR (no-color.org) switches them off."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def width() -> int | None:
    """Columns of the terminal that standard output is; None for pipes and files, where nothing is
    cut off."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def paint_heading(text: str) -> str:
    """`text` may have blanks around it, which are not painted."""
    word = text.strip()
    return text.replace(word, click.style(word, bold=True)) if word else text


def paint_state(text: str) -> str:
    """As `paint_heading`, in the colour of the state."""
    word = text.strip()
    return (
        text.replace(word, click.style(word, fg=_COLOUR_OF[word])) if word in _COLOUR_OF else text
    )


def redraw(text: str) -> None:
    """Replaces what a terminal shows by `text`, cut off at its last line."""
    lines = text.splitlines()[: shutil.get_terminal_size().lines - 1]
    click.echo(_CLEAR_SCREEN + "\n".join(lines))


def progress(text: str) -> None:
    """Show progress on stderr: on a terminal over the text before, which an empty text takes
    away."""
    if sys.stderr.isatty():
        click.echo(_CLEAR_LINE + _fit(text), err=True, nl=False)
    elif text:
        click.echo(text, err=True)


def bar(done: int, total: int, facts: Iterable[str]) -> str:
    """A progress bar with its facts behind it: `[#####-----] 50%  2.5 steps/s  24 s left`."""
    share = min(1.0, done / total) if total else 1.0
    filled = int(share * BAR_CHARACTERS)
    drawn = f"[{'#' * filled}{'-' * (BAR_CHARACTERS - filled)}]"
    return "  ".join([f"{drawn} {int(share * 100):3d}%", *facts])


def confirm(question: str, option: str) -> None:
    """Raises Abort unless the answer is yes. `option` skips the question.

    On a terminal it asks; otherwise it reads the answer from standard input without asking, as in
    `yes | podyard ...`.
    """
    if sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
        return
    answer = sys.stdin.readline().strip().lower()
    if not answer:
        text = (
            "standard input is not a terminal, so the question has no answer: use "
            f"{option} to skip it"
        )
        raise click.UsageError(text)
    if answer not in ("y", "yes"):
        raise click.Abort


def _fit(text: str) -> str:
    """A longer text would wrap, and the next one could not replace it."""
    return text[: max(1, shutil.get_terminal_size().columns - 1)]
