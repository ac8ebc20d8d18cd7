"""Outputs of commands in the documents: each is below a line `<!-- output: NAME -->`.

A test runs the command and compares; figures and the width of columns may differ, the rest may not.
`may_differ` says which figures, where some are facts of the product. With PODYARD_TEST_RECORD=1
it writes the block instead.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS = os.environ.get("PODYARD_TEST_RECORD") == "1"
ANY_FIGURE = re.compile(r"\$?\d[\d,.]*( (ns|us|ms|s|B|KiB|MiB|GiB|h)\b)?")
NO_FIGURE = re.compile(r"(?!)")


def check(page: str, name: str, text: str, may_differ: re.Pattern[str] = ANY_FIGURE) -> None:
    """Raise AssertionError if the block of a page (from `docs`) is another text than the command
    prints now. `may_differ`: what is left out of the comparison."""
    path = ROOT / "docs" / page
    document = path.read_text(encoding="utf-8")
    found = re.search(
        rf"(<!-- output: {re.escape(name)} -->\n```\n)(.*?)(^```$)",
        document,
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None, f"{page} has no block {name}"
    if RECORDS:
        path.write_text(
            f"{document[: found.end(1)]}{text.rstrip()}\n{document[found.start(3) :]}", "utf-8"
        )
        return
    assert _masked(found[2], may_differ) == _masked(text, may_differ), (
        f"{page}: PODYARD_TEST_RECORD=1 records {name}"
    )


def _masked(text: str, may_differ: re.Pattern[str]) -> list[str]:
    return [" ".join(may_differ.sub("#", line).split()) for line in text.strip().splitlines()]
