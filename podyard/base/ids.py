"""Ids of resources and rows."""

from __future__ import annotations

import hashlib
import re

from podyard.base.errors import PodyardError, invalid, invalid_field
from podyard.base.rng import Random
from podyard.base.spelling import camel_case

# Google's service refuses uppercase, a leading digit or dash, and underscore (reference: clients'
# own validators).
_RESOURCE_ID = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
RESOURCE_ID_LENGTH_MAX = 63


def row_id(rng: Random, prefix: str) -> str:
    """`prefix-` and 96 random bits in hexadecimal."""
    return f"{prefix}-{rng.getrandbits(96):024x}"


def letters_of(index: int) -> str:
    """A, B, ... Z, AA, AB, ...: names that a picture and its table share; counts from 0."""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def error_id(*parts: object) -> str:
    """The `[EID: 0x...]` that Cloud TPU puts behind an error: the same words give the same id."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return f"[EID: 0x{digest[:8].hex()}]"


def bad_request(what: str, *of: object) -> PodyardError:
    """INVALID_ARGUMENT in Cloud TPU's words; `of`: what it is about, from which its id is made."""
    return invalid(f"Cloud TPU received a bad request. {what} {error_id(what, *of)}")


def check_resource_id(value: str, field: str) -> str:
    """Returns `value`; raises INVALID_ARGUMENT when it is not a valid id of a node, job or
    project."""
    if len(value) > RESOURCE_ID_LENGTH_MAX or _RESOURCE_ID.fullmatch(value) is None:
        raise invalid_field(
            f"{camel_case(field)} {value!r} is not a valid id: at most {RESOURCE_ID_LENGTH_MAX} "
            "lowercase letters, "
            "digits and dashes, starting with a letter and not ending with a dash",
            field,
        )
    return value
