"""The page that says how to connect: the same variables as `podyard env`, and never the session's
token."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from podyard.http import client_variables
from podyard.web.front import pages
from tests.yard import ZONE, Yard, open_yard


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, routers=(pages.router,)) as found:
        yield found


def _commands(yard: Yard, query: str = "") -> dict[str, str]:
    answer = yard.call("GET", f"/console/demo/connect{query}")
    assert answer.status_code == 200 and yard.token not in answer.text
    found = re.findall(
        r"<summary>([^<]+)</summary>\s*<div[^>]*><pre[^>]*><code>([^<]*)</code>", answer.text
    )
    return {unescape(label): unescape(text) for label, text in found}


def test_exports_are_those_of_the_command_line(yard: Yard, tmp_path: Path) -> None:
    shown = _commands(yard)["gcloud, without podyard installed"]
    script = shown.replace(
        "read -rs PODYARD_TOKEN && export PODYARD_TOKEN", "export PODYARD_TOKEN=secret"
    )
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", f"{script}\nenv"], env=environ, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    url = re.findall(r'PODYARD_URL="([^"]+)"', _commands(yard)["Podyard and curl"])[0]
    token_file = tmp_path / ".podyard-token"
    assert token_file.read_text() == "secret" and token_file.stat().st_mode & 0o077 == 0
    for name, value in client_variables.gcloud_variables(
        url, str(token_file), "demo", "us-central1-f"
    ).items():
        assert f"{name}={value}" in lines


def test_a_node_is_reached_by_ssh_and_from_vs_code(yard: Yard) -> None:
    yard.create("n", "v2-8", ZONE)
    found = _commands(yard, f"?node={ZONE}/n")
    assert "podyard tpu ssh n" in found["ssh"] and f"--zone={ZONE}" in found["ssh"]
    assert "code --remote ssh-remote+n-w-0" in found["VS Code"]
    assert "podyard tpu ssh-config n" in found["Your own ssh"]
    assert (
        f"/console/demo/connect?node={ZONE}/n"
        in yard.call("GET", f"/console/demo/nodes/{ZONE}/n").text
    )
    assert yard.call("GET", f"/console/demo/connect?node={ZONE}/none").status_code == 404
