"""What is kept for a limited time goes, and nothing that bills or fsck need goes with it."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest
from sqlalchemy import Table, func, select

from podyard.base.clock import ManualClock
from podyard.base.errors import PodyardError
from podyard.base.log_files import LogFiles
from podyard.control.checks import fsck
from podyard.control.jobs import jobs
from podyard.db.store.unit_of_work import Database
from podyard.db.tables.base import state_changes
from podyard.db.tables.compute import operations
from podyard.db.tables.jobs import log_chunks
from podyard.db.views import retention
from podyard.domain.job import JobRequest
from podyard.loop.retention import prune
from podyard.pricing.current_card import default_rate_card
from podyard.settings import Keep, Settings, from_environment
from podyard.stack import disk
from tests.builders import Play, node_spec, written
from tests.waiting import until

DAY_SECONDS = 86_400.0


def _settings(folder: Path, operations_days: int, logs_days: int) -> Settings:
    settings = from_environment({"PODYARD_DATA": str(folder)})
    return dataclasses.replace(settings, keep=Keep(operations_days, logs_days))


def _count(database: Database, table: Table) -> int:
    return database.read(
        lambda uow: int(uow.execute(select(func.count()).select_from(table)).scalar_one())
    )


def test_finished_operations_go_with_their_history_and_the_rest_stays(
    database: Database, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play, stop = Play(database, clock), threading.Event()
    for name in ("a", "b"):
        play.create(name)
    play.turn(20 * DAY_SECONDS)
    late = play.create("c")
    before = _count(database, state_changes)
    settings = _settings(tmp_path, 30, 0)
    assert prune(database, settings, stop) == (0, 0)
    play.turn(11 * DAY_SECONDS)
    monkeypatch.setattr(retention, "BATCH_MAX", 1)
    assert prune(database, settings, stop) == (2, 0)
    left = database.read(lambda uow: uow.all(select(operations)))
    assert [row["operation_id"] for row in left] == [late.operation_id]
    assert before - _count(database, state_changes) == 4  # each was begun and has ended
    assert set(play.states().values()) == {"READY"}
    assert database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card())) == []
    assert prune(database, _settings(tmp_path, 0, 0), stop) == (0, 0)  # for ever


def test_lines_of_ended_jobs_go_with_their_files(
    database: Database, clock: ManualClock, tmp_path: Path
) -> None:
    settings, stop = _settings(tmp_path, 0, 5), threading.Event()
    play = Play(database, clock)
    play.files = LogFiles(settings.logs_path)
    play.register()
    for job in ("old", "running"):
        play.run(
            jobs.create,
            job,
            JobRequest(recipe="digits-cnn", steps=10, max_failures=0),
            node_spec("v2-8"),
        )
    play.turn()
    play.turn(10)
    for replica in play.live():
        play.say(replica, written=written([(0, clock.now(), "a line")]))
    keys = {job: play.ask(jobs.get, job).job_key for job in ("old", "running")}
    play.ask(jobs.cancel, "old")
    play.exit([replica for replica in play.live() if replica.desired == "STOP"])
    play.turn(4 * DAY_SECONDS)
    assert prune(database, settings, stop) == (0, 0)
    play.turn(2 * DAY_SECONDS)
    assert all((settings.logs_path / key).exists() for key in keys.values())
    assert prune(database, settings, stop) == (0, 1)
    assert [(settings.logs_path / keys[job]).exists() for job in ("old", "running")] == [
        False,
        True,
    ]
    left = database.read(lambda uow: uow.all(select(log_chunks)))
    assert {row["job_key"] for row in left} == {keys["running"]}
    assert database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card())) == []
    assert prune(database, settings, stop) == (0, 0)


def test_a_log_that_has_become_too_long_is_moved_while_processes_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "podyard.log"
    monkeypatch.setattr(disk, "LOG_BYTES_MAX", 100)
    with path.open("ab", buffering=0) as log:
        log.write(b"x" * 100)
        disk.keep_log_short(path)
        assert path.stat().st_size == 100
        log.write(b"y")
        disk.keep_log_short(path)
        log.write(b"next")
    assert path.read_bytes() == b"next"
    assert (tmp_path / "podyard.log.1").read_bytes() == b"x" * 100 + b"y"


@pytest.mark.parametrize("name", ["PODYARD_KEEP_OPERATIONS_DAYS", "PODYARD_KEEP_LOGS_DAYS"])
def test_days_are_numbers_and_reach_the_processes(name: str) -> None:
    assert from_environment(from_environment({name: "7"}).environment()).keep in (
        Keep(7, 0),
        Keep(30, 7),
    )
    with pytest.raises(PodyardError, match=name):
        from_environment({name: "-1"})


def test_pruning_ends_when_it_is_told_to(
    database: Database, clock: ManualClock, tmp_path: Path
) -> None:
    from podyard.loop.retention import keep_pruning

    Play(database, clock)
    stop = threading.Event()
    thread = threading.Thread(
        target=keep_pruning, args=(database, _settings(tmp_path, 30, 0), stop)
    )
    thread.start()
    stop.set()
    thread.join(30)
    assert until(lambda: True if not thread.is_alive() else None, 10, "the end")
