"""The console's lists of instances and groups, in each of their orders and page by page, on both
databases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from podyard.base.clock import ManualClock
from podyard.control.compute.instances import groups, life
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.views import instance_lists, list_queries
from podyard.domain import listing
from podyard.domain.instances.group import GroupRequest, GroupSpec, TargetSizeMode
from podyard.domain.instances.instance import Instance
from podyard.domain.listing import Facet, ListQuery, NodeKind
from podyard.domain.principal import PLATFORM
from tests.builders import PROJECT, ZONE, Play
from tests.store.instances.test_groups import POLICY, SLICE, TEMPLATE, describe
from tests.store.instances.test_life import CPU, FLEX, TPU, insert
from tests.store.test_lists import PAGE, Pages, walk

FLEET = """
zones:
  us-central1-a: {v5e: {shape: 4x4}}
timings: {create_seconds: 10}
"""
ALONE = NodeKind(ZONE, "v5litepod-4", "2x2", "on-demand")
OF_SLICE = NodeKind(ZONE, "v5litepod-8", "2x4", "on-demand")
PRICES = {ALONE: 4_800_000_000, OF_SLICE: 9_600_000_000}


@pytest.fixture
def play(database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Seven instances, two of which are one slice, and five groups; pages of two rows. The pod has
    room for all chips but those of `wants`."""
    monkeypatch.setattr(list_queries, "ROWS_A_PAGE", PAGE)
    monkeypatch.setattr(listing, "ROWS_A_PAGE", PAGE)
    play = Play(database, clock, FLEET)
    insert(play, "cpu-1", CPU, labels={"team": "a"})
    insert(play, "cpu-2", CPU)
    insert(play, "tpu-3", TPU, labels={"team": "a"})
    insert(play, "tpu-4", TPU)
    describe(play)
    play.database.run(lambda uow: _group(uow, play, "g", SLICE, 2))
    play.turn()
    insert(play, "wants", TPU, scheduling=FLEX)
    play.turn(10)
    play.run(life.stop, "cpu-2")
    play.turn()
    single = GroupSpec(TEMPLATE, "x", TargetSizeMode.INDIVIDUAL)
    for index in range(4):
        play.database.run(partial(_group, play=play, name=f"e{index}", spec=single, size=0))
        clock.advance(1)
    return play


def _group(uow: UnitOfWork, play: Play, name: str, spec: GroupSpec, size: int) -> None:
    request = GroupRequest(name, spec, size)
    groups.insert(uow, play.fleet, PLATFORM, PROJECT, ZONE, request)


LISTS: dict[str, tuple[Pages, Callable[..., list[Facet]], tuple[str, ...]]] = {
    "instances": (
        partial(instance_lists.instance_page, nanos_per_hour=PRICES),
        instance_lists.instance_facets,
        (*instance_lists._INSTANCES.orders, "price"),
    ),
    "groups": (
        instance_lists.group_page,
        instance_lists.group_facets,
        tuple(instance_lists._GROUPS.orders),
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_pages_in_each_order_are_the_rows_once(play: Play, name: str) -> None:
    pages, facets, orders = LISTS[name]
    count = sum(facet.rows for facet in play.database.read(lambda uow: facets(uow, PROJECT)))
    assert count > PAGE
    for sort in orders:
        up, down = (
            walk(play, pages, ListQuery(sort, descending=descending))
            for descending in (False, True)
        )
        assert down == up[::-1] and len(up) == len(set(map(repr, up))) == count, sort


def _instances(play: Play, query: ListQuery) -> list[Instance]:
    return walk(play, LISTS["instances"][0], query)


def _names(play: Play, query: ListQuery) -> list[str]:
    return [one.row.name for one in _instances(play, query)]


def test_the_database_knows_the_status_that_is_shown(play: Play) -> None:
    """Also of what waits for chips, which is no state of its row."""
    every = _instances(play, ListQuery("state"))
    assert {one.status for one in every} == {"RUNNING", "TERMINATED", "PENDING"}
    assert [one.status for one in every] == sorted(one.status for one in every)
    facets = play.database.read(lambda uow: instance_lists.instance_facets(uow, PROJECT))
    for status in {one.status for one in every}:
        matching = sorted(one.row.name for one in every if one.status is status)
        assert _names(play, ListQuery("name", state=status)) == matching
        assert sum(facet.rows for facet in facets if facet.state == status) == len(matching)


def test_instances_are_filtered_by_what_pages_show_of_them(play: Play) -> None:
    of_group = _names(play, ListQuery("name", text="G-"))
    assert len(of_group) == 2 and all(name.startswith("g-") for name in of_group)
    assert _names(play, ListQuery("name", label="team=a")) == ["cpu-1", "tpu-3"]
    assert _names(play, ListQuery("name", accelerator_type=CPU)) == ["cpu-1", "cpu-2"]
    assert _names(play, ListQuery("name", zone="nowhere")) == []
    assert _names(play, ListQuery("group", descending=True))[:2] == of_group[::-1]


def test_an_instance_of_a_slice_has_its_share_of_price_and_cost(play: Play) -> None:
    """The slice of two costs twice what an instance alone does: each of the two is as dear."""
    dear = _names(play, ListQuery("price", descending=True))
    assert set(dear[:5]) == {"tpu-3", "tpu-4", "wants", *_names(play, ListQuery("name", text="g-"))}
    every = {one.row.name: one for one in _instances(play, ListQuery("name"))}
    member = next(one for name, one in every.items() if name.startswith("g-"))
    costs = {member.node.node_key: 10, every["tpu-3"].node.node_key: 6}
    pages = partial(instance_lists.instance_page_by_cost, costs=costs)
    by_cost = [one.row.name for one in walk(play, pages, ListQuery("cost", descending=True))]
    assert by_cost[0] == "tpu-3" and all(name.startswith("g-") for name in by_cost[1:3])


def test_groups_are_sorted_by_their_size(play: Play) -> None:
    rows = walk(play, instance_lists.group_page, ListQuery("size", descending=True))
    assert [row.name for row in rows] == ["g", "e3", "e2", "e1", "e0"]
    assert rows[0].spec.workload_policy == POLICY
