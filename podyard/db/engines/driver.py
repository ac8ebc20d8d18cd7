"""Statements that depend on the database: those with ON CONFLICT, and some for SQLite's driver
without SQLAlchemy in between, which is half of what an insert or update of one row costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Dialect, Table
from sqlalchemy.sql.schema import CallableColumnDefault, ScalarElementColumnDefault

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite


def insert_with_conflict(table: Table, dialect: Dialect) -> postgresql.Insert | sqlite.Insert:
    """An INSERT that may say ON CONFLICT. The module of the other database is not loaded: it has 2
    MB."""
    if dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


@cache
def insert_statement(
    table: Table, names: tuple[str, ...], dialect: Dialect
) -> tuple[str, tuple[tuple[str, Callable[[Any], Any] | None], ...], tuple[Any, ...]]:
    """(statement, what each of its first parameters is made from, the others) for rows of these
    columns. The others
    are the defaults of the columns that the rows leave out."""

    defaults: dict[str, Any] = {}
    for column in table.columns:
        if column.default is not None and column.name not in names:
            assert isinstance(column.default, ScalarElementColumnDefault | CallableColumnDefault), (
                column
            )
            default: Any = column.default.arg
            bind = _binder(column, dialect)
            value = default(None) if isinstance(column.default, CallableColumnDefault) else default
            defaults[column.name] = value if bind is None else bind(value)
    columns = [*names, *defaults]
    text = (
        f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    )
    return (
        text,
        tuple((name, _binder(table.c[name], dialect)) for name in names),
        tuple(defaults.values()),
    )


@cache
def update_statement(
    table: Table, names: tuple[str, ...], keys: tuple[str, ...], dialect: Dialect
) -> tuple[str, tuple[Callable[[Any], Any] | None, ...]]:
    """(statement, what each of its parameters is made from): first the columns that are set, then
    those of the key."""
    changes, which = (
        ", ".join(f"{name} = ?" for name in names),
        " AND ".join(f"{name} = ?" for name in keys),
    )
    binds = tuple(_binder(table.c[name], dialect) for name in (*names, *keys))
    return f"UPDATE {table.name} SET {changes} WHERE {which}", binds


def _binder(column: Column[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    return column.type.dialect_impl(dialect).bind_processor(dialect)
