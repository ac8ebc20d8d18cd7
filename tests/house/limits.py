"""The recorded limits of the house's figures: a limit only falls.

`limits.toml` has a number for each figure, and for each exception of the figures that are lists (a
long function, a full folder) its own size. A figure above its limit is a breach; so is one below
it, until the lower limit is recorded (`make house-figures RECORD=1`): what has been won is kept.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

FILE = Path(__file__).with_name("limits.toml")
_HEAD = """# Limits of the figures of `make house-figures`, which only fall: tests/house/limits.py.
# Recorded by `make house-figures RECORD=1`.
"""


class Counted(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    @property
    def items(self) -> Mapping[str, int]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """`figures`: the limit of each. `exceptions`: of figures that are lists, each entry's size."""

    figures: Mapping[str, int]
    exceptions: Mapping[str, Mapping[str, int]]


def parse(text: str) -> Limits:
    data = tomllib.loads(text)
    return Limits(data.get("figures", {}), data.get("exceptions", {}))


def spell(limits: Limits) -> str:
    lines = [_HEAD + "\n[figures]"]
    lines += [f"{json.dumps(name)} = {limit}" for name, limit in limits.figures.items()]
    for name, items in limits.exceptions.items():
        lines.append(f"\n[exceptions.{json.dumps(name)}]")
        lines += [f"{json.dumps(key)} = {size}" for key, size in sorted(items.items())]
    return "\n".join(lines) + "\n"


def read() -> Limits:
    return parse(FILE.read_text(encoding="utf-8")) if FILE.exists() else Limits({}, {})


def write(limits: Limits) -> None:
    FILE.write_text(spell(limits), encoding="utf-8")


def breaches(limits: Limits, counted: Sequence[Counted]) -> list[str]:
    """Return a sentence for each figure that its limit does not allow, and for each stale limit."""
    return [*_breaches(limits, counted), *_without_figure(limits, counted)]


def _breaches(limits: Limits, counted: Sequence[Counted]) -> Iterator[str]:
    for figure in counted:
        limit = limits.figures.get(figure.name)
        if limit is None:
            yield f"{figure.name}: no limit is recorded"
        elif figure.value > limit:
            yield f"{figure.name}: {figure.value}, at most {limit} are allowed"
        elif figure.value < limit:
            yield f"{figure.name}: {figure.value} is below the limit of {limit}: record it"
        recorded = limits.exceptions.get(figure.name, {})
        for key, size in figure.items.items():
            if key not in recorded:
                yield f"{figure.name}: {key} ({size}) is new"
            elif size > recorded[key]:
                yield f"{figure.name}: {key} has {size}, at most {recorded[key]} are allowed"
            elif size < recorded[key]:
                yield f"{figure.name}: {key} has {size}, below its limit {recorded[key]}: record it"
        for key in recorded.keys() - figure.items.keys():
            yield f"{figure.name}: {key} is an exception no longer: record it"


def _without_figure(limits: Limits, counted: Sequence[Counted]) -> Iterator[str]:
    for name in limits.figures.keys() - {figure.name for figure in counted}:
        yield f"{name}: the limit has no figure"


def lowered(limits: Limits, counted: Sequence[Counted]) -> Limits:
    """Return the limits that these figures leave: the lower of both. A figure without a limit gets
    its first one; an exception is never added to a list that exists."""
    figures = {
        figure.name: min(figure.value, limits.figures.get(figure.name, figure.value))
        for figure in counted
    }
    exceptions: dict[str, dict[str, int]] = {}
    for figure in counted:
        recorded = limits.exceptions.get(figure.name)
        is_first = figure.name not in limits.figures
        items = {
            key: size if recorded is None else min(size, recorded.get(key, size))
            for key, size in figure.items.items()
            if is_first or (recorded is not None and key in recorded)
        }
        if items:
            exceptions[figure.name] = items
    return Limits(figures, exceptions)


def raised(before: Limits, after: Limits) -> list[str]:
    """Return what a change of the limits has raised: nothing, where the ratchet holds."""
    rises = [
        f"{name}: {before.figures[name]} -> {limit}"
        for name, limit in after.figures.items()
        if limit > before.figures.get(name, limit)
    ]
    for name, items in after.exceptions.items():
        if name in before.figures:
            recorded = before.exceptions.get(name, {})
            rises += [
                f"{name}, {key}: {recorded.get(key, 'no exception')} -> {size}"
                for key, size in items.items()
                if size > recorded.get(key, 0)
            ]
    return rises


def rises_in_history(root: Path) -> list[str]:
    """Return what has been raised from any version of the limits that git knows to the next one,
    and to that of today. A file that has moved keeps its exceptions."""
    name = FILE.relative_to(root).as_posix()
    commits = _git(root, "log", "--first-parent", "--reverse", "--format=%H", "--", name).split()
    versions = [parse(_git(root, "show", f"{commit}:{name}")) for commit in commits]
    rises: list[str] = []
    for place, (before, after) in enumerate(itertools.pairwise([*versions, read()])):
        if raised(before, after):
            moves = _moves(root, commits[place : place + 2])
            rises += raised(_with_moves(before, moves), after)
    return rises


def _moves(root: Path, commits: Sequence[str]) -> Mapping[str, str]:
    """Return the new name of each file that has moved between two commits, or since one."""
    lines = _git(root, "diff", "--name-status", "--diff-filter=R", "-M", *commits).splitlines()
    return {old: new for _, old, new in (line.split("\t") for line in lines)}


def _with_moves(limits: Limits, moves: Mapping[str, str]) -> Limits:
    """Exceptions are named by a file, or by a file and what lies in it (`a.py: function`)."""
    exceptions = {}
    for figure, items in limits.exceptions.items():
        parts = {key: key.partition(":") for key in items}
        exceptions[figure] = {
            "".join((moves.get(file, file), *rest)): items[key]
            for key, (file, *rest) in parts.items()
        }
    return dataclasses.replace(limits, exceptions=exceptions)


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout
