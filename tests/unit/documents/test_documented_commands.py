"""Every fenced block of README, docs and howto is typed by a test, compared by one, or named with
the reason why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.documents import pages
from tests.distributed.documents.blocks import Block, blocks, blocks_of, commands
from tests.distributed.documents.blocks import pages as page_names
from tests.distributed.documents.pages import Page
from tests.distributed.documents.reader import all_pages, is_command

# Commands that no test types: this number only falls.
NOT_RUN_MAX = 27
TABLE = pages.read()
PAGES = [pages.page_of(TABLE, name) for name in page_names()]


def _typed(page: Page) -> Iterator[str]:
    for block in blocks_of(page.name):
        if is_command(page, block):
            yield from (command.text for command in commands(block))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_block_is_typed_or_compared_or_named(page: Page) -> None:
    names = tuple(item.starts for item in (*page.texts, *page.programs))
    lost = [
        f"{page.name}:{block.line}: {block.text.splitlines()[0]}"
        for block in blocks_of(page.name)
        if not (block.is_output or is_command(page, block) or block.text.startswith(names))
    ]
    assert lost == []


@pytest.mark.parametrize("page", TABLE.values(), ids=lambda page: page.name)
def test_each_entry_is_still_needed(page: Page) -> None:
    texts = [block.text for block in blocks_of(page.name)]
    typed = list(_typed(page))
    blocks_named = [item.starts for item in (*page.texts, *page.programs)]
    commands_named = [item.starts for item in (*page.exceptions, *page.services, *page.refusals)]
    stale = [start for start in blocks_named if not any(text.startswith(start) for text in texts)]
    stale += [
        start for start in commands_named if not any(text.startswith(start) for text in typed)
    ]
    stale += [
        item.word
        for item in page.values
        if not any(item.word in text for text in (*typed, *(one.shell for one in page.programs)))
    ]
    assert stale == []


def test_what_is_not_typed_has_a_reason_and_stays_little() -> None:
    entries = [item for page in PAGES for item in (*page.texts, *page.exceptions)]
    assert all(item.reason for item in entries)
    count = sum(
        any(text.startswith(item.starts) for item in page.exceptions)
        for page in PAGES
        for text in _typed(page)
    )
    assert count == NOT_RUN_MAX, f"{count} commands are not typed: NOT_RUN_MAX only falls"


def test_each_entry_names_a_page() -> None:
    assert TABLE.keys() - set(page_names()) == set()
    assert "docs/howto/jobs.md" in [page.name for page in all_pages(TABLE, page_names())]


def test_commands_go_on_after_a_backslash_and_within_quotes() -> None:
    text = "a \\\n  --b 1   # why\n# a remark\nc 'one\ntwo'\nd\n"
    found = commands(Block(10, "sh", text, is_output=False))
    assert [(item.line, item.text) for item in found] == [
        (10, "a \\\n  --b 1   # why"),
        (13, "c 'one\ntwo'"),
        (15, "d"),
    ]


def test_a_transcript_is_typed_at_its_prompts() -> None:
    found = commands(Block(3, "", "$ first --now\nprinted\n$ second\n", is_output=False))
    assert [(item.line, item.text) for item in found] == [(3, "first --now"), (5, "second")]


def test_a_quote_that_is_not_closed_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 7: a quote is not closed"):
        commands(Block(7, "", "echo 'a\n", is_output=False))


def test_blocks_in_a_list_lose_their_indentation_and_outputs_are_known() -> None:
    text = "1. Do\n\n   ```\n   a\n   b\n   ```\n\n<!-- output: x -->\n```\nprinted\n```\n"
    assert blocks(text) == [
        Block(4, "", "a\nb\n", is_output=False),
        Block(10, "", "printed\n", is_output=True),
    ]
