"""Each term of docs/glossary.md is used; no word that a term replaces is found in sources,
templates and documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_language import texts

ROOT = Path(__file__).parents[2]
GLOSSARY = "docs/glossary.md"
_ROW = re.compile(
    r"^\| \*\*(?P<term>[^*]+)\*\* \| (?P<what>[^|]+) \| ?(?P<out>[^|]*)\|$", re.MULTILINE
)
# Words that replace nothing everywhere, but name something else in these files.
SCOPED = {
    r"gangs?": (
        r"scheduler/(?:cycle|holds|placement|predict|preemption|queue|room|scoring|switched)\.py"
        r"|podyard/control/compute/queue_view\.py"
    ),
}
# (file, word) -> why it stays.
KEPT = {
    ("*", "price list"): "the command `podyard price list`",
    ("podyard/engine/exact/client.py", "worker process"): "a process of the compiler",
}


def terms(text: str) -> dict[str, list[str]]:
    """Term -> the words that it replaces."""
    return {
        row["term"]: [word for word in row["out"].strip().split(", ") if word]
        for row in _ROW.finditer(text)
    }


def spoken(text: str) -> str:
    """The text in words: identifiers and constants in pieces, one blank between two words, without
    code of commands."""
    text = re.sub(r"podyard price list", "", text)
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text)
    return re.sub(r"\s+", " ", text).lower()


def misuses(name: str, text: str, ruled_out: list[str]) -> list[str]:
    """The words of `ruled_out` that a file has, and words of SCOPED that mean something else
    there."""
    words = [re.escape(word.lower()) for word in ruled_out]
    words += [word for word, where in SCOPED.items() if re.fullmatch(where, name)]
    return [match[0] for match in re.finditer(rf"\b(?:{'|'.join(words)})\b", spoken(text))]


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return {name: text for name, text in texts() if name != GLOSSARY}


TERMS = terms((ROOT / GLOSSARY).read_text(encoding="utf-8"))
RULED_OUT = [word for words in TERMS.values() for word in words]


def test_the_glossary_is_read_whole_and_in_order() -> None:
    text = (ROOT / GLOSSARY).read_text(encoding="utf-8")
    assert len(TERMS) == len(re.findall(r"^\| \*\*", text, re.MULTILINE)) > 50
    assert not set(TERMS) & set(RULED_OUT)


def test_every_term_is_used(files: dict[str, str]) -> None:
    everything = " ".join(spoken(text) for text in files.values())
    unused = [
        term
        for term in TERMS
        if not re.search(rf"\b{re.escape(term.lower())}(?:s|es)?\b", everything)
    ]
    assert unused == []


def test_no_word_that_a_term_replaces_is_used(files: dict[str, str]) -> None:
    found = {name: bad for name, text in files.items() if (bad := misuses(name, text, RULED_OUT))}
    assert found == {}


@pytest.mark.parametrize(
    ("name", "planted", "word"),
    [
        ("podyard/db/store/ledger.py", "class LedgerPosting:", "posting"),
        ("podyard/db/store/ledger.py", "posting_count = 3", "posting"),
        ("api/jobs.py", '"""Evicts a node: an\n    eviction."""', "eviction"),
        ("web/templates/node.html", "<p>Open the web\nUI.</p>", "web ui"),
        ("docs/index.md", "The virtual time of nodes.", "virtual time"),
        ("scheduler/cycle.py", "for gang in queue:", "gang"),
        ("podyard/control/compute/queue_view.py", "# the gangs of a project", "gangs"),
    ],
)
def test_a_planted_word_is_found(name: str, planted: str, word: str) -> None:
    assert misuses(name, planted, RULED_OUT) == [word]


def test_terms_and_commands_are_no_misuse() -> None:
    assert misuses("scheduler/jobs.py", "for gang in gangs: podyard price list", RULED_OUT) == []
