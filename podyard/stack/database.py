"""The database of a data folder, read as it stands while Podyard runs or not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.settings import Settings

if TYPE_CHECKING:
    from podyard.db.store.unit_of_work import UnitOfWork
    from podyard.domain.fleet import Fleet

T = TypeVar("T")


def violations(settings: Settings) -> list[dict[str, Any]]:
    """Return the broken invariants of a data folder's database."""
    from podyard.control.checks import fsck as checks
    from podyard.pricing.current_card import default_rate_card

    fleet = fleet_of(settings)
    found = read(settings, lambda uow: checks.check(uow, fleet, default_rate_card()))
    return [violation.as_json() for violation in found]


def read(settings: Settings, body: Callable[[UnitOfWork], T]) -> T:
    """`body` on a snapshot of the database as it stands; a missing one is not made."""
    from podyard import migrations
    from podyard.db.store.unit_of_work import Database
    from podyard.db.views import copies

    if (path := settings.database_path) is not None:
        if not path.exists():
            raise PodyardError(Code.FAILED_PRECONDITION, f"there is no database at {path}")
        migrations.check_file(path, in_use=True)
    with copies.open_engine(settings.database_url) as engine:
        require_head(settings.database_url, migrations.current(engine))
    with (
        copies.explain_failures(settings.database_url),
        contextlib.closing(
            Database(settings.database_url, OsClock(), leases=settings.leases)
        ) as database,
    ):
        return database.read(body)


def require_head(url: str, revision: str | None) -> None:
    """Raise FAILED_PRECONDITION unless the database has this version's tables."""
    from podyard import migrations
    from podyard.db.views import copies

    if revision != migrations.HEAD:
        raise failed_precondition(
            f"{copies.hide_password(url)} stands at revision {revision or 'none'}, not "
            f"{migrations.HEAD}: start this version of Podyard on it once, and stop it again"
        )


def fleet_of(settings: Settings) -> Fleet:
    from podyard.stack.fleets import read_fleet

    record = settings.fleet_record_path
    return read_fleet(
        record.read_text(encoding="utf-8").strip() if record.exists() else settings.fleet
    )
