"""Lists: filter, order, columns and page are all in the address, so that a list can be shared by
its address. The database does the work (`db/views/lists.py`)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request

from podyard.base.errors import Code, PodyardError, invalid
from podyard.domain.listing import ROWS_A_PAGE, Facet, ListQuery, Mark, RowPage
from podyard.http.guard import CSRF_FIELD, check_csrf

T = TypeVar("T")
TEXT_CHARACTERS_MAX = 200  # of one filter: more than any name has
PICK = "pick"  # the field of a row that is selected: "zone/id"
FORM_FIELDS_MAX = ROWS_A_PAGE + 10  # all rows of a page, and what the form says besides
_FILTERS = ("q", "state", "zone", "type", "label", "idle")


@dataclasses.dataclass(frozen=True, slots=True)
class ListColumn:
    """`key` is its name in addresses. The first column of a list is always shown."""

    key: str
    label: str
    sorts: bool = True
    is_number: bool = False
    usual: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One of the values of a filter, and how many rows there are of it, whatever the other filters
    say."""

    value: str
    label: str


class ListView:
    """The query of a list in its address, and the addresses that lead on from it."""

    def __init__(
        self, request: Request, url: str, columns: Sequence[ListColumn], usual_sort: str
    ) -> None:
        self.url = url
        self.all_columns = columns
        self._given = request.query_params
        self._usual_sort = usual_sort
        chosen = set(self._given.getlist("cols"))
        self.columns = [
            c for c in columns if (c.key in chosen if chosen else c.usual) or c is columns[0]
        ]
        self.filters = {name: self._value(name) for name in _FILTERS}
        self.sort = self._value("sort") or usual_sort
        self.before: Mark | None = None
        self.after: Mark | None = None
        self.choices: Mapping[str, list[Option]] = {}
        self.total = 0
        sortable = [column.key for column in columns if column.sorts]
        if self.sort.removeprefix("-") not in sortable:
            raise invalid(f"unknown order {self.sort!r}: use {', '.join(sortable)}", "sort")

    @property
    def query(self) -> ListQuery:
        found = self.filters
        label = "=".join(part.strip() for part in found["label"].split("=", 1))
        before, after = self._mark("before"), self._mark("after")
        return ListQuery(
            sort=self.sort.removeprefix("-"),
            descending=self.sort.startswith("-"),
            state=found["state"],
            zone=found["zone"],
            accelerator_type=found["type"],
            label=label,
            text=found["q"],
            idle=bool(found["idle"]),
            mark=before or after,
            backwards=before is not None,
        )

    @property
    def is_filtered(self) -> bool:
        return any(self.filters.values())

    @property
    def variant(self) -> str:
        """Return what a live part of this list depends on, besides its path."""
        return str(self._given)

    @property
    def live(self) -> str:
        return f"{self.url}/live?{self.variant}" if self.variant else f"{self.url}/live"

    @property
    def kept_sort(self) -> str:
        """The order, where it is not the usual one."""
        return "" if self.sort == self._usual_sort else self.sort

    def offer(self, facets: Iterable[Facet]) -> None:
        """Fills the filters' choices with what there is."""
        known = list(facets)
        self.total = sum(facet.rows for facet in known)
        for name, read in _FACETS.items():
            counts: Counter[str] = Counter()
            for facet in known:
                counts[read(facet)] += facet.rows
            if self.filters[name]:
                counts.setdefault(self.filters[name], 0)
            self.choices = {
                **self.choices,
                name: [Option(v, f"{v} ({counts[v]:,})") for v in sorted(counts)],
            }

    def take(self, found: tuple[RowPage[T], Iterable[Facet]]) -> Sequence[T]:
        """Return what was found: its rows, after the pages next to them and the filters' choices
        are set."""
        rows, facets = found
        self.before, self.after = rows.before, rows.after
        self.offer(facets)
        return rows.rows

    def is_sorted(self, key: str) -> str:
        """As `aria-sort` says it."""
        if self.sort.removeprefix("-") != key:
            return ""
        return "descending" if self.sort.startswith("-") else "ascending"

    def sort_url(self, column: ListColumn) -> str:
        """A second click turns the order round; numbers begin with the largest."""
        first, second = ("-", "") if column.is_number else ("", "-")
        sort = f"{second if self.sort == first + column.key else first}{column.key}"
        return self._url(sort="" if sort == self._usual_sort else sort)

    def page_url(self, mark: Mark, *, backwards: bool) -> str:
        return self._url(
            sort=self.kept_sort, **{"before" if backwards else "after": f"{mark.value}~{mark.key}"}
        )

    @property
    def first_url(self) -> str:
        return self._url(sort=self.kept_sort)

    def _url(self, **more: str) -> str:
        given = {**self.filters, **more}
        pairs = [(name, value) for name, value in given.items() if value]
        if self._given.getlist("cols"):
            pairs += [("cols", column.key) for column in self.columns]
        return f"{self.url}?{urlencode(pairs)}" if pairs else self.url

    def _value(self, name: str) -> str:
        text = self._given.get(name, "").strip()
        if len(text) > TEXT_CHARACTERS_MAX:
            raise invalid(
                f"{name} has {len(text)} characters: use {TEXT_CHARACTERS_MAX} at most", name
            )
        return text

    def _mark(self, name: str) -> Mark | None:
        value, tilde, key = self._given.get(name, "").rpartition("~")
        return Mark(value, key) if tilde else None


_FACETS: Mapping[str, Callable[[Facet], str]] = {
    "state": lambda facet: facet.state,
    "zone": lambda facet: facet.zone,
    "type": lambda facet: facet.accelerator_type,
}


async def selection_of(request: Request) -> tuple[Mapping[str, str], list[tuple[str, str]]]:
    """The fields of a list's form, and (zone, id) of each row that is selected, after the CSRF
    check."""
    try:
        form: FormData = await request.form(max_files=0, max_fields=FORM_FIELDS_MAX)
    except HTTPException as error:
        raise PodyardError(Code.INVALID_ARGUMENT, str(error.detail)) from None
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    check_csrf(request, fields.get(CSRF_FIELD))
    picked = [str(value).partition("/") for value in form.getlist(PICK)]
    return fields, [(zone, name) for zone, _, name in picked]


def attempt_all(
    items: Sequence[tuple[str, str]], act: Callable[[str, str], object]
) -> list[tuple[str, str]]:
    """Does it to each, by (zone, id), and returns (id, why not) of those that are refused: one that
    cannot be stopped stops no other."""
    refused = []
    for zone, name in items:
        try:
            act(zone, name)
        except PodyardError as error:
            refused.append((name, error.message))
    return refused
