"""Statements on the database of a simulation, which nobody else writes.

Half of what a simulation asks, it has asked before with nothing written meanwhile: so the rows of a
query are kept until one of its tables is written.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Executable, Select
from typing_extensions import override

from podyard.db.engines.direct_statements import DirectConnection, DirectResult, Shape
from podyard.db.tables.base import metadata

_Answers = dict[tuple[str, tuple[Any, ...]], list[Any]]
# queries of the same tables, with their values: far more than are asked again before a write
ANSWERS_KEPT_MAX = 4096
ROWS_KEPT_MAX = 512  # of one answer: a reading of the whole history is not asked for twice


class InlineConnection(DirectConnection):
    """As its base, with the answers that are kept."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.connection = _Direct(self, self.driver)
        self._written = dict.fromkeys(metadata.tables, 0)  # by table: how often
        self._kept: dict[tuple[str, ...], _Answers] = {}  # by tables that are read
        # the same, by each table
        self._kept_of: dict[str, list[_Answers]] = {table: [] for table in metadata.tables}

    def write_count(self, *tables: str) -> int:
        """Grows with each write into one of these tables."""
        return sum([self._written[table] for table in tables])

    def note(self, table: str) -> None:
        """A table was written."""
        self._written[table] += 1
        for answers in self._kept_of[table]:
            answers.clear()

    def forget(self) -> None:
        """Anything may have been written, or taken back."""
        for table in self._written:
            self.note(table)

    @override
    def _run(self, shape: Shape, text: str, values: tuple[Any, ...], is_streamed: bool) -> Any:
        tables = shape.reads
        if tables is None:
            self.note(shape.writes)
            return super()._run(shape, text, values, is_streamed)
        answers = self._kept.get(tables)
        if answers is None:
            answers = self._kept[tables] = {}
            for table in tables:
                self._kept_of[table].append(answers)
        rows = answers.get((text, values))
        if rows is None:
            rows = self._read_all(text, values)
            if len(rows) <= ROWS_KEPT_MAX:
                if len(answers) >= ANSWERS_KEPT_MAX:
                    answers.clear()
                answers[text, values] = rows
        return DirectResult(rows, -1, shape)

    @override
    def _at_length(self, statement: Executable, parameters: Any = None) -> Any:
        if not isinstance(statement, Select):
            self.forget()
        return super()._at_length(statement, parameters)


class _Direct:
    """The driver's connection and cursor, as `UnitOfWork.insert` and `update` use them."""

    def __init__(self, connection: InlineConnection, driver: sqlite3.Connection) -> None:
        self._connection = connection
        self._cursor = driver.cursor()
        self.dbapi_connection = self

    def cursor(self) -> _Direct:
        return self

    def execute(self, text: str, values: Sequence[Any]) -> None:
        self._connection.note(_table_of(text))
        self._cursor.execute(text, values)

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount


@functools.cache
def _table_of(text: str) -> str:
    """Of an INSERT INTO or an UPDATE."""
    words = text.split(None, 3)
    return words[2] if words[0] == "INSERT" else words[1]
