"""The committed list of files of tests that are known to fail at times: they are not given a second
run."""

from __future__ import annotations

from pathlib import Path

LIST = Path(__file__).with_name("flaky.txt")


def known() -> dict[str, str]:
    return parse(LIST.read_text(encoding="utf-8"))


def parse(text: str) -> dict[str, str]:
    """Return file -> cause of the lines `FILE: CAUSE`; lines that begin with # are left out.

    A line without a cause is a ValueError."""
    causes = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            file, _, cause = line.partition(":")
            if not cause.strip():
                raise ValueError(f"{line!r} in tests/flaky.txt names no cause: write `FILE: CAUSE`")
            causes[file.strip()] = cause.strip()
    return causes
