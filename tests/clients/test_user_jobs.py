"""Programs of JAX and TensorFlow as jobs, on hosts that have the software of their runtime version."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.programs.environments import FOLDER_VARIABLE
from tests.stack import PODYARD, Stack, open_stack
from tests.waiting import patient

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FOLDER = {FOLDER_VARIABLE: str(ROOT / ".venv-clients" / "runtimes")}
ZONES = {"slice": "europe-west4-a", "keras": "us-central1-f"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")} | FOLDER
    made = subprocess.run([*PODYARD, "runtime", "install", "jax"], env=environ, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    with open_stack(tmp_path_factory.mktemp("jobs"), FOLDER) as found:
        found.create_node("slice", "v3-32", ZONES["slice"])
        found.create_node("keras", "v2-8", ZONES["keras"], runtimeVersion="tpu-vm-tf-2.18.0-pjrt")
        yield found


def _lines(stack: Stack, node: str, program: Path, *arguments: str) -> list[str]:
    """What a program writes as a job on a node."""
    zone = ZONES[node]
    options = ["--data", str(stack.data), "--node", node, "--zone", zone, "--wait", "--run", str(program)]
    command = [*PODYARD, "job", "submit", f"on-{node}", *options, "--", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(300))
    assert done.returncode == 0, done.stderr
    return stack.log_lines(f"/podyard/v1/projects/demo/locations/{zone}/jobs/on-{node}")


def test_jax_meets_on_four_hosts(stack: Stack) -> None:
    lines = _lines(stack, "slice", ROOT / "tests/programs/data_parallel.py", "5", "initialize")
    last = sorted(line for line in lines if " 4 32 8 TPU_" in line)
    assert [line.split()[0] for line in last] == ["0", "1", "2", "3"]
    assert len({line.split()[-1] for line in last}) == 1, "the same loss on all hosts"


def test_tensorflow_trains_on_the_cores_of_a_v2_8(stack: Stack) -> None:
    lines = _lines(stack, "keras", ROOT / "examples/programs/tpu_strategy_loop.py")
    assert any("8 replicas, loss" in line for line in lines), lines[-5:]
