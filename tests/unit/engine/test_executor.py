from __future__ import annotations

import dataclasses
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from podyard.base.clock import OsClock
from podyard.base.errors import Code, PodyardError
from podyard.engine.executor import Peer, ReplicaSpec, check_spec, run_replica
from podyard.engine.training.store import FileStore
from tests.unit.engine import replica_gang
from tests.unit.engine.replica_gang import Alone, Recorder, run_gang, spec_of

# One worker of the test run does all of it: each would compile by itself.
pytestmark = pytest.mark.xdist_group("executor")
FOUR_HOSTS = {"accelerator_type": "v3-32", "core_count": 32, "host_count": 4}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("compiled"))


def run_alone(
    spec: ReplicaSpec, root: Path, resume: int | None = None, stop_after: int | None = None
) -> Recorder:
    """In this process, which then holds all hosts."""
    recorder = Recorder(stop_after)
    everything = dataclasses.replace(spec, host_indices=tuple(range(spec.host_count)))
    run_replica(everything, Alone(), recorder, FileStore(root), resume, "127.0.0.1:0", OsClock())
    return recorder


@pytest.mark.slow
def test_a_run_reports_every_step_its_checkpoints_and_its_result(
    tmp_path: Path, cache: str
) -> None:
    recorder = run_alone(spec_of(checkpoint_every_steps=2, compilation_cache=cache), tmp_path)
    assert [step for step, *_ in recorder.steps] == [1, 2, 3, 4, 5]
    assert all(loss > 0 and 0 <= accuracy <= 1 for _, loss, accuracy, _, _ in recorder.steps)
    assert all(wall > 0 and 1e-5 < modelled < 1e-3 for *_, wall, modelled in recorder.steps)
    assert [name for _, name, _ in recorder.checkpoints] == [
        f"checkpoint-{step:08d}" for step in (2, 4, 5)
    ]
    assert recorder.result is not None
    assert set(recorder.result) == {"loss", "accuracy", "testLoss", "testAccuracy", "testPrecision"}
    manifest = json.loads((tmp_path / "checkpoint-00000005.json").read_text())
    assert manifest["paramsSha256"] == recorder.params_sha256


@pytest.mark.slow
def test_a_resumed_run_ends_in_the_bits_of_an_undisturbed_one(tmp_path: Path, cache: str) -> None:
    spec = spec_of(steps=60, global_batch=64, checkpoint_every_steps=10, compilation_cache=cache)
    whole = run_alone(spec, tmp_path / "whole")
    stopped = run_alone(spec, tmp_path / "cut", stop_after=37)
    assert stopped.result is None and stopped.checkpoints[-1][0] == 30
    assert "stopped after step 37" in stopped.lines
    resumed = run_alone(spec, tmp_path / "cut", resume=30)
    assert resumed.params_sha256 == whole.params_sha256
    assert [s[:3] for s in resumed.steps] == [s[:3] for s in whole.steps[30:]]
    assert resumed.result == whole.result


@pytest.mark.slow
def test_a_torn_checkpoint_costs_steps_not_the_run(tmp_path: Path, cache: str) -> None:
    spec = spec_of(checkpoint_every_steps=2, compilation_cache=cache)
    whole = run_alone(spec, tmp_path)
    torn = next(tmp_path.glob("checkpoint-00000004.safetensors"))
    torn.write_bytes(torn.read_bytes()[:1000])
    resumed = run_alone(spec, tmp_path, resume=4)
    assert resumed.steps[0][0] == 3 and resumed.params_sha256 == whole.params_sha256
    assert any(line.startswith("skipped the checkpoint of step 4") for line in resumed.lines)
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(PodyardError, match="no whole checkpoint") as caught:
        run_alone(spec, tmp_path, resume=4)
    assert caught.value.code is Code.DATA_LOSS


@pytest.mark.slow
def test_evaluate_and_predict_read_a_checkpoint(tmp_path: Path, cache: str) -> None:
    trained = run_alone(spec_of(compilation_cache=cache), tmp_path)
    evaluated = run_alone(spec_of(mode="evaluate", compilation_cache=cache), tmp_path, resume=5)
    assert trained.result is not None and evaluated.result is not None
    assert evaluated.result == {
        name: trained.result[name] for name in ("testLoss", "testAccuracy", "testPrecision")
    }
    assert evaluated.steps == [] and evaluated.checkpoints == []
    run_alone(spec_of(mode="predict", compilation_cache=cache), tmp_path, resume=5)
    predictions = json.loads((tmp_path / "predictions-00000005.json").read_text())["predictions"]
    assert len(predictions) == 359 and set(predictions) <= set(range(10))
    with pytest.raises(PodyardError, match="needs a checkpoint"):
        run_alone(spec_of(mode="evaluate", compilation_cache=cache), tmp_path)


@pytest.mark.slow
def test_told_to_stop_while_it_waits_for_a_peer_a_replica_just_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:

        class Waiting:
            def join(self, address: str) -> list[Peer]:
                return [
                    Peer(0, (0,), address),
                    Peer(1, (1, 2, 3), f"127.0.0.1:{silent.getsockname()[1]}"),
                ]

        spec = spec_of(process_count=2, **FOUR_HOSTS)
        recorder = Recorder(stop_after=0)
        run_replica(spec, Waiting(), recorder, FileStore(tmp_path), None, "127.0.0.1:0", OsClock())
    assert recorder.steps == [] and recorder.result is None
    assert recorder.lines[-1] == "stopped while waiting for a peer"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "serve"}, "not one of train"),
        ({"steps": -1}, "not negative"),
        ({"core_count": 9, "host_count": 2}, "spread evenly"),
        ({"global_batch": 30}, "multiple of the 8 cores"),
        ({"host_indices": (1,)}, "distinct hosts"),
        ({"host_indices": ()}, "distinct hosts"),
        ({"process_count": 2}, "rank 0 of 2 processes"),
        (FOUR_HOSTS, "only one"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PodyardError, match=words) as caught:
        check_spec(spec_of(**changes))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_spec_does_not_print_its_key() -> None:
    assert replica_gang.RING_KEY.decode() not in repr(spec_of())


@pytest.mark.slow
def test_bits_do_not_depend_on_how_hosts_are_spread_over_processes(
    tmp_path: Path, cache: str
) -> None:
    spec = spec_of(
        steps=12, global_batch=64, checkpoint_every_steps=8, compilation_cache=cache, **FOUR_HOSTS
    )
    groupings = {
        "1": [[0, 1, 2, 3]],
        "2x2": [[0, 1], [2, 3]],
        "2 mixed": [[0, 2], [1, 3]],
        "4": [[0], [1], [2], [3]],
    }
    outcomes = {name: run_gang(spec, groups, tmp_path / name) for name, groups in groupings.items()}
    for name, reports in outcomes.items():
        assert [report["error"] for report in reports] == [None] * len(groupings[name])
        assert all(report["steps"] == [] and report["result"] is None for report in reports[1:])
        manifest = json.loads((tmp_path / name / "checkpoint-00000012.json").read_text())
        assert f"paramsSha256 {manifest['paramsSha256']}" in reports[0]["lines"]
    digests = {
        json.loads((tmp_path / n / "checkpoint-00000012.json").read_text())["paramsSha256"]
        for n in groupings
    }
    assert len(digests) == 1
    losses = {tuple(step[1] for step in reports[0]["steps"]) for reports in outcomes.values()}
    assert len(losses) == 1

    # On one machine in shared memory, on two machines in both ways.
    spreads = {
        "one machine": "aaaa",
        "two machines": "abba",
        "one and three": "aaab",
        "one shares nothing": "aaAb",
    }
    for name, machines in spreads.items():
        reports = run_gang(spec, groupings["4"], tmp_path / name, machines=machines)
        assert [report["error"] for report in reports] == [None] * 4
        assert any(line.split() == ["paramsSha256", *digests] for line in reports[0]["lines"])
        assert ("gradients are summed in shared memory" in reports[0]["lines"]) == (
            name == "one machine"
        )
        assert ("summed in shared memory, by TCP" in " ".join(reports[0]["lines"])) == (
            name != "one machine"
        )
        assert not [
            path for folder in tmp_path.glob(f"{name}-windows-*") for path in folder.iterdir()
        ]

    # Resumed by another number of processes than it was begun with.
    resumed = run_gang(spec, groupings["2x2"], tmp_path / "4", resume=8)
    assert [step[0] for step in resumed[0]["steps"]] == list(range(9, 13))
    assert any(line.split() == ["paramsSha256", *digests] for line in resumed[0]["lines"])


@pytest.mark.slow
def test_bits_do_not_depend_on_how_many_cpus_a_process_may_use(tmp_path: Path) -> None:
    cpus = os.sched_getaffinity(0)
    if len(cpus) == 1:
        pytest.skip("there is one CPU")
    digests = []
    for name, allowed in (("all", cpus), ("one", {min(cpus)})):
        os.sched_setaffinity(0, allowed)
        try:
            report = run_gang(spec_of(), [[0]], tmp_path / name)[0]
        finally:
            os.sched_setaffinity(0, cpus)
        digests.append([line for line in report["lines"] if line.startswith("paramsSha256")])
    assert digests[0] == digests[1] != []


@pytest.mark.slow
@pytest.mark.parametrize("machines", ["", "aaa", "aab", "abb"])
def test_a_lost_peer_ends_the_others_with_unavailable(
    tmp_path: Path, cache: str, machines: str
) -> None:
    """The process that leads is told to stop after 3 steps and hangs up; the others notice at
    once."""
    spec = spec_of(steps=10_000, compilation_cache=cache, **FOUR_HOSTS)
    reports = run_gang(spec, [[0, 1], [2], [3]], tmp_path, stop_after=3, machines=machines)
    assert reports[0]["error"] is None and "stopped after step 3" in reports[0]["lines"]
    assert {report["error"][0] for report in reports[1:]} == {"UNAVAILABLE"}


@pytest.mark.slow
def test_digits_are_learned(tmp_path: Path, cache: str) -> None:
    spec = spec_of(steps=400, global_batch=128, seed=0, compilation_cache=cache)
    recorder = run_alone(spec, tmp_path)
    assert recorder.result is not None and recorder.result["testAccuracy"] >= 0.97
