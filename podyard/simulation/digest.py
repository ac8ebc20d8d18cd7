"""Two hashes of a run: of everything that its database holds, and of its decisions alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Table

from podyard.db.decisions import Decision
from podyard.db.inline import InlineDatabase
from podyard.db.tables import metadata
from podyard.db.types import RealTimeColumn

# Secrets are never from a seed. `wall_seconds` are real ones.
_LEFT_OUT = {
    "tokens": {"token_hash"},
    "yard": {"secret"},
    "attempts": {"ring_key"},
    "replicas": {"token"},
    "jobs": {"wall_seconds"},
}


def state_hash(database: InlineDatabase) -> str:
    """SHA-256 of all tables: rows as JSON, in the order of their texts; no real times and no secrets."""
    digest = hashlib.sha256()
    for table in sorted(metadata.tables.values(), key=lambda table: table.name):
        columns = _columns(table)
        found = database.driver.execute(f"SELECT {', '.join(columns)} FROM {table.name}")
        texts = sorted(json.dumps([_plain(value) for value in row], separators=(",", ":")) for row in found)
        digest.update(json.dumps([table.name, columns]).encode())
        for text in texts:
            digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def decision_hash(decisions: Iterable[Decision]) -> str:
    """SHA-256, in hexadecimal, of one UTF-8 line per change of a state, in the order in which they were written:
    `nanoseconds|resource|event|reason code` and a newline. `db/decisions.py` says what each field holds.

    Unlike `state_hash`, it does not change when columns are renamed, texts are rewritten, or ids of events are drawn in
    another order. When it changes, the platform has decided something else, or at another time, or (a few queries sort
    by keys, which come from random streams) has written the changes of one moment in another order.
    """
    digest = hashlib.sha256()
    for decision in decisions:
        digest.update(decision.line().encode() + b"\n")
    return digest.hexdigest()


def _columns(table: Table) -> list[str]:
    left_out = _LEFT_OUT.get(table.name, set())
    return [
        column.name
        for column in table.columns
        if not isinstance(column.type, RealTimeColumn) and column.name not in left_out
    ]


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
