"""A data set in a box: a job's program downloads it without internet, also one that was added
while the node was there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import Stack, open_stack
from tests.unit.programs.datasets.published_sets import write_mnist

ZONE = "us-central1-f"
URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
PROGRAM = f"""
from urllib.request import urlretrieve
import numpy as np
urlretrieve({URL!r}, "mnist.npz")
with np.load("mnist.npz") as data:
    print("images", data["x_train"].shape)
"""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    # Boxes have no way out of the machine here.
    variables = {"PODYARD_RUNTIMES": "off", "PODYARD_BOX_NETWORK": "none"}
    with open_stack(tmp_path_factory.mktemp("datasets"), variables) as opened:
        opened.create_node("mine", "v2-8", ZONE)
        yield opened


def _lines(stack: Stack, name: str) -> tuple[str, str]:
    """(state, log) of a job."""
    run = {"command": f"cat > load.py <<'END'\n{PROGRAM}\nEND\npython load.py"}
    path = stack.submit(name, ZONE, recipe=None, node="mine", run=run, maxFailures=0)
    return stack.wait_job(path)["state"], "\n".join(stack.log_lines(path))


def test_a_program_in_a_box_finds_a_data_set_once_it_is_added(stack: Stack, tmp_path: Path) -> None:
    state, log = _lines(stack, "missing")
    assert state == "FAILED"
    assert "podyard dataset add mnist mnist.npz" in log
    archive, *_ = write_mnist(tmp_path)
    words = ("mnist", str(archive), "--data", str(stack.data))
    done = stack.command("dataset", "add", *words)
    assert done.returncode == 0, done.stderr
    state, log = _lines(stack, "present")
    assert (state, "images (30, 28, 28)" in log) == ("SUCCEEDED", True), log
