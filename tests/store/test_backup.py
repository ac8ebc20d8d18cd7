"""`podyard admin backup` and `restore`: a yard comes back whole, or not at all."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from podyard import migrations
from podyard.base.backup_archive import MANIFEST, is_inside
from podyard.base.clock import ManualClock, RealTime
from podyard.base.contents import Content, Contents
from podyard.base.errors import Code, PodyardError
from podyard.base.rng import Streams
from podyard.cli.kit.commands import root
from podyard.control.compute import nodes
from podyard.control.storage import buckets, objects
from podyard.db.store.unit_of_work import Database
from podyard.db.views import copies
from podyard.domain.principal import PLATFORM
from podyard.settings import from_environment
from podyard.stack import backup as module
from podyard.stack.database import violations
from tests.builders import PROJECT, ZONE, Play
from tests.store import invoiced_yard

NODES = 30
CONTENT = b"weights" * 1000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A yard with invoices, a bucket with one object, a job's log and an artifact."""
    folder = tmp_path_factory.mktemp("made") / "data"
    invoiced_yard.make(folder, NODES)
    (folder / "token").write_text("pdy_owner\n")
    (folder / "agent-local.token").write_text("pdy_agent\n")
    (folder / "podyard.log").write_text("not part of a backup")
    for name in (
        "logs/jobs/job-1/1/0/000000.log",
        "objects/jobs/job-1/model.safetensors",
        "programs/mine.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 100)
    content = _store(folder, CONTENT)
    with _database(folder) as database:
        database.run(lambda uow: buckets.create(uow, PLATFORM, PROJECT, "weights"))
        database.run(lambda uow: objects.put(uow, PLATFORM, "weights", "w", content))
    return folder


def _store(folder: Path, data: bytes) -> Content:
    incoming = Contents(folder / "contents").incoming(10**6)
    incoming.write(data)
    return incoming.store()


_SEEDS = itertools.count(7)  # who opens a database again makes other ids


@contextlib.contextmanager
def _database(folder: Path, clock: ManualClock | None = None) -> Any:
    url = f"sqlite:///{folder / 'podyard.db'}"
    with contextlib.closing(
        Database(url, clock or ManualClock(invoiced_yard.END), Streams(next(_SEEDS)))
    ) as database:
        yield database


def _podyard(*arguments: object) -> Any:
    words = ["admin", *map(str, arguments), "-o", "json"]
    done = CliRunner().invoke(root, words, catch_exceptions=False, standalone_mode=False)
    return json.loads(done.stdout)


def _refused(*arguments: object) -> PodyardError:
    with pytest.raises(PodyardError) as caught:
        _podyard(*arguments)
    return caught.value


@pytest.fixture(scope="module")
def archive(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("archive") / "yard.tar"
    found = _podyard("backup", file, "--data", made)
    assert found["missing"] == []
    assert found["bytes"] == file.stat().st_size
    return file


def test_a_restored_yard_has_every_file_and_is_without_violations(
    made: Path, archive: Path, tmp_path: Path
) -> None:
    target = tmp_path / "restored"
    found = _podyard("restore", archive, "--data", target)
    assert found["violations"] == []
    for name in (
        "token",
        "agent-local.token",
        "fleet.yaml",
        "programs/mine.py",
        "logs/jobs/job-1/1/0/000000.log",
    ):
        assert (target / name).read_bytes() == (made / name).read_bytes(), name
    digest = next(path.name for path in (made / "contents").glob("??/??/*"))
    assert Contents(target / "contents").path(digest).read_bytes() == CONTENT
    assert (target / "fleet").read_text() == f"{target / 'fleet.yaml'}\n"
    assert not (target / "podyard.log").exists()
    assert (target / "token").stat().st_mode & 0o777 == 0o600
    assert archive.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["restored"]


def test_the_next_invoice_of_a_restored_yard_has_the_same_bytes(
    made: Path, archive: Path, tmp_path: Path
) -> None:
    target, original = tmp_path / "restored", tmp_path / "original"
    _podyard("restore", archive, "--data", target)
    shutil.copytree(made, original)
    documents = [_next_invoice(folder) for folder in (original, target)]
    assert len(documents[0]) == invoiced_yard.MONTHS + 1
    assert documents[0] == documents[1]


def _next_invoice(folder: Path) -> list[bytes]:
    """All documents after another month, in which a node is deleted."""
    clock = ManualClock(invoiced_yard.END)
    with _database(folder, clock) as database:
        play = Play(database, clock, (folder / "fleet.yaml").read_text())
        play.turn(3 * 86_400)
        (name, *_) = [name for name, state in play.states().items() if state == "READY"]
        database.run(lambda uow: nodes.delete(uow, play.fleet, PLATFORM, PROJECT, ZONE, name))
        while clock.now() < RealTime.from_rfc3339("2026-06-03T00:00:00Z"):
            play.turn(86_400)
        play.loop.stop()
        return [invoice.document for invoice in invoiced_yard.issued(database)]


def test_a_backup_goes_to_postgresql_and_a_postgresql_is_backed_up(
    made: Path, archive: Path, postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(f"{postgresql_url}/postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS restored WITH (FORCE)")
        connection.execute("CREATE DATABASE restored")
    url = f"{postgresql_url}/restored"
    found = _podyard("restore", archive, "--data", tmp_path / "one", "--database-url", url)
    assert found["violations"] == []
    assert not (tmp_path / "one" / "podyard.db").exists()
    monkeypatch.setenv("PODYARD_DATABASE_URL", url)
    _podyard("backup", tmp_path / "again.tar", "--data", tmp_path / "one")
    monkeypatch.delenv("PODYARD_DATABASE_URL")
    assert (
        _podyard("restore", tmp_path / "again.tar", "--data", tmp_path / "two")["violations"] == []
    )
    with _database(made) as before, _database(tmp_path / "two") as after:
        assert invoiced_yard.issued(after) == invoiced_yard.issued(before)


@pytest.mark.parametrize("moment", ["file", "snapshot", "manifest"])
def test_a_killed_backup_leaves_nothing_that_could_be_restored(
    made: Path, tmp_path: Path, moment: str
) -> None:
    target = tmp_path / "yard.tar"
    where = {
        "file": "podyard.base.backup_archive.ArchiveWriter.add",
        "snapshot": "podyard.db.views.copies.snapshot",
        "manifest": "podyard.base.backup_archive.ArchiveWriter.finish",
    }[moment]
    owner, _, name = where.rpartition(".")
    code = (
        "import os, signal, pkgutil\n"
        "import podyard.base.backup_archive, podyard.db.views.copies\n"
        f"owner = pkgutil.resolve_name({owner!r})\n"
        f"real = getattr(owner, {name!r})\n"
        "def killed(*arguments):\n"
        "    real(*arguments)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"setattr(owner, {name!r}, killed)\n"
        "from podyard.cli.kit.commands import run\n"
        f"run(['admin', 'backup', {str(target)!r}, '--data', {str(made)!r}])\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not target.exists()
    left = tmp_path / "yard.tar.partial"
    assert left.exists()
    if moment != "manifest":
        refused = _refused("restore", left, "--data", tmp_path / "restored")
        assert refused.code is Code.FAILED_PRECONDITION
    assert not (tmp_path / "restored").exists()
    _podyard("backup", target, "--data", made)
    assert _podyard("restore", target, "--data", tmp_path / "restored")["violations"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["restored", "yard.tar"]


def test_a_killed_restore_leaves_no_folder_and_the_next_one_works(
    archive: Path, tmp_path: Path
) -> None:
    target = tmp_path / "data"
    code = (
        "import os, signal\n"
        "from podyard.stack import backup\n"
        "backup._place_settings = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from podyard.cli.kit.commands import run\n"
        f"run(['admin', 'restore', {str(archive)!r}, '--data', {str(target)!r}])\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not target.exists()
    assert _podyard("restore", archive, "--data", target)["violations"] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_damaged_or_cut_backup_is_refused(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(data[: len(data) // 2])
    assert "backup" in _refused("restore", cut, "--data", tmp_path / "a").message
    changed = tmp_path / "changed.tar"
    place = data.index(b"weightsweights")
    changed.write_bytes(data[:place] + b"W" + data[place + 1 :])
    refused = _refused("restore", changed, "--data", tmp_path / "b")
    assert (refused.code, "is damaged: 1 files" in refused.message) == (Code.DATA_LOSS, True)
    assert (
        "cannot be read as a backup"
        in _refused("restore", tmp_path / "none.tar", "--data", tmp_path / "c").message
    )
    assert not [name for name in "abc" if (tmp_path / name).exists()]


def test_a_folder_in_use_and_an_existing_file_are_left_alone(
    made: Path, archive: Path, tmp_path: Path
) -> None:
    assert _refused("restore", archive, "--data", made).code is Code.ALREADY_EXISTS
    assert _refused("backup", archive, "--data", made).code is Code.ALREADY_EXISTS
    assert (
        "there is no data folder"
        in _refused("backup", tmp_path / "x.tar", "--data", tmp_path / "no").message
    )


def test_a_file_that_leads_out_of_the_folder_is_refused(archive: Path, tmp_path: Path) -> None:
    assert not any(map(is_inside, ("../a", "/etc/passwd", "a/../../b", "", "a\0b")))
    assert is_inside("contents/ab/cd/abcd")
    evil = tmp_path / "evil.tar"
    shutil.copy(archive, evil)
    with tarfile.open(evil, "r:") as tar:
        manifest = tar.extractfile(MANIFEST)
        assert manifest is not None
        (tmp_path / MANIFEST).write_bytes(manifest.read())
    with tarfile.open(evil, "a:") as tar:
        tar.add(tmp_path / MANIFEST, "../outside")
        tar.add(tmp_path / MANIFEST, MANIFEST)
    assert (
        "does not belong to a backup"
        in _refused("restore", evil, "--data", tmp_path / "data").message
    )
    assert not (tmp_path / "outside").exists()


def test_an_object_that_is_replaced_during_the_backup_is_in_it_as_the_snapshot_names_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content that the first snapshot names is removed before the files are looked at again."""
    folder = tmp_path / "data"
    shutil.copytree(made, folder)
    contents, snapshots = Contents(folder / "contents"), []
    take = copies.snapshot

    def upload(data: bytes) -> str:
        content = _store(folder, data)
        with _database(folder) as database:
            database.run(lambda uow: objects.put(uow, PLATFORM, "weights", "w", content))
        return content.digest

    def racing(url: str, path: Path) -> None:
        snapshots.append(path)
        first = upload(b"first") if len(snapshots) == 1 else None
        take(url, path)
        if first is not None:
            upload(b"second")
            contents.path(first).unlink()

    monkeypatch.setattr(copies, "snapshot", racing)
    found = _podyard("backup", tmp_path / "yard.tar", "--data", folder)
    assert (len(snapshots), found["missing"]) == (2, [])
    target = tmp_path / "restored"
    _podyard("restore", tmp_path / "yard.tar", "--data", target)
    (name,) = module._find_named(f"sqlite:///{target / 'podyard.db'}").contents
    assert (target / name).read_bytes() == b"second"


def test_a_content_that_the_yard_has_lost_is_named_and_the_rest_is_saved(
    made: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(made, folder)
    (content,) = (folder / "contents").glob("??/??/*")
    content.unlink()
    found = _podyard("backup", tmp_path / "yard.tar", "--data", folder)
    assert found["missing"] == [content.relative_to(folder).as_posix()]
    assert (
        _podyard("restore", tmp_path / "yard.tar", "--data", tmp_path / "restored")["violations"]
        == []
    )


def test_a_backup_of_older_tables_is_migrated_and_one_of_newer_tables_is_refused(
    made: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(made, folder)
    with copies.open_engine(f"sqlite:///{folder / 'podyard.db'}") as engine:
        migrations.migrate(engine, "0031")
    _podyard("backup", tmp_path / "old.tar", "--data", folder)
    _podyard("restore", tmp_path / "old.tar", "--data", tmp_path / "restored")
    settings = from_environment({"PODYARD_DATA": str(tmp_path / "restored")})
    assert violations(settings) == []
    with copies.open_engine(settings.database_url) as engine:
        assert migrations.current(engine) == migrations.HEAD
    with contextlib.closing(copies.sqlite3.connect(folder / "podyard.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    _podyard("backup", tmp_path / "new.tar", "--data", folder)
    assert (
        "made by a newer one"
        in _refused("restore", tmp_path / "new.tar", "--data", tmp_path / "later").message
    )
    assert not (tmp_path / "later").exists()


def test_the_clock_of_a_restored_yard_goes_on_where_it_stood(
    made: Path, archive: Path, tmp_path: Path
) -> None:
    _podyard("restore", archive, "--data", tmp_path / "restored")
    with _database(made) as before, _database(tmp_path / "restored") as after:
        assert after.read(lambda uow: uow.now) == before.read(lambda uow: uow.now)
