"""Statements are compiled once in a process, not once for each engine.

SQLAlchemy compiles a statement for each dialect object, and each engine makes one. The engines of
one database (one writes, one reads) and those of all databases of a process share what is compiled,
since their dialects are equal.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.dialects import registry
from sqlalchemy.util import LRUCache
from typing_extensions import override

# compiled ones: the platform has some 700; SQLAlchemy keeps 500 for each engine
STATEMENTS_MAX = 1_500
DRIVER = "podyard"
_compiled: LRUCache[Any, Any] = LRUCache(STATEMENTS_MAX)
OPTIONS = {"compiled_cache": _compiled}

registry.register(f"sqlite.{DRIVER}", "podyard.db.engines.sqlite_dialect", "SqliteDialect")
registry.register(
    f"postgresql.{DRIVER}", "podyard.db.engines.postgresql_dialect", "PostgresqlDialect"
)


class SharedStatements(Dialect):
    """A dialect that equals all others of its class that speak to a server of the same version."""

    @override
    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._version == getattr(other, "_version", None)

    @override
    def __hash__(self) -> int:
        return hash(type(self))

    @property
    def _version(self) -> object:
        return getattr(self, "server_version_info", None)
