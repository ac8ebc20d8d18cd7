"""Data on stdout as a table, JSON or YAML; everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from podyard.base.durations import duration_for_people
from podyard.base.money import money_text, without_zeros

FORMATS = ("table", "json", "yaml")


def emit(data: Any, output: str, columns: Mapping[str, str] | None = None) -> None:
    """`columns`: heading -> path of keys (`metrics.latest.loss`) of a list of mappings, or of one mapping.

    A path may end with what it leads to: `|usd` or `|seconds`.
    """
    if output == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif output == "yaml" or columns is None:
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip())
    else:
        rows = data if isinstance(data, Sequence) else [data]
        click.echo(table(list(columns), [[_cell_text(row, path) for path in columns.values()] for row in rows]))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned to their widest cell."""
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(headings))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def pick(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _cell_text(row: Mapping[str, Any], path: str) -> str:
    path, _, kind = path.partition("|")
    value = pick(row, path)
    return cell(value if value is None or not kind else _KINDS[kind](value))


_KINDS: Mapping[str, Callable[[Any], str]] = {"usd": money_text, "seconds": duration_for_people}


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items()) or "-"
    return without_zeros(str(value))


def warn_of(operation: Mapping[str, Any]) -> None:
    """Prints the warning of an operation, such as a missing price."""
    detail = operation.get("metadata", {}).get("statusDetail")
    if detail:
        say(f"warning: {detail}")


def progress(text: str) -> None:
    """How far something is, on stderr: on a terminal over the text before, which an empty text takes away."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", err=True, nl=False)
    elif text:
        click.echo(text, err=True)


def say(text: str) -> None:
    """Progress and notes: stderr."""
    click.echo(text, err=True)
