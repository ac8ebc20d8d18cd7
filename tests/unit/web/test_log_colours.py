"""Colours of a program's log on its page."""

from __future__ import annotations

import pytest

from podyard.web.kit.formats import with_colours


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m plain", '<span class="ansi-red">red</span> plain'),
        ("\x1b[1;92mgreen", '<span class="ansi-green ansi-bold">green</span>'),
        ("\x1b[1mbold\x1b[22m not", '<span class="ansi-bold">bold</span> not'),
        ("\x1b[2K\x1b]0;title\x07left out", "left out"),
        ("<b>\x1b[34m<script>&", '&lt;b&gt;<span class="ansi-blue">&lt;script&gt;&amp;</span>'),
        ("\x1b[38;5;31mx\x1b[m", "x"),
    ],
)
def test_a_line_has_its_colours_and_nothing_else(line: str, shown: str) -> None:
    assert with_colours(line) == shown
