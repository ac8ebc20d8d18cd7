"""Locations in the text of a StableHLO module, of which the name stacks of recomputation are of
use."""

from __future__ import annotations

import re

REMATTED = "rematted_computation"  # as JAX calls it, in the name stack of an operation
_LOCATION = re.compile(r' loc\((#loc\d*|unknown|"[^"\n]*")\)')
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)\n", re.MULTILINE)


def again_alone(text: str) -> str:
    """Return the module with the locations of operations that are computed again in the backward
    pass, and no other."""
    again = {name for name, location in _ALIAS.findall(text) if REMATTED in location}
    body = _LOCATION.sub(
        lambda match: match[0] if match[1] in again or REMATTED in match[1] else "",
        _ALIAS.sub("", text),
    )
    return body + "".join(f'{name} = loc("{REMATTED}")\n' for name in sorted(again))
