"""`podyard simulate`: the whole platform in this process, on a virtual clock, from a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from podyard.cli.kit.options import output_option
from podyard.cli.kit.output import emit, say

EXIT_VIOLATED = 1


@dataclasses.dataclass(frozen=True, slots=True)
class SimulationRequest:
    """The arguments of the command. `scenario`: a file that says it all instead."""

    scenario: Path | None
    seed: int
    days: float
    nodes: int
    faults_per_day: float | None
    trace: Path | None
    shrink: bool


@dataclasses.dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """`report`: what is printed. `repeat`: the command that does it again. `shrunk`: a scenario
    file with few events that fails in the same way, if one was asked for."""

    report: Mapping[str, Any]
    failed: bool
    repeat: str
    shrunk: str | None = None


Simulate = Callable[[SimulationRequest], SimulationOutcome]


@click.command()
@click.option(
    "--scenario", metavar="FILE", type=click.Path(path_type=Path), help="Scenario file (YAML)."
)
@click.option("--seed", type=click.IntRange(0), help="Random seed (default: 0).")
@click.option(
    "--days",
    type=click.FloatRange(0, min_open=True),
    help="Days of platform time to simulate (default: 1).",
)
@click.option("--nodes", type=click.IntRange(1), help="Average number of live nodes (default: 10).")
@click.option(
    "--faults-per-day",
    type=click.FloatRange(0),
    help="Average number of random faults per day (default: 20).",
)
@click.option(
    "--trace",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Arrivals from a CSV or JSONL file instead of random ones.",
)
@click.option(
    "--shrink",
    is_flag=True,
    help="After a violation, search for a small set of events that causes it.",
)
@output_option
@click.pass_obj
def simulate(  # noqa: PLR0913
    tools: Mapping[str, Any] | None,
    scenario: Path | None,
    seed: int | None,
    days: float | None,
    nodes: int | None,
    faults_per_day: float | None,
    trace: Path | None,
    shrink: bool,
    output: str,
) -> int:
    """Simulate days of a platform and check every invariant. Exit code 1 if one is violated."""
    given = [
        ("--seed", seed),
        ("--days", days),
        ("--nodes", nodes),
        ("--faults-per-day", faults_per_day),
    ]
    named = [name for name, value in [*given, ("--trace", trace)] if value is not None]
    if scenario is not None and named:
        raise click.UsageError(f"{named[0]} cannot be combined with --scenario: set it in the file")
    assert tools is not None, "main passes what only it may import"
    run: Simulate = tools["simulate"]
    found = run(
        SimulationRequest(
            scenario, seed or 0, days or 1.0, nodes or 10, faults_per_day, trace, shrink
        )
    )
    if output == "table":
        _show(found.report)
    else:
        emit(dict(found.report), output)
    if not found.failed:
        return 0
    say(f"to repeat it: {found.repeat}")
    if found.shrunk is not None:
        say(f"these events are enough; as a file, for --scenario:\n{found.shrunk.rstrip()}")
    return EXIT_VIOLATED


def _show(report: Mapping[str, Any]) -> None:
    emit({name: value for name, value in report.items() if name != "violations"}, "yaml")
    if report["violations"]:
        columns = {"INVARIANT": "invariant", "AT": "at", "RESOURCE": "resource", "DETAIL": "detail"}
        emit(report["violations"], "table", columns)


COMMANDS = {"simulate": simulate}
