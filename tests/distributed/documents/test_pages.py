"""Every command of the how-to pages, typed in order on a fresh yard."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import require
from tests.distributed.documents import pages
from tests.distributed.documents.blocks import pages as page_names
from tests.distributed.documents.pages import Page
from tests.distributed.documents.reader import PageReader, all_pages

# Read one after the other, from a clone: tests/clients/test_readme.py.
FIRST = ("README.md", "docs/quickstart.md")
TABLE = pages.read()
PAGES = all_pages(TABLE, [name for name in page_names() if name not in FIRST])
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_a_page_works_as_typed(page: Page, tmp_path: Path) -> None:
    reader = PageReader(tmp_path)
    try:
        reader.read(page)
    finally:
        reader.close()
    assert not reader.failures, "\n".join(map(str, reader.failures))
    require(None if reader.skipped else "all", "; ".join(reader.skipped))
