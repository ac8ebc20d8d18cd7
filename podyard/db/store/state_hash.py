"""A hash of everything that a database in memory holds."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy import Table

from podyard.db.store.inline import InlineDatabase
from podyard.db.tables.base import metadata
from podyard.db.tables.types import RealTimeColumn

# Secrets are never from a seed. `wall_seconds` are real ones.
_LEFT_OUT = {
    "tokens": {"token_hash"},
    "yard": {"secret"},
    "attempts": {"ring_key"},
    "replicas": {"token", "cpu_micros", "memory_kib_seconds"},
    "jobs": {"wall_seconds"},
}


def state_hash(database: InlineDatabase) -> str:
    """SHA-256 of all tables: rows as JSON, in the order of their texts; no real times and no
    secrets."""
    digest = hashlib.sha256()
    for table in sorted(metadata.tables.values(), key=lambda table: table.name):
        columns = _columns(table)
        found = database.driver.execute(f"SELECT {', '.join(columns)} FROM {table.name}")
        texts = sorted(
            json.dumps([_plain(value) for value in row], separators=(",", ":")) for row in found
        )
        digest.update(json.dumps([table.name, columns]).encode())
        for text in texts:
            digest.update(text.encode() + b"\n")
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
