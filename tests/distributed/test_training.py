"""Jobs on the whole stack: the same bits however the hosts are spread, real accuracy, cancellation,
scoped tokens."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from podyard.engine.recipes.digits import load_digits
from tests.stack import PODYARD, Stack, open_stack, until
from tests.unit.engine import tiny_program
from tests.unit.engine.pictures import as_idx, pictures
from tests.waiting import patient

ZONE = "europe-west4-a"
SINGLE = "us-central1-f"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("training")) as found:
        found.create_node("slice", "v3-32", ZONE)
        found.create_node("single", "v2-8", SINGLE)
        yield found


def test_four_processes_and_one_process_give_the_same_bits_over_half_the_demo(stack: Stack) -> None:
    hashes = []
    # four twice: test_kills.py
    for name, fields in (("four", {}), ("one", {"replicaProcesses": 1})):
        path = stack.submit(name, ZONE, node="slice", steps=200, **fields)
        job = stack.wait_job(path)
        assert (job["state"], job["stepsDone"]) == ("SUCCEEDED", 200), job
        losses = [point["loss"] for point in stack.metrics(path)]
        hashes.append((stack.params_sha256(path), losses))
    assert hashes[0] == hashes[1]


# 0: tests/unit/engine/test_executor.py
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_recipe_learns_with_any_seed(stack: Stack, seed: int) -> None:
    path = stack.submit(f"seed-{seed}", SINGLE, node="single", seed=seed)
    job = stack.wait_job(path)
    assert job["state"] == "SUCCEEDED"
    assert job["metrics"]["latest"]["testAccuracy"] >= 0.97
    assert job["estimateModel"] == "tpu-model"
    assert job["modelledSeconds"] > 0
    assert job["wallSeconds"] > 0


def test_a_cancelled_job_leaves_no_process_and_its_node_can_run_another(stack: Stack) -> None:
    path = stack.submit("cancelled", ZONE, node="slice", steps=100_000)
    stack.wait_steps(path, 5)
    waiting = stack.submit("next", ZONE, node="slice", steps=10)
    assert "busy" in until(
        lambda: stack.call("GET", waiting)["stateReason"] or None, 10, "a reason"
    )
    stack.call("POST", f"{path}:cancel", {})
    assert stack.wait_job(path)["state"] == "CANCELLED"
    assert stack.wait_job(waiting)["state"] == "SUCCEEDED"
    until(lambda: True if not stack.replicas() else None, 10, "the replicas' end")


def test_a_job_ends_when_its_node_is_deleted_under_it(stack: Stack) -> None:
    stack.create_node("doomed", "v2-8", SINGLE)
    path = stack.submit("doomed", SINGLE, node="doomed", steps=100_000)
    stack.wait_steps(path, 5)
    stack.delete_node("doomed", SINGLE)
    job = stack.wait_job(path)
    assert job["state"] == "FAILED"
    assert "doomed" in job["error"]["message"]
    assert stack.replicas() == []


def test_a_job_may_bring_its_own_node_and_takes_it_along(stack: Stack) -> None:
    path = stack.submit(
        "own", SINGLE, acceleratorType="v2-8", runtimeVersion="tpu-vm-base", steps=10
    )
    assert stack.wait_job(path)["state"] == "SUCCEEDED"
    nodes = f"/v2/projects/demo/locations/{SINGLE}/nodes"
    names = lambda: [  # noqa: E731
        n["name"].rsplit("/", 1)[-1] for n in stack.call("GET", nodes).get("nodes", [])
    ]
    until(lambda: True if "own" not in names() else None, 10, "the node's end")


def test_a_replicas_token_opens_its_own_attempt_only(stack: Stack) -> None:
    path = stack.submit("scoped", SINGLE, node="single", steps=100_000)
    stack.wait_steps(path, 2)
    environ = stack.replicas()[0].environ()
    assert not [name for name in environ if "DATABASE" in name or "BROKER" in name]
    with httpx.Client(
        base_url=stack.url, headers={"Authorization": f"Bearer {environ['PODYARD_TOKEN']}"}
    ) as client:
        assert client.get(f"/podyard/v1/replicas/{environ['PODYARD_REPLICA']}").status_code == 200
        assert client.get("/podyard/v1/replicas/replica-other").status_code == 403
        assert client.get(path).status_code == 403
        assert client.get("/v2/projects/demo/locations/-/nodes").status_code == 403
        assert client.post("/podyard/v1/agents/local:sync", json={"fence": 1}).status_code == 403
        stack.call("POST", f"{path}:cancel", {})
        stack.wait_job(path)
        # The attempt is over, and its token with it (a moment of caching aside).
        gone = lambda: (  # noqa: E731
            client.get(f"/podyard/v1/replicas/{environ['PODYARD_REPLICA']}").status_code == 401
        )
        until(lambda: True if gone() else None, 5, "the token's end")


def test_a_trained_model_is_judged_asked_and_taken_away(stack: Stack, tmp_path: Path) -> None:
    trained = stack.submit("trained", SINGLE, node="single", steps=60)
    latest = stack.wait_job(trained)["metrics"]["latest"]
    answers = {}
    for mode in ("evaluate", "predict", "export"):
        path = stack.submit(
            mode, SINGLE, recipe=None, node="single", mode=mode, startFrom={"job": "trained"}
        )
        job = stack.wait_job(path)
        assert job["state"] == "SUCCEEDED", job
        found = job["metrics"]["latest"]
        (judged,) = stack.call("GET", f"{path}:evaluations")["evaluations"]
        assert (judged["step"], judged["metrics"]["val_loss"]) == (60, found["testLoss"])
        assert {name: found[name] for name in ("testLoss", "testAccuracy")} == {
            name: latest[name] for name in ("testLoss", "testAccuracy")
        }
        if mode != "evaluate":
            options = ("--data", str(stack.data), "--zone", SINGLE, "-o", str(tmp_path / mode))
            command_line("job", "download", mode, *options)
        answers[mode] = sorted(file.name for file in (tmp_path / mode).rglob("*") if file.is_file())
    assert answers == {
        "evaluate": [],
        "predict": ["predictions-00000060.json"],
        "export": ["manifest.json", "model.safetensors", "predict.stablehlo"],
    }
    test = load_digits().test
    np.savez(tmp_path / "images.npz", image=test.slice(0, test.count)["image"])
    exported = next((tmp_path / "export").rglob("manifest.json")).parent
    asked = command_line(
        "predict", "--export", str(exported), "--input", str(tmp_path / "images.npz"), "-o", "json"
    )
    predictions = json.loads(next((tmp_path / "predict").rglob("*.json")).read_text())[
        "predictions"
    ]
    assert json.loads(asked) == predictions


def command_line(*arguments: str) -> str:
    done = subprocess.run(
        [*PODYARD, *arguments], capture_output=True, text=True, timeout=patient(120)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_users_program_stops_early_and_keeps_its_best_checkpoint(stack: Stack) -> None:
    source = Path(tiny_program.__file__)
    (stack.data / "programs" / source.name).write_text(source.read_text())
    fields = {
        "recipe": None,
        "program": "tiny_program:build",
        "arguments": {"optimizer": "adam", "rate": 0.1, "noise": 1.0},
        "steps": 5000,
        "globalBatch": 64,
        "checkpointEverySteps": 10,
        "training": {
            "evaluateEverySteps": 10,
            "earlyStopping": {"metric": "val_loss", "patience": 4},
            "best": {"metric": "val_loss"},
            "checkpointName": "tiny.{epoch:02d}-{val_loss:.4f}",
            "keepCheckpoints": 2,
        },
    }
    path = stack.submit("tiny", ZONE, node="slice", **fields)
    job = stack.wait_job(path)
    assert job["state"] == "SUCCEEDED" and job["stepsDone"] < 5000, job
    assert "val_loss was not better in 4 evaluations" in job["stateReason"]
    judged = {
        e["step"]: e["metrics"]["val_loss"]
        for e in stack.call("GET", f"{path}:evaluations")["evaluations"]
    }
    assert list(judged) == list(range(10, job["stepsDone"] + 1, 10))
    best = min(judged, key=lambda step: judged[step])
    saved = stack.call("GET", f"{path}:checkpoints")["checkpoints"]
    assert [item["step"] for item in saved] == [job["stepsDone"], job["stepsDone"] - 10, best]
    assert [item.get("best", False) for item in saved] == [False, False, True]
    assert saved[-1]["name"].endswith(f"-{judged[best]:.4f}")
    broken = stack.submit(
        "broken", ZONE, node="slice", maxFailures=0, **{**fields, "arguments": {"fail": True}}
    )
    message = stack.wait_job(broken)["error"]["message"]
    assert "tiny_program.py, line" in message and "KeyError" in message


def test_logs_and_checkpoints_are_there_to_read(stack: Stack) -> None:
    path = stack.submit("logged", SINGLE, node="single", steps=60, checkpointEverySteps=20)
    assert stack.wait_job(path)["state"] == "SUCCEEDED"
    saved = stack.call("GET", f"{path}:checkpoints")["checkpoints"]
    assert [item["step"] for item in saved] == [60, 40, 20]
    assert all(re.fullmatch(r"[0-9a-f]{64}", item["sha256"]) for item in saved)
    lines = stack.call("GET", f"{path}:logs?worker=0")["lines"]
    assert any("test accuracy" in line["line"] for line in lines)
    assert len(stack.call("GET", f"{path}:metrics?pageSize=7")["metrics"]) == 7


def test_a_recipe_of_files_trains_on_a_folder_of_the_data_sets(stack: Stack) -> None:
    folder = stack.data / "datasets" / "bars"
    folder.mkdir(parents=True)
    as_idx(folder, pictures(28, 1, 320, 80))
    fields = {"recipe": "mlp", "steps": 30, "globalBatch": 64, "arguments": {"data": "bars"}}
    path = stack.submit("bars", ZONE, node="slice", **fields)
    job = stack.wait_job(path)
    assert job["state"] == "SUCCEEDED", job
    assert job["metrics"]["latest"]["testAccuracy"] >= 0.9
    lines = [line["line"] for line in stack.call("GET", f"{path}:logs?worker=0")["lines"]]
    assert "gradients are summed in shared memory" in lines
    lost = stack.submit(
        "lost",
        SINGLE,
        node="single",
        maxFailures=0,
        **(fields | {"arguments": {"data": "not-there"}}),
    )
    job = stack.wait_job(lost)
    assert (
        job["state"] == "FAILED"
        and "not-there is not a folder with data" in job["error"]["message"]
    )
