"""`keras_to_tpu_model` as listings of 2018 use it: what runs learns, and its steps are priced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.listings.program import EXAMPLES, PROGRAMS, ProgramEnd, run_program

pytestmark = pytest.mark.slow
RUNTIME = "1.15"
LISTINGS = PROGRAMS / "listings"


def _runs(end: ProgramEnd) -> dict[str, int]:
    assert "not covered" not in end.out + end.err
    assert "unknown number of turns" not in end.out + end.err
    assert end.step is not None and end.step["name"] == "train_step"
    assert end.step["error"] == ""
    return {name: int(one["runs"]) for name, one in end.modules.items()}


def test_a_model_that_is_compiled_before_it_is_given_to_the_tpu(tmp_path: Path) -> None:
    end = run_program(RUNTIME, tmp_path, str(LISTINGS / "keras_to_tpu_model.py"))
    assert end.out.startswith("accuracy True\n")
    assert _runs(end) == {"train_step": 160, "test_step": 8}
    # a core has 16 of 128 examples; what Adam does for each of the weights
    weights = 64 * 32 + 32 * 10
    flops = 2.0 * 16 * (3 * weights - 64 * 32) + 12 * weights
    assert end.modules["train_step"]["flopsPerDevice"] == pytest.approx(flops, rel=0.15)
    assert end.modules["train_step"]["deviceSecondsPerRun"] > 10e-6, "with its sum over replicas"


def test_a_model_that_is_compiled_after_it_was_given_to_the_tpu(tmp_path: Path) -> None:
    end = run_program(RUNTIME, tmp_path, str(LISTINGS / "keras_support.py"))
    assert end.out.startswith("accuracy True\n") and (tmp_path / "weights.h5").is_file()
    runs = _runs(end)
    assert runs["train_step"] == 16 and {"test_step", "predict_step"} < set(runs)
    first, dense = 28 * 28 * 16 * 25, 14 * 14 * 16 * 10
    assert end.modules["train_step"]["flopsPerDevice"] == pytest.approx(
        2.0 * 32 * (3 * (first + dense) - first), rel=0.15
    )


@pytest.mark.parametrize("data", ["generator", "dataset", "stateful"])
def test_inputs_with_the_batch_of_a_core(data: str, tmp_path: Path) -> None:
    end = run_program(RUNTIME, tmp_path, str(LISTINGS / "keras_lstm.py"), data)
    assert end.out.startswith("predictions (5, 1, 64)\n")
    assert _runs(end)["train_step"] == 16
    # Every turn of the loops counts: two products of each step forward, twice that backward. The
    # rest is element-wise, on the arrays that hold the values of all turns.
    cell, head = 20 * 2 * 32 * 128, 20 * 32 * 64
    products = 2.0 * 16 * 3 * (cell + head)
    assert products < end.modules["train_step"]["flopsPerDevice"] < 2 * products


@pytest.mark.parametrize("release", ["1.13", "1.14"])
def test_a_model_in_the_scope_of_a_strategy(release: str, tmp_path: Path) -> None:
    end = run_program(RUNTIME, tmp_path, str(LISTINGS / "keras_strategy.py"), release)
    assert end.out.startswith("8 accuracy True\n")
    assert _runs(end) == {"train_step": 160, "test_step": 8}


def test_the_example_of_the_documents(tmp_path: Path) -> None:
    runs = _runs(run_program(RUNTIME, tmp_path, str(EXAMPLES / "colab_keras_to_tpu_model.py")))
    assert runs == {"train_step": 64, "test_step": 8, "predict_step": 1}
