"""Brace ranges, as bash has them."""

from __future__ import annotations

import pytest

from podyard.base.text.braces import expand_braces


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("lab", ["lab"]),
        ("s-{01..03}", ["s-01", "s-02", "s-03"]),
        ("s-{9..11}", ["s-9", "s-10", "s-11"]),
        ("s-{3..1}", ["s-3", "s-2", "s-1"]),
        ("{red,blue}-{1..2}", ["red-1", "red-2", "blue-1", "blue-2"]),
    ],
)
def test_braces_are_expanded(text: str, names: list[str]) -> None:
    assert expand_braces(text, 100) == names


@pytest.mark.parametrize(
    "text", ["s-{1..1000}", "s-{1..99999999999}", "s-{x}", "s-{1", "s-1}", "{1..20}{1..20}"]
)
def test_what_is_not_a_range_or_too_much_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        expand_braces(text, 100)
