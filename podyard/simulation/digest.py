"""A hash of what a run has decided."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from podyard.db.views.decisions import Decision


def decision_hash(decisions: Iterable[Decision]) -> str:
    """SHA-256, in hexadecimal, of one UTF-8 line per change of a state, in the order in which they
    were written: `nanoseconds|resource|event|reason code` and a newline. `db/views/decisions.py`
    says what each field holds.

    Unlike `state_hash`, it does not change when columns are renamed, texts are rewritten, or ids of
    events are drawn in another order. When it changes, the platform has decided something else, or
    at another time, or (a few queries sort by keys, which come from random streams) has written the
    changes of one moment in another order.
    """
    digest = hashlib.sha256()
    for decision in decisions:
        digest.update(decision.line().encode() + b"\n")
    return digest.hexdigest()
