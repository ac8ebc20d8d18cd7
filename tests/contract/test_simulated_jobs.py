"""`execution: simulated` over REST and by the command line: the time of a step is the
estimate's."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from podyard.cli.kit.commands import root
from tests.yard import Yard

MODULE = """
module @train_step {
  func.func public @main(%arg0: tensor<1024x1024xbf16>, %arg1: tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : \
(tensor<1024x1024xbf16>, tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>
    return %0 : tensor<1024x1024xbf16>
  }
}
"""  # noqa: E501


def test_a_simulated_step_takes_what_the_estimate_says(
    yard: Yard,
) -> None:
    yard.create("n")
    body = {
        "recipe": "resnet-50", "execution": "simulated", "node": "n", "steps": 100,
        "globalBatch": 64,
        "checkpointEverySteps": 40,
    }  # fmt: skip
    made = yard.ok("POST", f"{yard.jobs()}?jobId=large", body)
    asked = [
        "estimate",
        "resnet-50",
        "--accelerator-type",
        "v2-8",
        "--global-batch",
        "64",
        "-o",
        "json",
    ]
    step = json.loads(CliRunner().invoke(root, asked, standalone_mode=False).output)[
        "modelledSeconds"
    ]
    assert made["stepSeconds"] == pytest.approx(step)
    assert (made["recipe"], made["execution"]) == ("resnet-50", "simulated")
    assert made["arguments"]["variant"] == "v1.5"  # as the estimate has it
    for _ in range(3):
        yard.step(100 * step)
    job = yard.ok("GET", f"{yard.jobs()}/large")
    assert (job["state"], job["stepsDone"], job["modelledSeconds"]) == (
        "SUCCEEDED",
        100,
        pytest.approx(100 * step),
    )
    points = yard.ok("GET", f"{yard.jobs()}/large:metrics")["metrics"]
    assert points and all(point["loss"] is None and point["metrics"] == {} for point in points)
    saved = yard.ok("GET", f"{yard.jobs()}/large:checkpoints")["checkpoints"]
    assert [item["step"] for item in saved] == [100, 80, 40]


def test_a_stablehlo_module_is_a_job(yard: Yard) -> None:
    yard.create("n")
    body = {"stablehlo": MODULE, "execution": "simulated", "node": "n", "steps": 1_000_000}
    made = yard.ok("POST", f"{yard.jobs()}?jobId=module", body)
    assert made["program"] == "stablehlo:train_step"
    assert 1e-5 < made["stepSeconds"] < 1e-2
    yard.step(1.0)
    assert yard.ok("GET", f"{yard.jobs()}/module")["stepsDone"] > 0
    assert yard.ok("POST", f"{yard.jobs()}/module:cancel", {})["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"recipe": "resnet-51"}, "unknown recipe 'resnet-51'"),
        ({"recipe": "resnet-50", "arguments": {"imageSize": 7}}, "imageSize"),
        ({"recipe": "resnet-50", "globalBatch": 63}, "63 is not a positive multiple"),
        ({"program": "my_model:build", "globalBatch": 64}, "requires stepSeconds"),
        ({"stablehlo": "module @x { nonsense }", "globalBatch": 64}, "StableHLO, line 1"),
        (
            {"stablehlo": MODULE, "execution": "real"},
            "stablehlo can only be used with execution simulated",
        ),
        ({"stablehlo": MODULE, "recipe": "mlp"}, "specify one of recipe, program and stablehlo"),
        ({"recipe": "mlp", "stepSeconds": -1}, "stepSeconds is -1"),
        ({"recipe": "mlp", "stepSeconds": "1"}, "stepSeconds"),
    ],
)
def test_what_cannot_be_estimated_is_refused(
    yard: Yard, changes: dict[str, object], says: str
) -> None:
    if not any(
        node["name"].endswith("/n") for node in yard.ok("GET", yard.nodes()).get("nodes", [])
    ):
        yard.create("n")
    body = {"execution": "simulated", "node": "n", "steps": 10, **changes}
    assert says in yard.refused(400, "INVALID_ARGUMENT", "POST", yard.jobs(), body)


def test_recipes_that_train_on_files_need_none(yard: Yard) -> None:
    yard.create("n")
    body = {
        "recipe": "mnist-cnn",
        "execution": "simulated",
        "node": "n",
        "steps": 10,
        "stepSeconds": 0.25,
    }
    made = yard.ok("POST", yard.jobs(), body)
    assert (made["recipe"], made["stepSeconds"]) == ("mnist-cnn", 0.25)


def test_a_job_in_modelled_time_tells_its_steps_between_its_marks(yard: Yard) -> None:
    yard.create("n")
    body = {
        "recipe": "resnet-50", "execution": "simulated", "node": "n", "steps": 1000,
        "globalBatch": 64, "checkpointEverySteps": 1000, "stepSeconds": 2.0,
    }  # fmt: skip
    yard.ok("POST", f"{yard.jobs()}?jobId=slow", body)
    yard.step(1.0)
    yard.step(100.0)
    job = yard.ok("GET", f"{yard.jobs()}/slow")
    assert job["state"] == "RUNNING"
    assert job["stepsDone"] == pytest.approx(50, abs=2)
    assert job["stepsPerSecond"] == pytest.approx(0.5)
    assert job["remainingSeconds"] == pytest.approx(2.0 * (1000 - job["stepsDone"]))
    (item,) = yard.ok("GET", yard.jobs())["jobs"]
    assert item["stepsDone"] == job["stepsDone"]


def test_a_job_ends_whose_steps_last_fractions_of_nanoseconds(yard: Yard) -> None:
    yard.create("n")
    body = {
        "recipe": "digits-cnn", "execution": "simulated", "node": "n", "steps": 400,
        "stepSeconds": 0.00017331720193518714,
    }  # fmt: skip
    yard.ok("POST", f"{yard.jobs()}?jobId=short", body)
    for _ in range(3):
        yard.step(1)
    job = yard.ok("GET", f"{yard.jobs()}/short")
    assert (job["state"], job["stepsDone"]) == ("SUCCEEDED", 400)
