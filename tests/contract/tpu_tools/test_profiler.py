"""`jax.profiler` has the modelled times of the devices in its traces."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.tpu_program import PROGRAMS, report

pytest.importorskip("jax", reason="programs under test import JAX")
pytestmark = pytest.mark.real

PROGRAM = str(PROGRAMS / "traced_steps.py")
STEPS = 5  # of the program, in its trace


def _planes(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """Events by plane and line of the one trace in the folder, as JAX reads them."""
    from jax.profiler import ProfileData

    (file,) = folder.rglob("*.xplane.pb")
    return {
        plane.name: {line.name: list(line.events) for line in plane.lines}
        for plane in ProfileData.from_file(str(file)).planes
    }


@pytest.mark.parametrize(
    ("options", "devices"),
    [("--tpu v5litepod-4", 4), ("--tpu v3-8", 8), ("--tpu v6e-16 --dry-run --steps 8", 8)],
)
def test_a_trace_has_a_plane_for_each_device(tmp_path: Path, options: str, devices: int) -> None:
    done, document = report(options, tmp_path, PROGRAM, str(tmp_path / "trace"))
    assert done.returncode == 0, done.stderr
    planes = _planes(tmp_path / "trace")
    assert "/host:CPU" in planes
    names = [name for name in planes if "/device:TPU:" in name]
    assert names == [f"/device:TPU:{number}" for number in range(devices)]
    lines = planes["/device:TPU:0"]
    assert len(lines["Steps"]) == STEPS
    step = next(one for one in document["modules"] if one["digest"] == document["step"])
    own = [one for one in lines["XLA Modules"] if one.name.startswith("jit_train_step(")]
    assert len(own) == STEPS
    # a step lasts as long as the report says; the trace has whole nanoseconds
    periods = [b.start_ns - a.start_ns for a, b in itertools.pairwise(own)]
    assert periods == pytest.approx([step["deviceSecondsPerRun"] * 1e9] * (STEPS - 1), abs=2)


def test_operations_lie_within_the_runs_of_their_module(tmp_path: Path) -> None:
    done, _ = report("--tpu v5litepod-4", tmp_path, PROGRAM, str(tmp_path / "trace"))
    assert done.returncode == 0, done.stderr
    lines = _planes(tmp_path / "trace")["/device:TPU:0"]
    first, second = lines["XLA Modules"][:2]
    own = [one for one in lines["XLA Ops"] if one.start_ns < second.start_ns]
    names = [one.name for one in own]
    # three products of a layer in two, forward and backward, and the sum over the slice
    assert sum(name.startswith("%dot-general.") for name in names) >= 4
    assert sum(name.startswith("%all-reduce.") for name in names) == 1
    assert own[0].start_ns >= first.start_ns
    assert own[-1].end_ns <= first.end_ns + 1
    assert all(a.end_ns <= b.start_ns + 2 for a, b in itertools.pairwise(own))
    assert len(lines["XLA Ops"]) == len(own) * STEPS


def test_hosts_of_a_slice_write_a_trace_each(tmp_path: Path) -> None:
    done, _ = report("--tpu v5litepod-16", tmp_path, PROGRAM, str(tmp_path / "trace"))
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "trace").rglob("*.xplane.pb"))
    assert [file.name.rpartition("-w-")[2] for file in files] == [
        f"{worker}.xplane.pb" for worker in range(4)
    ]
    from jax.profiler import ProfileData

    numbers = [
        [
            p.name.rpartition(":")[2]
            for p in ProfileData.from_file(str(file)).planes
            if "TPU" in p.name
        ]
        for file in files
    ]
    assert numbers[:2] == [["0", "1", "4", "5"], ["2", "3", "6", "7"]]
