"""Which curves are drawn over each other, and what is sent of them."""

from __future__ import annotations

import dataclasses

import pytest

from podyard.base.clock import PlatformTime, RealTime
from podyard.domain.attempt import Attempt, AttemptOutcome, AttemptState
from podyard.domain.job import Job, JobSpec
from podyard.domain.job_history import EvaluationRecord, MetricPoint
from podyard.web.jobs import curves as job_curves
from podyard.web.kit.charts import ChartPoint

AT = PlatformTime(1_700_000_000 * 10**9)


def job(recipe: str = "digits-cnn") -> Job:
    spec = JobSpec(
        recipe=recipe, arguments={}, steps=100, global_batch=8, seed=0, checkpoint_every_steps=10
    )
    return Job(
        job_key="k",
        project="demo",
        zone="us-central1-f",
        job_id="j",
        spec=spec,
        node_key="n",
        node_id="n",
        accelerator_type="v2-8",
        topology="2x2",
        owns_node=False,
        created=AT,
    )


def point(step: int, attempt: int = 1, **metrics: float) -> MetricPoint:
    return MetricPoint(step, attempt, metrics, 0.1, 0.1)


@pytest.mark.parametrize(
    ("name", "measure"),
    [("loss", "loss"), ("val_loss", "loss"), ("train/loss", "loss"), ("eval.loss", "loss"),
        ("test", "test"),
     ("validity", "validity"), ("training_rate", "rate")],
)  # fmt: skip
def test_a_measure_has_one_name_on_all_data(name: str, measure: str) -> None:
    assert job_curves.measure_of(name) == measure


def test_train_and_validation_are_drawn_over_each_other() -> None:
    points = [point(step, loss=1 / step, val_loss=2 / step) for step in (1, 2)]
    evaluations = [EvaluationRecord(step, 1, {"loss": 3.0, "recall": 0.5}) for step in (1, 2)]
    figures = job_curves.figures_of(
        job("programs:main"), points, evaluations[:1], {"validation/loss": {2: 1.0, 1: 4.0}}
    )
    (figure,) = figures
    assert [line.name for line in figure.lines] == [
        "loss",
        "val_loss",
        "validation/loss",
        "loss (evaluation)",
    ]
    assert list(figure.lines[2].points) == [ChartPoint(1, 4.0), ChartPoint(2, 1.0)], "by step"
    assert "val_loss: from 2 at step 1 to 1 at step 2" in figure.draw()
    more = job_curves.figures_of(job("programs:main"), points, evaluations, {})
    assert [one.key for one in more] == ["loss", "recall"], "two evaluations are a curve"


def test_a_recipe_shows_where_its_curves_will_be() -> None:
    assert [one.key for one in job_curves.figures_of(job(), [], [], {})] == ["loss", "accuracy"]


def test_thinned_points_have_the_first_and_the_last() -> None:
    for count in range(25):
        kept = job_curves.thin(range(count), 7)
        assert len(kept) <= 8 and list(kept) == sorted(set(kept))
        assert not count or (kept[0], kept[-1]) == (0, count - 1)


def test_new_points_are_sent_once_and_those_of_a_recovery_again() -> None:
    first = [point(step, loss=step / 3) for step in (1, 2, 3)]
    news, cursor = job_curves.PointFeed(first).since("")
    assert news == {"figures": {"loss": {"loss": [[1, 0.33333], [2, 0.66667], [3, 1.0]]}}}
    assert job_curves.PointFeed(first).since(cursor) == (None, cursor)
    recovered = [first[0], point(2, attempt=2, loss=9.0)]
    news, cursor = job_curves.PointFeed(recovered).since(cursor)
    assert news == {"figures": {"loss": {"loss": [[2, 9.0]]}}} and cursor == "2.2"


@pytest.mark.parametrize("cursor", ["", "x", "1.", "-1.2", "1.2.3", "9" * 40])
def test_a_cursor_that_is_none_begins_at_the_beginning(cursor: str) -> None:
    news, after = job_curves.PointFeed([point(5, loss=1.0)]).since(cursor)
    assert news is not None and after == "1.5"


def test_infinite_values_are_not_sent() -> None:
    news, _ = job_curves.PointFeed(
        [point(1, loss=float("inf")), point(2, loss=float("nan")), point(3, loss=1.0)]
    ).since("")
    assert news["figures"]["loss"]["loss"] == [[3, 1.0]]


def test_whole_curves_are_sent_when_they_change_and_without_what_grows() -> None:
    points = [point(1, loss=1.0)]
    evaluations = [EvaluationRecord(1, 1, {"loss": 2.0})]

    def feed(
        points: list[MetricPoint], evaluations: list[EvaluationRecord]
    ) -> job_curves.CurveFeed:
        return job_curves.CurveFeed(
            job_curves.figures_of(job("m:f"), points, evaluations, {}), (), {"loss"}
        )

    news, cursor = feed(points, evaluations).since("")
    assert news == {"figures": {"loss": {"loss (evaluation)": [[1, 2.0]]}}, "marks": []}
    more = [*points, point(2, loss=0.5)]
    assert feed(more, evaluations).since(cursor) == (None, cursor)
    news, _ = feed(more, [*evaluations, EvaluationRecord(2, 1, {"loss": 1.5})]).since(cursor)
    assert news["figures"]["loss"]["loss (evaluation)"] == [[1, 2.0], [2, 1.5]]


def test_a_preemption_is_marked_where_the_next_attempt_goes_on() -> None:
    first = Attempt(
        attempt_id="a",
        job_key="k",
        attempt=1,
        state=AttemptState.ENDED,
        resume_step=0,
        host_count=None,
        global_batch=None,
        outcome=AttemptOutcome.PREEMPTED,
        ring_key="",
        started=AT,
        started_real=RealTime(0),
    )
    second = dataclasses.replace(
        first, attempt=2, outcome=None, resume_step=20, state=AttemptState.RUNNING
    )
    (mark,) = job_curves.marks_of([first, second], {1: 27})
    assert (mark.x, mark.kind) == (20, "lost")
    assert mark.text == "attempt 1 PREEMPTED at step 27, attempt 2 starts from step 20"
    drawn = job_curves.Figure(
        "loss", [job_curves.line_of("loss", [point(1, loss=1.0), point(40, loss=2.0)])]
    )
    assert 'class="mark lost"' in drawn.draw([mark]) and "PREEMPTED at step 27" in drawn.draw(
        [mark]
    )
