"""What a job may be asked to do: training settings, programs, and the checkpoint of another job to
start from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select, update

from podyard.base.training_settings import TrainingSettings
from podyard.db.tables.jobs import jobs
from podyard.domain.training import usual_way
from tests.unit.control.gang import Gang, submit
from tests.yard import open_yard

pytestmark = pytest.mark.slow  # a server, a database and a gang for each test


def _trained(gang: Gang) -> None:
    """A job `t` on `n` that has ended with checkpoints of steps 4 and 8."""
    submit(gang, "t", arguments={"dropout": 0.5}, seed=7, globalBatch=64)
    (replica,) = gang.sync()
    gang.points(replica, 1, 10)
    gang.report(
        replica,
        checkpoints=[{"step": step, "name": f"c{step}", "sha256": "0" * 64} for step in (4, 8)],
    )
    gang.report(replica, state="SUCCEEDED")
    gang.exit_all()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    """For tests that leave nothing: a job `t` that has ended with checkpoints."""
    with open_yard(tmp_path_factory.mktemp("trained")) as yard:
        yard.create("n")
        gang = Gang(yard)
        _trained(gang)
        yield gang


USUAL = {
    "accumulationSteps": 1,
    "iterationsPerLoop": 1,
    "evaluateEverySteps": 0,
    "earlyStopping": None,
    "checkpointName": "checkpoint-{step:08d}",
    "keepCheckpoints": 5,
    "best": None,
    "exportAtEnd": False,
}
ALL = {
    "accumulationSteps": 2,
    "iterationsPerLoop": 5,
    "evaluateEverySteps": 10,
    "earlyStopping": {"metric": "val_accuracy", "mode": "max", "patience": 3, "minDelta": 0.01},
    "checkpointName": "{epoch:02d}-{step:08d}-{val_loss:.3f}",
    "keepCheckpoints": 2,
    "best": {"metric": "val_loss", "mode": "min"},
    "exportAtEnd": True,
}


def test_training_settings_reach_the_replica_and_the_reader_whole(gang: Gang) -> None:
    path = submit(gang, training=ALL, checkpointEverySteps=20)
    assert gang.yard.ok("GET", path)["training"] == ALL
    (replica,) = gang.sync()
    assert gang.specification(replica)["training"] == ALL


def test_a_job_that_says_nothing_has_the_usual_settings(gang: Gang) -> None:
    path = submit(gang)
    (replica,) = gang.sync()
    spec = gang.specification(replica)
    assert spec["training"] == USUAL == gang.yard.ok("GET", path)["training"]
    assert TrainingSettings().as_json() == USUAL
    assert (spec["learningRateScale"], spec["startFrom"], spec["hostCount"], spec["coreCount"]) == (
        1.0,
        None,
        1,
        8,
    )


def test_a_job_of_an_older_podyard_has_the_usual_settings(gang: Gang) -> None:
    path = submit(gang)

    def age(uow: Any) -> None:
        spec = dict(uow.first(select(jobs.c.spec))["spec"])
        for name in ("training", "elastic", "start_from"):
            del spec[name]
        uow.execute(update(jobs).values(spec=spec))

    gang.yard.database.run(age)
    found = gang.yard.ok("GET", path)
    assert (found["training"], found["elastic"]) == (USUAL, None)


def test_a_metric_is_better_as_its_name_says_when_nobody_else_does(gang: Gang) -> None:
    stopping, best = {"metric": "val_accuracy", "patience": 1}, {"metric": "val_loss"}
    training = {"evaluateEverySteps": 10, "earlyStopping": stopping, "best": best}
    found = gang.yard.ok("GET", submit(gang, training=training, checkpointEverySteps=0))["training"]
    assert found["earlyStopping"] == {**stopping, "mode": "max", "minDelta": 0.0}
    assert found["best"] == {**best, "mode": "min"}
    assert [usual_way(f"val_{name}") for name in ("precision", "recall", "loss", "error")] == [
        "max"
    ] * 2 + ["min"] * 2


LOSS = {"metric": "val_loss", "mode": "min"}
STOPPING = {**LOSS, "patience": 1}


@pytest.mark.parametrize(
    ("training", "fields", "says"),
    [
        ({"accumulationSteps": 0}, {}, "training.accumulationSteps is 0"),
        (
            {"accumulationSteps": 3},
            {},
            "globalBatch 128 is not a positive multiple of the slice's 8 cores times 3",
        ),
        ({"iterationsPerLoop": 0}, {}, "training.iterationsPerLoop is 0"),
        (
            {"iterationsPerLoop": 3},
            {},
            "checkpointEverySteps 100 is not a multiple of training.iterationsPerLoop 3",
        ),
        (
            {"iterationsPerLoop": 10, "evaluateEverySteps": 15},
            {},
            "training.evaluateEverySteps 15 is not a multiple",
        ),
        ({"evaluateEverySteps": -1}, {}, "training.evaluateEverySteps is -1"),
        ({"evaluateEverySteps": 2**31}, {}, "training.evaluateEverySteps"),
        ({"keepCheckpoints": 1}, {}, "training.keepCheckpoints is 1"),
        ({"keepCheckpoints": -1}, {}, "training.keepCheckpoints is -1"),
        (
            {"earlyStopping": STOPPING},
            {},
            "training.earlyStopping requires training.evaluateEverySteps",
        ),
        (
            {"evaluateEverySteps": 10, "earlyStopping": {**STOPPING, "patience": 0}},
            {},
            "patience is 0",
        ),
        (
            {"evaluateEverySteps": 10, "earlyStopping": {**STOPPING, "minDelta": -0.1}},
            {},
            "minDelta is -0.1",
        ),
        (
            {"evaluateEverySteps": 10, "earlyStopping": {**STOPPING, "mode": "up"}},
            {},
            "earlyStopping.mode is 'up'",
        ),
        (
            {"evaluateEverySteps": 10, "earlyStopping": {**STOPPING, "metric": "loss"}},
            {},
            "metric is 'loss'",
        ),
        ({"evaluateEverySteps": 10, "earlyStopping": {"metric": "val_loss"}}, {}, "patience"),
        ({"best": LOSS}, {}, "training.best requires training.evaluateEverySteps"),
        (
            {"best": LOSS, "evaluateEverySteps": 30},
            {},
            "checkpointEverySteps 100 is not a multiple of",
        ),
        ({"checkpointName": ""}, {}, "checkpointName"),
        ({"checkpointName": "{step:08d}" + "x" * 100}, {}, "checkpointName"),
        ({"checkpointName": "{step"}, {}, "checkpointName"),
        ({"checkpointName": "{}"}, {}, "checkpointName"),
        ({"checkpointName": "{name}"}, {}, "checkpointName"),
        ({"checkpointName": "{step.real}"}, {}, "checkpointName"),
        ({"checkpointName": "{step[0]}"}, {}, "checkpointName"),
        ({"checkpointName": "{step!r}"}, {}, "checkpointName"),
        ({"checkpointName": "{step:{epoch}}"}, {}, "checkpointName"),
        ({"checkpointName": "{loss:d}"}, {}, "checkpointName"),
        ({"checkpointName": "{step:8d}"}, {}, "use letters, digits"),
        ({"checkpointName": "{step:099d}{epoch:099d}"}, {}, "at most 100"),
        ({"checkpointName": ".{step}"}, {}, "not a dot first"),
        ({"checkpointName": "a/{step}"}, {}, "use letters, digits"),
        ({"checkpointName": "{{{step}}}"}, {}, "use letters, digits"),
        ({"checkpointName": "{val_loss:.2f}"}, {}, "each checkpoint needs an evaluation"),
        (
            {"checkpointName": "{val_loss:.2f}", "evaluateEverySteps": 30},
            {},
            "each checkpoint needs an evaluation",
        ),
        ({"colour": "red"}, {}, "colour"),
        ({}, {"program": "mine:build"}, "specify either recipe or program, not both"),
    ],
)
def test_wrong_training_settings_are_refused_by_name(
    trained: Gang, training: dict[str, Any], fields: dict[str, Any], says: str
) -> None:
    body = {"recipe": "digits-cnn", "node": "n", "training": training, **fields}
    assert says in trained.yard.refused(400, "INVALID_ARGUMENT", "POST", trained.yard.jobs(), body)


PROGRAM: dict[str, Any] = {"recipe": None, "program": "mine:build", "globalBatch": 16}


def test_a_program_is_carried_with_its_arguments_as_they_are(gang: Gang) -> None:
    arguments = {
        "width": 3,
        "rate": 0.5,
        "name": "x",
        "on": True,
        "layers": [1, [2, 3]],
        "none": None,
    }
    path = submit(gang, **PROGRAM, arguments=arguments)
    (replica,) = gang.sync()
    spec = gang.specification(replica)
    assert (spec["recipe"], spec["arguments"], spec["checkpointEverySteps"]) == (
        "mine:build",
        arguments,
        100,
    )
    job = gang.yard.ok("GET", path)
    assert job["program"] == "mine:build"
    assert "recipe" not in job


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"steps": None}, "steps is required"),
        ({"globalBatch": None}, "globalBatch is required"),
        ({"program": "mine"}, "must be MODULE:FUNCTION"),
        ({"program": "a.b:build"}, "must be MODULE:FUNCTION"),
        ({"program": "../a:build"}, "must be MODULE:FUNCTION"),
        ({"program": "a:b:c"}, "must be MODULE:FUNCTION"),
        ({"program": "a:"}, "must be MODULE:FUNCTION"),
        ({"program": None, "recipe": "mine:build"}, "unknown recipe"),
        ({"program": None}, "recipe, program or run is required"),
        ({"arguments": {"a": {"b": 1}}}, "arguments.a"),
        ({"arguments": {"a": [[[[[[[[[1]]]]]]]]]}}, "arguments.a"),
        ({"arguments": {"a b": 1}}, "a b"),
        ({"arguments": {f"a{i}": i for i in range(65)}}, "at most 64"),
        ({"arguments": {"a": "x" * 17_000}}, "bytes of JSON"),
    ],
)
def test_a_wrong_program_is_refused(trained: Gang, changes: dict[str, Any], says: str) -> None:
    body = {"node": "n", "steps": 10, **PROGRAM, **changes}
    assert says in trained.yard.refused(400, "INVALID_ARGUMENT", "POST", trained.yard.jobs(), body)


@pytest.mark.parametrize(("asked", "step"), [({}, 8), ({"step": 4}, 4)])
@pytest.mark.parametrize("mode", ["evaluate", "predict", "export"])
def test_a_job_starts_from_a_checkpoint_of_another_one(
    gang: Gang, mode: str, asked: dict[str, int], step: int
) -> None:
    _trained(gang)
    body = {"node": "n", "mode": mode, "startFrom": {"job": "t", **asked}}
    gang.yard.ok("POST", f"{gang.yard.jobs()}?jobId=e", body)
    gang.yard.step()
    job = gang.yard.ok("GET", f"{gang.yard.jobs()}/e")
    assert (job["startFrom"], job["steps"], job["mode"]) == ({"job": "t", "step": step}, 1, mode)
    assert (job["recipe"], job["seed"], job["globalBatch"]) == ("digits-cnn", 7, 64)
    (replica,) = gang.sync()
    spec = gang.specification(replica)
    row = gang.yard.database.read(
        lambda uow: uow.first(select(jobs.c.job_key).where(jobs.c.job_id == "t"))
    )
    assert row is not None
    assert spec["startFrom"] == {"objectsPrefix": f"jobs/{row['job_key']}/", "step": step}
    assert spec["arguments"] == {"learningRate": 1e-3, "dropout": 0.5}
    assert spec["resumeStep"] == 0
    assert spec["objectsPrefix"] != spec["startFrom"]["objectsPrefix"]


def test_a_batch_that_does_not_divide_for_the_slice_becomes_the_least_that_does(gang: Gang) -> None:
    zone = "europe-west4-a"
    gang.yard.create("small", "v3-8", zone)
    gang.yard.create("pod", "v3-32", zone)
    trained = {"recipe": "digits-cnn", "node": "small", "globalBatch": 8}
    gang.yard.ok("POST", f"{gang.yard.jobs(zone)}?jobId=t", trained)
    gang.yard.step()
    (replica,) = gang.sync()
    gang.points(replica, 1, 2)
    gang.report(replica, checkpoints=[{"step": 2, "name": "c2", "sha256": "0" * 64}])
    body = {"node": "pod", "mode": "evaluate", "startFrom": {"job": "t"}, "replicaProcesses": 1}
    assert gang.yard.ok("POST", gang.yard.jobs(zone), body)["globalBatch"] == 32


@pytest.mark.parametrize(
    ("changes", "status", "name", "says"),
    [
        ({"startFrom": None}, 400, "INVALID_ARGUMENT", "requires startFrom"),
        ({"mode": "train"}, 400, "INVALID_ARGUMENT", "cannot be used with mode train"),
        ({"startFrom": {"job": "nobody"}}, 404, "NOT_FOUND", "nobody"),
        (
            {"startFrom": {"job": "t", "step": 5}},
            404,
            "NOT_FOUND",
            "no checkpoint of step 5: use one of 8, 4",
        ),
        ({"recipe": "mlp"}, 400, "INVALID_ARGUMENT", "recipe is 'mlp', but job t has 'digits-cnn'"),
        ({"program": "a:b"}, 400, "INVALID_ARGUMENT", "recipe is 'a:b'"),
        ({"seed": 1}, 400, "INVALID_ARGUMENT", "seed is 1, but job t has 7"),
        (
            {"arguments": {"dropout": 0.1}},
            400,
            "INVALID_ARGUMENT",
            "arguments.dropout is 0.1, but job t has 0.5",
        ),
        ({"arguments": {"width": 1}}, 400, "INVALID_ARGUMENT", "arguments.width"),
        ({"steps": 5}, 400, "INVALID_ARGUMENT", "steps can only be set with mode train"),
        ({"training": {"accumulationSteps": 0}}, 400, "INVALID_ARGUMENT", "accumulationSteps is 0"),
        ({"globalBatch": 12}, 400, "INVALID_ARGUMENT", "globalBatch 12"),
    ],
)
def test_a_wrong_start_is_refused(
    trained: Gang, changes: dict[str, Any], status: int, name: str, says: str
) -> None:
    body = {"node": "n", "mode": "evaluate", "startFrom": {"job": "t"}, **changes}
    if body["startFrom"] is None:
        body["recipe"] = "digits-cnn"
    assert says in trained.yard.refused(status, name, "POST", trained.yard.jobs(), body)


def test_what_is_given_and_equal_is_taken(gang: Gang) -> None:
    _trained(gang)
    same = {"recipe": "digits-cnn", "seed": 7, "arguments": {"dropout": 0.5}, "globalBatch": 32}
    body = {"node": "n", "mode": "evaluate", "startFrom": {"job": "t"}, **same}
    assert gang.yard.ok("POST", gang.yard.jobs(), body)["globalBatch"] == 32


def test_a_job_without_a_checkpoint_is_no_start(gang: Gang) -> None:
    submit(gang, "t")
    body = {"node": "n", "mode": "evaluate", "startFrom": {"job": "t"}}
    assert "no checkpoint" in gang.yard.refused(
        400, "FAILED_PRECONDITION", "POST", gang.yard.jobs(), body
    )


def test_what_is_only_to_be_validated_is_not_created(trained: Gang) -> None:
    yard = trained.yard
    body = {
        "recipe": "digits-cnn",
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
        "validateOnly": True,
    }
    job = yard.ok("POST", f"{yard.jobs()}?jobId=maybe", body)
    assert (job["name"].rsplit("/", 1)[1], job["state"], job["acceleratorType"]) == (
        "maybe",
        "QUEUED",
        "v2-8",
    )
    yard.refused(404, "NOT_FOUND", "GET", f"{yard.jobs()}/maybe")
    yard.refused(404, "NOT_FOUND", "GET", f"{yard.nodes()}/maybe")
    assert "steps" in yard.refused(
        400, "INVALID_ARGUMENT", "POST", yard.jobs(), {**body, "steps": 0}
    )
