"""Refuses every write to a column `state` that does not come from `transition`, at run time.

A state that is written past the machine's table has no event: it is not metered, and no audit shows
it. Tests of the house look for such writes in the source; this finds those that a reader cannot
see. SQL given as text is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Executable, Insert, Update

STATE = "state"
_WRITES = (Insert, Update)
# tables whose `state` is what an event says, and no resource's
COPIES = frozenset({"usage_events"})


class StateWritten(AssertionError):
    """A fault of ours: a state was about to be written past `transition`."""

    def __init__(self, table: str) -> None:
        super().__init__(f"{table}.{STATE} is written by podyard/db/store/transition.py alone")


def check_names(table: str, names: Iterable[str]) -> None:
    """Raises StateWritten when the columns that are written hold a state."""
    if STATE in names and table not in COPIES:
        raise StateWritten(table)


def check(statement: Executable, parameters: Any) -> None:
    """Raises StateWritten for a statement that writes a state, in whatever form its values are
    given."""
    if isinstance(statement, _WRITES):
        check_names(
            str(getattr(statement.table, "name", statement.table)), _names(statement, parameters)
        )


def _names(statement: Insert | Update, parameters: Any) -> set[str]:
    """The columns that the statement writes. SQLAlchemy has no public way to ask; the tests give
    each form."""
    given: list[Any] = list(statement._values or ())
    # until 2.0; since then they are in `_values`
    for column, _ in getattr(statement, "_ordered_values", None) or ():
        given.append(column)
    for several in statement._multi_values:
        for row in several:
            given += row if isinstance(row, Mapping) else statement.table.c
    given += getattr(statement, "_select_names", None) or ()
    # SQLAlchemy adds parameters with the name of a column to the values, and refuses such names in
    # conditions.
    for named in [parameters] if isinstance(parameters, Mapping) else parameters or ():
        given += named
    return {getattr(column, "key", column) for column in given}
