"""`journalctl` of a box."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Sequence
from typing import NamedTuple

from podyard.base.clock import RealClock
from podyard.workers.box.units import journal
from podyard.workers.box.units.journal import JournalEntry
from podyard.workers.box.units.unit_file import LoadError, unit_name

_FOLLOWED_LINES = 10  # that are there already, before those that follow
_END_LINES = 1000  # of --pager-end
_IGNORED = (
    "--no-pager", "--full", "--all", "--quiet", "--catalog", "--no-hostname", "--no-full",
    "--boot", "--no-tail", "--system",
)  # fmt: skip
_LONG = {
    "--unit": "u",
    "--lines": "n",
    "--output": "o",
    "--follow": "f",
    "--reverse": "r",
    "--pager-end": "e",
}
_FORMS = ("short", "cat")


class JournalQuery(NamedTuple):
    """A command line. `line_count` None: all lines; `units` empty: all units."""

    units: tuple[str, ...]
    line_count: int | None
    follows: bool
    is_reversed: bool
    form: str


def run(words: Sequence[str], clock: RealClock) -> int:
    """Returns the exit code."""
    try:
        query = read_query(words)
    except LoadError as error:
        print(f"journalctl: {error}", file=sys.stderr)
        return 1
    units = query.units or tuple(journal.names())
    entries = journal.last(units, query.line_count)
    host = socket.gethostname()
    try:
        for entry in reversed(entries) if query.is_reversed else entries:
            print(_line(entry, host, query.form))
        if not entries and not query.follows:
            print("-- No entries --")
        for entry in journal.follow(units, clock) if query.follows else ():
            print(_line(entry, host, query.form), flush=True)
    except KeyboardInterrupt:
        return 130
    return 0


def read_query(words: Sequence[str]) -> JournalQuery:
    """The command line `words`: raises LoadError for what is not supported."""
    units: list[str] = []
    lines, form, flags = "", "short", ""
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        if word in _IGNORED:
            continue
        letters = _LONG.get(name, "")
        if not letters:
            match = re.fullmatch(r"-([fxearqlab]*)(?:([uno])(.*))?", word)
            if match is None:
                raise LoadError(f"{word} is not supported: use -u UNIT, -f, -n N, -r, -e and -o")
            letters, value = match[1] + (match[2] or ""), match[3] or ""
        flags += letters
        if letters[-1:] in ("u", "n", "o") and not value and not sign:
            value = next(rest, "")
        if letters[-1:] == "u":
            units.append(unit_name(value))
        elif letters[-1:] == "n":
            lines = value
        elif letters[-1:] == "o":
            form = value
    if form not in _FORMS:
        raise LoadError(f"-o {form} is not supported: use {' or '.join(_FORMS)}")
    if lines and not lines.isdigit() and lines != "all":
        raise LoadError(f"-n {lines}: use a number or all")
    count = int(lines) if lines.isdigit() else None
    if not lines and ("f" in flags or "e" in flags):
        count = _FOLLOWED_LINES if "f" in flags else _END_LINES
    return JournalQuery(tuple(units), count, "f" in flags, "r" in flags, form)


def _line(entry: JournalEntry, host: str, form: str) -> str:
    return entry.text if form == "cat" else entry.short(host)
