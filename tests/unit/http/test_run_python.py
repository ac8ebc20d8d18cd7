"""Which Pythons would go past the proxy of `podyard run`; and how long the server keeps a silent
connection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from podyard.api.server import serve
from podyard.cli.redirect.python import past_the_proxy


def _environment(folder: Path, *packages: str, options: str = "") -> Path:
    """A virtual environment by its files; returns its Python."""
    python = folder / "bin" / "python"
    site = folder / "lib" / "python3.11" / "site-packages"
    for path in (python.parent, site):
        path.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = /nowhere\n{options}")
    base = folder / "base" / "bin" / "python3.11"
    base.parent.mkdir(parents=True)
    base.touch(mode=0o755)
    python.symlink_to(base)
    for package in packages:
        if package.endswith(".py"):
            (site / package).touch()
        else:
            (site / package).mkdir()
    return python


def _script(path: Path, first_lines: str) -> str:
    path.write_text(f"{first_lines}\nprint('x')\n")
    path.chmod(0o755)
    return str(path)


def test_httplib2_without_its_neighbour_is_found(tmp_path: Path) -> None:
    bare = _environment(tmp_path / "bare", "httplib2")
    whole = _environment(tmp_path / "whole", "httplib2", "socks.py")
    none = _environment(tmp_path / "none")
    site = tmp_path / "bare" / "lib" / "python3.11" / "site-packages"
    assert past_the_proxy(str(bare), {}) == site
    assert past_the_proxy("python", {"PATH": f"{bare.parent}{os.pathsep}{whole.parent}"}) == site
    assert past_the_proxy("python", {"PATH": f"{whole.parent}{os.pathsep}{bare.parent}"}) is None
    assert past_the_proxy(str(none), {}) is None
    assert past_the_proxy(str(none), {"PYTHONPATH": str(site)}) == site
    for program in ("sh", "podyard-no-such-command", str(tmp_path)):
        assert past_the_proxy(program, {"PATH": os.environ["PATH"]}) is None


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        ("#!{python}", True),
        ("#!{python} -I", True),
        ("#!/usr/bin/env python", True),
        ("#!/usr/bin/env -S python -u", True),
        ("#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''", True),
        ("#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''", True),
        ("#!/bin/sh\nexec {python}", False),
        ("#!", False),
        ("", False),
    ],
)
def test_a_script_is_its_python_s(tmp_path: Path, lines: str, seen: bool) -> None:
    python = _environment(tmp_path / "bare", "httplib2")
    script = _script(tmp_path / "script", lines.format(python=python))
    assert (past_the_proxy(script, {"PATH": str(python.parent)}) is not None) == seen


def test_an_environment_may_see_what_its_base_has(tmp_path: Path) -> None:
    for number, options in enumerate(("", "include-system-site-packages = true\n")):
        folder = tmp_path / str(number)
        python = _environment(folder, "httplib2", options=options)
        base = folder / "base" / "lib" / "python3.11" / "site-packages"
        base.mkdir(parents=True)
        (base / "socks.py").touch()
        assert (past_the_proxy(str(python), {}) is None) == bool(options)


def test_the_server_keeps_a_connection_while_a_client_waits_for_its_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[uvicorn.Config] = []

    def run(self: uvicorn.Server, **options: Any) -> None:
        seen.append(self.config)

    monkeypatch.setattr(uvicorn.Server, "run", run)
    serve(object(), "127.0.0.1", 0, lambda: None, None)
    assert [config.timeout_keep_alive for config in seen] == [300]
