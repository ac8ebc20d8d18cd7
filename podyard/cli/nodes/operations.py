"""`podyard admin`: what operators do with a whole Podyard."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from podyard.base.clock import OsClock
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.options import data_option, output_option, settings_of
from podyard.cli.kit.output import emit, say
from podyard.cli.kit.terminal import progress
from podyard.cli.nodes.audit import audit
from podyard.db.store import yard
from podyard.db.store.unit_of_work import Database
from podyard.stack import backup as backups
from podyard.stack import copy_database as copies
from podyard.stack.database import fleet_of, violations


@click.group(cls=CommandGroup)
def admin() -> None:
    """Operate this Podyard: copy its database, back it up, restore it, see who changed what."""


@click.command("copy-database")
@click.argument("source")
@click.argument("target")
@data_option
@output_option
def copy_database(source: str, target: str, data: str | None, output: str) -> None:
    """Copy the database SOURCE to TARGET: SQLite to PostgreSQL, or back.

    Each is a URL (postgresql://USER@HOST/NAME, sqlite:////PATH) or the path of an SQLite file.
    TARGET must be empty. Podyard must be stopped. The copy is read back and compared; then fsck and
    all bills must be equal on both.
    """
    fleet = fleet_of(settings_of(data))
    source_url, target_url = copies.database_url(source), copies.database_url(target)
    copies.require_stopped(source_url)
    copied = copies.copy(source_url, target_url, progress)
    rows = [{"table": one.table, "rows": one.rows} for one in copied]
    before, after = copies.compare(source_url, target_url, fleet)
    summary = {
        "tables": rows,
        "rows": sum(one.rows for one in copied),
        "violations": [violation.as_json() for violation in after.violations],
        "invoices": len(after.bills.issued),
        "drafts": len(after.bills.drafts),
    }
    if output == "table":
        emit([row for row in rows if row["rows"]], output, {"TABLE": "table", "ROWS": "rows"})
        say(
            f"{summary['rows']} rows, as in the source. fsck: {len(before.violations)} violations "
            "before and after."
        )
        say(
            f"{summary['invoices']} invoices and {summary['drafts']} drafts are equal, "
            "byte for byte."
        )
        say(f"Start Podyard on the copy with PODYARD_DATABASE_URL={target_url}")
    else:
        emit(summary, output)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@data_option
@output_option
def backup(file: Path, data: str | None, output: str) -> None:
    """Write the database and all files of a yard to FILE, while Podyard runs or not.

    FILE holds every secret of the yard: keep it as safe as the data folder.
    """
    result = backups.write(settings_of(data), file.absolute(), progress)
    progress("")
    for name in result.missing:
        say(f"warning: a row names {name}, and the yard does not have this file")
    found = {
        "file": str(file),
        "files": result.files,
        "bytes": file.stat().st_size,
        "missing": list(result.missing),
    }
    columns = {"FILE": "file", "FILES": "files", "BYTES": "bytes"}
    emit(found, output, columns)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--data",
    metavar="DIR",
    required=True,
    help="Data folder to make: it must not exist, or be empty.",
)
@click.option(
    "--database-url",
    metavar="URL",
    help="Empty PostgreSQL database to restore to, instead of SQLite.",
)
@output_option
def restore(file: Path, data: str, database_url: str | None, output: str) -> int:
    """Make a data folder from a backup, and check its invariants. Exit code 1 if one is
    violated."""
    folder = Path(data).expanduser().absolute()
    facts = backups.restore(file, folder, database_url, progress)
    settings = settings_of(
        str(folder), **({} if database_url is None else {"database_url": database_url})
    )
    found = violations(settings)
    result = {"data": str(folder), **facts, "violations": found}
    if output == "table":
        say(f"restored the backup of {facts['time']} to {folder}: {len(found)} violations")
        say(f"Start it with: {backups.start_command(folder, database_url)}")
    else:
        emit(result, output)
    return 1 if found else 0


@click.command("adopt-folders")
@data_option
def adopt_folders(data: str | None) -> None:
    """Let the next start bring its own data folder, where the one that the database belongs to is
    lost.

    Contents of buckets, objects and logs that were in the lost folder stay lost. All machines must
    be stopped.
    """
    settings = settings_of(data)
    copies.require_stopped(settings.database_url)
    with contextlib.closing(Database(settings.database_url, OsClock())) as database:
        database.run(lambda uow: yard.keep_folders_id(uow, None))
    say(f"the next `podyard up --data {settings.data}` makes this folder the yard's own")


for command in (audit, copy_database, backup, restore, adopt_folders):
    admin.add_command(command)

COMMANDS = {"admin": admin}
