"""Buckets, objects and uploads in parts. Contents are files, named by `digest`
(podyard/base/contents.py)."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table

from podyard.db.tables.base import metadata
from podyard.db.tables.types import Json, PlatformTimeColumn, RealTimeColumn

# Lists are in the order of the names' bytes, whatever the language of the database is.
_NAME = String(1024).with_variant(String(1024, collation="C"), "postgresql")

buckets = Table(
    "buckets",
    metadata,
    Column("name", String(222), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("location", String(64), nullable=False),
    Column("storage_class", String(32), nullable=False),
    Column("labels", Json, nullable=False),
    Column("metageneration", BigInteger, nullable=False),
    Column("objects", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("updated", PlatformTimeColumn, nullable=False),
    Column("created_by", String(256), nullable=False, server_default=""),
    # what is billed: another one for each storage class
    Column("usage_key", String(64), nullable=False),
    Column("usage_version", BigInteger, nullable=False),  # its usage events
    Index("ix_buckets_project", "project", "name"),
)

objects = Table(
    "objects",
    metadata,
    Column("bucket", String(222), ForeignKey("buckets.name"), primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("metageneration", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("crc32c", BigInteger, nullable=False),
    Column("md5", String(32), nullable=False),  # empty: composed
    Column("component_count", Integer, nullable=False),
    Column("fields", Json, nullable=False),
    Column("created", PlatformTimeColumn, nullable=False),
    Column("updated", PlatformTimeColumn, nullable=False),
    Column("created_by", String(256), nullable=False),
    Index("ix_objects_digest", "digest"),
)

uploads = Table(
    "uploads",
    metadata,
    Column("upload_id", String(64), primary_key=True),
    Column("bucket", String(222), nullable=False),
    Column("name", _NAME, nullable=False),
    Column("fields", Json, nullable=False),
    Column("preconditions", Json, nullable=False),
    Column("size", BigInteger),
    Column("crc32c", BigInteger),
    Column("md5", String(32)),
    Column("created", RealTimeColumn, nullable=False),
    Column("created_by", String(256), nullable=False),
    Column("generation", BigInteger),  # null: not done
    Index("ix_uploads_bucket", "bucket", "created"),
    Index("ix_uploads_created", "created"),
)
