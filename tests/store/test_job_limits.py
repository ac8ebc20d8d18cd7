"""Time limits of jobs, and the wait between a failed attempt and the next."""

from __future__ import annotations

import pytest

from podyard.base.clock import ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.db.store.unit_of_work import Database
from podyard.scheduler.jobs import YIELD_SECONDS_MAX
from tests.store.gang_play import Gangs


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Gangs:
    found = Gangs(database, clock)
    found.register(8)
    return found


def _fail(play: Gangs) -> None:
    for replica in play.live():
        play.say(replica, "FAILED", error="it broke")
    play.exit_all()
    play.turn()


def test_a_job_that_has_used_up_its_time_saves_and_fails(play: Gangs) -> None:
    play.submit(time_limit_seconds=600)
    play.turn()
    play.run_all()
    play.turn(590)
    assert play.job().state == "RUNNING"
    play.turn(11)
    assert {replica.desired for replica in play.live()} == {"YIELD"}
    play.run_all()
    play.exit_all()
    job = play.job()
    assert (job.state, job.error_code) == ("FAILED", Code.DEADLINE_EXCEEDED)
    assert job.error_message == "the job's attempts have taken its time limit of 10 min"
    assert [outcome for _, _, outcome in play.attempts()] == ["TIMED_OUT"]


def test_a_gang_that_does_not_save_in_time_ends_all_the_same(play: Gangs) -> None:
    play.submit(time_limit_seconds=60)
    play.turn()
    for replica in play.live():
        play.say(replica)
    play.turn(61)
    for _ in range(int(YIELD_SECONDS_MAX) + 5):  # a replica that hangs still reports
        play.turn(1)
        for replica in play.live():
            play.say(replica)
    assert {replica.desired for replica in play.live()} == {"STOP"}
    play.exit_all()
    assert (play.job().state, play.job().error_code) == ("FAILED", Code.DEADLINE_EXCEEDED)


def test_what_earlier_attempts_took_counts(play: Gangs) -> None:
    play.submit(time_limit_seconds=100)
    play.turn()
    play.run_all()
    play.wait(70)
    _fail(play)
    play.run_all()
    assert play.job().attempt == 2
    play.turn(29)
    assert {replica.desired for replica in play.live()} == {"RUN"}
    play.turn(2)
    assert {replica.desired for replica in play.live()} == {"YIELD"}


def test_a_job_that_finishes_while_it_is_asked_to_leave_has_succeeded(play: Gangs) -> None:
    play.submit(time_limit_seconds=60)
    play.turn()
    play.run_all()
    play.turn(61)
    for replica in play.live():
        play.say(replica, "SUCCEEDED")
    play.exit_all()
    assert play.job().state == "SUCCEEDED"


def test_the_wait_doubles_with_each_failure(play: Gangs) -> None:
    play.submit(retry_delay_seconds=30, max_failures=3)
    play.turn()
    play.run_all()
    for wait in (30, 60, 120):
        _fail(play)
        assert play.job().state == "RECOVERING"
        assert play.job().state_reason.startswith(
            f"attempt {play.job().attempt} failed: the next begins at "
        )
        play.turn(wait - 1)
        assert not play.live()
        play.turn(2)
        play.run_all()
        assert play.job().state == "RUNNING"
    _fail(play)
    assert (play.job().state, play.job().failures) == ("FAILED", 4)


def test_a_job_that_waits_for_a_retry_can_be_cancelled(play: Gangs) -> None:
    play.submit(retry_delay_seconds=3600)
    play.turn()
    play.run_all()
    _fail(play)
    play.cancel()
    assert play.job().state == "CANCELLED"
    play.turn(3601)
    assert not play.live()


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("time_limit_seconds", -1, "timeLimitSeconds is -1: it must be from 0 to 316224000"),
        ("retry_delay_seconds", 3601, "retryDelaySeconds is 3601: it must be from 0 to 3600"),
    ],
)
def test_limits_are_checked(play: Gangs, field: str, value: int, text: str) -> None:
    with pytest.raises(PodyardError, match=text):
        play.submit(**{field: value})
