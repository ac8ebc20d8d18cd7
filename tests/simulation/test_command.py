"""`podyard simulate`: what it prints, and how it says that something is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from podyard.cli.kit import commands
from podyard.simulation.command import run
from tests.simulation.mutant_table import MUTANTS

KEYS = {
    "seed", "days", "events", "faults", "violations", "state_hash", "decision_hash", "utilisation",
    "waits",
    "preemptions", "cost",
}  # fmt: skip


def _simulate(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        commands.run(["simulate", *argv], {"simulate": run})
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def _break(patch: pytest.MonkeyPatch) -> None:
    next(
        item for item in MUTANTS if item.name == "the_release_of_a_preempted_node_is_dropped"
    ).patch(patch)


def test_a_run_prints_what_it_found_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _simulate(capsys, "--seed", "3", "--days", "0.3", "--nodes", "4", "-o", "json")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert set(report) == KEYS
    assert (report["seed"], report["days"], report["violations"]) == (3, 0.3, [])
    assert len(report["state_hash"]) == len(report["decision_hash"]) == 64
    assert set(report["waits"]) == {"p50", "p95", "max"}
    assert float(report["cost"]) > 0


@pytest.mark.slow
def test_a_violation_is_exit_code_one_with_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _break(monkeypatch)
    code, out, err = _simulate(capsys, "--seed", "1", "--nodes", "3", "--shrink")
    assert code == 1
    assert "I2" in out
    assert "to repeat it: podyard simulate --seed 1 --days 1 --nodes 3\n" in err
    events = err.split("for --scenario:\n")[1]
    assert len(yaml.safe_load(events)["events"]) <= 4
    path = tmp_path / "short.yaml"
    path.write_text(events, encoding="utf-8")
    code, out, err = _simulate(capsys, "--scenario", str(path), "-o", "json")
    assert code == 1
    assert {item["invariant"] for item in json.loads(out)["violations"]} == {"I2"}
    assert f"--scenario {path}" in err


def test_a_file_says_it_all(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert _simulate(capsys, "--scenario", str(tmp_path / "x.yaml"), "--seed", "1")[0] == 2
    code, out, err = _simulate(capsys, "--scenario", str(tmp_path / "missing.yaml"))
    assert (code, out) == (1, "")
    assert "cannot read" in err
    (tmp_path / "wrong.yaml").write_text("seed: 1\ndayz: 2\n")
    code, out, err = _simulate(capsys, "--scenario", str(tmp_path / "wrong.yaml"))
    assert (code, out) == (1, "")
    assert "line 2: unknown key 'dayz'" in err
