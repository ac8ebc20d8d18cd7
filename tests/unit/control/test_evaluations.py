"""What a job tells besides its steps: evaluations, which checkpoint is the best, what it made to be
taken away."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from podyard.db.tables.jobs import jobs
from tests.unit.control.gang import Gang, submit

pytestmark = pytest.mark.slow  # a server, a database and a gang for each test


def _evaluation(step: int, loss: float) -> dict[str, Any]:
    return {"step": step, "metrics": {"val_loss": loss, "val_accuracy": 1 - loss}}


def _saved(step: int, best: bool = False) -> dict[str, Any]:
    return {"step": step, "name": f"c{step}", "sha256": "0" * 64, "best": best}


def _evaluations(gang: Gang, path: str) -> list[tuple[int, int, float]]:
    found = gang.yard.ok("GET", f"{path}:evaluations")["evaluations"]
    return [(item["step"], item["attempt"], item["metrics"]["val_loss"]) for item in found]


def test_evaluations_are_kept_once_and_the_newest_is_the_latest(gang: Gang) -> None:
    path = submit(gang)
    (replica,) = gang.sync()
    gang.points(replica, 1, 8)
    gang.report(replica, evaluations=[_evaluation(0, 0.9), _evaluation(4, 0.5)])
    gang.report(replica, evaluations=[_evaluation(4, 0.5), _evaluation(8, 0.25)])
    assert _evaluations(gang, path) == [(0, 1, 0.9), (4, 1, 0.5), (8, 1, 0.25)]
    latest = gang.yard.ok("GET", path)["metrics"]["latest"]
    assert (latest["val_loss"], latest["val_accuracy"], latest["step"]) == (0.25, 0.75, 8)


def test_only_evaluations_of_the_committed_history_are_shown(gang: Gang) -> None:
    path = submit(gang)
    (first,) = gang.sync()
    gang.points(first, 1, 9)
    gang.report(
        first, checkpoints=[_saved(4)], evaluations=[_evaluation(2, 0.9), _evaluation(8, 0.1)]
    )
    gang.exit_all()
    gang.yard.step()
    (second,) = gang.sync()
    # The first attempt died between the checkpoint of step 4 and its evaluation.
    gang.report(second, evaluations=[_evaluation(4, 0.6)])
    gang.points(second, 5, 6)
    gang.report(second, evaluations=[_evaluation(6, 0.5)])
    assert _evaluations(gang, path) == [(2, 1, 0.9), (4, 2, 0.6), (6, 2, 0.5)]


@pytest.mark.parametrize("value", ["NaN", "Infinity", '"x"', "null"])
def test_an_evaluation_is_of_finite_numbers(gang: Gang, value: str) -> None:
    submit(gang)
    (replica,) = gang.sync()
    text = (
        '{"fence": %d, "state": "RUNNING", "evaluations": [{"step": 1, "metrics": '
        '{"val_loss": %s}}]}'
    )
    assert gang.report_text(replica, text % (replica["fence"], value)).status_code == 400


def _checkpoints(gang: Gang, path: str) -> list[tuple[int, bool]]:
    found = gang.yard.ok("GET", f"{path}:checkpoints")["checkpoints"]
    return [(item["step"], item.get("best", False)) for item in found]


def test_of_several_checkpoints_that_were_the_best_the_newest_is(gang: Gang) -> None:
    path = submit(gang)
    (replica,) = gang.sync()
    gang.points(replica, 1, 10)
    gang.report(replica, checkpoints=[_saved(2, True), _saved(4), _saved(6, True), _saved(8)])
    assert _checkpoints(gang, path) == [(8, False), (6, True), (4, False), (2, False)]


def test_a_pruned_checkpoint_is_gone_in_all_attempts_and_nothing_resumes_from_it(
    gang: Gang,
) -> None:
    path = submit(gang)
    (first,) = gang.sync()
    gang.points(first, 1, 9)
    gang.report(first, checkpoints=[_saved(2), _saved(4), _saved(6), _saved(8)])
    gang.report(first, pruned=[2, 8])
    assert _checkpoints(gang, path) == [(6, False), (4, False)]
    gang.exit_all()
    gang.yard.step()
    (second,) = gang.sync()
    assert gang.specification(second)["resumeStep"] == 6
    gang.points(second, 7, 9)
    gang.report(second, checkpoints=[_saved(8)], pruned=[4, 8])
    assert _checkpoints(gang, path) == [(6, False)]


def test_a_checkpoint_that_another_job_starts_from_stays_until_that_job_has_ended(
    gang: Gang,
) -> None:
    path = submit(gang)
    (replica,) = gang.sync()
    gang.points(replica, 1, 9)
    assert gang.report(replica, checkpoints=[_saved(4), _saved(6)]).json()["pinnedStep"] is None
    jobs_path = path.rpartition("/")[0]
    asked = {"node": "n", "mode": "evaluate", "startFrom": {"job": "j", "step": 4}}
    for name in ("one", "two"):
        gang.yard.ok("POST", f"{jobs_path}?jobId={name}", asked)
    gang.yard.ok("POST", f"{jobs_path}?jobId=newest", {**asked, "startFrom": {"job": "j"}})
    for name, pinned in (("one", 4), ("two", 6), ("newest", None)):
        gang.yard.ok("POST", f"{jobs_path}/{name}:cancel", {})
        assert gang.report(replica).json()["pinnedStep"] == pinned


def test_a_job_that_stopped_early_has_succeeded_and_says_why(gang: Gang) -> None:
    path = submit(gang)
    (replica,) = gang.sync()
    gang.points(replica, 1, 6)
    gang.report(
        replica, state="SUCCEEDED", summary={"stopReason": "val_loss has not bettered 3 times"}
    )
    gang.exit_all()
    job = gang.yard.ok("GET", path)
    assert (job["state"], job["stepsDone"], job["stateReason"]) == (
        "SUCCEEDED",
        6,
        "val_loss has not bettered 3 times",
    )


def test_artefacts_are_listed_and_given_out_and_nothing_else_is(gang: Gang) -> None:
    path = submit(gang)
    row = gang.yard.database.read(lambda uow: uow.first(select(jobs.c.job_key)))
    assert row is not None
    folder = gang.yard.data / "objects" / "jobs" / row["job_key"]
    for name, data in {
        "export/model.safetensors": b"weights",
        "export/.unfinished-1": b"x",
        "predictions.npz": b"answers",
        "checkpoint-00000004": b"mine",
        "../other/export/model": b"theirs",
    }.items():
        file = (folder / name).resolve()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    secret = gang.yard.data / "secret"
    secret.write_bytes(b"secret")
    (folder / "export" / "link").symlink_to(secret)
    assert gang.yard.ok("GET", f"{path}:artifacts")["artifacts"] == [
        {"name": "export/model.safetensors", "bytes": 7},
        {"name": "predictions.npz", "bytes": 7},
    ]
    given = gang.yard.call("GET", f"{path}:artifact", params={"name": "export/model.safetensors"})
    assert (given.status_code, given.content) == (200, b"weights")
    assert given.headers["content-type"] == "application/octet-stream"
    for name in (
        "",
        "checkpoint-00000004",
        "export/link",
        "export/.unfinished-1",
        "export",
        "export/../checkpoint-00000004",
        "export/../../other/export/model",
        str(secret),
    ):
        gang.yard.refused(404, "NOT_FOUND", "GET", f"{path}:artifact", params={"name": name})


def test_a_job_that_has_made_nothing_has_no_artefacts(gang: Gang) -> None:
    assert gang.yard.ok("GET", f"{submit(gang)}:artifacts") == {"artifacts": []}
