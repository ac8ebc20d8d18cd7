"""What a host tells of its programs is small and plain, whatever they have written."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from podyard.base.clock import OsClock
from podyard.domain.ran_module import RanModule
from podyard.hardware.accelerator_types import parse
from podyard.workers.host.programs import LOOK_SECONDS, HostPrograms
from tests.waiting import patient

MODULE = {
    "digest": "a1",
    "name": "jit_step",
    "devices": 8,
    "compile_seconds": 0.1,
    "runs": 5,
    "first": 1.0,
    "last": 2.0,
}


class _Hurried(OsClock):
    """An hour between two questions."""

    def __init__(self) -> None:
        self._hours = 0

    def monotonic_seconds(self) -> float:
        self._hours += 1
        return self._hours * 3600.0


def _programs(folder: Path) -> HostPrograms:
    (folder / "run" / "processes").mkdir(parents=True)
    environment = {"PATH": os.environ["PATH"]}
    return HostPrograms(
        folder / "run", folder / "said", folder / "kept", parse("v3-8"), environment, _Hurried()
    )


def _write(folder: Path, **changes: Any) -> None:
    module = MODULE | changes
    data = {"worker": 0, "left_out": 0, "modules": [module]}
    (folder / "run" / "processes" / f"{module['digest']}.json").write_text(json.dumps(data))


def _look(programs: HostPrograms, wanted: int) -> tuple[RanModule, ...]:
    clock, until = OsClock(), OsClock().monotonic_seconds() + patient(20.0)
    while len(found := programs.look()) < wanted and clock.monotonic_seconds() < until:
        clock.sleep(0.05)
    programs.end()
    return found


def test_what_programs_wrote_can_be_sent_and_stored(tmp_path: Path) -> None:
    programs = _programs(tmp_path)
    _write(tmp_path)
    _write(tmp_path, digest="a2", first=-1e308, last=1e308)
    _write(tmp_path, digest="a3", runs=10**300)
    _write(tmp_path, digest="a4", name="nul \0")
    (tmp_path / "said").mkdir()
    said = {
        "seconds": float("inf"),
        "flops": 10**400,
        "doubts": ["odd \0 \ud800"],
        "verdict": "x" * 100_000,
    }
    (tmp_path / "said" / "a1.json").write_text(json.dumps(said))
    (found,) = _look(programs, 1)
    assert (found.name, found.runs, found.seconds, found.mfu) == ("jit_step", 5, None, None)
    assert found.note == "odd    "
    assert len(json.dumps(dataclasses.asdict(found), allow_nan=False).encode()) < 1024


def test_a_module_is_priced_by_a_process_and_kept_for_the_other_hosts(tmp_path: Path) -> None:
    programs = _programs(tmp_path)
    (tmp_path / "run" / "modules").mkdir()
    text = (
        "module @m { func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : "
        "tensor<8xf32> } }"
    )
    (tmp_path / "run" / "modules" / "a1.mlir").write_text(text)
    _write(tmp_path)
    clock, until = OsClock(), OsClock().monotonic_seconds() + patient(30.0)
    while not any((tmp_path / "kept").rglob("*a1.json")) and clock.monotonic_seconds() < until:
        programs.look()
        clock.sleep(0.05)
    programs.end()
    assert any((tmp_path / "kept").rglob("*a1.json"))


def test_a_host_without_programs_starts_no_look(tmp_path: Path) -> None:
    programs = HostPrograms(
        tmp_path, tmp_path / "said", tmp_path / "kept", parse("v3-8"), {}, _Hurried()
    )
    assert programs.look() == ()
    assert programs._reader is None and LOOK_SECONDS < 3600
