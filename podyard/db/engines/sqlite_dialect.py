"""SQLite by Python's own driver, with statements that all engines share."""

from __future__ import annotations

from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from podyard.db.engines.shared_dialect import SharedStatements


class SqliteDialect(SharedStatements, SQLiteDialect_pysqlite):
    supports_statement_cache = True
