"""Logs of users' programs in their output: copied once the attempt has ended, asked for until they
are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from podyard.base.clock import ManualClock, RealTime
from podyard.base.contents import Contents
from podyard.base.log_files import LogFiles
from podyard.control.access import identity
from podyard.control.jobs import jobs, log_copies
from podyard.control.jobs.log_reader import LineFilter
from podyard.control.storage import buckets, objects
from podyard.db.store import timers
from podyard.db.store.unit_of_work import Database
from podyard.domain.job import JobRequest
from podyard.domain.log import WrittenLines, line_text
from podyard.domain.principal import PLATFORM
from podyard.domain.user_program import UserProgram
from podyard.workers.tasks.log_copies import copy
from tests.builders import PROJECT, Play

LINES = 12_000  # more than one page


@pytest.fixture
def play(database: Database, clock: ManualClock, tmp_path: Path) -> Play:
    found = Play(database, clock)
    found.files = LogFiles(tmp_path / "logs")
    found.register()
    assert found.create("n").error_code is None
    return found


def _fail(play: Play, output: str = "") -> str:
    """A program writes and fails; returns its attempt's id."""
    run = UserProgram(command="python train.py", output=output)
    play.run(jobs.create, "j", JobRequest(run=run, max_failures=0), "n")
    play.turn()
    (replica,) = play.live()
    text = "".join(line_text("stderr", 0, f"line {number}") for number in range(LINES))
    play.say(replica, written=WrittenLines(0, LINES, RealTime(play.clock.now().nanos), 0, text))
    play.say(replica, "FAILED", error="no")
    play.exit(play.live())
    play.turn()
    assert play.ask(jobs.get, "j").state == "FAILED"
    return replica.attempt_id


def _asked(play: Play, attempt_id: str) -> bool:
    return play.database.read(lambda uow: timers.is_set(uow, "log.copy", attempt_id))


def test_the_copy_has_every_line_and_is_asked_for_until_it_is_there(
    play: Play, tmp_path: Path
) -> None:
    attempt_id, contents = _fail(play), Contents(tmp_path / "contents")
    play.turn(log_copies.AGAIN_SECONDS + 1)
    assert _asked(play, attempt_id)  # the message may have been lost
    for _ in range(2):
        copy(play.database, play.files, contents, attempt_id)
    assert not _asked(play, attempt_id)
    logs = play.database.read(lambda uow: log_copies.find(uow, attempt_id))
    stored = play.database.read(
        lambda uow: objects.find(uow, PLATFORM, logs.bucket, logs.name_of(0))
    )
    lines = contents.path(stored.digest).read_text().splitlines()
    assert [line.rpartition("stderr ")[2] for line in lines[:LINES]] == [
        f"line {number}" for number in range(LINES)
    ]
    assert stored.name.endswith("/j/logs/attempt-1/worker-0.log")
    assert stored.created_by.endswith("-compute@developer.gserviceaccount.com")


def test_it_is_asked_for_a_limited_number_of_times(play: Play) -> None:
    attempt_id = _fail(play)
    for _ in range(log_copies.TRIES_MAX):
        play.turn(log_copies.AGAIN_SECONDS + 1)
    assert not _asked(play, attempt_id)


def test_what_the_program_may_not_write_is_not_copied_and_the_log_says_so(
    play: Play, tmp_path: Path
) -> None:
    play.database.run(lambda uow: identity.create_project(uow, PLATFORM, "other", {}))
    play.database.run(lambda uow: buckets.create(uow, PLATFORM, "other", "foreign-bucket"))
    attempt_id = _fail(play, "gs://foreign-bucket/out")
    copy(play.database, play.files, Contents(tmp_path / "contents"), attempt_id)
    assert not _asked(play, attempt_id)
    page = play.ask(jobs.logs, "j", play.files, LineFilter(stream="platform"), "", 100)
    (line,) = [line.line for line in page.lines if "not copied" in line.line]
    assert line.startswith("the logs are not copied to gs://foreign-bucket/out/: ")
    assert "storage.objects.create" in line and PROJECT not in line
