"""resnet-50 and transformer-lm by the command line: they learn, and a job that is killed in the
middle ends in the bits of one that nobody disturbs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.stack import Stack, kill, open_stack

ZONE = "us-central1-f"
STEPS, EVERY = 50, 10
# The machine compiles for a minute, twice; steps take a second.
SECONDS_MAX = 900.0
SIZES = {
    "resnet-50": ("imageSize=32", "classes=10"),
    "transformer-lm": ("layers=6", "width=64", "heads=4", "sequence=64", "vocabulary=256"),
}
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("models")) as started:
        started.create_node("single", "v2-8", ZONE)
        yield started


def _submit(stack: Stack, job: str, recipe: str) -> str:
    sizes = [word for pair in SIZES[recipe] for word in ("--arg", pair)]
    options = ("--zone", ZONE, "--node", "single", "--steps", str(STEPS))
    every = ("--checkpoint-every-steps", str(EVERY))
    words = ("--recipe", recipe, *options, *every, *sizes, "--data", str(stack.data))
    done = stack.command("job", "submit", job, *words)
    assert done.returncode == 0, done.stderr
    return f"/podyard/v1/projects/demo/locations/{ZONE}/jobs/{job}"


@pytest.mark.parametrize("recipe", SIZES)
def test_the_loss_falls_and_a_kill_changes_no_bit(stack: Stack, recipe: str) -> None:
    calm = _submit(stack, f"calm-{recipe}", recipe)
    job = stack.wait_job(calm, SECONDS_MAX)
    assert (job["state"], job["stepsDone"]) == ("SUCCEEDED", STEPS), job
    assert job["modelledSeconds"] > 0
    losses = [point["loss"] for point in stack.metrics(calm)]
    assert len(losses) == STEPS
    assert np.mean(losses[-10:]) < 0.85 * np.mean(losses[:10]), losses
    killed = _submit(stack, f"killed-{recipe}", recipe)
    stack.wait_steps(killed, STEPS // 2, SECONDS_MAX)
    kill(stack.replicas()[0].pid)
    job = stack.wait_job(killed, SECONDS_MAX)
    assert (job["state"], job["stepsDone"]) == ("SUCCEEDED", STEPS), job
    assert any(line.startswith("resuming from step") for line in stack.log_lines(killed))
    assert stack.params_sha256(killed) == stack.params_sha256(calm)
    assert [point["loss"] for point in stack.metrics(killed)] == losses
