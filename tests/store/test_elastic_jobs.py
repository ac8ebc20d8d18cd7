"""An elastic job's life and what its replicas tell, by use cases alone: the same rows on both
databases."""

from __future__ import annotations

from typing import Any

import pytest

from podyard.base.clock import ManualClock
from podyard.base.errors import Code, PodyardError
from podyard.base.training_settings import TrainingSettings
from podyard.control.access import identity
from podyard.control.jobs import gangs, jobs
from podyard.db.store.unit_of_work import Database
from podyard.domain.job import Elastic
from podyard.domain.principal import PLATFORM, Principal
from podyard.scheduler.jobs import RESIZE_PAUSE_SECONDS, YIELD_SECONDS_MAX
from tests.builders import PROJECT
from tests.store.gang_play import ZONE, Gangs, ready_node


@pytest.fixture
def play(database: Database, clock: ManualClock) -> Gangs:
    return Gangs(database, clock)


def _saved(step: int, best: bool = False) -> dict[str, Any]:
    return {"step": step, "name": f"c{step}", "sha256": "0" * 64, "best": best}


def test_an_elastic_job_shrinks_yields_and_grows_back(play: Gangs) -> None:
    play.register(2)
    play.submit(elastic=Elastic(1, "scale", "linear"))
    assert play.database.run(gangs.start_waiting) == 1
    assert play.attempts() == [(2, 64, None)]
    first, second = play.live()
    assert [play.say(replica) for replica in (first, second)] == ["RUN", "RUN"]
    play.register(4)
    play.grow()
    assert play.say(first, "YIELDED", checkpoints=[_saved(3)]) == "YIELD"
    assert play.say(second, "YIELDED") == "STOP"
    assert play.job().state == "RECOVERING"
    play.exit_all()
    assert play.database.run(gangs.start_waiting) == 1
    assert play.attempts() == [(2, 64, "RESIZED"), (4, 128, None)]
    job = play.job()
    assert (job.failures, job.preemptions, job.steps_done) == (0, 0, 3)


def test_a_gang_is_ended_when_it_does_not_yield(play: Gangs) -> None:
    play.register(2)
    play.submit(elastic=Elastic(1, "keep", "keep"))
    play.database.run(gangs.start_waiting)
    for replica in play.live():
        play.say(replica)
    play.register(4)
    play.grow()
    play.clock.advance(YIELD_SECONDS_MAX)
    play.database.run(gangs.resize)
    assert {replica.desired for replica in play.live()} == {"YIELD"}
    play.clock.advance(0.1)
    play.database.run(gangs.resize)
    assert {replica.desired for replica in play.live()} == {"STOP"}
    assert play.attempts() == [(2, 128, "RESIZED")]


def test_evaluations_best_and_pruned_checkpoints_are_kept_and_dropped(play: Gangs) -> None:
    play.register(4)
    play.submit(training=TrainingSettings(evaluate_every_steps=10))
    play.database.run(gangs.start_waiting)
    first, *_ = play.live()
    points = [
        {"step": step, "loss": 1.0, "accuracy": 0.5, "wall_seconds": 0.1, "modelled_seconds": 0.5}
        for step in range(1, 9)
    ]
    saved = [_saved(2, True), _saved(4, True), _saved(6), _saved(8)]
    measured = [
        {"step": 4, "metrics": {"val_loss": 0.5}},
        {"step": 8, "metrics": {"val_loss": 0.25}},
    ]
    for _ in range(2):  # a report whose answer was lost comes again
        play.say(first, points=points, checkpoints=saved, evaluations=measured, pruned=[2])
    read = play.database.read
    found = read(lambda uow: jobs.checkpoints(uow, PLATFORM, PROJECT, ZONE, "j"))
    assert [(saved.step, saved.best) for saved in found] == [(8, False), (6, False), (4, True)]
    evaluations = read(lambda uow: jobs.evaluations(uow, PLATFORM, PROJECT, ZONE, "j"))
    assert [(one.step, one.metrics) for one in evaluations] == [
        (4, {"val_loss": 0.5}),
        (8, {"val_loss": 0.25}),
    ]
    job = play.job()
    assert (job.latest["val_loss"], job.spec.training.evaluate_every_steps) == (0.25, 10)


@pytest.fixture
def three(play: Gangs) -> Gangs:
    """Three slices of four hosts, and an elastic job that has run on the first one for a while,
    with all of its four processes; the agent has four places."""
    for number, name in ((2, "second"), (3, "third")):
        play.database.run(lambda uow, name=name, number=number: ready_node(uow, name, number))
    play.register(4)
    play.submit("wide", elastic=Elastic(1, "scale", "linear"))
    play.look()
    play.wait(RESIZE_PAUSE_SECONDS + 1)
    assert play.counts() == {"wide": 4}
    return play


def test_a_job_of_higher_priority_gets_the_fewest_places_that_it_can_start_with(
    three: Gangs,
) -> None:
    three.submit("urgent", "second", priority=5, replica_processes=1)
    three.look()
    assert three.counts() == {"urgent": 1, "wide": 3}
    assert three.attempts("wide") == [(4, 128, "RESIZED"), (3, 96, None)]
    assert "the rest is left" not in three.job("wide").state_reason
    assert (three.job("wide").preemptions, three.job("wide").failures) == (0, 0)


def test_it_takes_no_more_even_where_it_could_run_with_more(three: Gangs) -> None:
    three.submit("urgent", "second", priority=5, elastic=Elastic(2, "scale", "linear"))
    three.look()
    assert three.counts() == {"urgent": 2, "wide": 2}


def test_the_gang_grows_back_once_the_other_has_ended(three: Gangs) -> None:
    three.submit("urgent", "second", priority=5, replica_processes=2)
    three.look()
    assert three.counts() == {"urgent": 2, "wide": 2}
    three.database.run(lambda uow: jobs.cancel(uow, PLATFORM, PROJECT, ZONE, "urgent"))
    three.run_all()
    three.look(1)
    assert three.counts() == {"wide": 2}, "not before the pause"
    three.look(RESIZE_PAUSE_SECONDS)
    assert three.counts() == {"wide": 4}


def test_a_younger_job_of_the_same_priority_waits(three: Gangs) -> None:
    three.submit("late", "second", replica_processes=1)
    for _ in range(3):
        three.look(RESIZE_PAUSE_SECONDS + 1)
    assert three.counts() == {"wide": 4}
    assert "1 replicas are needed at once" in three.job("late").state_reason


def test_an_older_job_gets_places_of_a_younger_one(play: Gangs) -> None:
    play.database.run(lambda uow: ready_node(uow, "second", 2))
    play.register(4)
    play.submit("first", "second", replica_processes=1)
    play.submit("old", "second", replica_processes=2)  # waits for its node
    play.submit("wide", elastic=Elastic(1, "scale", "linear"))
    play.look()
    assert play.counts() == {"first": 1, "wide": 3}
    play.wait(RESIZE_PAUSE_SECONDS + 1)
    play.database.run(lambda uow: jobs.cancel(uow, PLATFORM, PROJECT, ZONE, "first"))
    play.run_all()
    play.look()
    assert play.counts() == {"old": 2, "wide": 2}


def test_a_job_that_could_not_start_even_so_leaves_the_gang_alone(three: Gangs) -> None:
    three.submit("huge", "second", priority=5)  # four processes: nothing would be left
    for _ in range(3):
        three.look(RESIZE_PAUSE_SECONDS + 1)
    assert three.counts() == {"wide": 4}
    assert three.attempts("wide") == [(4, 128, None)]


def test_a_gang_does_not_change_its_size_before_the_pause(three: Gangs) -> None:
    three.submit("urgent", "second", priority=5, replica_processes=1)
    three.look()
    three.submit("too", "third", priority=5, replica_processes=1)
    three.look(1)
    assert three.counts() == {"urgent": 1, "wide": 3}
    three.look(RESIZE_PAUSE_SECONDS)
    assert three.counts() == {"too": 1, "urgent": 1, "wide": 2}
    assert len(three.attempts("wide")) == 3


def test_an_elastic_job_is_resized_down_and_up_and_stays_there(three: Gangs) -> None:
    assert three.resize(2, "wide").spec.elastic == Elastic(1, "scale", "linear", 2)
    three.run_all()
    three.look()
    assert three.counts() == {"wide": 2}
    assert three.job("wide").state_reason.endswith("as the job is set to")
    for _ in range(3):
        three.look(RESIZE_PAUSE_SECONDS + 1)
    assert three.attempts("wide") == [(4, 128, "RESIZED"), (2, 64, None)]
    three.resize(3, "wide")
    three.run_all()
    three.look()
    assert three.counts() == {"wide": 3}
    three.resize(None, "wide")
    three.run_all()
    three.look()
    assert three.counts() == {"wide": 4}


def test_a_job_that_waits_starts_with_the_size_that_it_was_set_to(play: Gangs) -> None:
    play.register(4)
    play.submit(elastic=Elastic(1, "scale", "linear"))
    play.resize(2)
    play.look()
    assert play.counts() == {"j": 2}


def test_what_cannot_be_resized_says_why(three: Gangs) -> None:
    three.submit("stiff", "second")
    for job, asked, code, text in (
        ("stiff", 2, Code.FAILED_PRECONDITION, "not elastic"),
        ("wide", 0, Code.INVALID_ARGUMENT, "goes on with 1 (elastic.minReplicas) at least"),
        ("wide", 5, Code.INVALID_ARGUMENT, "its slice has room for 4 at most"),
        ("nobody", 2, Code.NOT_FOUND, "not found"),
    ):
        with pytest.raises(PodyardError) as caught:
            three.resize(asked, job)
        assert caught.value.code is code
        assert text in caught.value.message
    viewer = Principal("v", {PROJECT: frozenset({"tpu.viewer"})})
    with pytest.raises(PodyardError) as caught:
        three.database.run(lambda uow: jobs.resize(uow, viewer, PROJECT, ZONE, "wide", 99))
    assert caught.value.code is Code.PERMISSION_DENIED
    three.database.run(lambda uow: jobs.cancel(uow, PLATFORM, PROJECT, ZONE, "wide"))
    with pytest.raises(PodyardError, match="cannot be resized"):
        three.resize(2, "wide")
    assert three.counts() == {"wide": 4}


def test_a_batch_that_does_not_divide_names_the_sizes(play: Gangs) -> None:
    play.register(4)
    play.submit(elastic=Elastic(1, "keep", "keep"))
    with pytest.raises(PodyardError, match="its batch divides for 4, 2, 1 only"):
        play.resize(3)


def test_other_projects_get_places_by_age_and_by_what_they_hold(play: Gangs) -> None:
    play.database.run(lambda uow: identity.create_project(uow, PLATFORM, "other", {}))
    for number, name, project in ((2, "theirs", "other"), (3, "ours", PROJECT)):
        play.database.run(lambda uow, n=number, a=name, p=project: ready_node(uow, a, n, p))
    play.register(2)
    play.submit("old", "theirs", "other", replica_processes=2)
    play.register(1)
    play.submit("wide", elastic=Elastic(1, "scale", "linear"), priority=1000)
    play.look()
    assert play.counts() == {"wide": 1}, "the older one needs two places, and there is one"
    play.register(4)
    play.look()
    assert play.counts() == {"old": 2, "wide": 1}
    play.look(RESIZE_PAUSE_SECONDS + 1)
    assert play.counts() == {"old": 2, "wide": 2}
    play.submit("new", "ours", priority=-5, replica_processes=1)
    play.look(RESIZE_PAUSE_SECONDS + 1)
    assert play.counts() == {"old": 2, "wide": 2}, "a lower priority waits"
