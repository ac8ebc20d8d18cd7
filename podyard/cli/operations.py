"""`podyard admin`: what operators do with a whole Podyard."""

from __future__ import annotations

import contextlib

import click

from podyard.base.clock import OsClock
from podyard.cli.audit import audit
from podyard.cli.backup import backup, restore
from podyard.cli.copy_database import copy_database, require_stopped
from podyard.cli.options import data_option, settings_of
from podyard.cli.output import say
from podyard.db import yard
from podyard.db.unit_of_work import Database


@click.group()
def admin() -> None:
    """Operate this Podyard: copy its database, back it up, restore it, see who changed what."""


@click.command("adopt-folders")
@data_option
def adopt_folders(data: str | None) -> None:
    """Let the next start bring its own data folder, where the one that the database belongs to is
    lost.

    Contents of buckets, objects and logs that were in the lost folder stay lost. All machines must
    be stopped.
    """
    settings = settings_of(data)
    require_stopped(settings.database_url)
    with contextlib.closing(Database(settings.database_url, OsClock())) as database:
        database.run(lambda uow: yard.keep_folders_id(uow, None))
    say(f"the next `podyard up --data {settings.data}` makes this folder the yard's own")


for command in (audit, copy_database, backup, restore, adopt_folders):
    admin.add_command(command)

COMMANDS = {"admin": admin}
