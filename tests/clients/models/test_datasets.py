"""Keras', TensorFlow's and torchvision's data sets under `podyard run --tpu` without internet, in
programs that know nothing of Podyard."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.client import ENVIRONMENTS
from tests.conftest import require
from tests.stack import PODYARD
from tests.unit.programs.datasets.published_sets import TEST, TRAIN, write_cifar10, write_mnist

PROGRAM = Path(__file__).parents[1] / "programs" / "published_datasets.py"
NO_INTERNET = dict.fromkeys(
    ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
)
KERAS_SETS = {
    "mnist": [TRAIN, TEST, [28, 28], 0],
    "fashion_mnist": [TRAIN, TEST, [28, 28], 0],
    "cifar10": [50_000, 10_000, [32, 32, 3], 3],
}
TORCH_SETS = {
    "MNIST": [TRAIN, TEST, [28, 28], 0],
    "FashionMNIST": [TRAIN, TEST, [28, 28], 0],
    "CIFAR10": [50_000, 10_000, [32, 32], 3],
}
pytestmark = pytest.mark.slow


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | NO_INTERNET | {"PODYARD_DATA": str(folder / "yard"), "HOME": str(folder)}
    return subprocess.run(
        [*PODYARD, *command], env=environ, cwd=folder, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose Podyard has the sets."""
    home = tmp_path_factory.mktemp("home")
    archive, *files = map(str, write_mnist(home))
    for words in (
        ("mnist", archive, *files),
        ("fashion_mnist", *files),
        ("cifar10", str(write_cifar10(home))),
    ):
        done = _run(home, "dataset", "add", *words)
        assert done.returncode == 0, done.stderr
    return home


@pytest.mark.parametrize(
    ("environment", "library", "sets", "files"),
    [
        ("flax", "keras", KERAS_SETS, {"mnist.npz", "fashion-mnist/t10k-labels-idx1-ubyte.gz"}),
        ("tf", "tensorflow", KERAS_SETS, {"mnist.npz", "fashion-mnist/t10k-labels-idx1-ubyte.gz"}),
        (
            "fastai",
            "torchvision",
            TORCH_SETS,
            {"MNIST/raw/t10k-images-idx3-ubyte", "cifar-10-batches-py/data_batch_1"},
        ),
    ],
)
def test_a_program_loads_its_data_sets_without_internet(
    folder: Path, environment: str, library: str, sets: dict[str, Any], files: set[str]
) -> None:
    python = ENVIRONMENTS / environment / "bin" / "python"
    require(str(python) if python.is_file() else None, f"the environment {environment}")
    if subprocess.run([python, "-c", f"import {library}"], capture_output=True).returncode:
        # A package index may have a torchvision that does not load next to a torch for CPUs.
        pytest.skip(f"{library} does not load in the environment {environment}")
    done = _run(folder, "run", "--tpu", "v2-8", "--", str(python), str(PROGRAM), library)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    answer = json.loads(line)
    assert answer["sets"] == sets
    assert files <= set(answer["files"])  # where the libraries look for them
