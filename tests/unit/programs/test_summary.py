"""What a run came to, from files that a program wrote: of all its processes, and whatever it may
have put there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from podyard.hardware.accelerator_types import parse
from podyard.programs import estimator
from podyard.programs.records import Recorder
from podyard.programs.summary import read_summary

KIND = parse("v3-8")
MATRIX = b"""module @jit_step {
  func.func public @main(%arg0: tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
    %0 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [1] x [0] : (tensor<2048x2048xf32>, tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
    return %0 : tensor<2048x2048xf32>
  }
}
"""  # noqa: E501


def _price(run: Path) -> int:
    return estimator.price_new(run, run / "verdicts", estimator.PricedOn(KIND), None)


def _record(
    run: Path,
    worker: int,
    runs: int,
    text: bytes = MATRIX,
    name: str = "jit_step",
    devices: int = 8,
) -> None:
    recorder = Recorder(run, worker)
    recorder._path = run / "processes" / f"{worker}-{name}-{runs}.json"  # as of several processes
    module = recorder.add(text, name, devices)
    for _ in range(runs):
        module.count()
    recorder.write()


def test_runs_of_a_slice_are_those_of_one_host_and_processes_of_a_host_add_up(
    tmp_path: Path,
) -> None:
    for worker, runs in ((0, 5), (1, 5), (0, 3)):
        _record(tmp_path, worker, runs)
    assert _price(tmp_path) == 1
    assert _price(tmp_path) == 0
    summary = read_summary(tmp_path, tmp_path / "verdicts", KIND)
    (module,) = summary.modules
    assert (module.name, module.runs, module.devices) == ("jit_step", 8, 8)
    assert module.estimate is not None and module.estimate.seconds is not None
    assert summary.seconds == 8 * module.estimate.seconds
    assert summary.step is module
    assert module.estimate.flops == 2 * 2048**3
    assert module.estimate.mfu == module.estimate.flops / module.estimate.seconds / 61.5e12


def test_a_doubt_names_the_programs_line_or_says_that_the_line_is_the_modules(
    tmp_path: Path,
) -> None:
    text = MATRIX.replace(
        b"dot_general %arg0, %arg0, contracting_dims = [1] x [0]", b"unheard_of %arg0, %arg0"
    )
    for name, sources, place in (
        ("known", b"\n\ntrain.py:16\n", "train.py:16"),
        ("not", b"", "module line 3"),
    ):
        run = tmp_path / name
        recorder = Recorder(run, 0)
        recorder.add(text, "jit_step", 8, sources).count()
        recorder.write()
        _price(run)
        (module,) = read_summary(run, run / "verdicts", KIND).modules
        assert module.estimate is not None
        assert f"unheard_of ({place})" in " ".join((*module.estimate.doubts, module.estimate.error))


def test_the_step_is_what_works_most_of_what_runs_again(tmp_path: Path) -> None:
    _record(tmp_path, 0, 3)
    _record(tmp_path, 0, 1000, MATRIX.replace(b"2048", b"8"), "jit_small")
    _record(tmp_path, 0, 1, MATRIX.replace(b"2048", b"8192"), "jit_init")
    _price(tmp_path)
    step = read_summary(tmp_path, tmp_path / "verdicts", KIND).step
    assert step is not None and step.name == "jit_step"


def test_no_other_module_stands_for_a_step_that_is_not_priced_yet(tmp_path: Path) -> None:
    _record(tmp_path, 0, 1000, MATRIX.replace(b"2048", b"8"), "jit_small")
    _price(tmp_path)
    _record(tmp_path, 0, 3)
    step = read_summary(tmp_path, tmp_path / "verdicts", KIND).step
    assert step is not None and (step.name, step.estimate) == ("jit_step", None)


def test_what_cannot_be_priced_is_named_and_costs_nothing(tmp_path: Path) -> None:
    _record(tmp_path, 0, 2, b"this is not a module", "jit_odd")
    _price(tmp_path)
    summary = read_summary(tmp_path, tmp_path / "verdicts", KIND)
    assert [one.name for one in summary.not_covered] == ["jit_odd"]
    assert summary.seconds == 0
    assert summary.to_json()["modules"][0]["error"]


def test_files_that_no_process_of_ours_wrote_are_left_out(tmp_path: Path) -> None:
    secret = tmp_path / "secret.mlir"
    secret.write_bytes(MATRIX)
    run = tmp_path / "run"
    _record(run, 0, 2)
    good = json.loads(next((run / "processes").iterdir()).read_text())
    for number, change in enumerate(
        [
            {"digest": "../../x"},
            {"runs": "many"},
            {"first": float("inf")},
            {"first": -1e308, "last": 1e308},
            {"runs": 10**300},
            {"name": "nul \0 here"},
            {"name": None, "devices": []},
            {"more": 1},
        ]
    ):
        bad: dict[str, Any] = {**good, "modules": [{**good["modules"][0], **change}]}
        (run / "processes" / f"9-{number}.json").write_text(json.dumps(bad))
    (run / "processes" / "8-1.json").write_text("[1, 2")
    (run / "processes" / "8-2.json").symlink_to(secret)
    os.mkfifo(run / "processes" / "8-3.json")
    (run / "modules" / ("a" * 32 + ".mlir")).symlink_to(secret)
    _price(run)
    summary = read_summary(run, run / "verdicts", KIND)
    assert {one.runs for one in summary.modules} <= {2, 4} and len(summary.modules) == 1
    assert json.loads((run / "verdicts" / ("a" * 32 + ".json")).read_text())["seconds"] is None


def test_a_folder_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    other, run = tmp_path / "other", tmp_path / "run"
    _record(other, 0, 2)
    run.mkdir()
    for name in ("modules", "processes"):
        (run / name).symlink_to(other / name)
    assert _price(run) == 0
    assert read_summary(run, run / "verdicts", KIND).modules == ()
