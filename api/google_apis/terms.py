"""Filters of Resource Manager and Service Usage: terms `field:value` or `field=value`, joined by
white space or AND; `*` in a value stands for any text (methods projects.list and services.list)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from podyard.base.errors import invalid

TERMS_MAX = 20
_TERM = re.compile(r"(-)?([A-Za-z][\w.-]*)\s*(!?[:=])\s*(.*)")


def matches(text: str, fields: Mapping[str, str]) -> bool:
    """Return whether a resource with these fields (names in lower case) passes the filter. Raises
    INVALID_ARGUMENT for a filter that is none, or names an unknown field."""
    try:
        words = shlex.split(text.replace("(", " ").replace(")", " "))
    except ValueError as error:
        raise invalid(f"filter {text[:80]!r}: {error}", "filter") from None
    if len(words) > TERMS_MAX:
        raise invalid(f"the filter has more than {TERMS_MAX} terms", "filter")
    return all(_passes(word, text, fields) for word in words if word.upper() != "AND")


def _passes(word: str, text: str, fields: Mapping[str, str]) -> bool:
    term = _TERM.fullmatch(word)
    if term is None:
        raise invalid(
            f"filter {text[:80]!r}: {word[:40]!r} is not field:value or field=value", "filter"
        )
    negated, name, operator, wanted = term.groups()
    key = name.lower()
    if key not in fields and not key.startswith("labels.") and not key.startswith("parent."):
        raise invalid(f"filter {text[:80]!r}: there is no field {name[:40]!r}", "filter")
    value = fields.get(key)
    pattern = ".*".join(re.escape(part) for part in wanted.split("*"))
    is_match = value is not None and re.fullmatch(pattern, value, re.IGNORECASE) is not None
    return is_match != (negated == "-" or operator.startswith("!"))
