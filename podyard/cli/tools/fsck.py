"""`podyard fsck`: whether the database keeps the invariants; `--leaks`: what costs and does
nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import click

from podyard.base.errors import Code, PodyardError
from podyard.cli.kit.options import client_of, data_option, output_option, quiet_option, settings_of
from podyard.cli.kit.output import emit, say
from podyard.cli.kit.terminal import confirm
from podyard.settings import Settings
from podyard.stack.database import read, violations

EXIT_FOUND = 1
OPERATION_SECONDS_MAX = 900.0  # as the other commands wait
_DURATION = re.compile(r"(\d+)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.command()
@data_option
@click.option("--project", metavar="PROJECT", help="List only leaks of this project.")
@click.option(
    "--leaks",
    is_flag=True,
    help=(
        "List leaks instead: nodes without a job, nodes past their ttl label, idle "
        "queued resources."
    ),
)
@click.option(
    "--idle",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="Time that a node may be READY without a job.",
)
@click.option("--delete", "delete_them", is_flag=True, help="Delete the leaks, after confirmation.")
@quiet_option
@output_option
def fsck(
    data: str | None,
    project: str | None,
    leaks: bool,
    idle: str,
    delete_them: bool,
    quiet: bool,
    output: str,
) -> int:
    """Check all invariants of the database without changing it. Exit code 1 if one is violated."""
    if delete_them and not leaks:
        raise click.UsageError("--delete requires --leaks: only leaks can be deleted")
    settings = settings_of(data)
    if not leaks:
        return _check(settings, output)
    found = _leaks(settings, project, seconds_of(idle, "--idle"))
    columns = {"KIND": "kind", "NAME": "name", "STATE": "state", "WHY": "why"}
    emit(found, output, columns)
    if not found:
        return 0
    if not delete_them:
        return EXIT_FOUND
    if not quiet:
        confirm(f"Delete these {len(found)}?", "--yes")
    _delete(data, found)
    return 0


def seconds_of(text: str, option: str) -> float:
    """`90s`, `30m`, `2h`, `1d`; a usage error names what is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise click.UsageError(
            f"{option}: invalid duration {text!r}: use a duration such as 30m, 2h or 1d"
        )
    return float(int(match[1]) * _SECONDS[match[2]])


def _check(settings: Settings, output: str) -> int:
    rows = violations(settings)
    if output == "table":
        if rows:
            columns = {
                "INVARIANT": "invariant",
                "AT": "at",
                "RESOURCE": "resource",
                "DETAIL": "detail",
            }
            emit(rows, output, columns)
        say(f"{len(rows)} violations")
    else:
        emit({"violations": rows}, output)
    return EXIT_FOUND if rows else 0


def _leaks(settings: Settings, project: str | None, idle_seconds: float) -> list[dict[str, str]]:
    from podyard.control.checks import leaks

    found = read(settings, lambda uow: leaks.find(uow, project, idle_seconds))
    return [leak.as_json() for leak in found]


def _delete(data: str | None, found: Sequence[Mapping[str, str]]) -> None:
    """Deletes what was found, each through the API, as its own commands do."""
    failed = 0
    for leak in found:
        _, project, _, zone, collection, name = leak["name"].split("/")
        client = client_of(data, project, zone)
        path = f"{client.zone_path()}/{collection}/{quote(name)}"
        try:
            force = "true" if collection == "queuedResources" else None
            client.wait_operation(client.call("DELETE", path, force=force), OPERATION_SECONDS_MAX)
            say(f"{leak['name']} is deleted")
        except PodyardError as error:
            failed += 1
            say(f"{leak['name']}: ({error.code.name}) {error.message}")
        finally:
            client.close()
    if failed:
        raise PodyardError(Code.ABORTED, f"{failed} of {len(found)} were not deleted")


COMMANDS = {"fsck": fsck}
