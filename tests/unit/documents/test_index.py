"""The index has three doors of few links, and the list of decisions says what became of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import doc_outputs

DOCS = Path(__file__).parents[3] / "docs"
DOORS = ("Use", "Operate", "Change")
LINKS_MAX = 12  # of a door: more are not read
_TITLE = re.compile(r"# 0*(\d+)[.:]? (.+?)(?: \(superseded by (\d{4})\))?")


def test_the_index_has_three_doors_of_at_most_twelve_links() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    doors = dict(re.findall(r"^## (.+?)\n(.+?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert tuple(doors) == DOORS
    assert {name for name, part in doors.items() if part.count("](") > LINKS_MAX} == set()


def test_the_list_of_decisions_has_each_with_its_status() -> None:
    rows = ["| decision | status |", "|---|---|"]
    for path in sorted(DOCS.glob("decisions/0*.md")):
        heading = path.read_text(encoding="utf-8").partition("\n")[0]
        match = _TITLE.fullmatch(heading)
        assert match is not None and path.name.startswith(f"{int(match[1]):04}-"), heading
        status = f"superseded by {match[3]}" if match[3] else "accepted"
        rows.append(f"| [{int(match[1]):04}]({path.name}) {match[2]} | {status} |")
    page = DOCS / "decisions" / "README.md"
    text = page.read_text(encoding="utf-8")
    before, table = text.split("\n\n| decision ", 1)
    if doc_outputs.RECORDS:
        page.write_text("\n".join((before, "", *rows, "")), encoding="utf-8")
        return
    assert f"| decision {table}".splitlines() == rows, "PODYARD_TEST_RECORD=1 records it"


@pytest.mark.parametrize("path", sorted(DOCS.glob("decisions/0*.md")), ids=lambda path: path.stem)
def test_a_decision_that_is_superseded_names_one_that_there_is(path: Path) -> None:
    match = _TITLE.fullmatch(path.read_text(encoding="utf-8").partition("\n")[0])
    assert match is not None
    assert match[3] is None or list(DOCS.glob(f"decisions/{match[3]}-*.md"))
