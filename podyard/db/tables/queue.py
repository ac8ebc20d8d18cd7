"""Queued resources and reservations."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, String, Table, Text
from sqlalchemy.types import BigInteger

from podyard.db.tables.base import metadata
from podyard.db.tables.types import Json, PlatformTimeColumn

queued_resources = Table(
    "queued_resources",
    metadata,
    Column("queued_resource_key", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("queued_resource_id", String(64), nullable=False),
    # The name while it is, NULL once it is gone: unique, as for nodes.
    Column("live_name", String(256), unique=True),
    Column("state", String(32), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("usage_class", String(16), nullable=False),
    Column("spec", Json, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("valid_after", PlatformTimeColumn),
    Column("valid_until", PlatformTimeColumn),
    # when it was first ACTIVE: its queueing policy holds no longer
    Column("activated", PlatformTimeColumn),
    Column("state_initiator", String(16), nullable=False),
    Column("error_code", Integer),
    Column("error_message", Text, nullable=False),
    Column("error_details", Json, nullable=False),
    Column("wait_reason", Text, nullable=False),
    Column("pending_operation", String(64)),
    # Keys of the nodes that were created again or maintained: when all are READY, the other slices
    # restart.
    Column("repaired", Json, nullable=False),
    Column("late_until", PlatformTimeColumn),  # by a fault: it is not fulfilled before
    Index("ix_queued_resources_project", "project", "zone"),
    Index("ix_queued_resources_state", "state"),
)

reservations = Table(
    "reservations",
    metadata,
    Column("reservation_key", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("zone", String(64), nullable=False),
    Column("reservation_id", String(64), nullable=False),
    Column("live_name", String(256), unique=True),
    Column("state", String(32), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("generation", String(16), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("units", String(16), nullable=False),
    Column("starts", PlatformTimeColumn),
    Column("ends", PlatformTimeColumn),
    Column("created", PlatformTimeColumn, nullable=False),
    Index("ix_reservations_project", "project", "zone"),
    Index("ix_reservations_state", "state"),
)
