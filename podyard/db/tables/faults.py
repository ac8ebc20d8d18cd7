"""Fault rules, and what they have broken."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, String, Table, Text

from podyard.db.tables.base import metadata
from podyard.db.tables.types import Counter, Json, PlatformTimeColumn

faults = Table(
    "faults",
    metadata,
    # the order in which they are asked
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("fault_id", String(64), nullable=False, unique=True),
    Column("effect", String(32), nullable=False),
    Column("match", Json, nullable=False),
    Column("probability", Float, nullable=False),
    Column("count", BigInteger),
    Column("starts", PlatformTimeColumn, nullable=False),
    Column("ends", PlatformTimeColumn),
    Column("every_seconds", Float),
    Column("parameters", Json, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("fired", BigInteger, nullable=False),
    Column("over", Boolean, nullable=False),
)

# Chips that are given to nobody, until they work again. `node_key` had them in its slice, and was
# moved to `node_version` by the fault.
broken_chips = Table(
    "broken_chips",
    metadata,
    Column("break_id", String(64), primary_key=True),
    Column("fault_id", String(64), nullable=False),
    Column("pod_id", String(64), nullable=False),
    Column("chips", Text, nullable=False),  # bit set of the pod's chips, hexadecimal
    Column("until", PlatformTimeColumn),  # None: until the rule is removed
    Column("reason", Text, nullable=False),
    Column("node_key", String(64), nullable=False),
    Column("node_version", BigInteger, nullable=False),
    Index("ix_broken_chips_pod", "pod_id"),
    Index("ix_broken_chips_fault", "fault_id"),
)

# What a fault has in store for one node: `preempt` at `at`, or `slow`: until `at` its jobs' steps
# take `factor` times as long. `node_version` 0: whatever has become of the node.
node_faults = Table(
    "node_faults",
    metadata,
    Column("node_fault_id", String(64), primary_key=True),
    Column("fault_id", String(64), nullable=False),
    Column("node_key", String(64), nullable=False),
    Column("node_version", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", PlatformTimeColumn),
    Column("factor", Float, nullable=False),
    Column("reason", Text, nullable=False),
    Index("ix_node_faults_node", "node_key"),
    Index("ix_node_faults_fault", "fault_id"),
)
