"""The software of runtime versions, installed from the package index: what `podyard runtime list`
promises."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.hardware.software import SOFTWARE, Software
from podyard.programs.environments import FOLDER_VARIABLE
from tests.stack import PODYARD, Stack, open_stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "programs"
FOLDER = {FOLDER_VARIABLE: str(ROOT / ".venv-clients" / "runtimes")}  # kept for the next run
ZONE = "us-central1-a"
INSTALLED = ("jax-0.10.2", "tensorflow-2.15.1", "tensorflow-2.21.0")


def _podyard(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    return subprocess.run(
        [*PODYARD, *arguments], env=environ | FOLDER, capture_output=True, text=True, timeout=900,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("yard"), FOLDER) as found:
        yield found


@pytest.mark.parametrize(
    ("version", "says", "program", "first"),
    [
        ("tpu-vm-tf-2.8.0", "TensorFlow 2.15.1 here", "tpu_strategy_loop.py", "8 replicas, loss"),
        ("tensorflow-2.21.0", "", "tpu_strategy_loop.py", "8 replicas, loss"),
        ("jax", "", "flax_data_parallel.py", "host 0 of 1: 8 devices, loss"),
    ],
)
def test_a_program_runs_with_the_software_of_a_version(
    version: str, says: str, program: str, first: str
) -> None:
    done = _podyard(
        "run", "--tpu", "v3-8", "--runtime", version, "--", "python", str(EXAMPLES / program)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(first)
    assert says in done.stderr


def test_a_node_has_the_tensorflow_of_its_version(stack: Stack) -> None:
    stack.create_node("keras", "v2-8", ZONE, runtimeVersion="tpu-vm-tf-2.8.0")
    code = (
        "import tensorflow as tf; print(tf.__version__, len(tf.config.list_logical_devices('TPU')))"
    )
    target = ("--data", str(stack.data), "--zone", ZONE)
    done = _podyard("tpu", "exec", "keras", *target, "--", f"python -c {shlex.quote(code)}")
    assert (done.returncode, done.stdout) == (0, "2.15.1 8\n"), done.stderr
    stack.delete_node("keras", ZONE)


def test_what_is_installed_is_listed() -> None:
    listed = {line.split()[0]: line for line in _podyard("runtime", "list").stdout.splitlines()}
    assert all("not installed" not in listed[name] for name in INSTALLED)


@pytest.mark.parametrize(
    "software", [item for item in SOFTWARE if item.name not in INSTALLED], ids=lambda it: it.name
)
def test_the_other_lock_files_can_be_had(software: Software) -> None:
    options = (
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--disable-pip-version-check",
        "--quiet",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, *software.lock_lines()],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
