"""The metadata that all tables share, and the tables of the platform itself: clock, events, timers,
outbox, leases."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, String, Table, Text

from podyard.db.tables.types import Counter, Json, PlatformTimeColumn, RealTimeColumn

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

clock = Table(
    "clock",
    metadata,
    Column("id", Integer, primary_key=True),  # always 1: there is one platform clock
    Column("mode", String(16), nullable=False),
    Column("anchor_platform", PlatformTimeColumn, nullable=False),
    Column("anchor_real", RealTimeColumn, nullable=False),
    Column("running", Boolean, nullable=False),
    Column("rate_millionths", BigInteger, nullable=False),
    Column("target", PlatformTimeColumn),
    Column("loop_fence", BigInteger, nullable=False),  # the loop that set the anchor
    # how many are not over (db/faults)
    Column("fault_rules", Integer, nullable=False, server_default="0"),
)

yard = Table(
    "yard",
    metadata,
    Column("id", Integer, primary_key=True),  # always 1
    Column("secret", String(64), nullable=False),  # the hosts' ssh keys are derived from it
    # number of the first host's address (domain/host.py)
    Column("address_base", Integer, nullable=False),
    # what the file yard.id of its folders says, once an API has written it
    Column("folders_id", String(64)),
)

state_changes = Table(
    "state_changes",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("event_id", String(64), nullable=False, unique=True),
    Column("machine", String(32), nullable=False),
    Column("resource_key", String(64), nullable=False),
    Column("resource_name", String(512), nullable=False),
    Column("project", String(64), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("event", String(32), nullable=False),
    Column("from_state", String(32), nullable=False),
    Column("to_state", String(32), nullable=False),
    Column("at", PlatformTimeColumn, nullable=False),
    Column("reason", Text, nullable=False),
    Column("actor", String(256), nullable=False),
    Index("ix_state_changes_resource", "resource_key", "version", unique=True),
    Index("ix_state_changes_project", "project", "seq"),
)

timers = Table(
    "timers",
    metadata,
    Column("timer_id", Counter, primary_key=True, autoincrement=True),
    Column("due", PlatformTimeColumn, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("resource_key", String(64), nullable=False),
    # of the resource, when the timer was set: a stale timer is dropped
    Column("version", BigInteger, nullable=False),
    Index("ix_timers_due", "due", "timer_id"),
    Index("ix_timers_resource", "resource_key"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("message_id", Counter, primary_key=True, autoincrement=True),
    Column("queue", String(128), nullable=False),
    Column("task", String(128), nullable=False),
    Column("args", Json, nullable=False),
    Column("created", RealTimeColumn, nullable=False),
    Column("sent", RealTimeColumn),
    Index("ix_outbox_sent", "sent", "message_id"),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("until", RealTimeColumn, nullable=False),
)
