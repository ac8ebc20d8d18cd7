"""Exports that are made in the background: what was asked for, how far it is, and where the result
lies."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text

from podyard.db.tables.base import metadata
from podyard.db.tables.types import PlatformTimeColumn, RealTimeColumn

exports = Table(
    "exports",
    metadata,
    Column("export_id", String(64), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("format", String(16), nullable=False),
    Column("from_month", String(7), nullable=False),
    Column("until_month", String(7), nullable=False),
    Column("granularity", String(8), nullable=False),
    Column("by_job", Boolean, nullable=False),
    # months that are open then are exported as of then
    Column("created", PlatformTimeColumn, nullable=False),
    Column("ended", PlatformTimeColumn),
    Column("rows_done", BigInteger, nullable=False),
    Column("rows_all", BigInteger),  # null: not counted yet
    Column("tries", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),  # of the try that may write its result
    Column("next_try", RealTimeColumn),  # null: nothing more is to be done
    Column("error_code", Integer),
    Column("error_message", Text),
    Column("object_name", String(256)),
    Column("bytes", BigInteger),
    Column("sha256", String(64)),
    Index("ix_exports_project", "project", "created", "export_id"),
    Index("ix_exports_next_try", "next_try"),
)
