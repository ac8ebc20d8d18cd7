"""The file of a process in which several frameworks record what they run."""

from __future__ import annotations

import json
from pathlib import Path

from podyard.programs.records import recorder_of


def test_a_failure_seen_by_one_framework_keeps_the_modules_of_another(tmp_path: Path) -> None:
    by_jax, by_tensorflow = recorder_of(tmp_path, 0), recorder_of(tmp_path, 0)
    by_jax.add(b"module @jit_step {}", "jit_step", 1)
    by_jax.fail("ValueError: boom")
    by_tensorflow.fail("ValueError: boom")
    (file,) = (tmp_path / "processes").iterdir()
    process = json.loads(file.read_text())
    assert [one["name"] for one in process["modules"]] == ["jit_step"]
    assert process["error"] == "ValueError: boom"
