"""SQLAlchemy's statements on one SQLite connection, straight through the driver.

The platform asks the same few hundred statements again and again. SQLAlchemy compiles each shape
once; this keeps, per shape, the text, where each of its parameters comes from, and how each column
is read, so that an execution is little more than the driver's own. What it does not know (defaults
of columns, several rows at once) is left to SQLAlchemy: the result is the same, only slower.
`tests/simulation/test_inline.py` compares the two.

Most statements are made once, at import: of those, what is the same each time is worked out once
for each object.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    ClauseElement,
    CompoundSelect,
    Connection,
    CursorResult,
    Dialect,
    Executable,
    Select,
    UpdateBase,
)
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

from podyard.db.tables.base import metadata
from podyard.db.tables.types import (
    PlatformTimeColumn,
    RealTimeColumn,
    read_json,
    read_platform_time,
    read_real_time,
)

_Process = Callable[[Any], Any] | None
# of statements: the platform has some 700, and lists in the console make others
SHAPES_KEPT_MAX = 1_500
TEXTS_KEPT_MAX = 64  # of one shape: one for each length of its lists


@dataclasses.dataclass(frozen=True, slots=True)
class _Source:
    """The source of a parameter's value: from the caller by name, from the statement by position,
    or it is always `constant`. `element`: of a list, this one."""

    name: str | None
    position: int | None
    constant: Any
    element: int | None
    process: _Process


@dataclasses.dataclass(slots=True)
class Shape:
    """All statements with one cache key. `reads`: the tables of a query; None for what writes, into
    `writes`."""

    compiled: SQLCompiler
    reads: tuple[str, ...] | None
    writes: str
    sources: Mapping[str, _Source]  # by the name of the parameter in `compiled`
    lists: tuple[_Source, ...]  # of IN (...): how long they are decides on the text
    texts: dict[tuple[int, ...], tuple[str, tuple[_Source, ...]]]
    columns: tuple[str, ...]
    readers: tuple[tuple[int, Callable[[Any], Any]], ...]
    row_type: Any  # made for the first rows that are not asked for as mappings


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """One statement object. `values`: all of them, where no parameter has a name; else each is a
    constant, or the parameter `name`, as `process` makes it. `statement`: takes this out of
    `_PREPARED` when the object goes."""

    statement: weakref.ref[Executable]
    parameter_count: int
    shape: Shape
    text: str
    values: tuple[Any, ...] | None
    places: tuple[tuple[str | None, _Process, Any], ...]
    is_streamed: bool


_PREPARED: dict[int, _Prepared] = {}  # by `id` of the statement, for as long as it lives
_UNKNOWN: Any = object()
_SHAPES: dict[Any, Shape | None] = {}  # of all connections


class DirectConnection:
    """The part of `Connection` that a unit of work uses."""

    def __init__(self, connection: Connection) -> None:
        self._slow = connection
        self.connection: Any = connection.connection
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self.driver = driver
        self.dialect = connection.dialect
        self.engine = connection.engine

    def exec_driver_sql(
        self, text: str, parameters: Mapping[str, Any] | None = None
    ) -> CursorResult[Any]:
        return self._slow.exec_driver_sql(text, parameters)

    def command(self, text: str) -> None:
        """One without parameters and rows, such as COMMIT."""
        self._ask(text, ())

    def execute(self, statement: Executable, parameters: Any = None) -> Any:
        prepared = _PREPARED.get(id(statement))
        count = len(parameters) if parameters else 0
        if prepared is None or prepared.parameter_count != count or isinstance(parameters, list):
            return self._first(statement, parameters)
        values = prepared.values
        if values is None:
            values = tuple(
                [
                    constant
                    if name is None
                    else parameters[name]
                    if process is None
                    else process(parameters[name])
                    for name, process, constant in prepared.places
                ]
            )
        return self._run(prepared.shape, prepared.text, values, prepared.is_streamed)

    def _first(self, statement: Executable, parameters: Any) -> Any:
        """Executes a statement that is not prepared, and prepares it where that can be."""
        key = None if isinstance(parameters, list) else statement._generate_cache_key()  # type: ignore[attr-defined]
        if key is None:
            return self._at_length(statement, parameters)
        name = (key[0], *sorted(parameters)) if parameters else key[0]
        shape = _SHAPES.get(name, _UNKNOWN)
        if shape is _UNKNOWN:
            if len(_SHAPES) >= SHAPES_KEPT_MAX:
                _SHAPES.clear()
            shape = _SHAPES[name] = _shape_of(statement, self.dialect, key[1], parameters or {})
        if shape is None:
            return self._at_length(statement, parameters)
        text, sources = _text_of(shape, key[1], parameters)
        is_streamed = "yield_per" in statement.get_execution_options()
        if not any(source.name for source in shape.lists):
            _prepare(statement, len(parameters or ()), shape, text, sources, key[1], is_streamed)
        values = tuple([_value(source, key[1], parameters) for source in sources])
        return self._run(shape, text, values, is_streamed)

    def _run(self, shape: Shape, text: str, values: tuple[Any, ...], is_streamed: bool) -> Any:
        """`is_streamed`: the rows are many, and read as they are wanted."""
        if shape.reads is None:
            return DirectResult([], self._ask(text, values).rowcount, shape)
        return DirectResult(
            self._ask(text, values) if is_streamed else self._read_all(text, values), -1, shape
        )

    def _read_all(self, text: str, values: tuple[Any, ...]) -> list[Any]:
        cursor = self._ask(text, values)
        try:
            return cursor.fetchall()
        except sqlite3.Error as error:
            raise _wrapped(text, error) from error

    def _ask(self, text: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        """All that goes to the driver goes through here. Its errors are SQLAlchemy's."""
        try:
            return self.driver.execute(text, values)
        except sqlite3.Error as error:
            raise _wrapped(text, error) from error

    def _at_length(self, statement: Executable, parameters: Any = None) -> Any:
        return self._slow.execute(statement, parameters)


def _wrapped(text: str, error: sqlite3.Error) -> BaseException:
    """As SQLAlchemy raises it, without the values."""
    return DBAPIError.instance(text, None, error, sqlite3.Error, hide_parameters=True)


def _tables_in(text: str) -> tuple[str, ...]:
    """All tables that a query names, and maybe more: whatever is written like one."""
    return tuple(sorted(set(re.findall(r"\w+", text)) & set(metadata.tables)))


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
    shape: Shape,
    text: str,
    sources: Sequence[_Source],
    extracted: Sequence[Any],
    is_streamed: bool,
) -> None:
    places: list[tuple[str | None, _Process, Any]] = []
    for source in sources:
        if source.name is None:
            places.append((None, None, _value(source, extracted, None)))
        else:
            places.append((source.name, source.process, None))
    is_constant = all(name is None for name, _, _ in places)
    values = tuple(constant for _, _, constant in places) if is_constant else None
    key = id(statement)
    # which takes the reference as its default
    life = weakref.ref(statement, functools.partial(_PREPARED.pop, key))
    _PREPARED[key] = _Prepared(
        life, parameter_count, shape, text, values, tuple(places), is_streamed
    )


def _text_of(
    shape: Shape, extracted: Sequence[Any], parameters: Mapping[str, Any] | None
) -> tuple[str, tuple[_Source, ...]]:
    lengths = tuple([len(_value(source, extracted, parameters)) for source in shape.lists])
    found = shape.texts.get(lengths)
    if found is None:
        if len(shape.texts) >= TEXTS_KEPT_MAX:
            shape.texts.clear()
        found = shape.texts[lengths] = _expand(shape, extracted, parameters)
    return found


def _shape_of(
    statement: Any, dialect: Dialect, extracted: Sequence[Any], parameters: Mapping[str, Any]
) -> Shape | None:
    """None for what is left to SQLAlchemy."""
    if not isinstance(statement, ClauseElement):
        return None
    compiled = statement.compile(dialect=dialect, column_keys=sorted(parameters) or None)
    if (
        not isinstance(compiled, SQLCompiler)
        or compiled.positiontup is None
        or compiled.literal_execute_params
    ):
        return None
    if not isinstance(statement, Select | CompoundSelect | UpdateBase):
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
    return Shape(
        compiled=compiled,
        reads=None if isinstance(statement, UpdateBase) else _tables_in(compiled.string),
        writes=str(statement.table) if isinstance(statement, UpdateBase) else "",
        sources=sources,
        lists=tuple(lists),
        texts={},
        columns=tuple(names),
        readers=tuple(
            (index, reader) for index, reader in enumerate(readers) if reader is not None
        ),
        row_type=None,
    )


def _reader(kind: Any, dialect: Dialect) -> _Process:
    """Return what makes the value of a column of what the driver gives. As SQLAlchemy's own, in one
    call instead of three."""
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
    if bound.required:
        return None  # SQLAlchemy says that it is missing
    # Parameters of an INSERT or UPDATE may be copies of those in the statement, of the same key.
    places = [index for index, item in enumerate(extracted) if item.key == bound.key]
    if places:
        return _Source(None, places[-1], None, None, process)
    # The compiler's own, such as the 0 of OFFSET.
    return _Source(None, None, bound.effective_value, None, process)


def _expand(
    shape: Shape, extracted: Sequence[Any], parameters: Mapping[str, Any] | None
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
    return state.statement, tuple(
        elements.get(name) or shape.sources[name] for name in state.positiontup
    )


class DirectResult:
    """The part of a `CursorResult` that use cases read. Mappings are plain dicts. `rows`: read
    once, if they are streamed."""

    __slots__ = ("_rows", "_shape", "rowcount")

    def __init__(self, rows: Iterable[Any], rowcount: int, shape: Shape) -> None:
        self._rows = rows
        self._shape = shape
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        make = self._row_type._make
        if not self._shape.readers:
            return map(make, self._rows)
        return (make(self._read(row)) for row in self._rows)

    def all(self) -> list[Any]:
        return list(self)

    def first(self) -> Any:
        return next(iter(self), None)

    def scalar(self) -> Any:
        row = next(iter(self._rows), None)
        return None if row is None else self._read(row)[0]

    def scalar_one(self) -> Any:
        (found,) = self.scalars()
        return found

    def scalars(self) -> list[Any]:
        return [self._read(row)[0] for row in self._rows]

    def mappings(self) -> Mappings:
        return Mappings(self)

    @property
    def _row_type(self) -> Any:
        made = self._shape.row_type
        if made is None:
            made = self._shape.row_type = collections.namedtuple(
                "Row", self._shape.columns, rename=True
            )
        return made

    def _read(self, row: Sequence[Any]) -> list[Any]:
        values = list(row)
        for index, reader in self._shape.readers:
            values[index] = reader(values[index])
        return values


class Mappings:
    __slots__ = ("_result",)

    def __init__(self, result: DirectResult) -> None:
        self._result = result

    def __iter__(self) -> Iterator[dict[str, Any]]:
        result = self._result
        columns = result._shape.columns
        for row in result._rows:
            yield dict(zip(columns, result._read(row), strict=True))

    def all(self) -> list[dict[str, Any]]:
        return list(self)

    def first(self) -> dict[str, Any] | None:
        return next(iter(self), None)

    def one_or_none(self) -> dict[str, Any] | None:
        return self.first()
