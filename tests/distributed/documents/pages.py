"""`pages.toml`: what each page takes for granted, and which of its commands a test cannot type."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("pages.toml")


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """Stands for a word of the page that readers replace. `shell` prints it, in the reader's
    terminal, when a command has the word."""

    word: str
    shell: str


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """A command that does not end by itself. It is ready when it has printed `until`; `stays`: it
    runs until the page is done, and the reader opens another terminal."""

    starts: str
    until: str
    stays: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A block that is the text of a file. `name`: where the reader saves it. `shell` is typed then,
    if the page does not type it."""

    starts: str
    name: str
    shell: str


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """A command that the page shows to fail. `prints`: a part of its error."""

    starts: str
    prints: str


@dataclasses.dataclass(frozen=True, slots=True)
class Untyped:
    """A command or a block that is not run, and why. `starts`: the beginning of its text."""

    starts: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """`folder`: where terminals open. `before`: commands for what the page takes for granted, such
    as a running Podyard.
    `texts`: blocks without commands. `exceptions`: commands that a test cannot type."""

    name: str
    folder: str
    before: str
    values: tuple[Value, ...]
    services: tuple[Service, ...]
    programs: tuple[Program, ...]
    refusals: tuple[Refusal, ...]
    texts: tuple[Untyped, ...]
    exceptions: tuple[Untyped, ...]


def read(file: Path = FILE) -> Mapping[str, Page]:
    """Return the pages of the table by name."""
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    return {entry["name"]: _page(entry) for entry in document["page"]}


def page_of(table: Mapping[str, Page], name: str) -> Page:
    """Return a page; one without an entry takes nothing for granted."""
    return table.get(name) or _page({"name": name})


def _page(entry: Mapping[str, Any]) -> Page:
    return Page(
        entry["name"],
        entry.get("folder", "."),
        entry.get("before", ""),
        tuple(Value(**item) for item in entry.get("value", [])),
        tuple(Service(**item) for item in entry.get("service", [])),
        tuple(Program(**{"shell": "", **item}) for item in entry.get("program", [])),
        tuple(Refusal(**item) for item in entry.get("refusal", [])),
        tuple(Untyped(**item) for item in entry.get("text", [])),
        tuple(Untyped(**item) for item in entry.get("not_run", [])),
    )
