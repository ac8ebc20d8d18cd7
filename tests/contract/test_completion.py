"""Completion in real shells: commands, and the names of nodes of a Podyard that answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import require
from tests.yard import Yard

BASH = """
eval "$(podyard completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_podyard_completion podyard
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# Without a terminal there is no line to complete, so the two functions that show matches print
# them.
ZSH = """
compdef() {{ :; }}
_describe() {{ local -a shown; shown=("${{(@P)3}}"); print -l -- "${{shown[@]}}"; }}
compadd() {{ local -a shown; shown=("${{(@P)@[-1]}}"); print -l -- "${{shown[@]}}"; }}
eval "$(podyard completion zsh)"
words=({words}); CURRENT=${{#words}}
_podyard_completion
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH}


@pytest.fixture(params=list(SCRIPTS))
def shell(request: pytest.FixtureRequest) -> str:
    return str(require(shutil.which(request.param), str(request.param)))


def complete(shell: str, yard: Yard, words: str) -> list[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PODYARD_URL": yard.url,
        "PODYARD_TOKEN": yard.token,
    }
    script = SCRIPTS[Path(shell).name].format(words=words)
    done = subprocess.run(
        [shell, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [line.partition(":")[0] for line in done.stdout.splitlines()]


def test_a_shell_completes_commands_and_names_of_nodes(shell: str, yard: Yard) -> None:
    for name in ("pod-a", "pod-b", "other"):
        yard.create(name)
    assert complete(shell, yard, "podyard no") == ["nodes"]
    assert complete(shell, yard, "podyard tpu describe pod-") == ["pod-a", "pod-b"]


def test_a_shell_completes_zones_types_recipes_and_keys(shell: str, yard: Yard) -> None:
    yard.create("pod-a")
    assert complete(shell, yard, "podyard nodes --zone us-central1-f") == ["us-central1-f"]
    types = complete(shell, yard, "podyard tpu create n --accelerator-type v2-")
    assert "v2-8" in types and all(name.startswith("v2-") for name in types)
    job = "podyard job submit"
    assert complete(shell, yard, f"{job} --recipe digits") == ["digits-cnn"]
    assert complete(shell, yard, f"{job} --node pod") == ["pod-a"]
    assert complete(shell, yard, "podyard nodes --filter accel") == ["accelerator_type"]
    assert complete(shell, yard, "podyard jobs --sort-by sta") == ["state"]
