"""PostgreSQL by psycopg 3, with statements that all engines share."""

from __future__ import annotations

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from podyard.db.engines.shared_dialect import SharedStatements


class PostgresqlDialect(SharedStatements, PGDialect_psycopg):
    supports_statement_cache = True
