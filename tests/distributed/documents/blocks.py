"""The fenced code blocks of a page, and the commands that a reader types from them."""

from __future__ import annotations

import dataclasses
import re
import shlex
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = (".", "docs", "docs/concepts", "docs/howto")
SHELL = ("", "sh", "bash")
_BLOCK = re.compile(
    r"(?P<output><!-- output: [^\n]+ -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_PROMPT = "$ "


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """`line`: of its first line in the page, from 1. `is_output`: the recorded output of a command,
    which another test compares (`tests/doc_outputs.py`)."""

    line: int
    language: str
    text: str
    is_output: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """One command as typed, over as many lines as it has."""

    line: int
    text: str


def pages() -> list[str]:
    """Return the pages that may have commands, as paths from the root of the repository."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).glob("*.md")
        if path.name != "CHANGELOG.md"
    )


def blocks(text: str) -> list[Block]:
    """Return the fenced code blocks of a page, without their indentation."""
    return [
        Block(
            text.count("\n", 0, match.start("text")) + 1,
            match["language"],
            textwrap.dedent(match["text"]),
            match["output"] is not None,
        )
        for match in _BLOCK.finditer(text)
    ]


def blocks_of(page: str) -> list[Block]:
    return blocks((ROOT / page).read_text(encoding="utf-8"))


def commands(block: Block) -> list[Command]:
    """Return the commands of a block: in a transcript the lines after the prompt, else all lines.
    A command goes on where a line ends in a backslash or within quotes."""
    lines = block.text.splitlines()
    if block.text.startswith(_PROMPT):
        return [
            Command(block.line + number, line.removeprefix(_PROMPT))
            for number, line in enumerate(lines)
            if line.startswith(_PROMPT)
        ]
    answer: list[Command] = []
    pending: list[str] = []
    for number, line in enumerate(lines):
        pending.append(line)
        text = "\n".join(pending)
        if line.endswith("\\") or not _is_whole(text):
            continue
        if shlex.split(text, comments=True):
            answer.append(Command(block.line + number + 1 - len(pending), text))
        pending = []
    if pending:
        raise ValueError(f"line {block.line}: a quote is not closed: {pending[0]!r}")
    return answer


def _is_whole(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True
