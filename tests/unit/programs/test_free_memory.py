"""The memory that is free, of which programs are warned when it is little."""

from __future__ import annotations

from pathlib import Path

from podyard.programs.free_memory import free_bytes


def test_free_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  2000 kB\nMemAvailable:    1000 kB\n")
    assert free_bytes(meminfo) == 1_024_000
    meminfo.write_text("MemTotal:  2000 kB\n")
    assert free_bytes(meminfo) is None
    assert free_bytes(tmp_path / "none") is None
