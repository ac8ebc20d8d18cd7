"""`podyard admin copy-database`: from SQLite to PostgreSQL and back."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.stack.database import require_head

if TYPE_CHECKING:
    from podyard.control.checks.bills_of_copies import Bills
    from podyard.control.checks.fsck_violation import Violation
    from podyard.db.store.unit_of_work import UnitOfWork
    from podyard.db.views.copies import CopiedTable
    from podyard.domain.fleet import Fleet

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Examined:
    """The content of a database, as far as it is compared: invariants that it violates, and its
    bills."""

    violations: list[Violation]
    bills: Bills


def database_url(text: str) -> str:
    """The URL of a database that is named by a URL or a path."""
    return text if "://" in text else f"sqlite:///{Path(text).expanduser().absolute()}"


def require_stopped(url: str) -> None:
    """Raises FAILED_PRECONDITION unless the database can be copied: it has this version's schema,
    and nobody changes what has been copied already."""
    from podyard import migrations
    from podyard.db.store import leases
    from podyard.db.views import copies

    if copies.is_sqlite(url):
        if not copies.sqlite_path(url).exists():
            raise failed_precondition(f"there is no database at {copies.sqlite_path(url)}")
        migrations.check_file(copies.sqlite_path(url), in_use=True)
    with copies.open_engine(url) as engine:
        require_head(url, migrations.current(engine))
    if read(url, lambda uow: leases.is_held(uow, leases.LOOP_LEADER)):
        raise failed_precondition(
            f"Podyard runs on {copies.hide_password(url)}: stop it first, with `podyard down`"
        )


def copy(source_url: str, target_url: str, tell: Callable[[str], None]) -> list[CopiedTable]:
    """Copies all rows. An SQLite file appears when it is complete; a PostgreSQL database has all
    rows or none. `tell` hears how far it is; an empty text ends that."""
    from podyard import migrations
    from podyard.db.views import copies

    def tell_rows(table: str, rows: int) -> None:
        tell(f"{table}: {rows} rows" if rows else "")

    with contextlib.ExitStack() as stack:
        if copies.is_sqlite(target_url):
            path = stack.enter_context(copies.new_sqlite_file(copies.sqlite_path(target_url)))
            target_url = f"sqlite:///{path}"
        with copies.open_engine(target_url) as engine:
            if migrations.current(engine) not in (None, migrations.HEAD):
                raise failed_precondition(
                    f"{copies.hide_password(target_url)} is not empty: name an empty database"
                )
            migrations.to_head(engine)
        with copies.open_source(source_url) as source, copies.open_target(target_url) as target:
            found = copies.copy(source, target, tell_rows)
    tell("")
    return found


def compare(source_url: str, target_url: str, fleet: Fleet) -> tuple[Examined, Examined]:
    """Both databases, examined at the same moment of platform time. Raises DATA_LOSS if they
    differ."""
    moment = read(source_url, lambda uow: uow.now)
    before, after = (_examine(url, fleet, moment) for url in (source_url, target_url))
    for name in ("issued", "drafts"):
        was, now = getattr(before.bills, name), getattr(after.bills, name)
        wrong = sorted(key for key in was.keys() | now.keys() if was.get(key) != now.get(key))
        if wrong:
            raise PodyardError(
                Code.DATA_LOSS, f"the copy has other invoices ({name}): {', '.join(wrong[:5])}"
            )
    if before.violations != after.violations:
        counts = f"{len(before.violations)} before and {len(after.violations)} after"
        raise PodyardError(
            Code.DATA_LOSS, f"the copy violates other invariants than the source: {counts}"
        )
    return before, after


def _examine(url: str, fleet: Fleet, moment: Any) -> Examined:
    from podyard.control.checks import bills_of_copies, fsck
    from podyard.pricing.current_card import default_rate_card

    card = default_rate_card()

    def both(uow: UnitOfWork) -> Examined:
        return Examined(
            fsck.check(uow.at(moment), fleet, card), bills_of_copies.read(uow, card, moment)
        )

    return read(url, both)


def read(url: str, body: Callable[[UnitOfWork], T]) -> T:
    from podyard.db.store.unit_of_work import Database
    from podyard.db.views import copies

    with copies.explain_failures(url), contextlib.closing(Database(url, OsClock())) as database:
        return database.read(body)
