"""`podyard fault`: fault rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.options import client_of, data_option, output_option, value_of
from podyard.cli.kit.output import emit, say
from podyard.domain.fault import EFFECTS, Effect, Kind, Parameter
from podyard.domain.fault_file import read_faults

_PATH = "/podyard/v1/faults"
_COLUMNS = {
    "FAULT": "fault", "EFFECT": "effect", "MATCH": "match|text", "FROM": "from", "UNTIL": "until",
    "COUNT": "count",
    "FIRED": "fired", "OVER": "over",
}  # fmt: skip
# Option -> the key of `match` that it stands for.
_MATCH = {
    "zone": "zone", "type": "acceleratorType", "project": "project", "resource": "resource",
    "method": "method",
    "usage": "usage",
}  # fmt: skip


def _match_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option, key in reversed(_MATCH.items()):
        text = f"Apply only where {key} matches this pattern (*, ?, [...])."
        command = click.option(f"--{option}", f"match_{option}", metavar="PATTERN", help=text)(
            command
        )
    return command


@click.group(cls=CommandGroup, default="list")
def fault() -> None:
    """Inject faults by rule."""


@fault.command()
@click.argument("effect", required=False)
@_match_options
@click.option("--probability", type=float, help="Probability that the rule applies, 0 to 1.")
@click.option("--count", type=int, help="Maximum number of times that the rule applies.")
@click.option(
    "--from", "starts", metavar="TIME", help="Start: a time (RFC 3339), or a duration from now."
)
@click.option("--until", metavar="TIME", help="End: a time (RFC 3339), or a duration from now.")
@click.option("--every", metavar="DURATION", help="Interval at which an event repeats.")
@click.option(
    "-p",
    "--parameter",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="Parameter of the effect; see `podyard fault effects`.",
)
@click.option(
    "-f",
    "--file",
    "file",
    type=click.Path(dir_okay=False),
    help="Scenario file with a list `faults:`.",
)
@data_option
@output_option
def add(  # noqa: PLR0913
    effect: str | None,
    probability: float | None,
    count: int | None,
    starts: str | None,
    until: str | None,
    every: str | None,
    parameters: Sequence[str],
    file: str | None,
    data: str | None,
    output: str,
    **match: str | None,
) -> None:
    """Add a rule with EFFECT, or all rules of a scenario file."""
    if (effect is None) == (file is None):
        raise click.UsageError(
            "specify either an EFFECT (see `podyard fault effects`), or a scenario file with -f"
        )
    if file is not None:
        rules = read_faults(_text(file), file)
        added = client_of(data).call("POST", f"{_PATH}:batchCreate", {"faults": rules})["faults"]
        emit(added, output, _COLUMNS)
        return
    patterns = {
        _MATCH[name.removeprefix("match_")]: pattern
        for name, pattern in match.items()
        if pattern is not None
    }
    given = {
        "probability": probability,
        "count": count,
        "from": starts,
        "until": until,
        "every": every,
    }
    body = {
        "effect": effect,
        "match": patterns,
        **{key: value for key, value in given.items() if value is not None},
    }
    emit(client_of(data).call("POST", _PATH, body | _parameters(parameters)), output, _COLUMNS)


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {file}: {error}") from None


def _parameters(given: Sequence[str]) -> dict[str, Any]:
    found = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise click.UsageError(f"-p: {item!r} is not KEY=VALUE")
        found[key] = value_of(value)
    return found


@fault.command(name="list")
@data_option
@lists(_COLUMNS)
def list_faults(data: str | None) -> Iterable[Item]:
    """List the rules, including those that have ended."""
    return client_of(data).pages(_PATH, "faults")


@fault.command()
@click.argument("faults", nargs=-1, metavar="[FAULT]...")
@click.option("--all", "everything", is_flag=True, help="Remove all rules.")
@data_option
def rm(faults: Sequence[str], everything: bool, data: str | None) -> None:
    """Remove rules and undo their lasting effects."""
    if bool(faults) == everything:
        raise click.UsageError("specify either the ids of rules, or --all")
    client = client_of(data)
    for fault_id in (
        [rule["fault"] for rule in client.pages(_PATH, "faults")] if everything else faults
    ):
        _remove(client, fault_id)


def _remove(client: Client, fault_id: str) -> None:
    client.call("DELETE", f"{_PATH}/{quote(fault_id, safe='')}")
    say(f"removed {fault_id}")


@fault.command()
@output_option
def effects(output: str) -> None:
    """List the effects with their match keys and parameters."""
    rows = [
        {
            "effect": name,
            "acts": str(effect.acts),
            "match": ", ".join(effect.keys),
            "parameters": parameters_text(effect),
            "text": effect.text,
        }
        for name, effect in EFFECTS.items()
    ]
    columns = {
        "EFFECT": "effect",
        "ACTS": "acts",
        "MATCH": "match|text",
        "PARAMETERS": "parameters",
        "DOES": "text",
    }
    emit(rows, output, columns)


def parameters_text(effect: Effect) -> str:
    """`seconds=0 worker chips=1`: what may be left out has its default."""
    return " ".join(
        _parameter_text(name, parameter) for name, parameter in effect.parameters.items()
    )


def _parameter_text(name: str, parameter: Parameter) -> str:
    if parameter.required:
        return f"{name} (required)"
    if parameter.default is None:
        return name
    shown = (
        str(parameter.default).lower() if parameter.kind is Kind.FLAG else str(parameter.default)
    )
    return f"{name}={shown.removesuffix('.0')}"


COMMANDS = {"fault": fault}
