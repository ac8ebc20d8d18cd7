"""What the scripts of hosts wrote, as a node's page shows it."""

from __future__ import annotations

import os
from pathlib import Path

from podyard.control.compute import host_logs


def _folder(data: Path, host: int) -> Path:
    folder = data / "agents" / "local" / "hosts" / f"node-1-w-{host}" / "processes"
    folder.mkdir(parents=True)
    return folder


def test_the_last_lines_of_each_script_are_shown(tmp_path: Path) -> None:
    (_folder(tmp_path, 0) / "startup-script.1.log").write_text("begin\nready\n")
    (_folder(tmp_path, 1) / "startup-script.1.log").write_text(
        "".join(f"line {number}\n" for number in range(5000))
    )
    first, second = host_logs.last_lines(tmp_path, "node-1", 2)
    assert (first.host, first.script) == (0, "startup-script.1")
    assert first.lines == ["begin", "ready"]
    assert second.lines == [f"line {number}" for number in range(5000 - host_logs.LINES_MAX, 5000)]
    assert host_logs.last_lines(tmp_path, "node-2", 2) == []


def test_what_is_no_file_of_lines_is_left_out(tmp_path: Path) -> None:
    folder = _folder(tmp_path, 0)
    (tmp_path / "secret").write_text("not yours\n")
    (folder / "a.log").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "b.log")
    (folder / "c.log").write_text("")
    (folder / "d.log").write_bytes(b"\xff\n")
    (only,) = host_logs.last_lines(tmp_path, "node-1", 1)
    assert (only.host, only.script, only.lines) == (0, "d", ["\ufffd"])
