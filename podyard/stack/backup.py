"""`podyard admin backup|restore`: a whole yard as one file.

The files are copied, then the database is, then what has changed among the files meanwhile: rows
name files that were written before them, so a snapshot's files are either in the backup by then or
still there. If one was removed in between, another snapshot is taken. What a row names and the yard
itself does not have is reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from podyard import __version__
from podyard.base import backup_archive
from podyard.base.clock import OsClock
from podyard.base.contents import Contents
from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.base.files import new_file, sync_folder
from podyard.settings import FLEET_NAMES, Settings
from podyard.stack import copy_database, processes

if TYPE_CHECKING:
    from podyard.db.store.unit_of_work import UnitOfWork

DATABASE = "podyard.db"
FLEET = "fleet.yaml"
SNAPSHOTS_MAX = (
    # each follows one that lost a race against a removal: a yard that removes all the time is still
    # saved
    5
)
# What makes a yard, next to its database. Left out: what belongs to a machine (agents, boot disks
# of hosts, caches) and what a start makes again.
FOLDERS = ("contents", "logs", "objects", "programs", "datasets", "ssh", "tls")
FILES = (
    "yard.id",
    "token",
    "agent-*.token",
    "secrets.key",
    "gcloud-authority.key",
    "gcloud-roots.pem",
)
_UNFINISHED = "contents/partial/"  # uploads that are going on: their clients send them again


@dataclasses.dataclass(frozen=True, slots=True)
class _Named:
    """Files that rows name, relative to the data folder."""

    contents: frozenset[str]
    checkpoints: frozenset[str]

    @property
    def paths(self) -> frozenset[str]:
        return self.contents | self.checkpoints


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenBackup:
    files: int
    missing: tuple[str, ...]


def write(settings: Settings, target: Path, tell: Callable[[str], None]) -> WrittenBackup:
    """Write the database and all files of a yard to `target`, which appears when it is complete.
    `tell` hears how far it is."""
    from podyard import migrations

    if not settings.data.is_dir():
        raise failed_precondition(f"there is no data folder at {settings.data}")
    if settings.database_path is not None:
        migrations.check_file(settings.database_path, in_use=True)
    with new_file(target) as partial:
        return _write(settings, partial, tell)


def _write(settings: Settings, partial: Path, tell: Callable[[str], None]) -> WrittenBackup:
    """The archive at `partial`, complete and on disk."""
    from podyard.db.views import copies

    seen: dict[str, tuple[int, int]] = {}
    with (
        partial.open("wb") as file,
        contextlib.closing(backup_archive.ArchiveWriter(file)) as archive,
        _scratch(partial) as scratch,
    ):
        _add_new(settings, archive, seen, tell)
        for number in range(SNAPSHOTS_MAX):
            snapshot = scratch / f"{number}.db"
            with _database(settings, snapshot):
                copies.snapshot(settings.database_url, snapshot)
            _add_new(settings, archive, seen, tell)
            wanted = _find_named(f"sqlite:///{snapshot}").paths - archive.entries.keys()
            missing = {name for name in wanted if archive.add(name, settings.data / name) is None}
            # What is still named, and is not there, was not there before.
            if not missing or missing <= _find_named(settings.database_url).paths:
                break
        else:
            raise PodyardError(
                Code.ABORTED,
                f"files were removed during each of {SNAPSHOTS_MAX} snapshots; try again",
            )
        archive.add(DATABASE, snapshot)
        _add_settings(settings, archive)
        facts = {"version": __version__, "time": OsClock().now().rfc3339()}
        archive.finish(facts)
        file.flush()
        os.fsync(file.fileno())
    # Simulated jobs have checkpoints without files.
    return WrittenBackup(
        len(archive.entries) - 1,
        tuple(sorted(name for name in missing if name.startswith("contents/"))),
    )


@contextlib.contextmanager
def _scratch(partial: Path) -> Iterator[Path]:
    """An empty folder next to the archive, for snapshots: of one file at a time, so that what a
    killed backup left is found."""
    folder = partial.with_name(f"{partial.name}.snapshots")
    backup_archive.remove_folder(folder)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        backup_archive.remove_folder(folder)


@contextlib.contextmanager
def _database(settings: Settings, snapshot: Path) -> Iterator[None]:
    """A server's rows are copied into a database that has the tables."""
    from podyard import migrations
    from podyard.db.views import copies

    if settings.database_path is None:
        with copies.open_engine(settings.database_url) as engine:
            revision = migrations.current(engine)
        if revision != migrations.HEAD:
            text = f"the database stands at revision {revision or 'none'}, not {migrations.HEAD}"
            raise failed_precondition(
                f"{text}: back it up with the version of Podyard that runs on it"
            )
        with copies.open_engine(f"sqlite:///{snapshot}") as engine:
            migrations.to_head(engine)
    elif not settings.database_path.exists():
        raise failed_precondition(f"there is no database at {settings.database_path}")
    yield


def _add_new(
    settings: Settings,
    archive: backup_archive.ArchiveWriter,
    seen: dict[str, tuple[int, int]],
    tell: Callable[[str], None],
) -> None:
    """Adds the files that are new or have changed since they were seen."""
    for count, path in enumerate(_files(settings.data)):
        try:
            status = path.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        name, stamp = (
            path.relative_to(settings.data).as_posix(),
            (status.st_size, status.st_mtime_ns),
        )
        if seen.get(name) != stamp and archive.add(name, path) is not None:
            seen[name] = stamp
        if count % 1000 == 0:
            tell(f"{len(archive.entries)} files")


def _files(data: Path) -> Iterator[Path]:
    for pattern in FILES:
        yield from sorted(data.glob(pattern))
    for folder in FOLDERS:
        for parent, folders, names in os.walk(data / folder):
            folders.sort()
            for name in sorted(names):
                path = Path(parent, name)
                is_being_written = name.startswith(".") or f"{path.relative_to(data)}".startswith(
                    _UNFINISHED
                )
                if not is_being_written and path.is_file() and not path.is_symlink():
                    yield path


def _add_settings(settings: Settings, archive: backup_archive.ArchiveWriter) -> None:
    """Files outside of the data folder that the yard's bills and pods go by."""
    record = settings.fleet_record_path
    fleet = record.read_text(encoding="utf-8").strip() if record.exists() else settings.fleet
    archive.add_text("fleet", f"{fleet if fleet in FLEET_NAMES else FLEET}\n")
    outside = {FLEET: None if fleet in FLEET_NAMES else Path(fleet)}
    outside |= {
        "rate-card.yaml": settings.rate_card_path,
        "machine-card.yaml": settings.machine_card_path,
    }
    for name, path in outside.items():
        if path is not None and archive.add(name, path.resolve()) is None:
            raise failed_precondition(f"{path} cannot be read")


def _find_named(url: str) -> _Named:
    from podyard.db.jobs import history as job_history
    from podyard.db.views import contents
    from podyard.domain.job import objects_prefix

    def body(uow: UnitOfWork) -> _Named:
        root = Path("contents")
        digests = {Contents(root).path(digest).as_posix() for digest in contents.all_in_use(uow)}
        checkpoints = {
            f"objects/{objects_prefix(job)}{name}.{end}"
            for job, name in job_history.all_checkpoints(uow)
            for end in ("json", "safetensors")
        }
        return _Named(frozenset(digests), frozenset(checkpoints))

    return copy_database.read(url, body)


def restore(
    file: Path, folder: Path, database_url: str | None, tell: Callable[[str], None]
) -> Mapping[str, str]:
    """Make a data folder from a backup; return the facts that the backup ends with. With
    `database_url` the rows go to that empty database."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PodyardError(
            Code.ALREADY_EXISTS, f"{folder} is not empty: name a folder that does not exist"
        )
    partial = folder.with_name(f".{folder.name}.partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _own_folder(partial):
        facts = backup_archive.extract(file, partial)
        _upgrade(partial / DATABASE)
        if database_url is not None:
            copy_database.copy(f"sqlite:///{partial / DATABASE}", database_url, tell)
            (partial / DATABASE).unlink()
        _place_settings(partial, folder)
        sync_folder(partial)
        partial.replace(folder)
        sync_folder(folder.parent)
    return facts


@contextlib.contextmanager
def _own_folder(partial: Path) -> Iterator[None]:
    """An empty folder for the time of the block. Raises ABORTED while another restore makes the
    same one."""
    partial.mkdir(mode=0o700, exist_ok=True)
    claim = processes.claim(partial)
    if claim is None:
        raise PodyardError(Code.ABORTED, f"another restore writes {partial}")
    try:
        for path in partial.iterdir():  # what a killed restore left
            if path.is_dir():
                backup_archive.remove_folder(path)
            elif path.name != processes.LOCK_FILE:
                path.unlink()
        yield
    finally:
        os.close(claim)
        backup_archive.remove_folder(partial)


def _upgrade(path: Path) -> None:
    """A backup of an older version has older tables. Raises FAILED_PRECONDITION for one of a newer
    version."""
    from podyard import migrations
    from podyard.db.store.unit_of_work import Database

    if not path.exists():
        raise failed_precondition("the backup holds no database")
    migrations.check_file(path, in_use=True)
    with contextlib.closing(Database(f"sqlite:///{path}", OsClock())) as database:
        migrations.upgrade(database)


def _place_settings(partial: Path, folder: Path) -> None:
    """The fleet's record names the restored file."""
    if (partial / FLEET).exists():
        (partial / "fleet").write_text(f"{folder / FLEET}\n", encoding="utf-8")


def start_command(folder: Path, database_url: str | None) -> str:
    """Return the command line that starts a restored yard."""
    variables = {
        "PODYARD_DATABASE_URL": database_url,
        "PODYARD_RATE_CARD": _present(folder / "rate-card.yaml"),
        "PODYARD_MACHINE_CARD": _present(folder / "machine-card.yaml"),
    }
    words = [f"{name}={value}" for name, value in variables.items() if value is not None]
    fleet = (folder / "fleet").read_text(encoding="utf-8").strip()
    return " ".join([*words, "podyard", "up", "--data", str(folder), "--fleet", fleet])


def _present(path: Path) -> str | None:
    return str(path) if path.exists() else None
