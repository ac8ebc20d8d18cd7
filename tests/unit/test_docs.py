"""Every document is reachable from docs/index.md, and every link of a document leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "index.md"
STATUS_LINES_MAX = 50
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)|src=\"([^\"]+)\"")


def links(page: Path) -> Iterator[Path]:
    """The files and folders of the tree that a page links to. A link to a folder stands for the
    files in it."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for match in _LINK.finditer(text):
        target = match[1] or match[2]
        if "://" not in target and not target.startswith("mailto:"):
            yield (page.parent / target).resolve()


def reachable(index: Path) -> set[Path]:
    """All files that one comes to by links, beginning with `index`."""
    seen: set[Path] = set()
    waiting = [index.resolve()]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        if page.is_dir():
            waiting += page.glob("*.md")
        elif page.suffix == ".md" and page.exists():
            waiting += links(page)
    return seen


def test_every_document_is_reachable_from_the_index() -> None:
    pages = {
        path.resolve()
        for path in (ROOT / "docs").rglob("*")
        if path.suffix in {".md", ".html", ".svg"}
    }
    assert sorted(path.relative_to(ROOT).as_posix() for path in pages - reachable(INDEX)) == []


def test_every_link_leads_somewhere() -> None:
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / "podyard").rglob("README.md"),
    ]
    broken = {
        page.relative_to(ROOT).as_posix(): lost
        for page in pages
        if (lost := [target.as_posix() for target in links(page) if not target.exists()])
    }
    assert broken == {}


def test_what_a_newcomer_looks_for_is_where_the_architecture_says() -> None:
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    rows = page.split("## Where it is\n")[1].split("\n\n")[0].splitlines()[2:]
    assert len(rows) == 10
    for row in rows:
        paths = re.findall(r"`([^`]+)`", row)
        assert paths and all((ROOT / path).exists() for path in paths), row


def test_no_page_waits_for_a_figure() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    left = {
        page.name: found
        for page in pages
        if (found := re.findall(r"@[A-Z]{2,}@", page.read_text("utf-8")))
    }
    assert left == {}


def test_the_status_is_one_screen() -> None:
    lines = (ROOT / "docs" / "internals" / "status.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= STATUS_LINES_MAX


def test_a_page_without_a_link_and_a_broken_link_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text(
        "[a](a.md) and `[b](b.md)`, [web](https://example.com/x.md)\n"
    )
    (tmp_path / "a.md").write_text("[gone](gone.md#part)\n")
    (tmp_path / "b.md").write_text("")
    found = {path.name for path in reachable(tmp_path / "index.md")}
    assert found == {"index.md", "a.md", "gone.md"}
    assert [target.name for target in links(tmp_path / "a.md") if not target.exists()] == [
        "gone.md"
    ]
