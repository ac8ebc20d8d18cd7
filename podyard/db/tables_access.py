"""Projects, tokens, role bindings."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String, Table

from podyard.db.tables import metadata
from podyard.db.types import Json, PlatformTimeColumn, RealTimeColumn

projects = Table(
    "projects",
    metadata,
    Column("project", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("labels", Json, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_hash", String(64), primary_key=True),  # SHA-256: the token itself is never stored
    Column("email", String(256), nullable=False),
    Column("agent_id", String(64)),
    Column("attempt_id", String(64)),
    Column("created", RealTimeColumn, nullable=False),
    Column("expires", RealTimeColumn),
    Column("revoked", RealTimeColumn),
)

role_bindings = Table(
    "role_bindings",
    metadata,
    Column("email", String(256), primary_key=True),
    Column("project", String(64), primary_key=True),  # "*": every project
    Column("role", String(32), primary_key=True),
)
