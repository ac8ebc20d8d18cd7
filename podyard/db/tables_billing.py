"""What metering writes: one row per change of a billable resource's state, in the unit of the change."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, String, Table, UniqueConstraint

from podyard.db.tables import metadata
from podyard.db.types import Counter, PlatformTimeColumn

usage_events = Table(
    "usage_events",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("event_id", String(64), nullable=False, unique=True),  # that of the state change
    Column("project", String(64), nullable=False),
    Column("resource_key", String(64), nullable=False),
    Column("resource_name", String(512), nullable=False),
    Column("resource_seq", BigInteger, nullable=False),  # the resource's version: events order by it, not by arrival
    Column("zone", String(64), nullable=False),
    Column("accelerator_type", String(64), nullable=False),
    Column("usage_class", String(16), nullable=False),
    Column("state", String(32), nullable=False),
    Column("billable", Boolean, nullable=False),
    Column("at", PlatformTimeColumn, nullable=False),
    UniqueConstraint("resource_key", "resource_seq"),
    Index("ix_usage_events_project", "project", "resource_key"),
)
