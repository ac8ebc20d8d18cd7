"""What programs under TensorFlow are told before anything runs."""

from __future__ import annotations

from pathlib import Path

from podyard.programs import tensorflow_program


def test_free_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  2000 kB\nMemAvailable:    1000 kB\n")
    assert tensorflow_program.free_bytes(meminfo) == 1_024_000
    meminfo.write_text("MemTotal:  2000 kB\n")
    assert tensorflow_program.free_bytes(meminfo) is None
    assert tensorflow_program.free_bytes(tmp_path / "none") is None
