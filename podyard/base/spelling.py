"""Names of fields as JSON spells them."""

from __future__ import annotations

import re

_CAPITAL = re.compile(r"([A-Z])")


def camel_case(path: str) -> str:
    """`training.keep_checkpoints` -> training.keepCheckpoints."""
    first, *rest = path.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def snake_case(name: str) -> str:
    """`keepCheckpoints` -> keep_checkpoints."""
    return _CAPITAL.sub(lambda match: "_" + match[1].lower(), name)
