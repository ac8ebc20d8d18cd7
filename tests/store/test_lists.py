"""The console's lists, in each of their orders and page by page, on both databases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from podyard.base.clock import ManualClock
from podyard.control.compute import nodes, persistent_disks, reservations
from podyard.control.compute.persistent_disks import DiskRequest
from podyard.db.compute import disks
from podyard.db.store.unit_of_work import Database
from podyard.db.views import list_queries, lists
from podyard.domain import listing
from podyard.domain.disk import Disk
from podyard.domain.listing import Facet, ListQuery, NodeKind, RowPage
from podyard.domain.lists.filters import Condition
from podyard.domain.lists.pages import Order, RowMark, RowQuery, time_mark
from tests.builders import PROJECT, ZONE, Play, node_spec, request
from tests.store.gang_play import Gangs

PAGE = 2
KINDS = ("v2-8", "v2-32", "v2-8", "v5litepod-8", "v2-8")
Pages = Callable[..., RowPage[Any]]


@pytest.fixture
def play(database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Gangs:
    """Five nodes, five queued resources, five reservations and five jobs; pages of two rows."""
    monkeypatch.setattr(list_queries, "ROWS_A_PAGE", PAGE)
    monkeypatch.setattr(listing, "ROWS_A_PAGE", PAGE)
    found = Gangs(database, clock)
    found.register(8)
    for index, kind in enumerate(KINDS):
        found.run(nodes.create, f"n{index}", node_spec(kind))
        found.queue(request(f"m{index}", kind=kind), f"q{index}")
        found.run(
            reservations.create, f"r{index}", "v2" if index % 3 else "v5p", 4 * (1 + index % 2)
        )
        found.turn(10)
        found.submit(f"j{index}", priority=index)
    found.turn()
    return found


PRICES = {
    NodeKind(ZONE, "v2-8", "2x2", "on-demand"): 4_500_000_000,
    NodeKind(ZONE, "v2-32", "4x4", "on-demand"): 24_000_000_000,
}
LISTS: dict[str, tuple[Pages, Callable[..., list[Facet]], tuple[str, ...]]] = {
    "nodes": (
        partial(lists.node_page, nanos_per_hour=PRICES),
        lists.node_facets,
        (*lists._NODES.orders, "price"),
    ),
    "jobs": (lists.job_page, lists.job_facets, tuple(lists._JOBS.orders)),
    "queued resources": (lists.queued_page, lists.queued_facets, tuple(lists._QUEUED.orders)),
    "reservations": (
        lists.reservation_page,
        lists.reservation_facets,
        tuple(lists._RESERVATIONS.orders),
    ),
}


def walk(play: Play, pages: Pages, query: ListQuery) -> list[Any]:
    """All rows, first page to last, and the same back again."""
    forward: list[list[Any]] = []
    page = play.database.read(lambda uow: pages(uow, PROJECT, query))
    forward.append(list(page.rows))
    while page.after is not None:
        query = dataclasses.replace(query, mark=page.after)
        page = play.database.read(lambda uow, query=query: pages(uow, PROJECT, query))
        forward.append(list(page.rows))
    back = [forward[-1]]
    while page.before is not None:
        query = dataclasses.replace(query, mark=page.before, backwards=True)
        page = play.database.read(lambda uow, query=query: pages(uow, PROJECT, query))
        back.insert(0, list(page.rows))
    assert back == forward and all(len(rows) == PAGE for rows in forward[:-1])
    return [row for rows in forward for row in rows]


@pytest.mark.parametrize("name", LISTS)
def test_pages_in_each_order_are_the_rows_once(play: Gangs, name: str) -> None:
    pages, facets, orders = LISTS[name]
    found = play.database.read(lambda uow: facets(uow, PROJECT))
    for sort in orders:
        up, down = (
            walk(play, pages, ListQuery(sort, descending=descending))
            for descending in (False, True)
        )
        assert (
            down == up[::-1]
            and len(up) == len(set(map(repr, up))) == sum(facet.rows for facet in found) > PAGE
        )
    kinds = {facet.accelerator_type for facet in found}
    for kind in kinds:
        rows = walk(play, pages, ListQuery(orders[0], accelerator_type=kind))
        assert len(rows) == sum(facet.rows for facet in found if facet.accelerator_type == kind)
    assert walk(play, pages, ListQuery(orders[0], text="3")) and not walk(
        play, pages, ListQuery(orders[0], text="%")
    )


@pytest.mark.parametrize("order", [Order.NAME, Order.NEWEST, Order.PLACE])
def test_a_row_query_is_the_same_on_both_databases(
    database: Database, clock: ManualClock, order: Order
) -> None:
    play = Gangs(database, clock)
    for index in range(5):
        asked = DiskRequest(f"d{index}", size_gb=10, labels={"team": "a" if index % 2 else "b"})
        play.run(persistent_disks.create, asked)
        clock.advance(1)
    conditions = (Condition("labels.team", ("b",)), Condition("name", ("d0", "d2", "d4", "d1")))
    first = RowQuery(order, 2, None, conditions)

    def page(query: RowQuery) -> list[Disk]:
        return database.read(lambda uow: disks.page(uow, PROJECT, None, query))

    names = [disk.name for disk in page(first)]
    last = page(first)[-1]
    mark = {
        Order.NAME: RowMark(last.name, last.disk_key),
        Order.NEWEST: time_mark(last.created, last.disk_key),
        Order.PLACE: RowMark(last.zone, last.name),
    }[order]
    names += [disk.name for disk in page(dataclasses.replace(first, after=mark))]
    assert sorted(names) == ["d0", "d2", "d4"]
    if order is not Order.NEWEST:
        assert names == sorted(names)
