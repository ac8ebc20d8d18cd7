"""Data on stdout as a table, JSON or YAML; everything else on stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from podyard.cli.kit.tables import columns_of, draw

FORMATS = ("table", "json", "yaml")


def emit(data: Any, output: str, columns: Mapping[str, str] | None = None) -> None:
    """`columns`: heading -> path of keys (`metrics.latest.loss`) of a list of mappings, or of one
    mapping.

    A path may end with what it leads to, one of `tables.KINDS`: `|usd` or `|seconds`.
    """
    if output == "json":
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif output == "yaml" or columns is None:
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True).rstrip())
    else:
        click.echo(draw(columns_of(columns), data if isinstance(data, Sequence) else [data]))


def warn_of(operation: Mapping[str, Any]) -> None:
    """Prints the warning of an operation, such as a missing price."""
    detail = operation.get("metadata", {}).get("statusDetail")
    if detail:
        say(f"warning: {detail}")


def say(text: str) -> None:
    """Progress and notes: stderr."""
    click.echo(text, err=True)
