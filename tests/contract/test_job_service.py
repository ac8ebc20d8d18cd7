"""Jobs as people manage them: limits in words, clones and sweeps. A pretended agent is behind REST
and commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.control.gang import Gang
from tests.yard import Yard, open_yard

ZONE = "europe-west4-a"
TERMS = {
    "labels": {"team": "a"},
    "priority": 3,
    "timeLimitSeconds": 5400,
    "retryDelaySeconds": 30,
    "maxFailures": 1,
}


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        for name, value in (
            ("URL", found.url),
            ("TOKEN", found.token),
            ("LOCATION", ZONE),
            ("PROJECT", "demo"),
        ):
            monkeypatch.setenv(f"PODYARD_{name}", value)
        found.create("pod", "v3-32", ZONE)
        Gang(found)
        yield found


def podyard(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from podyard.main import cli; cli()", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def job(*arguments: str) -> dict[str, Any]:
    done = podyard("job", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _submit(yard: Yard, job_id: str = "first", **body: Any) -> dict[str, Any]:
    asked = {"recipe": "digits-cnn", "node": "pod", "steps": 10, **TERMS, **body}
    return yard.ok("POST", f"{yard.jobs(ZONE)}?jobId={job_id}", asked)


def test_limits_are_said_in_durations(yard: Yard) -> None:
    flags = (
        "--recipe",
        "digits-cnn",
        "--node",
        "pod",
        "--time-limit",
        "1h30m",
        "--retry-delay",
        "30s",
    )
    found = job("submit", "first", *flags)
    assert (found["timeLimitSeconds"], found["retryDelaySeconds"]) == (5400, 30)
    wrong = podyard(
        "job", "submit", "second", "--recipe", "digits-cnn", "--node", "pod", "--time-limit", "1.5"
    )
    assert wrong.returncode == 2
    assert "--time-limit: '1.5' is not a valid DURATION. Time that all attempts" in wrong.stderr


def test_a_clone_is_the_same_job_again(yard: Yard) -> None:
    arguments, training = (
        {"learningRate": 0.5},
        {
            "keepCheckpoints": 2,
            "evaluateEverySteps": 2,
            "earlyStopping": {"metric": "val_loss", "patience": 3},
        },
    )
    elastic = {"minReplicas": 2, "batch": "scale"}
    first = _submit(
        yard,
        arguments=arguments,
        training=training,
        elastic=elastic,
        seed=7,
        checkpointEverySteps=5,
    )
    second = job("clone", "first", "second")
    own = {"name", "createTime"}
    assert {name: value for name, value in first.items() if name not in own} == {
        name: value for name, value in second.items() if name not in own
    }


def test_a_clone_takes_changes(yard: Yard) -> None:
    _submit(yard, arguments={"learningRate": 0.5, "dropout": 0.1})
    found = job(
        "clone",
        "first",
        "second",
        "--arg",
        "learningRate=0.25",
        "--steps",
        "20",
        "--time-limit",
        "2h",
    )
    assert found["arguments"] == {"learningRate": 0.25, "dropout": 0.1}
    assert (found["steps"], found["timeLimitSeconds"], found["priority"]) == (20, 7200, 3)


def test_a_clone_of_a_job_with_a_node_of_its_own_gets_one_too(yard: Yard) -> None:
    asked = {"recipe": "digits-cnn", "acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    _submit(yard, node=None, schedulingConfig={"spot": True}, **asked)
    assert job("clone", "first", "second")["node"] == "second"
    found = yard.ok("GET", f"{yard.nodes(ZONE)}/second")
    assert (found["acceleratorType"], found["schedulingConfig"]) == ("v2-8", {"spot": True})
    assert job("clone", "first", "third", "--node", "pod")["node"] == "pod"


def test_another_recipe_begins_with_its_own_settings(yard: Yard) -> None:
    _submit(yard, arguments={"learningRate": 0.5}, globalBatch=64)
    found = job("clone", "first", "second", "--recipe", "mlp", "--arg", "data=mnist")
    usual = job("submit", "third", "--recipe", "mlp", "--arg", "data=mnist", "--node", "pod")
    assert {name: found[name] for name in ("arguments", "steps", "globalBatch")} == {
        name: usual[name] for name in ("arguments", "steps", "globalBatch")
    }
    assert found["labels"] == {"team": "a"}


@pytest.mark.parametrize(
    ("status", "name", "source", "text"),
    [
        (404, "NOT_FOUND", "nothing", "jobs/nothing"),
        (400, "INVALID_ARGUMENT", "", "cloneOf must be the id of a job, or a name"),
        (400, "INVALID_ARGUMENT", 3, "cloneOf must be"),
        (400, "INVALID_ARGUMENT", f"projects/other/locations/{ZONE}/jobs/first", "cloneOf must be"),
    ],
)
def test_what_cannot_be_cloned(
    yard: Yard, status: int, name: str, source: object, text: str
) -> None:
    _submit(yard)
    assert text in yard.refused(
        status, name, "POST", f"{yard.jobs(ZONE)}?jobId=second", {"cloneOf": source}
    )
    assert len(yard.ok("GET", yard.jobs(ZONE))["jobs"]) == 1


def sweep(*arguments: str, args: tuple[str, ...] = ()) -> dict[str, Any]:
    """`args`: of the program."""
    done = podyard("sweep", *arguments, "-o", "json", *(("--", *args) if args else ()))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_dry_run_tells_time_and_cost_and_submits_nothing(yard: Yard) -> None:
    flags = (
        "--recipe",
        "digits-cnn",
        "--accelerator-type",
        "v2-8",
        "--version",
        "tpu-vm-base",
        "--steps",
        "400",
    )
    found = job("submit", "first", *flags, "--dry-run")["estimate"]
    assert found["seconds"] == pytest.approx(400 * found["stepSeconds"])
    price = yard.ok("GET", f"/podyard/v1/projects/demo/locations/{ZONE}/prices/v2-8")[
        "pricePerHour"
    ]
    assert found["pricePerHour"] == price
    assert float(found["cost"]) == pytest.approx(float(price) * found["seconds"] / 3600, abs=1e-9)
    simulated = job(
        "submit", "first", *flags, "--execution", "simulated", "--step-seconds", "0.5", "--dry-run"
    )
    assert simulated["estimate"]["seconds"] == 200
    shown = podyard("job", "submit", "first", *flags, "--dry-run")
    assert shown.stdout.splitlines()[0].split() == [
        "TYPE",
        "STEPS",
        "STEP",
        "TIME",
        "PER",
        "HOUR",
        "COST",
    ]
    assert "this machine's pace" in shown.stderr
    assert _jobs(yard) == []


def test_a_dry_run_of_a_user_s_program_says_who_estimates_it(yard: Yard) -> None:
    found = job("submit", "first", "--node", "pod", "--command", "python train.py", "--dry-run")
    assert "podyard run --tpu TYPE --dry-run" in found["estimate"]["note"]
    wrong = podyard(
        "job",
        "submit",
        "first",
        "--node",
        "pod",
        "--recipe",
        "digits-cnn",
        "--steps",
        "0",
        "--dry-run",
    )
    assert wrong.returncode == 1
    assert "steps" in wrong.stderr


def test_a_sweep_is_one_table_of_values_results_and_cost(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "\ufefflearningRate,seed\n0.1,1\n0.01,2\n0.001,3\n", encoding="utf-8"
    )
    flags = (
        "--recipe",
        "digits-cnn",
        "--node",
        "pod",
        "--steps",
        "1",
        "--rows",
        str(tmp_path / "rows.csv"),
    )
    found = sweep("submit", "rates", *flags)
    assert [row["values"] for row in found["jobs"]] == [
        {"learningRate": 0.1, "seed": 1},
        {"learningRate": 0.01, "seed": 2},
        {"learningRate": 0.001, "seed": 3},
    ]
    gang = Gang(yard)
    for loss in (0.5, 0.2, 0.3):  # the jobs of one node take turns
        yard.step()
        yard.clock.advance(3)
        replicas = gang.sync()
        assert len(replicas) == 4
        for replica in replicas:
            point = {
                "step": 1,
                "metrics": {"loss": loss, "accuracy": 1 - loss},
                "wallSeconds": 1.0,
                "modelledSeconds": 0.1,
            }
            answer = gang.report(replica, state="SUCCEEDED", metrics=[point])
            assert answer.status_code == 200, answer.text
        gang.exit_all()
    yard.step()
    shown = sweep("describe", "rates")
    assert [row["state"] for row in shown["jobs"]] == ["SUCCEEDED"] * 3
    assert (shown["best"], shown["metric"], shown["mode"]) == ("rates-1", "loss", "min")
    assert sweep("describe", "rates", "--metric", "loss:max")["best"] == "rates-0"
    assert "best" not in sweep("describe", "rates", "--metric", "val_loss")
    costs = [Decimal(row["cost"]) for row in shown["jobs"]]
    assert all(cost > 0 for cost in costs)
    assert sum(costs) == Decimal(shown["cost"])
    table = podyard("sweep", "describe", "rates").stdout.splitlines()
    assert table[0].split() == [
        "JOB",
        "learningRate",
        "seed",
        "STATE",
        "STEPS",
        "LOSS",
        "COST",
        "BEST",
    ]
    assert [line.endswith("*") for line in table[1:]] == [False, True, False]
    assert podyard("sweep", "list").stdout.splitlines()[1].split() == ["rates", ZONE, "3", "3"]


def test_the_jobs_of_a_sweep_share_the_nodes_that_are_made_for_them(yard: Yard) -> None:
    body = {
        "recipe": "digits-cnn",
        "steps": 10,
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
    }
    values = {"values": {"seed": [1, 2, 3, 4, 5]}, "parallel": 2}
    yard.ok("POST", f"{_sweeps()}?sweepId=s", {**body, **values})
    gang, nodes = Gang(yard), yard.nodes(ZONE)
    found = {row["id"]: row["node"] for row in _jobs(yard)}
    assert found == {"s-0": "s-0", "s-1": "s-1", "s-2": "s-0", "s-3": "s-1", "s-4": "s-0"}
    ended = 0
    for expected in (2, 2, 1):
        yard.step(3)
        replicas = gang.sync()
        assert len(replicas) == expected
        for replica in replicas:
            gang.report(replica, state="SUCCEEDED")
        gang.exit_all()
        ended += expected
    yard.step(3)
    assert {row["state"] for row in _jobs(yard)} == {"SUCCEEDED"}
    left = [node["name"].split("/")[-1] for node in yard.ok("GET", nodes).get("nodes", [])]
    assert left == ["pod"]


def test_the_jobs_of_a_sweep_follow_a_node_that_is_made_again(yard: Yard) -> None:
    body = {
        "recipe": "digits-cnn",
        "steps": 10,
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
    }
    values = {"values": {"seed": [1, 2, 3]}, "schedulingConfig": {"spot": True}}
    yard.ok("POST", f"{_sweeps()}?sweepId=s", {**body, **values})
    gang = Gang(yard)
    yard.step(3)
    assert [gang.report(replica).status_code for replica in gang.sync()] == [200]
    yard.ok("POST", f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/s-0:preempt", {})
    for _ in range(3):  # each of the three jobs, one after the other
        for _ in range(20):  # the gang leaves, the node is taken back, made again and READY
            yard.step(2)
            if any(replica["desired"] == "STOP" for replica in gang.sync()):
                gang.exit_all()
        for replica in gang.sync():
            gang.report(replica, state="SUCCEEDED")
        gang.exit_all()
    yard.step(5)
    found = _jobs(yard)
    assert {(row["state"], row["node"]) for row in found} == {("SUCCEEDED", "s-0")}
    assert [row["preemptions"] for row in found if row["id"] == "s-0"] == [1]
    assert [
        node["name"].split("/")[-1] for node in yard.ok("GET", yard.nodes(ZONE)).get("nodes", [])
    ] == ["pod"]


def test_a_program_gets_its_values_as_arguments_and_a_command_as_variables(
    yard: Yard, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    values = ("--values", "lr=0.1,0.01", "--values", "name=a")
    found = sweep(
        "submit",
        "s",
        "--run",
        str(tmp_path / "train.py"),
        "--node",
        "pod",
        *values,
        args=("--epochs", "3"),
    )
    assert [row["values"] for row in found["jobs"]] == [{"lr": "0.1"}, {"lr": "0.01"}]
    first = yard.ok("GET", f"{yard.jobs(ZONE)}/s-0")["run"]
    assert first["args"] == ["--epochs", "3", "--lr=0.1", "--name=a"]
    assert first["output"].endswith("/s-0")
    sweep(
        "submit",
        "c",
        "--command",
        "python train.py $LR",
        "--node",
        "pod",
        "--values",
        "LR=0.1,0.01",
        "--env",
        "A=b",
    )
    assert yard.ok("GET", f"{yard.jobs(ZONE)}/c-1")["run"]["env"] == {"A": "b", "LR": "0.01"}


def test_a_sweep_is_cancelled_whole_and_refused_whole(yard: Yard) -> None:
    base = {"recipe": "digits-cnn", "node": "pod", "steps": 10}
    text = yard.refused(
        400,
        "INVALID_ARGUMENT",
        "POST",
        f"{_sweeps()}?sweepId=s",
        {**base, "values": {"dropout": [0.1, 7]}},
    )
    assert "dropout" in text
    assert _jobs(yard) == []
    yard.ok("POST", f"{_sweeps()}?sweepId=s", {**base, "values": {"dropout": [0.1, 0.2]}})
    yard.refused(
        409,
        "ALREADY_EXISTS",
        "POST",
        f"{_sweeps()}?sweepId=s",
        {**base, "values": {"dropout": [0.3]}},
    )
    yard.step()
    sweep("cancel", "s")
    Gang(yard).exit_all()
    yard.step()
    assert {row["state"] for row in _jobs(yard)} == {"CANCELLED"}
    yard.refused(400, "FAILED_PRECONDITION", "POST", f"{_sweeps()}/s:cancel", {})
    yard.refused(404, "NOT_FOUND", "GET", f"{_sweeps()}/other")
    yard.refused(400, "INVALID_ARGUMENT", "GET", f"{_sweeps()}/s?metric=loss:least")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--values", "learningRate"), "'learningRate' is not NAME=VALUE,..."),
        (("--values", "seed=1", "--values", "seed=2"), "seed is given twice"),
        (("--rows", "ROWS"), "line 3 of ROWS has 1 values, not 2"),
        (("--values", "seed=1", "--parallel", "2"), "parallel requires acceleratorType"),
        ((), "a sweep needs values or rows"),
    ],
)
def test_what_is_no_sweep_is_said_in_words(
    yard: Yard, tmp_path: Path, flags: tuple[str, ...], text: str
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a,b\n1,2\n3\n", encoding="utf-8")
    given = [flag.replace("ROWS", str(table)) for flag in flags]
    done = podyard("sweep", "submit", "s", "--recipe", "digits-cnn", "--node", "pod", *given)
    assert done.returncode in (1, 2)
    assert text.replace("ROWS", str(table)) in " ".join(done.stderr.split())
    assert _jobs(yard) == []


def test_a_node_that_is_to_be_kept_stays_when_its_job_has_ended(yard: Yard) -> None:
    flags = (
        "--recipe",
        "digits-cnn",
        "--accelerator-type",
        "v2-8",
        "--version",
        "tpu-vm-base",
        "--steps",
        "10",
    )
    for name, extra in (("kept", ("--keep",)), ("not-kept", ())):
        job("submit", name, *flags, *extra)
    gang = Gang(yard)
    yard.step(3)
    for replica in gang.sync():
        gang.report(replica, state="SUCCEEDED")
    gang.exit_all()
    yard.step(3)
    left = [
        node["name"].split("/")[-1] for node in yard.ok("GET", yard.nodes(ZONE)).get("nodes", [])
    ]
    assert left == ["kept", "pod"]


NEW_NODE = (
    "--recipe",
    "digits-cnn",
    "--steps",
    "10",
    "--accelerator-type",
    "v2-8",
    "--version",
    "tpu-vm-base",
)


def _stockout(yard: Yard, zone: str) -> str:
    """The id of the fault."""
    found = yard.ok("POST", "/podyard/v1/faults", {"effect": "stockout", "match": {"zone": zone}})
    return str(found["name"]).split("/")[-1]


def _run(yard: Yard, name: str) -> dict[str, Any]:
    """The job as it stands when its gang, if it has one, has succeeded."""
    gang = Gang(yard)
    for _ in range(4):
        yard.step(3)
        for replica in gang.sync():
            gang.report(replica, state="SUCCEEDED")
        gang.exit_all()
    return yard.ok("GET", f"{yard.jobs(ZONE)}/{name}")


def test_a_job_goes_where_there_is_capacity(yard: Yard) -> None:
    for zone in (ZONE, "us-central1-a"):
        _stockout(yard, zone)
    job(
        "submit",
        "first",
        *NEW_NODE,
        "--fallback",
        "@us-central1-a,v3-8@us-central1-b/spot,@us-central1-f",
    )
    found = _run(yard, "first")
    assert (found["state"], found["acceleratorType"], found["nodeZone"]) == (
        "SUCCEEDED",
        "v3-8",
        "us-central1-b",
    )
    assert found["name"].endswith(f"locations/{ZONE}/jobs/first")
    nodes = yard.ok("GET", yard.nodes("-"))["nodes"]
    # it was deleted where it was made
    assert [node["name"].split("/")[-1] for node in nodes] == ["pod"]
    again = job("clone", "first", "second")
    assert again["fallbacks"] == found["fallbacks"]
    assert again["acceleratorType"] == "v3-8"


def test_a_region_is_every_zone_of_it_that_has_the_type(yard: Yard) -> None:
    kind = ("--recipe", "digits-cnn", "--steps", "10", "--accelerator-type", "v3-8")
    found = job("submit", "first", *kind, "--region", "us-central1")
    assert found["name"].startswith("projects/demo/locations/us-central1-b/")
    assert [one["location"] for one in found["fallbacks"]] == ["us-central1-f"]
    node = yard.ok("GET", f"{yard.nodes('us-central1-b')}/first")
    assert node["runtimeVersion"] == "tpu-ubuntu2204-base"  # the usual one
    nowhere = podyard("job", "submit", "second", *kind, "--region", "us-east5")
    assert (nowhere.returncode, "v3-8 is not offered in region us-east5" in nowhere.stderr) == (
        1,
        True,
    )
    both = podyard("job", "submit", "second", *kind, "--region", "us-central1", "--zone", ZONE)
    assert (both.returncode, "--region" in both.stderr) == (2, True)


def test_a_job_waits_at_its_first_place_when_none_has_capacity(yard: Yard) -> None:
    faults = [_stockout(yard, zone) for zone in (ZONE, "us-central1-a")]
    job("submit", "first", *NEW_NODE, "--fallback", "v2-32@us-central1-a/spot")
    found = _run(yard, "first")
    assert (found["state"], found["acceleratorType"], "nodeZone" in found) == (
        "QUEUED",
        "v2-8",
        False,
    )
    assert f"stockout of v2-8 in {ZONE}" in found["stateReason"]
    yard.ok("DELETE", f"/podyard/v1/faults/{faults[0]}")
    found = _run(yard, "first")
    assert (found["state"], found["acceleratorType"], "nodeZone" in found) == (
        "SUCCEEDED",
        "v2-8",
        False,
    )


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--fallback", "us-central1-a"), "'us-central1-a' is not a valid [TYPE]@ZONE[/USAGE],..."),
        (("--fallback", "@us-central1-a/"), "is not a valid [TYPE]@ZONE[/USAGE],..."),
        (("--fallback", "@nowhere"), "nowhere"),
        (("--fallback", "v99-8@us-central1-a"), "v99-8"),
        (("--fallback", "v5p-8@us-central1-f"), "v5p-8"),
        (("--fallback", "@us-central1-a/cheap"), "unknown usage 'cheap'"),
        (("--global-batch", "24", "--fallback", "v2-32@us-central1-a"), "globalBatch"),
        (
            (
                "--execution",
                "simulated",
                "--step-seconds",
                "1",
                "--fallback",
                "v2-32@us-central1-a",
            ),
            "keeps its type",
        ),
    ],
)
def test_what_is_no_fallback(yard: Yard, flags: tuple[str, ...], text: str) -> None:
    done = podyard("job", "submit", "first", *NEW_NODE, *flags)
    assert done.returncode in (1, 2)
    assert text in done.stderr
    assert _jobs(yard) == []
    yard.refused(
        400, "INVALID_ARGUMENT", "POST", f"{yard.jobs(ZONE)}?jobId=j",
        {"recipe": "digits-cnn", "node": "pod", "fallbacks": [{"location": "us-central1-a"}]},
    )  # fmt: skip


def _sweeps() -> str:
    return f"/podyard/v1/projects/demo/locations/{ZONE}/sweeps"


def _jobs(yard: Yard) -> list[dict[str, Any]]:
    found = yard.ok("GET", yard.jobs(ZONE))["jobs"]
    return [{**row, "id": row["name"].split("/")[-1]} for row in found]
