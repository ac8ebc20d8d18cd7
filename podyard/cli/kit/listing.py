"""List commands: `--filter`, `--sort-by`, `--limit`, `--watch` and the formats, the same for every
list.

A list command returns the items that the API gives; `lists` does the rest:

    @tpu.command(name="list")
    @target_options
    @lists(_COLUMNS, wide=_WIDE, row=_row)
    def list_nodes(...) -> Iterable[dict[str, Any]]:
"""

from __future__ import annotations

import csv
import dataclasses
import fnmatch
import functools
import io
import itertools
import operator
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from podyard.base.clock import OsClock
from podyard.cli.kit import terminal
from podyard.cli.kit.options import Command, client_of
from podyard.cli.kit.output import emit
from podyard.cli.kit.tables import Column, cell, columns_of, draw, pick, time_of

FORMATS = ("table", "wide", "name", "csv", "json", "yaml")
WATCH_SECONDS = 2.0  # as kubectl and watch(1); a list of 1,000 nodes costs the API about 0.1 s
Item = dict[str, Any]

_TERM = re.compile(r"\s*([\w.\-/ ]+?)\s*(!=|>=|<=|==|=|:|~|>|<)\s*(.*?)\s*", re.DOTALL)
_AND = re.compile(r"\s+AND\s+")
_DIGITS = re.compile(r"(\d+)")
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class ListOutput:
    """The items of a list command, and how it prints them. The first column of `columns` is the
    name of an item. `together`: headings of wide columns that are all shown where the list is
    sorted by one of them."""

    columns: Sequence[Column]
    wide: Sequence[Column]
    together: Collection[str]
    row: Callable[[Item], Item]
    output: str
    terms: Sequence[tuple[str, str, str]]  # key, operator, value; all must match
    order: Sequence[tuple[str, bool]]  # key, and whether it descends
    limit: int | None

    def show(self, items: Iterable[Item], read_now: Callable[[], datetime]) -> str:
        """The text of the list. `read_now` is asked only if an age is shown."""
        chosen = self._choose((item, self.row(item)) for item in items)
        rows = [row for _, row in chosen]
        every = [*self.columns, *self.wide]
        if self.output == "name":
            return "\n".join(cell(self.columns[0].value(row)) for row in rows)
        if self.output == "csv":
            return _csv_text(every, rows)
        shown = every if self.output == "wide" else [*self.columns, *self._sorted_columns(rows)]
        has_ages = bool(rows) and any(column.kind == "age" for column in shown)
        return draw(shown, rows, read_now() if has_ages else None)

    def items(self, items: Iterable[Item]) -> list[Item]:
        """Return what was chosen, as the API gave it."""
        return [item for item, _ in self._choose((item, self.row(item)) for item in items)]

    def _choose(self, pairs: Iterable[tuple[Item, Item]]) -> list[tuple[Item, Item]]:
        if not self.terms and not self.order:
            return list(itertools.islice(pairs, self.limit))
        found = list(pairs)
        every = [row for _, row in found]
        for key, sign, text in self.terms:
            path = self._path(key, every)
            found = [pair for pair in found if _matches(pick(pair[1], path), sign, text)]
        for key, descends in reversed(self.order):
            path = self._path(key, every)
            known = [pair for pair in found if pick(pair[1], path) is not None]
            known.sort(key=lambda pair: _rank(pick(pair[1], path)), reverse=descends)
            found = known + [pair for pair in found if pick(pair[1], path) is None]
        return found[: self.limit]

    def _sorted_columns(self, rows: Sequence[Item]) -> list[Column]:
        """Return the wide columns that the list is sorted by, and those that go with them."""
        paths = {self._path(key, rows) for key, _ in self.order}
        headings = {one.heading for one in self.wide if one.path in paths}
        if headings & set(self.together):
            headings |= set(self.together)
        return [one for one in self.wide if one.heading in headings]

    def _path(self, key: str, rows: Sequence[Item]) -> str:
        """Of a column's heading in any case, or of a field of the JSON answer."""
        plain = key.upper().replace("-", "_").replace(" ", "_")
        every = [*self.columns, *self.wide]
        heading = next((one for one in every if one.heading.replace(" ", "_") == plain), None)
        if heading is not None:
            return heading.path
        if rows and not any(key.partition(".")[0] in row for row in rows):
            names = ", ".join(column.heading.lower() for column in every)
            raise click.UsageError(
                f"unknown key {key!r}: use {names}, or a field of the JSON output"
            )
        return key


def lists(
    columns: Mapping[str, str] | Callable[[Mapping[str, Any]], Mapping[str, str]],
    *,
    wide: Mapping[str, str] | None = None,
    together: Collection[str] = (),
    row: Callable[[Item], Item] = lambda item: item,
    limit: int | None = None,
) -> Callable[[Callable[..., Iterable[Item]]], Command]:
    """`columns`: heading -> path, or a function that gives it for the command's parameters. `wide`:
    those that only
    `-o wide` and `-o csv` add, and those that the list is sorted by. `together`: of `ListOutput`.
    `limit`: the usual one."""

    def decorate(function: Callable[..., Iterable[Item]]) -> Any:
        @functools.wraps(function)
        def command(
            *,
            output: str,
            filters: tuple[str, ...],
            sort_by: str | None,
            limit: int | None,
            watch: bool,
            **given: Any,
        ) -> None:
            shown = columns_of(columns(given) if callable(columns) else columns)
            listing = ListOutput(
                columns=shown,
                wide=columns_of(wide or {}),
                together=together,
                row=row,
                output=output,
                terms=_terms(filters),
                order=_order(sort_by),
                limit=limit,
            )
            fetch = functools.partial(function, **given)
            read_now = functools.partial(_read_now, given.get("data"))
            if watch:
                _watch(listing, fetch, read_now)
            elif output in ("json", "yaml"):
                emit(listing.items(fetch()), output)
            elif text := listing.show(fetch(), read_now):
                click.echo(text)

        headings = [] if callable(columns) else [*columns, *(wide or {})]
        return _options(limit, headings)(command)

    return decorate


def _options(limit: int | None, headings: Sequence[str]) -> Callable[[Command], Command]:
    keys = [heading.lower().replace(" ", "_") for heading in headings]

    def complete_key(
        _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[str]:
        return [key for key in keys if key.startswith(incomplete.lower())]

    def decorate(command: Command) -> Command:
        for option in (
            click.option("--watch", "-w", is_flag=True,
                help="Show the list again every 2 seconds, until Ctrl-C."),
            click.option(
                "--limit", type=click.IntRange(1), default=limit, show_default=limit is not None,
                metavar="N",
                help="Maximum number of items.",
            ),
            click.option("--sort-by", metavar="KEY", shell_complete=complete_key,
                help="Sort by this column; ~KEY or -KEY sorts in descending order."),
            click.option(
                "--filter", "filters", multiple=True, metavar="EXPRESSION",
                shell_complete=complete_key,
                help=("Only items that match, for example 'state=READY AND zone:us-'; may "
"be repeated."),
            ),
            click.option(
                "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True,
                help="Output format."
            ),
        ):  # fmt: skip
            command = option(command)
        return command

    return decorate


def _watch(
    listing: ListOutput, fetch: Callable[[], Iterable[Item]], read_now: Callable[[], datetime]
) -> None:
    """On a terminal the list is drawn over the one before; a pipe gets each list that differs from
    the one before."""
    if listing.output in ("json", "yaml"):
        raise click.UsageError(f"--watch cannot be combined with -o {listing.output}")
    clock, before = OsClock(), None
    while True:
        text = listing.show(fetch(), read_now)
        if sys.stdout.isatty():
            terminal.redraw(text)
        elif text != before:
            click.echo(text)
        before = text
        clock.sleep(WATCH_SECONDS)


def _read_now(data: str | None) -> datetime:
    """Platform time, which ages count from: a virtual clock may be days ahead."""
    return time_of(client_of(data).call("GET", "/podyard/v1/clock")["platformTime"])


def _terms(filters: Iterable[str]) -> list[tuple[str, str, str]]:
    found = []
    for text in (part for given in filters for part in _AND.split(given)):
        match = _TERM.fullmatch(text)
        if match is None:
            text = (
                f"--filter: {text!r} is not KEY=VALUE; operators are = == != : ~ > >= < <=, "
                "joined by AND"
            )
            raise click.UsageError(text)
        key, sign, value = match.groups()
        sign = "=" if sign == "==" else sign
        found.append((key, sign, value.strip("\"'")))
        if sign == "~":
            _pattern(found[-1][2])
    return found


def _order(text: str | None) -> list[tuple[str, bool]]:
    keys = [key.strip() for key in text.split(",")] if text else []
    return [(key.lstrip("~-"), key.startswith(("~", "-"))) for key in keys if key]


def _matches(value: Any, sign: str, text: str) -> bool:
    shown = "" if value in (None, "") else cell(value)
    if sign in ("=", "!="):
        return fnmatch.fnmatchcase(shown.lower(), text.lower()) is (sign == "=")
    if sign == ":":
        return text.lower() in shown.lower()
    if sign == "~":
        return _pattern(text).search(shown) is not None
    if value is None:
        return False
    one, other = _rank(value), _rank(text)
    return one[0] == other[0] and _COMPARE[sign](one, other)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise click.UsageError(f"--filter: {text!r} is not a regular expression: {error}") from None


def _rank(value: Any) -> tuple[int, Any]:
    """Return what values are compared by: numbers as numbers, and `node-2` before `node-10`."""
    try:
        number = Decimal(str(value))
        if number.is_finite():
            return 0, number
    except InvalidOperation:
        pass
    parts = _DIGITS.split(cell(value).lower())
    return 1, [int(part) if index % 2 else part for index, part in enumerate(parts)]


def _csv_text(columns: Sequence[Column], rows: Sequence[Item]) -> str:
    """Exact values, for programs: nothing is rounded, and what is unknown is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([column.path if column.kind == "age" else column.heading for column in columns])
    for row in rows:
        values = [column.value(row) for column in columns]
        writer.writerow(
            [
                "" if v is None else cell(v) if isinstance(v, dict | list) and v else v
                for v in values
            ]
        )
    return file.getvalue().removesuffix("\n")
