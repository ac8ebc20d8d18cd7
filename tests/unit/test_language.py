"""The English of what people read: help texts, errors, pages, documents, docstrings and
comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from podyard.cli.kit.commands import root

ROOT = Path(__file__).parents[2]
SENTENCE_WORDS_MAX = 35
FOLDERS = (
    "podyard",
    "api",
    "scheduler",
    "workers",
    "pricing",
    "web",
    "migrations",
    "benchmarks",
    "docs",
    "examples",
)
SUFFIXES = (".py", ".md", ".html", ".js", ".css", ".yaml")
# Words and phrases that a reader stumbles over, and what to write instead.
TICS = {
    r"\bshall\b": "must, has to, or the plain verb",
    r"\banew\b": "again",
    r"\bbeside\b": "next to, or compared with",
    r"\bwhoever\b": "the noun: the caller, the owner, ...",
    r"\bsomebody\b": "the noun: a user, another process, ...",
    r"\b(?:is|are) none of\b": 'unknown x "...": use a, b or c',
    (
        r"\bof its own(?= (?:that|so|with|in|and|for|from|which|until|does)\b|[^\w ]|$)"
    ): "a separate one",
    r"(?<!there )\bis no (?!longer|more\b|such\b)\w+": "is not a",
    r"\bthe dear part\b": "the costly part",
    r"\bsays? no more\b": "the plain fact",
}
_TIC = re.compile("|".join(TICS), re.IGNORECASE | re.MULTILINE)
# (file, words): why they stay.
KEPT = {
    (
        "docs/concepts/all-reduce-4.html",
        "",
    ): "a film, made by a command whose words are checked where they are written",
    ("docs/concepts/all-reduce-v3-32.html", ""): "the same",
    ("docs/concepts/mxu-4x4x4.html", ""): "the same",
}


def tics(text: str) -> list[str]:
    """The phrases of `TICS` in a text."""
    return [match[0] for match in _TIC.finditer(text)]


def long_sentences(markdown: str) -> list[str]:
    """Sentences of more than `SENTENCE_WORDS_MAX` words. Code, headings and the address of a link
    count for nothing."""
    return [text for text in _sentences(markdown) if len(text.split()) > SENTENCE_WORDS_MAX]


def _sentences(markdown: str) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", text):
        if block.startswith(("    ", "#")):
            continue
        cells = re.split(r"\||\n", block) if block.lstrip().startswith("|") else [block]
        for cell in cells:
            plain = re.sub(
                r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", " ".join(cell.split()))
            )
            yield from re.split(r"(?<=[.?!:;])\s+", plain)


def texts() -> Iterator[tuple[str, str]]:
    """(path, text) of every file that is shipped or read."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in [*paths, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        # the root's folders are seen once
        linked = any(parent.is_symlink() for parent in path.parents)
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and path.suffix in SUFFIXES and not linked and (name, "") not in KEPT:
            yield name, path.read_text(encoding="utf-8")


def _commands(
    command: click.Command, names: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(names), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from _commands(inner, (*names, name))


COMMANDS = dict(_commands(root))


def test_no_text_has_a_tic() -> None:
    found = {name: bad for name, text in texts() if (bad := tics(text))}
    assert found == {}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_texts_are_whole(name: str) -> None:
    command = COMMANDS[name]
    assert command.help, "a command has a help text"
    assert command.help.split("\n\n")[0].rstrip().endswith("."), command.help
    for option in (item for item in command.params if isinstance(item, click.Option)):
        assert option.help, f"{option.opts[0]} has no help text"
        assert option.help.endswith("."), option.help


def test_sentences_of_documents_are_short() -> None:
    found = {
        name: bad
        for name, text in texts()
        if name.endswith(".md") and (bad := long_sentences(text))
    }
    assert found == {}


def test_the_checks_find_bad_samples() -> None:
    assert tics("It shall not start anew.") == ["shall", "anew"]
    assert tics("It has a clock of its own.") == ["of its own"]
    assert tics("An array of its own kind is no longer needed; there is no such thing.") == []
    assert tics("'x' is none of a, b; it is no format") == ["is none of", "is no format"]
    assert long_sentences("word " * 36 + "end. Short one.") == ["word " * 36 + "end."]
    assert long_sentences("# " + "word " * 40) == long_sentences("`" + "word " * 40 + "`") == []
