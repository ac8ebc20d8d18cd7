"""`podyard fsck`: whether the database keeps the invariants; `--leaks`: what costs and does
nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError
from podyard.cli.options import client_of, data_option, output_option, settings_of
from podyard.cli.output import emit, say
from podyard.cli.terminal import confirm
from podyard.settings import Settings

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
@click.option("--yes", "-y", is_flag=True, help="Skip confirmation.")
@output_option
def fsck(
    data: str | None,
    project: str | None,
    leaks: bool,
    idle: str,
    delete_them: bool,
    yes: bool,
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
    if not yes:
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


def violations(settings: Settings) -> list[dict[str, Any]]:
    """What breaks an invariant in the database of a data folder."""
    from podyard.control.checks import fsck as checks
    from podyard.pricing.current_card import default_rate_card

    fleet = fleet_of(settings)
    found = _read(settings, lambda uow: checks.check(uow, fleet, default_rate_card()))
    return [violation.as_json() for violation in found]


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

    found = _read(settings, lambda uow: leaks.find(uow, project, idle_seconds))
    return [leak.as_json() for leak in found]


def _read(settings: Settings, body: Any) -> Any:
    """`body` on a snapshot of the database as it stands; a missing one is not made."""
    from podyard.db.condition import check_file
    from podyard.db.unit_of_work import Database

    if (path := settings.database_path) is not None:
        if not path.exists():
            raise PodyardError(Code.FAILED_PRECONDITION, f"there is no database at {path}")
        check_file(path, in_use=True)
    database = Database(settings.database_url, OsClock(), leases=settings.leases)
    try:
        return database.read(body)
    finally:
        database.close()


def fleet_of(settings: Settings) -> Any:
    from podyard.cli.fleets import read_fleet

    record = settings.fleet_record_path
    return read_fleet(
        record.read_text(encoding="utf-8").strip() if record.exists() else settings.fleet
    )


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
