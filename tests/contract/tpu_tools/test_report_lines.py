"""Lines of the report that people act on: their own source, one warning, the machine's own time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tpu_program import PROGRAMS, report

pytest.importorskip("jax", reason="programs under test import JAX")
pytestmark = pytest.mark.real

PROGRAM = PROGRAMS / "report_lines.py"
LINE = next(
    number
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
    if "jax.lax.top_k" in line
)


@pytest.mark.parametrize("options", ["--tpu v5litepod-1", "--tpu v5litepod-4 --dry-run"])
def test_a_doubt_names_the_line_of_the_program(tmp_path: Path, options: str) -> None:
    done, document = report(options, tmp_path, str(PROGRAM))
    assert done.returncode == 0, done.stderr
    assert f"lower bound: operation top_k (report_lines.py:{LINE}) is not modelled" in done.stderr
    assert any(f"report_lines.py:{LINE}" in doubt for doubt in document["doubts"])


def test_processes_of_a_run_give_a_warning_once(tmp_path: Path) -> None:
    done, _ = report("--tpu v5litepod-16", tmp_path, str(PROGRAM))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("compiler option xla_tpu_enable_latency_hiding_scheduler") == 1


def test_the_time_on_this_machine_is_without_the_programs_own_work(tmp_path: Path) -> None:
    """The program sleeps for a second after each step, and its first step is compiled."""
    _, document = report("--tpu v5litepod-1", tmp_path, str(PROGRAM))
    (step,) = [one for one in document["modules"] if one["name"] == "jit_train_step"]
    assert 0 < step["wallSecondsPerRun"] < 1
    _, dry = report("--tpu v5litepod-1 --dry-run", tmp_path, str(PROGRAM))
    (step,) = [one for one in dry["modules"] if one["name"] == "jit_train_step"]
    assert step["wallSecondsPerRun"] is None
