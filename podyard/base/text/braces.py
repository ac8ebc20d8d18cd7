"""Brace ranges as bash expands them, for where the shell did not: `student-{01..20}`,
`{red,blue}-team`."""

from __future__ import annotations

import re

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
DIGITS_MAX = 9  # of a number in a range


def expand_braces(text: str, most: int) -> list[str]:
    """The names that a text stands for, in their order. ValueError for braces that are neither a
    range nor a list, and for more than `most` names."""
    match = _BRACES.search(text)
    if match is None:
        if "{" in text or "}" in text:
            raise ValueError(f"{text!r} has a brace without its other half")
        return [text]
    choices = _choices(match[1], most)
    found: list[str] = []
    for choice in choices:
        found += expand_braces(f"{text[: match.start()]}{choice}{text[match.end() :]}", most)
        if len(found) > most:
            raise ValueError(f"{text!r} stands for more than {most} names")
    return found


def _choices(inner: str, most: int) -> list[str]:
    numbers = _RANGE.fullmatch(inner)
    if numbers is None:
        if "," not in inner:
            raise ValueError(
                f"{{{inner}}} is neither a range such as {{01..20}} nor a list such as {{red,blue}}"
            )
        return inner.split(",")
    first, last = numbers.groups()
    if max(len(first), len(last)) > DIGITS_MAX:
        raise ValueError(f"{{{inner}}} has a number of more than {DIGITS_MAX} digits")
    low, high = int(first), int(last)
    if abs(high - low) >= most:
        raise ValueError(f"{{{inner}}} stands for more than {most} names")
    width = max(len(first), len(last)) if first.startswith("0") or last.startswith("0") else 0
    step = 1 if high >= low else -1
    return [f"{number:0{width}d}" for number in range(low, high + step, step)]
