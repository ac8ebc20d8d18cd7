"""The help: groups, lines, and examples that can be typed."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from podyard.cli.kit.command_table import ALIASES, COMMAND_GROUPS, ENTRIES
from podyard.cli.kit.commands import root
from tests.unit.cli.command_walk import parse, walk

COMMANDS = dict(walk())


def _help(*argv: str) -> str:
    result = CliRunner().invoke(root, [*argv, "--help"], prog_name="podyard", terminal_width=100)
    assert result.exit_code == 0, result.output
    return result.output


def _examples(text: str) -> list[list[str]]:
    """Return what follows `podyard` in each example, up to a pipe, a redirection or a comment."""
    found = []
    for line in filter(None, map(str.strip, text.partition("Examples:")[2].splitlines())):
        inner = re.fullmatch(r'eval "\$\((.*)\)"(?: *#.*)?', line)
        words = shlex.shlex(inner[1] if inner else line, posix=True, punctuation_chars="|&>")
        words.whitespace_split = True
        given = list(itertools.takewhile(lambda word: not set(word) <= set("|&>"), words))
        assert given[0] == "podyard", line
        found.append(given[1:])
    return found


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_examples_that_it_takes(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "old.csv",
        "new.csv",
        "cases.jsonl",
        "task.yaml",
        "podyard.tar",
        "train.py",
        "examples.npy",
    ):
        (tmp_path / name).write_text("")
    (tmp_path / "out" / "export").mkdir(parents=True)
    examples = _examples(_help(*path.split()))
    assert examples, "its help ends with an example"
    for argv in examples:
        assert parse(argv).startswith(path), argv


def test_the_help_has_every_command_once_and_in_a_group() -> None:
    text = _help()
    for title, entries in COMMAND_GROUPS.items():
        assert f"{title}:\n" in text
        for name, entry in entries.items():
            assert len(re.findall(rf"^  {name}  ", text, re.MULTILINE)) == 1, name
            assert entry.line.endswith(".")
    assert not any(re.search(rf"^  {name}  ", text, re.MULTILINE) for name in ALIASES)


@pytest.mark.parametrize("name", ENTRIES)
def test_the_line_of_a_command_says_what_its_help_says(name: str) -> None:
    """They are written twice, so that the help imports no command: the first verb has to be the
    same."""
    text = COMMANDS[name].help
    assert text is not None
    verb = ENTRIES[name].line.split()[0].rstrip(":,.")
    assert text.split()[0].rstrip(":,.") == verb


def test_help_and_completion_import_no_command() -> None:
    code = (
        "import sys\n"
        "from podyard.cli.kit.commands import root\n"
        "try:\n    root.main(['--help'], prog_name='podyard')\n"
        "except SystemExit: pass\n"
        "heavy = {'httpx', 'numpy', 'asyncssh'}\n"
        "heavy |= {'podyard.cli.jobs.jobs', 'podyard.cli.nodes.tpu'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
