"""`podyard ssh setup` where HOME is another folder than the user's own."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from click.testing import CliRunner

from podyard.cli.kit.commands import root


def _setup(*options: str) -> str:
    result = CliRunner().invoke(root, ["ssh", "setup", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_line_is_written_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, data = tmp_path / "home", str(tmp_path / "data")
    monkeypatch.setenv("HOME", str(home))
    own = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh" / "config"
    before = own.read_bytes() if own.exists() else None
    output = _setup("--data", data, "--yes")
    config = home / ".ssh" / "config"
    assert config.read_text() == f'Include "{data}/ssh/config"\n'
    assert f"ssh reads {own} whatever HOME is: use `ssh -F {config}`" in output
    assert (own.read_bytes() if own.exists() else None) == before
    assert f"removed from {config}" in _setup("--data", data, "--remove")
    assert config.read_text() == ""
