"""`podyard job submit`, `artifacts` and `download` against a real API."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import select

from podyard.cli.jobs.jobs import job
from podyard.cli.kit.client import Client
from podyard.cli.kit.options import client_of
from podyard.db.tables.jobs import jobs
from tests.unit.control.gang import Gang, submit

pytestmark = pytest.mark.slow  # a server, a database and a gang for each test


@pytest.fixture
def command(gang: Gang, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in [name for name in os.environ if name.startswith(("PODYARD_", "CLOUDSDK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PODYARD_URL", gang.yard.url)
    monkeypatch.setenv("PODYARD_TOKEN", gang.yard.token)

    opened: list[Client] = []

    def client(*target: Any) -> Client:
        opened.append(client_of(*target))
        return opened[-1]

    for module in ("jobs", "artifacts.download"):
        monkeypatch.setattr(f"podyard.cli.jobs.{module}.client_of", client)

    def run(*words: str) -> Result:
        try:
            return CliRunner().invoke(job, words)
        finally:
            opened.pop().close()

    return run


SUBMIT = ("submit", "j", "--recipe", "digits-cnn", "--node", "n", "--steps", "10")


def test_every_flag_of_training_becomes_the_setting_that_it_names(gang: Gang, command: Any) -> None:
    done = command(
        *SUBMIT,
        *(
            "--accumulation-steps",
            "2",
            "--iterations-per-loop",
            "5",
            "--evaluate-every-steps",
            "10",
        ),
        *(
            "--early-stopping",
            "val_accuracy:max:3:0.01",
            "--checkpoint-name",
            "{step:06d}-{val_loss:.2f}",
        ),
        *(
            "--keep-checkpoints",
            "2",
            "--keep-best",
            "val_loss",
            "--export",
            "--checkpoint-every-steps",
            "10",
        ),
        *("--elastic", "1", "--elastic-batch", "scale"),
    )
    assert done.exit_code == 0, done.output
    found = gang.yard.ok("GET", f"{gang.yard.jobs()}/j")
    assert found["training"] == {
        "accumulationSteps": 2,
        "iterationsPerLoop": 5,
        "evaluateEverySteps": 10,
        "earlyStopping": {"metric": "val_accuracy", "mode": "max", "patience": 3, "minDelta": 0.01},
        "checkpointName": "{step:06d}-{val_loss:.2f}",
        "keepCheckpoints": 2,
        "best": {"metric": "val_loss", "mode": "min"},
        "exportAtEnd": True,
    }
    assert found["elastic"] == {"minReplicas": 1, "batch": "scale", "learningRate": "linear"}


def test_a_program_and_a_job_to_start_from_are_named_by_flags(gang: Gang, command: Any) -> None:
    program = (
        "--program",
        "mine:build",
        "--node",
        "n",
        "--steps",
        "10",
        "--global-batch",
        "8",
        "--arg",
        "width=3",
    )
    assert command("submit", "p", *program).exit_code == 0
    found = gang.yard.ok("GET", f"{gang.yard.jobs()}/p")
    assert (found["program"], found["arguments"]) == ("mine:build", {"width": 3})
    gang.yard.step()
    (replica,) = gang.sync()
    gang.points(replica, 1, 4)
    gang.report(replica, checkpoints=[{"step": 4, "name": "c4", "sha256": "0" * 64}])
    assert (
        command("submit", "e", "--start-from", "p@4", "--mode", "export", "--node", "n").exit_code
        == 0
    )
    found = gang.yard.ok("GET", f"{gang.yard.jobs()}/e")
    assert (found["program"], found["startFrom"]) == ("mine:build", {"job": "p", "step": 4})
    listed = command("list")
    assert listed.exit_code == 0
    assert "mine:build" in listed.output


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--early-stopping", "val_loss"), "PATIENCE"),
        (("--early-stopping", "val_loss:min"), "PATIENCE"),
        (("--early-stopping", "val_loss:up:3"), "PATIENCE"),
        (("--early-stopping", "val_loss:3:0.1:4"), "PATIENCE"),
        (("--keep-best", "val_loss:3"), "METRIC[:min|max]"),
        (("--start-from", "j@x"), "JOB[@STEP]"),
        (("--elastic-batch", "keep"), "require --elastic"),
    ],
)
def test_a_flag_that_cannot_be_read_is_a_usage_error(
    command: Any, flags: tuple[str, ...], says: str
) -> None:
    done = command(*SUBMIT, *flags)
    assert done.exit_code == 2
    assert says in done.output


def test_artifacts_are_listed_and_downloaded_by_name_or_all(
    gang: Gang, command: Any, tmp_path: Path
) -> None:
    submit(gang)
    assert command("download", "j", "-o", str(tmp_path / "none")).exit_code != 0
    row = gang.yard.database.read(lambda uow: uow.first(select(jobs.c.job_key)))
    assert row is not None
    folder = gang.yard.data / "objects" / "jobs" / row["job_key"]
    (folder / "export").mkdir(parents=True)
    (folder / "export" / "model").write_bytes(b"\x00weights\xff")
    (folder / "predictions.npz").write_bytes(b"answers")
    listed = command("artifacts", "j")
    assert listed.output.split() == [
        "NAME",
        "SIZE",
        "export/model",
        "9",
        "B",
        "predictions.npz",
        "7",
        "B",
    ]
    one, everything = tmp_path / "one", tmp_path / "all"
    assert command("download", "j", "export/model", "-o", str(one)).exit_code == 0
    assert (one / "export" / "model").read_bytes() == b"\x00weights\xff"
    assert not (one / "predictions.npz").exists()
    assert command("download", "j", "-o", str(everything)).exit_code == 0
    assert (everything / "predictions.npz").read_bytes() == b"answers"
    unknown = command("download", "j", "../token", "-o", str(one))
    assert unknown.exit_code != 0
    assert "no artifact '../token'" in str(unknown.exception)


def test_evaluations_are_listed(gang: Gang, command: Any) -> None:
    submit(gang)
    (replica,) = gang.sync()
    gang.report(replica, evaluations=[{"step": 4, "metrics": {"val_loss": 0.5}}])
    assert command("evaluations", "j").output.split() == [
        "STEP",
        "ATTEMPT",
        "METRICS",
        "4",
        "1",
        "val_loss=0.5",
    ]


def test_checkpoints_are_downloaded_when_they_are_asked_for(
    gang: Gang, command: Any, tmp_path: Path
) -> None:
    submit(gang)
    made = tmp_path / "made"
    (replica,) = gang.sync()
    gang.points(replica, 1, 4)
    gang.report(replica, checkpoints=[{"step": 4, "name": "mine-4", "sha256": "0" * 64}])
    row = gang.yard.database.read(lambda uow: uow.first(select(jobs.c.job_key)))
    assert row is not None
    folder = gang.yard.data / "objects" / "jobs" / row["job_key"]
    folder.mkdir(parents=True)
    for name in ("mine-4.safetensors", "checkpoint-00000004.json", "mine-3.safetensors", "secret"):
        (folder / name).write_text(name)
    assert command("download", "j", "-o", str(tmp_path / "made" / "none")).exit_code != 0
    assert command("download", "j", "--checkpoints", "-o", str(made)).exit_code == 0
    found = sorted(path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file())
    assert found == ["checkpoints/checkpoint-00000004.json", "checkpoints/mine-4.safetensors"]
    assert (made / "checkpoints" / "mine-4.safetensors").read_text() == "mine-4.safetensors"
    for name in (
        "secret",
        "checkpoints/secret",
        "checkpoints/../secret",
        "checkpoints/mine-3.safetensors",
    ):
        assert "no artifact" in str(command("download", "j", name, "-o", str(made)).exception)
