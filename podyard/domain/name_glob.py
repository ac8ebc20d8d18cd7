"""Globs of object names: `*`, `**`, `?`, `[a-z]`, `[!a]`, `{a,b}`.

cloud.google.com/storage/docs/json_api/v1/objects/list#list-objects-and-prefixes-using-glob. A name
is matched in one pass, by the set of all places in the glob that it may have reached: no glob takes
longer than another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from podyard.base.errors import PodyardError, invalid

GLOB_CHARACTERS_MAX = 1024  # as long as a name
CHOICES_MAX = 100  # globs that braces stand for
_STAR, _STARS = "*", "**"


class _Class(NamedTuple):
    """`[...]`: one character of these ranges, or none of them."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool

    def has(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) is not self.is_negated


class _Character(NamedTuple):
    """The character itself. Empty: any but a slash."""

    character: str

    def has(self, character: str) -> bool:
        return character == self.character if self.character else character != "/"


_Token = _Class | _Character | str


def name_matcher(glob: str) -> Callable[[str], bool]:
    """Return whether a name is one of those that `glob` stands for. Raises INVALID_ARGUMENT."""
    if len(glob) > GLOB_CHARACTERS_MAX:
        raise invalid(
            f"matchGlob has {len(glob)} characters: at most {GLOB_CHARACTERS_MAX} are allowed",
            "matchGlob",
        )
    choices = [_Choice(_tokens(one)) for one in _without_braces(glob)]
    return lambda name: any(choice.matches(name) for choice in choices)


class _Choice:
    """A glob without braces. A set of places is a number: bit n is set if the first n tokens may
    have been matched."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._stars = sum(
            1 << index for index, token in enumerate(tokens) if isinstance(token, str)
        )
        self._moves: dict[str, tuple[int, int]] = {}

    def matches(self, name: str) -> bool:
        places = self._behind_stars(1)
        for character in name:
            stays, goes_on = self._moves.get(character) or self._moves_at(character)
            places = self._behind_stars(places & stays | (places & goes_on) << 1)
        return bool(places >> len(self._tokens) & 1)

    def _behind_stars(self, places: int) -> int:
        """A star may stand for nothing. No two are neighbours."""
        return places | (places & self._stars) << 1

    def _moves_at(self, character: str) -> tuple[int, int]:
        """The places that a character leaves where they are, and those that it moves to the next
        token."""
        stays = goes_on = 0
        for index, token in enumerate(self._tokens):
            if isinstance(token, str):
                stays |= (token == _STARS or character != "/") << index
            else:
                goes_on |= token.has(character) << index
        self._moves[character] = stays, goes_on
        return stays, goes_on


def _tokens(glob: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(glob):
        character, end = glob[at], glob.find("]", at + 2)
        if character == "*":
            star = _STARS if glob.startswith(_STARS, at) else _STAR
            at += len(star)
            if found and isinstance(found[-1], str):
                found[-1] = max(found[-1], star)
            else:
                found.append(star)
            continue
        if character == "[" and end > 0:
            found.append(_class(glob[at + 1 : end]))
            at = end
        else:
            found.append(_Character("" if character == "?" else character))
        at += 1
    return found


def _class(text: str) -> _Class:
    is_negated = text[0] in "!^" and len(text) > 1
    text, ranges = text[is_negated:], list[tuple[str, str]]()
    while text:
        size = 3 if len(text) > 2 and text[1] == "-" else 1
        ranges.append((text[0], text[size - 1]))
        text = text[size:]
    return _Class(tuple(ranges), is_negated)


def _without_braces(glob: str) -> list[str]:
    """The globs that a glob with braces stands for."""
    left, found = [glob], list[str]()
    while left:
        if len(left) + len(found) > CHOICES_MAX:
            raise invalid(
                f"matchGlob stands for more than {CHOICES_MAX} globs: use fewer braces", "matchGlob"
            )
        one = left.pop()
        begin = one.find("{")
        if begin < 0:
            found.append(one)
            continue
        depth, marks = 0, [begin]
        for at in range(begin, len(one)):
            depth += (one[at] == "{") - (one[at] == "}")
            if depth == 0 or (depth == 1 and one[at] == ","):
                marks.append(at)
            if depth == 0:
                break
        else:
            raise _brace_error(glob)
        pieces = [one[first + 1 : last] for first, last in itertools.pairwise(marks)]
        left += [f"{one[:begin]}{piece}{one[marks[-1] + 1 :]}" for piece in pieces]
    return found


def _brace_error(glob: str) -> PodyardError:
    return invalid(f"matchGlob {glob[:80]!r} has a brace that is not closed", "matchGlob")
