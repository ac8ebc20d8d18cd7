"""What comes between the steps: loops, accumulation, evaluations, stopping early, checkpoints,
leaving in order."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError
from podyard.base.training_settings import Best, EarlyStopping, TrainingSettings
from podyard.engine.contract import Ended
from podyard.engine.executor import check_spec, run_replica
from podyard.engine.training.store import FileStore
from tests.unit.engine.replica_gang import Alone, Recorder, run_gang, spec_of

pytestmark = pytest.mark.slow

LESS_LOSS = Best("val_loss", "min")
TWO_HOSTS = {"accelerator_type": "v4-16", "core_count": 16, "host_count": 2}


def tiny(**changes: Any) -> Any:
    """A run of the user's program next to this file."""
    training = changes.pop("training", {})
    return spec_of(
        **{
            "recipe": "tiny_program:build",
            "arguments": {},
            "program_folder": str(Path(__file__).parent),
            "steps": 12,
            "global_batch": 32,
            "training": TrainingSettings(**training),
            **changes,
        }
    )


def run(
    spec: Any, root: Path, resume: int | None = None, **recorder: Any
) -> tuple[Recorder, Ended]:
    sink = Recorder(**recorder)
    everything = dataclasses.replace(spec, host_indices=tuple(range(spec.host_count)))
    ended = run_replica(
        everything, Alone(), sink, FileStore(root), resume, "127.0.0.1:0", OsClock()
    )
    return sink, ended


def losses(recorder: Recorder) -> list[float]:
    return [loss for _, loss, *_ in recorder.steps]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "momentum", "optax"])
def test_a_users_program_learns_and_resumes_in_the_same_bits(
    tmp_path: Path, optimizer: str
) -> None:
    arguments = {"optimizer": optimizer, "rate": 0.1}
    spec = tiny(arguments=arguments, checkpoint_every_steps=5)
    whole, ended = run(spec, tmp_path)
    assert ended is Ended.FINISHED and whole.result is not None
    assert losses(whole)[-1] < 0.5 * losses(whole)[0] and float(whole.result["testAccuracy"]) >= 0.9
    again, _ = run(spec, tmp_path, resume=5)
    assert [step for step, *_ in again.steps] == list(range(6, 13))
    assert again.params_sha256 == whole.params_sha256
    saved = safetensors.numpy.load((tmp_path / "checkpoint-00000005.safetensors").read_bytes())
    assert saved["statistics/seen"] == [5.0]
    names = {name for name in saved if name.startswith("slots/")}
    expected = {
        "sgd": set(),
        "adam": {f"slots/{s}/dense/{t}" for s in ("first", "second") for t in ("bias", "kernel")},
        "momentum": {"slots/velocity/dense/bias", "slots/velocity/dense/kernel"},
        "optax": {
            "slots/0/count",
            *(f"slots/0/{s}/dense/{t}" for s in ("mu", "nu") for t in ("bias", "kernel")),
        },
    }
    assert names == expected[optimizer]


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (
            {"recipe": "nowhere:build"},
            Code.NOT_FOUND,
            "no program nowhere in this agent's programs; there are: ",
        ),
        (
            {"recipe": "tiny_program:other"},
            Code.INVALID_ARGUMENT,
            "tiny_program.py has no function other",
        ),
        ({"recipe": "../tiny_program:build"}, Code.INVALID_ARGUMENT, "is not a program"),
        (
            {"arguments": {"fail": True}},
            Code.FAILED_PRECONDITION,
            r"tiny_program.py, line \d+: KeyError: 'nothing of",
        ),
        (
            {"arguments": {"colour": 1}},
            Code.FAILED_PRECONDITION,
            "unexpected keyword argument 'colour'",
        ),
        (
            {"recipe": "tiny_program:incomplete"},
            Code.FAILED_PRECONDITION,
            "has no input, init, loss, evaluate",
        ),
    ],
)
def test_a_program_that_cannot_be_used_says_why(
    tmp_path: Path, changes: dict[str, Any], code: Code, words: str
) -> None:
    with pytest.raises(PodyardError, match=words) as caught:
        run(tiny(**changes), tmp_path)
    assert caught.value.code is code


def test_the_program_in_the_documentation_finds_its_line(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    (tmp_path / "line.py").write_text(text.split("```python\n")[1].split("```")[0])
    spec = tiny(recipe="line:build", program_folder=str(tmp_path), steps=200, global_batch=64)
    recorder, _ = run(spec, tmp_path / "objects")
    assert recorder.result is not None and float(recorder.result["testLoss"]) < 1e-3
    saved = safetensors.numpy.load(
        (tmp_path / "objects" / "checkpoint-00000200.safetensors").read_bytes()
    )
    assert saved["params/slope"] == pytest.approx(3, abs=0.05) and saved[
        "params/offset"
    ] == pytest.approx(1, abs=0.05)


def test_the_data_of_a_program_is_below_the_data_sets(tmp_path: Path) -> None:
    _, ended = run(tiny(arguments={"data": "points"}, steps=1, data_folder="/data"), tmp_path)
    assert ended is Ended.FINISHED


def test_accumulated_parts_give_the_whole_batchs_gradient(tmp_path: Path) -> None:
    whole, _ = run(tiny(), tmp_path / "1")
    # Parts of two examples: a product with one row is not rounded, that of the whole batch is.
    parts, _ = run(tiny(training={"accumulation_steps": 2}), tmp_path / "2")
    np.testing.assert_allclose(losses(parts), losses(whole), rtol=1e-5)
    with pytest.raises(
        PodyardError, match="4 examples of a core cannot be computed in 3 equal parts"
    ):
        check_spec(tiny(training={"accumulation_steps": 3}))


def test_loops_change_no_bit_and_look_outside_only_between_them(tmp_path: Path) -> None:
    single, _ = run(tiny(checkpoint_every_steps=4), tmp_path / "1")
    looped, _ = run(
        tiny(checkpoint_every_steps=4, training={"iterations_per_loop": 4}), tmp_path / "4"
    )
    assert looped.params_sha256 == single.params_sha256 and losses(looped) == losses(single)
    assert looped.checkpoints == single.checkpoints
    stopped, ended = run(tiny(training={"iterations_per_loop": 4}), tmp_path / "stop", stop_after=1)
    assert len(stopped.steps) == 4 and ended is Ended.STOPPED
    # The last loop is as long as what is left.
    odd, _ = run(tiny(steps=10, training={"iterations_per_loop": 4}), tmp_path / "odd")
    assert losses(odd) == losses(single)[:10]
    with pytest.raises(PodyardError, match="multiples of iterationsPerLoop"):
        check_spec(tiny(checkpoint_every_steps=6, training={"iterations_per_loop": 4}))


def test_precision_is_that_of_all_test_examples(tmp_path: Path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    run(tiny(arguments={"noise": 1.5}, steps=3), tmp_path)
    judged, _ = run(tiny(arguments={"noise": 1.5}, mode="predict"), tmp_path, resume=3)
    predictions = json.loads((tmp_path / "predictions-00000003.json").read_text())["predictions"]
    from tests.unit.engine.tiny_program import build

    labels = build(noise=1.5).input().test.slice(0, 50)["label"]
    assert judged.result is not None and len(set(predictions)) > 1
    expected = metrics.precision_score(
        labels, predictions, average="macro", labels=sorted(set(predictions))
    )
    assert judged.result["testPrecision"] == pytest.approx(expected, rel=1e-6)
    assert judged.result["testAccuracy"] == pytest.approx(np.mean(labels == predictions), rel=1e-6)


def test_a_run_stops_early_when_evaluations_no_longer_get_better(tmp_path: Path) -> None:
    stopping = EarlyStopping("val_loss", "min", patience=2, min_delta=0.05)
    settings = {"evaluate_every_steps": 2, "early_stopping": stopping}
    whole, ended = run(tiny(steps=1000, checkpoint_every_steps=2, training=settings), tmp_path)
    assert ended is Ended.FINISHED and whole.result is not None
    values = [measured["val_loss"] for measured in whole.evaluations.values()]
    steps = list(whole.evaluations)
    best = next(i for i in range(len(values)) if all(v > values[i] - 0.05 for v in values[i + 1 :]))
    assert len(values) == best + 3 and whole.steps[-1][0] == steps[-1] < 1000
    assert whole.checkpoints[-1][0] == steps[-1]
    assert "val_loss was not better in 2 evaluations" in str(whole.result["stopReason"])
    assert whole.result["testLoss"] == values[-1]
    # Resumed in the middle of waiting, it decides the same; resumed at its end, it takes no step
    # more.
    again, _ = run(
        tiny(steps=1000, checkpoint_every_steps=2, training=settings), tmp_path, resume=steps[-2]
    )
    assert again.steps[-1][0] == steps[-1] and again.params_sha256 == whole.params_sha256
    ended_again, _ = run(
        tiny(steps=1000, checkpoint_every_steps=2, training=settings), tmp_path, resume=steps[-1]
    )
    assert ended_again.steps == [] and ended_again.result is not None


def test_what_is_watched_has_to_be_measured(tmp_path: Path) -> None:
    stopping = EarlyStopping("val_recall", "max", patience=1)
    with pytest.raises(
        PodyardError, match="has no 'val_recall'; it has: val_accuracy, val_loss, val_precision"
    ):
        run(tiny(training={"evaluate_every_steps": 2, "early_stopping": stopping}), tmp_path)


def test_checkpoints_are_named_as_asked_and_old_ones_go_but_not_the_best(tmp_path: Path) -> None:
    settings = {
        "evaluate_every_steps": 3,
        "best": Best("val_loss", "min"),
        "keep_checkpoints": 2,
        "checkpoint_name": "model.{epoch:02d}-{val_loss:.3f}",
    }
    # A rate that runs away: the first evaluations are the best.
    spec = tiny(
        arguments={"rate": 30.0, "noise": 1.5},
        checkpoint_every_steps=3,
        steps=18,
        training=settings,
    )
    recorder, _ = run(spec, tmp_path)
    values = {step: measured["val_loss"] for step, measured in recorder.evaluations.items()}
    best = min(values, key=lambda step: values[step])
    assert best < 12, "this run should get worse"
    for step, name, _ in recorder.checkpoints:
        assert name == f"model.{(step - 1) // 3 + 1:02d}-{values[step]:.3f}"
    assert recorder.best[-1] == best
    kept = {
        int(path.stem.removeprefix("checkpoint-")) for path in tmp_path.glob("checkpoint-*.json")
    }
    assert kept == {best, 15, 18}
    assert set(recorder.gone) == {3, 6, 9, 12} - {best}
    assert len(list(tmp_path.glob("model.*.safetensors"))) == 3
    with pytest.raises(PodyardError, match="tells 'val_recall', and there is only"):
        run(
            tiny(checkpoint_every_steps=2, training={"checkpoint_name": "{val_recall}"}),
            tmp_path / "other",
        )


def test_at_the_end_old_checkpoints_go_even_if_the_platform_hears_late(tmp_path: Path) -> None:
    spec = tiny(checkpoint_every_steps=3, steps=18, training={"keep_checkpoints": 2})
    recorder, _ = run(spec, tmp_path, hears_late=True)
    assert recorder.gone == [3, 6, 9, 12]
    assert {path.stem for path in tmp_path.glob("checkpoint-*.json")} == {
        "checkpoint-00000015",
        "checkpoint-00000018",
    }


def test_what_a_run_left_that_was_given_up_is_taken_away(tmp_path: Path) -> None:
    run(tiny(checkpoint_every_steps=2), tmp_path)
    again, _ = run(tiny(checkpoint_every_steps=2, steps=8), tmp_path, resume=4)
    assert again.gone == [8, 10, 12]
    assert max(int(path.stem[-8:]) for path in tmp_path.glob("checkpoint-*.json")) == 8


def test_a_gang_yields_after_the_same_step_and_another_goes_on(tmp_path: Path) -> None:
    spec = tiny(steps=40, **TWO_HOSTS)
    whole, _ = run(spec, tmp_path / "whole")
    alone, ended = run(spec, tmp_path / "alone", yield_after=7)
    assert ended is Ended.YIELDED and alone.result is None
    step = alone.checkpoints[-1][0]
    # Asked after the seventh, told with the eighth's sum.
    assert step == alone.steps[-1][0] == 8
    resumed, _ = run(spec, tmp_path / "alone", resume=step)
    assert resumed.params_sha256 == whole.params_sha256
    # Before the first evaluation there is nothing that the name could tell.
    settings = {"evaluate_every_steps": 10, "checkpoint_name": "m-{val_loss:.2f}"}
    early, ended = run(
        tiny(steps=40, training=settings, **TWO_HOSTS), tmp_path / "early", yield_after=3
    )
    assert ended is Ended.YIELDED and early.checkpoints[-1][1] == "checkpoint-00000004"


def test_two_processes_decide_alike(tmp_path: Path) -> None:
    """Evaluations are shared between them, and who does not lead leaves after the same step."""
    stopping = EarlyStopping("val_loss", "min", patience=2, min_delta=0.05)
    settings = {"evaluate_every_steps": 2, "early_stopping": stopping}
    spec = tiny(steps=1000, training=settings, **TWO_HOSTS)
    whole, _ = run(spec, tmp_path / "whole")
    for name, machines in (("memory", ["a", "a"]), ("tcp", ["", ""])):
        reports = run_gang(spec, [[0], [1]], tmp_path / name, machines=machines)
        assert [report["error"] for report in reports] == [None, None]
        assert [report["ended"] for report in reports] == ["FINISHED", "FINISHED"]
        assert reports[0]["result"] == whole.result
        assert [list(pair) for pair in whole.evaluations.items()] == reports[0]["evaluations"]
    left = run_gang(spec, [[0], [1]], tmp_path / "left", yield_after=3, machines=["a", "a"])
    assert [report["ended"] for report in left] == ["YIELDED", "YIELDED"]
    last = left[0]["checkpoints"][-1][0]
    assert all(f"yielded after step {last}" in report["lines"] for report in left)


def test_fewer_hosts_go_on_with_the_same_batches(tmp_path: Path) -> None:
    """Rule "keep": the global batch stays, each core has more of it; only rounding differs."""
    full = tiny(steps=20, checkpoint_every_steps=10, **TWO_HOSTS)
    whole, _ = run(full, tmp_path)
    one = tiny(
        steps=20, checkpoint_every_steps=10, accelerator_type="v4-16", core_count=8, host_count=1
    )
    smaller, _ = run(one, tmp_path, resume=10)
    np.testing.assert_allclose(losses(smaller), losses(whole)[10:], rtol=1e-5)


def test_a_smaller_batch_goes_on_where_the_data_was_and_at_a_smaller_rate(tmp_path: Path) -> None:
    """Rule "scale": the batch shrinks with the hosts, and the rate with it."""
    full = tiny(steps=7, checkpoint_every_steps=1, **TWO_HOSTS)
    run(full, tmp_path)
    one = tiny(
        steps=8,
        accelerator_type="v4-16",
        core_count=8,
        host_count=1,
        global_batch=16,
        learning_rate_scale=0.5,
    )
    run(one, tmp_path, resume=7)
    manifest = json.loads((tmp_path / "checkpoint-00000008.json").read_text())
    # 96 examples, 32 a step: 7 steps are two epochs and 32; then 16 more.
    assert manifest["position"] == {"epoch": 2, "offset": 48}
    scaled = params(tmp_path / "checkpoint-00000008.safetensors")
    same_rate = dataclasses.replace(one, learning_rate_scale=1.0)
    run(same_rate, tmp_path, resume=7)
    before = params(tmp_path / "checkpoint-00000007.safetensors")
    whole = params(next(tmp_path.glob("checkpoint-00000008-*.safetensors")))
    for name in before:
        np.testing.assert_allclose(
            scaled[name] - before[name], 0.5 * (whole[name] - before[name]), atol=1e-7
        )


def params(path: Path) -> dict[str, Any]:
    tensors = safetensors.numpy.load(path.read_bytes())
    return {name: value for name, value in tensors.items() if name.startswith("params/")}
