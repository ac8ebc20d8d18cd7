"""SQLAlchemy's statements on one SQLite connection, straight through the driver.

A simulation asks the same three hundred statements a hundred thousand times. SQLAlchemy compiles each shape once; this
keeps, per shape, the text, where each of its parameters comes from, and how each column is read, so that an execution
is little more than the driver's own. What it does not know (defaults of columns, several rows at once) is left to
SQLAlchemy: the result is the same, only slower. `tests/simulation/test_inline.py` compares the two.

Most statements are made once, at import: of those, what is the same each time is worked out once for each object.
Half of what a simulation asks, it has asked before with nothing written meanwhile: so the rows of a query are kept
until one of its tables is written.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import JSON, ClauseElement, Connection, Dialect, Executable, Select, UpdateBase
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.compiler import SQLCompiler

from podyard.db.tables import metadata
from podyard.db.types import PlatformTimeColumn, RealTimeColumn, read_json, read_platform_time, read_real_time

_Process = Callable[[Any], Any] | None
_Answers = dict[tuple[str, tuple[Any, ...]], list[Any]]
ANSWERS_KEPT_MAX = 4096  # queries of the same tables, with their values: far more than are asked again before a write
STATEMENTS_KEPT_MAX = 1024  # objects: the platform has some seven hundred, and makes others for single questions
ROWS_KEPT_MAX = 512  # of one answer: a reading of the whole history is not asked for twice


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
    """All statements with one cache key. `reads`: the tables of a query; None for what writes, into `writes`."""

    compiled: SQLCompiler
    reads: tuple[str, ...] | None
    writes: str
    sources: Mapping[str, _Source]  # by the name of the parameter in `compiled`
    lists: tuple[_Source, ...]  # of IN (...): how long they are decides on the text
    texts: dict[tuple[int, ...], tuple[str, tuple[_Source, ...]]]
    columns: tuple[str, ...]
    readers: tuple[tuple[int, Callable[[Any], Any]], ...]
    row_type: Any


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """One statement object, which is kept so that no other has its `id`. `values`: all of them, where no parameter has
    a name; else each is a constant, or the parameter `name`, as `process` makes it."""

    statement: Executable
    parameter_count: int
    shape: _Shape
    text: str
    values: tuple[Any, ...] | None
    places: tuple[tuple[str | None, _Process, Any], ...]


class InlineConnection:
    """What a unit of work uses of `Connection`."""

    def __init__(self, connection: Connection, driver: sqlite3.Connection) -> None:
        self._slow = connection
        self._driver = driver
        self.dialect = connection.dialect
        self.connection = _Direct(self, driver)
        self._written = dict.fromkeys(metadata.tables, 0)  # by table: how often
        self._prepared: dict[int, _Prepared] = {}  # by `id` of the statement
        self._kept: dict[tuple[str, ...], _Answers] = {}  # by tables that are read
        self._kept_of: dict[str, list[_Answers]] = {table: [] for table in metadata.tables}  # the same, by each table

    def exec_driver_sql(self, *arguments: Any) -> Any:
        return self._slow.exec_driver_sql(*arguments)

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

    def execute(self, statement: Executable, parameters: Any = None) -> Any:
        prepared = self._prepared.get(id(statement))
        count = len(parameters) if parameters else 0
        if prepared is None or prepared.parameter_count != count or isinstance(parameters, list):
            return self._first(statement, parameters)
        values = prepared.values
        if values is None:
            values = tuple(
                [
                    constant if name is None else parameters[name] if process is None else process(parameters[name])
                    for name, process, constant in prepared.places
                ]
            )
        return self._run(prepared.shape, prepared.text, values)

    def _first(self, statement: Executable, parameters: Any) -> Any:
        """Executes a statement that is not prepared, and prepares it where that can be."""
        key = None if isinstance(parameters, list) else statement._generate_cache_key()  # type: ignore[attr-defined]
        if key is None:
            return self._at_length(statement, parameters)
        name = (key[0], *sorted(parameters)) if parameters else key[0]
        shape = _SHAPES.get(name, _UNKNOWN)
        if shape is _UNKNOWN:
            shape = _SHAPES[name] = _shape_of(statement, self.dialect, key[1], parameters or {})
        if shape is None:
            return self._at_length(statement, parameters)
        text, sources = _text_of(shape, key[1], parameters)
        if not any(source.name for source in shape.lists):
            if len(self._prepared) >= STATEMENTS_KEPT_MAX:
                self._prepared.clear()
            self._prepared[id(statement)] = _prepare(statement, len(parameters or ()), shape, text, sources, key[1])
        return self._run(shape, text, tuple([_value(source, key[1], parameters) for source in sources]))

    def _run(self, shape: _Shape, text: str, values: tuple[Any, ...]) -> Any:
        if shape.reads is not None:
            return _Result(self._rows(text, values, shape.reads), -1, shape)
        self.note(shape.writes)
        try:
            return _Result([], self._driver.execute(text, values).rowcount, shape)
        except sqlite3.IntegrityError as error:
            raise IntegrityError(text, None, error) from error

    def _rows(self, text: str, values: tuple[Any, ...], tables: tuple[str, ...]) -> list[Any]:
        answers = self._kept.get(tables)
        if answers is None:
            answers = self._kept[tables] = {}
            for table in tables:
                self._kept_of[table].append(answers)
        rows = answers.get((text, values))
        if rows is None:
            rows = self._driver.execute(text, values).fetchall()
            if len(rows) <= ROWS_KEPT_MAX:
                if len(answers) >= ANSWERS_KEPT_MAX:
                    answers.clear()
                answers[text, values] = rows
        return rows

    def _at_length(self, statement: Executable, parameters: Any = None) -> Any:
        if not isinstance(statement, Select):
            self.forget()
        return self._slow.execute(statement, parameters)


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


def _tables_in(text: str) -> tuple[str, ...]:
    """All tables that a query names, and maybe more: whatever is written like one."""
    return tuple(sorted(set(re.findall(r"\w+", text)) & set(metadata.tables)))


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


def _prepare(
    statement: Executable,
    parameter_count: int,
    shape: _Shape,
    text: str,
    sources: Sequence[_Source],
    extracted: Sequence[Any],
) -> _Prepared:
    places: list[tuple[str | None, _Process, Any]] = []
    for source in sources:
        if source.name is None:
            places.append((None, None, _value(source, extracted, None)))
        else:
            places.append((source.name, source.process, None))
    is_constant = all(name is None for name, _, _ in places)
    values = tuple(constant for _, _, constant in places) if is_constant else None
    return _Prepared(statement, parameter_count, shape, text, values, tuple(places))


def _text_of(
    shape: _Shape, extracted: Sequence[Any], parameters: Mapping[str, Any] | None
) -> tuple[str, tuple[_Source, ...]]:
    lengths = tuple([len(_value(source, extracted, parameters)) for source in shape.lists])
    found = shape.texts.get(lengths)
    if found is None:
        found = shape.texts[lengths] = _expand(shape, extracted, parameters)
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
    if not isinstance(statement, Select | UpdateBase):
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
    readers = [_reader(column.type, dialect) for column in compiled._result_columns]
    return _Shape(
        compiled=compiled,
        reads=_tables_in(compiled.string) if isinstance(statement, Select) else None,
        writes=str(statement.table) if isinstance(statement, UpdateBase) else "",
        sources=sources,
        lists=tuple(lists),
        texts={},
        columns=tuple(names),
        readers=tuple((index, reader) for index, reader in enumerate(readers) if reader is not None),
        row_type=collections.namedtuple("Row", names, rename=True) if names else None,
    )


def _reader(kind: Any, dialect: Dialect) -> _Process:
    """What makes the value of a column of what the driver gives. As SQLAlchemy's own, in one call instead of three."""
    if isinstance(kind, PlatformTimeColumn):
        return read_platform_time
    if isinstance(kind, RealTimeColumn):
        return read_real_time
    if isinstance(kind, JSON):
        return _read_json
    process: _Process = kind._cached_result_processor(dialect, None)
    return process


def _read_json(value: Any) -> Any:
    """SQLite keeps a JSON number as a number."""
    return read_json(value) if value.__class__ is str else value


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


def _expand(
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

    __slots__ = ("_rows", "_shape", "rowcount")

    def __init__(self, rows: list[Any], rowcount: int, shape: _Shape) -> None:
        self._rows = rows
        self._shape = shape
        self.rowcount = rowcount

    def _read(self, row: Sequence[Any]) -> list[Any]:
        values = list(row)
        for index, reader in self._shape.readers:
            values[index] = reader(values[index])
        return values

    def __iter__(self) -> Iterator[Any]:
        make = self._shape.row_type._make
        if not self._shape.readers:
            return map(make, self._rows)
        return (make(self._read(row)) for row in self._rows)

    def all(self) -> list[Any]:
        return list(self)

    def first(self) -> Any:
        return self._shape.row_type._make(self._read(self._rows[0])) if self._rows else None

    def scalar(self) -> Any:
        return self._read(self._rows[0])[0] if self._rows else None

    def scalars(self) -> list[Any]:
        return [self._read(row)[0] for row in self._rows]

    def mappings(self) -> _Mappings:
        return _Mappings(self)


class _Mappings:
    __slots__ = ("_result",)

    def __init__(self, result: _Result) -> None:
        self._result = result

    def __iter__(self) -> Iterator[dict[str, Any]]:
        result = self._result
        columns = result._shape.columns
        for row in result._rows:
            yield dict(zip(columns, result._read(row), strict=True))

    def all(self) -> list[dict[str, Any]]:
        return list(self)

    def first(self) -> dict[str, Any] | None:
        result = self._result
        if not result._rows:
            return None
        return dict(zip(result._shape.columns, result._read(result._rows[0]), strict=True))

    def one_or_none(self) -> dict[str, Any] | None:
        return self.first()
