"""Names of fields as JSON spells them."""

from __future__ import annotations


def camel_case(path: str) -> str:
    """`training.keep_checkpoints` -> training.keepCheckpoints."""
    first, *rest = path.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
