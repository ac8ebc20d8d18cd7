"""Pages of rows: order, place to begin at, and conditions of a list as SQL."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, case, literal, tuple_

from podyard.base.clock import PlatformTime
from podyard.domain.lists.filters import CREATED, LABELS, Condition
from podyard.domain.lists.pages import Order, RowQuery


@dataclasses.dataclass(frozen=True)
class RowColumns:
    """The columns of a list. `key` tells rows apart. `fields`: by the names of conditions;
    `labels`: the JSON of labels, if the rows have any; `own_labels`: another one, which counts
    instead where it is there."""

    name: ColumnElement[str]
    place: ColumnElement[str]
    created: ColumnElement[PlatformTime]
    key: ColumnElement[str]
    fields: Mapping[str, ColumnElement[Any]]
    labels: Any = None
    own_labels: Any = None


def select_page(rows: Select[Any], columns: RowColumns, query: RowQuery) -> Select[Any]:
    """The rows of one page out of `rows`."""
    orders: Mapping[Order, tuple[ColumnElement[Any], ColumnElement[str]]] = {
        Order.NAME: (columns.name, columns.key),
        Order.NEWEST: (columns.created, columns.key),
        Order.PLACE: (columns.place, columns.name),
    }
    order = orders[query.order]
    down = query.order is Order.NEWEST
    narrowed = rows.where(*(_where(columns, condition) for condition in query.conditions))
    if query.after is not None:
        mark = query.after
        value = PlatformTime(int(mark.value)) if down else mark.value
        here = tuple_(literal(value, order[0].type), literal(mark.key, order[1].type))
        place = tuple_(*order)
        narrowed = narrowed.where(place < here if down else place > here)
    return narrowed.order_by(*(column.desc() if down else column for column in order)).limit(
        query.limit
    )


_SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _where(columns: RowColumns, condition: Condition) -> ColumnElement[bool]:
    if condition.field == CREATED:
        side: ColumnElement[bool] = _SIGNS[condition.sign](columns.created, condition.moment)
        return side
    label = condition.field.removeprefix(LABELS)
    if label != condition.field:
        stored = columns.labels[label].as_string()
        if columns.own_labels is not None:
            has_none = columns.own_labels.as_string().is_(None)
            stored = case((has_none, stored), else_=columns.own_labels[label].as_string())
        is_one: ColumnElement[bool] = stored.in_(condition.values)
        return is_one
    return columns.fields[condition.field].in_(condition.values)
