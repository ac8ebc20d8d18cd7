"""Globs of object names, held against names that a reader of Cloud Storage's page would expect."""

from __future__ import annotations

import pytest

from podyard.base.errors import PodyardError
from podyard.domain.name_glob import CHOICES_MAX, GLOB_CHARACTERS_MAX, name_matcher

NAMES = ("a", "b", "ab", "a/b", "a/b/c", "a/x.py", "a/x.txt", "a-b", "a*b", "/", "")


@pytest.mark.parametrize(
    ("glob", "matched"),
    [
        ("*", ("a", "b", "ab", "a-b", "a*b", "")),
        ("**", NAMES),
        ("a/*", ("a/b", "a/x.py", "a/x.txt")),
        ("a/**", ("a/b", "a/b/c", "a/x.py", "a/x.txt")),
        ("**/c", ("a/b/c",)),
        ("a**c", ("a/b/c",)),
        ("a***c", ("a/b/c",)),
        ("*b*", ("b", "ab", "a-b", "a*b")),
        ("?", ("a", "b")),
        ("a?b", ("a-b", "a*b")),
        ("[ab]", ("a", "b")),
        ("[a-z]", ("a", "b")),
        ("[!a]", ("b", "/")),
        ("a[-*]b", ("a-b", "a*b")),
        ("a[+--]b", ("a-b",)),
        ("{a,b}", ("a", "b")),
        ("a/x.{py,txt}", ("a/x.py", "a/x.txt")),
        ("a{,{-,/}b}", ("a", "a/b", "a-b")),
        ("a}", ()),
        ("[a", ()),
        ("a,b", ()),
    ],
)
def test_what_a_glob_stands_for(glob: str, matched: tuple[str, ...]) -> None:
    is_wanted = name_matcher(glob)
    assert tuple(name for name in NAMES if is_wanted(name)) == matched


def test_no_glob_takes_longer_than_another() -> None:
    """By steps, not by the clock: a matcher that tries again from each star would not end."""
    name = "a" * 1024
    assert not name_matcher("*a" * 500 + "b")(name)
    assert not name_matcher("**a" * 300 + "b")(name)
    assert name_matcher("*a" * 500)(name)


@pytest.mark.parametrize(
    ("glob", "text"),
    [
        ("{a", "a brace that is not closed"),
        ("a{b,{c}", "a brace that is not closed"),
        ("{a,b}" * 7, f"stands for more than {CHOICES_MAX} globs"),
        ("a" * (GLOB_CHARACTERS_MAX + 1), f"at most {GLOB_CHARACTERS_MAX} are allowed"),
    ],
)
def test_what_is_no_glob(glob: str, text: str) -> None:
    with pytest.raises(PodyardError, match=text):
        name_matcher(glob)
