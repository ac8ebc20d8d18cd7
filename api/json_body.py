"""The JSON of a request's body."""

from __future__ import annotations

import json
import math
from typing import Any

from podyard.base.errors import invalid


def parse_json(data: bytes, *, mend: bool = False) -> Any:
    """The JSON of a request's body (RFC 8259); an empty body is an empty object. Every number is
    finite, and every text can be stored; `mend` puts U+FFFD in the place of what cannot, instead of
    refusing it."""
    if not data.strip():
        return {}
    try:
        text = data.decode("utf-8-sig")
        found = json.loads(text, parse_constant=_finite, parse_float=_finite)
        # Only an escape can stand for what cannot be stored.
        return _storable(found, mend) if "\\u" in text else found
    except (ValueError, RecursionError) as error:
        raise invalid(f"Invalid JSON payload received: {error}") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _storable(value: Any, mend: bool) -> Any:
    """`value` without NUL, which PostgreSQL cannot store, and halves of surrogate pairs, which
    UTF-8 cannot write."""
    if isinstance(value, str):
        mended = (
            value.encode("utf-16", "surrogatepass")
            .decode("utf-16", "replace")
            .replace("\0", "\ufffd")
        )
        if mended != value and not mend:
            raise ValueError("a string contains NUL or an unpaired surrogate")
        return mended
    if isinstance(value, list):
        return [_storable(item, mend) for item in value]
    if isinstance(value, dict):
        return {_storable(key, mend): _storable(item, mend) for key, item in value.items()}
    return value
