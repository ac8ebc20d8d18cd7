"""The order in which files of the real tier run, so that a limit of time leaves out those that
matter least now."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from tests.real.files import RealFile
from tests.real.record import Entry

# A change touches a file that is at most so many imports away: itself, a helper or module that it
# imports, or what these import. Further away nearly every module reaches all files of whole stacks
# (through tests/stack.py): of 40 commits 12 reached 56 of 67 files by five imports, and no such
# order would say anything.
IMPORTS_MAX = 2


def order(
    files: Iterable[RealFile], record: Mapping[str, Entry], imports: Mapping[str, int], commit: str
) -> list[RealFile]:
    """Return the files, the most wanted first: those that the change touches, the nearest first;
    then by the time since each last ran whole, those that never did by the hash of the commit.
    Clients come after all others.

    `imports`: how many imports each file is away from what has changed since it last ran; without
    an entry: it does not reach it."""

    def rank(file: RealFile) -> tuple[bool, int, int, str]:
        entry = record.get(file.name)
        near = min(imports.get(file.name, IMPORTS_MAX + 1), IMPORTS_MAX + 1)
        drawn = hashlib.sha256(f"{commit} {file.name}".encode()).hexdigest()
        return file.is_client, near, 0 if entry is None else entry.at.nanos, drawn

    return sorted(files, key=rank)
