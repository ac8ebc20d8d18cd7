"""SQLAlchemy's statements on one SQLite connection, straight through the driver.

A simulation asks the same three hundred statements a hundred thousand times. SQLAlchemy compiles each shape once; this
keeps, per shape, the text, where each of its parameters comes from, and how each column is read, so that an execution
is little more than the driver's own. What it does not know (defaults of columns, several rows at once) is left to
SQLAlchemy: the result is the same, only slower. `tests/simulation/test_inline.py` compares the two.
"""

from __future__ import annotations

import collections
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ClauseElement, Connection, Dialect, Executable
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.compiler import SQLCompiler

_Process = Callable[[Any], Any] | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Source:
    """Where a parameter's value comes from: from the caller by name, from the statement by position, or it is always
    `constant`. `element`: of a list, this one."""

    name: str | None
    position: int | None
    constant: Any
    element: int | None
    process: _Process


@dataclasses.dataclass(slots=True)
class _Shape:
    """All statements with one cache key."""

    compiled: SQLCompiler
    sources: Mapping[str, _Source]  # by the name of the parameter in `compiled`
    lists: tuple[_Source, ...]  # of IN (...): how long they are decides on the text
    texts: dict[tuple[int, ...], tuple[str, tuple[_Source, ...]]]
    columns: tuple[str, ...]
    readers: tuple[tuple[int, Callable[[Any], Any]], ...]
    row_type: Any


class InlineConnection:
    """What a unit of work uses of `Connection`."""

    def __init__(self, connection: Connection, driver: sqlite3.Connection) -> None:
        self._slow = connection
        self._driver = driver
        self.dialect = connection.dialect
        self.connection = connection.connection

    def exec_driver_sql(self, *arguments: Any) -> Any:
        return self._slow.exec_driver_sql(*arguments)

    def execute(self, statement: Executable, parameters: Any = None) -> Any:
        if isinstance(parameters, list):
            return self._slow.execute(statement, parameters)
        key = statement._generate_cache_key()  # type: ignore[attr-defined]
        if key is None:
            return self._slow.execute(statement, parameters)
        name = (key[0], *sorted(parameters)) if parameters else key[0]
        shape = _SHAPES.get(name, _UNKNOWN)
        if shape is _UNKNOWN:
            shape = _SHAPES[name] = _shape_of(statement, self.dialect, key[1], parameters or {})
        if shape is None:
            return self._slow.execute(statement, parameters)
        text, sources = _text_of(shape, key[1], parameters)
        values = [_value(source, key[1], parameters) for source in sources]
        try:
            return _Result(self._driver.execute(text, values), shape)
        except sqlite3.IntegrityError as error:
            raise IntegrityError(text, None, error) from error


_UNKNOWN: Any = object()
_SHAPES: dict[Any, _Shape | None] = {}  # of all connections: as many as the code has statements


def _value(source: _Source, extracted: Sequence[Any], parameters: Mapping[str, Any] | None) -> Any:
    if source.name is not None:
        assert parameters is not None
        value = parameters[source.name]
    elif source.position is not None:
        value = extracted[source.position].effective_value
    else:
        value = source.constant
    if source.element is not None:
        value = value[source.element]
    return value if source.process is None else source.process(value)


def _text_of(
    shape: _Shape, extracted: Sequence[Any], parameters: Mapping[str, Any] | None
) -> tuple[str, tuple[_Source, ...]]:
    lengths = tuple([len(_value(source, extracted, parameters)) for source in shape.lists])
    found = shape.texts.get(lengths)
    if found is None:
        found = shape.texts[lengths] = _expanded(shape, extracted, parameters)
    return found


def _shape_of(
    statement: Any, dialect: Dialect, extracted: Sequence[Any], parameters: Mapping[str, Any]
) -> _Shape | None:
    """None for what is left to SQLAlchemy."""
    if not isinstance(statement, ClauseElement):
        return None
    compiled = statement.compile(dialect=dialect, column_keys=sorted(parameters) or None)
    if not isinstance(compiled, SQLCompiler) or compiled.positiontup is None or compiled.literal_execute_params:
        return None
    if any(bound.type._is_tuple_type for bound in compiled.post_compile_params):
        return None
    if compiled.insert_prefetch or compiled.update_prefetch or compiled.returning:
        return None
    names = [str(column.keyname) for column in compiled._result_columns]
    if len(set(names)) != len(names):
        return None
    sources: dict[str, _Source] = {}
    for name in compiled.positiontup:
        source = _source(compiled, name, extracted, parameters)
        if source is None:
            return None
        sources[name] = source
    lists = [
        dataclasses.replace(source, process=None)
        for name, source in sources.items()
        if compiled.binds[name] in compiled.post_compile_params
    ]
    assert isinstance(dialect, DefaultDialect)
    readers = [column.type._cached_result_processor(dialect, None) for column in compiled._result_columns]
    return _Shape(
        compiled=compiled,
        sources=sources,
        lists=tuple(lists),
        texts={},
        columns=tuple(names),
        readers=tuple((index, reader) for index, reader in enumerate(readers) if reader is not None),
        row_type=collections.namedtuple("Row", names, rename=True) if names else None,
    )


def _source(
    compiled: SQLCompiler, name: str, extracted: Sequence[Any], parameters: Mapping[str, Any]
) -> _Source | None:
    bound = compiled.binds[name]
    process: Any = compiled._bind_processors.get(name)
    if bound.key in parameters:
        return _Source(bound.key, None, None, None, process)
    # Parameters of an INSERT or UPDATE may be copies of those in the statement, of the same key.
    places = [index for index, item in enumerate(extracted) if item.key == bound.key]
    if places:
        return _Source(None, places[-1], None, None, process)
    # The compiler's own, such as the 0 of OFFSET.
    return None if bound.required else _Source(None, None, bound.effective_value, None, process)


def _expanded(
    shape: _Shape, extracted: Sequence[Any], parameters: Mapping[str, Any] | None
) -> tuple[str, tuple[_Source, ...]]:
    compiled = shape.compiled
    assert compiled.positiontup is not None
    if not shape.lists:
        return compiled.string, tuple(shape.sources[name] for name in compiled.positiontup)
    plain = {
        name: _value(dataclasses.replace(source, process=None), extracted, parameters)
        for name, source in shape.sources.items()
    }
    state = compiled.construct_expanded_state(plain)
    elements = {
        part: dataclasses.replace(shape.sources[name], element=index)
        for name, parts in state.parameter_expansion.items()
        for index, part in enumerate(parts)
    }
    assert state.positiontup is not None
    return state.statement, tuple(elements.get(name) or shape.sources[name] for name in state.positiontup)


class _Result:
    """What the use cases ask of a `CursorResult`. Mappings are plain dicts."""

    __slots__ = ("_cursor", "_shape")

    def __init__(self, cursor: sqlite3.Cursor, shape: _Shape) -> None:
        self._cursor = cursor
        self._shape = shape

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def _read(self, row: Sequence[Any]) -> list[Any]:
        values = list(row)
        for index, reader in self._shape.readers:
            values[index] = reader(values[index])
        return values

    def __iter__(self) -> Iterator[Any]:
        make = self._shape.row_type._make
        return (make(self._read(row)) for row in self._cursor.fetchall())

    def all(self) -> list[Any]:
        return list(self)

    def first(self) -> Any:
        row = self._cursor.fetchone()
        self._cursor.close()
        return None if row is None else self._shape.row_type._make(self._read(row))

    def scalar(self) -> Any:
        row = self._cursor.fetchone()
        self._cursor.close()
        return None if row is None else self._read(row)[0]

    def scalars(self) -> list[Any]:
        return [self._read(row)[0] for row in self._cursor.fetchall()]

    def mappings(self) -> _Mappings:
        return _Mappings(self)


class _Mappings:
    __slots__ = ("_result",)

    def __init__(self, result: _Result) -> None:
        self._result = result

    def __iter__(self) -> Iterator[dict[str, Any]]:
        result = self._result
        columns = result._shape.columns
        for row in result._cursor.fetchall():
            yield dict(zip(columns, result._read(row), strict=True))

    def all(self) -> list[dict[str, Any]]:
        return list(self)

    def first(self) -> dict[str, Any] | None:
        result = self._result
        row = result._cursor.fetchone()
        result._cursor.close()
        return None if row is None else dict(zip(result._shape.columns, result._read(row), strict=True))

    def one_or_none(self) -> dict[str, Any] | None:
        return self.first()
