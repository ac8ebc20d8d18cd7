"""Steps are priced with the TensorFlow of every runtime version."""

from __future__ import annotations

from pathlib import Path

import pytest

from podyard.hardware.software import SOFTWARE
from tests.clients.listings.program import EXAMPLES, PROGRAMS, run_program

pytestmark = pytest.mark.slow
RUNTIMES = [item.name for item in SOFTWARE if item.framework == "TensorFlow"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_fit_of_keras_is_priced(runtime: str, tmp_path: Path) -> None:
    end = run_program(runtime, tmp_path, str(EXAMPLES / "tpu_strategy_cnn.py"), "cifar10")
    assert sorted(end.modules) == ["predict_step", "train_step"]
    assert end.step is not None and end.step["name"] == "train_step"
    assert end.step["runs"] == 32 and end.step["error"] == ""
    # Three times the flops of the forward pass, of which the first layer needs two; 16 images a
    # replica.
    forward = [32 * 32 * 32 * 27, 16 * 16 * 64 * 9 * 32, 8 * 8 * 64 * 128, 128 * 10]
    flops = 2 * 16 * (3 * sum(forward) - forward[0])
    assert end.step["flopsPerDevice"] == pytest.approx(flops, rel=0.05)
    assert "not covered" not in end.out + end.err
    assert "step train_step: " in end.out + end.err


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_steps_of_every_kind_are_one_module_each(runtime: str, tmp_path: Path) -> None:
    end = run_program(runtime, tmp_path, str(PROGRAMS / "tensorflow_steps.py"))
    runs = {name: module["runs"] for name, module in end.modules.items()}
    assert runs == {"step": 6, "alone": 2, "spell": 4, "double": 3}
    assert end.modules["step"]["deviceSecondsPerRun"] > 20e-6, "with its sum over replicas"
