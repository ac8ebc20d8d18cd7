"""The order of the queue, criterion by criterion."""

import dataclasses

import pytest

from podyard.base.errors import PodyardError
from podyard.domain.fleet_file import load_fleet
from podyard.scheduler.queue import Queue, key_of
from tests.unit.scheduler.scheduling import (
    HOSTS,
    ZONE,
    decided,
    held,
    later,
    placed,
    queued,
    request,
    snapshot,
)


def order(*waiting: object, fleet: object = HOSTS, slices: object = ()) -> list[str]:
    taken = snapshot(fleet, waiting, slices)  # type: ignore[arg-type]
    return [key_of(group) for group in Queue(taken).in_order()]


def test_reserved_goes_before_on_demand_and_that_before_what_can_be_interrupted() -> None:
    waiting = [
        request("spot", usage="spot", priority=9, created=later(-9)),
        request("preemptible", usage="preemptible", priority=8),
        request("on-demand", usage="on-demand", priority=5),
        request("reserved", usage="reserved", priority=-5),
    ]
    assert order(*waiting) == ["reserved", "on-demand", "spot", "preemptible"]


def test_within_a_class_priority_goes_before_share_and_share_before_age() -> None:
    rich = [held("a", (0, 0), project="rich"), held("b", (2, 0), project="rich")]
    waiting = [
        request("old-and-rich", project="rich", created=later(-100)),
        request("young-and-poor", project="poor"),
        request("urgent-and-rich", project="rich", priority=1),
    ]
    assert order(*waiting, slices=rich) == ["urgent-and-rich", "young-and-poor", "old-and-rich"]


def test_equal_shares_go_by_age_and_equal_ages_by_key() -> None:
    waiting = [request("b"), request("a", project="other"), request("c", created=later(-1))]
    assert order(*waiting) == ["c", "a", "b"]


def test_a_share_counts_chips_of_its_own_pool_only() -> None:
    fleet = load_fleet(f"zones: {{{ZONE}: {{v2: {{shape: 4x4}}, v3: {{shape: 4x4}}}}}}")
    elsewhere = held("a", (0, 0), project="rich-in-v3", pod_id=f"{ZONE}-v3-0")
    here = held("b", (0, 0), project="rich-in-v2")
    waiting = [
        request("x", project="rich-in-v2", created=later(-1)),
        request("y", project="rich-in-v3"),
    ]
    assert order(*waiting, fleet=fleet, slices=[elsewhere, here]) == ["y", "x"]


def test_what_a_cycle_places_counts_at_once_so_two_projects_take_turns() -> None:
    mine = [request(f"a{i}", project="first", created=later(-10 + i)) for i in range(4)]
    theirs = [request(f"b{i}", project="second") for i in range(4)]
    assert placed(decided(HOSTS, *mine, *theirs)) == ["a0", "b0", "a1", "b1"]


def test_a_weight_is_the_part_of_the_chips_that_a_project_gets() -> None:
    fleet = load_fleet(
        f"{{zones: {{{ZONE}: {{v2: {{shape: 8x4}}}}}}, shares: {{first: 3, second: 1}}}}"
    )
    waiting = [
        request(f"{name}{i}", project=name) for name in ("first", "second") for i in range(8)
    ]
    plan = decided(fleet, *waiting)
    assert [key[:-1] for key in placed(plan)].count("first") == 6


def test_the_nodes_of_a_queued_resource_are_one_gang_with_the_age_of_their_request() -> None:
    group = [queued(f"q/{i}", group="q", created=later(-5)) for i in (1, 0)]
    (found,) = [
        group
        for group in Queue(snapshot(HOSTS, [*group, request("n")])).in_order()
        if len(group) > 1
    ]
    assert [item.node_key for item in found] == ["q/0", "q/1"]
    assert order(*group, request("n")) == ["q", "n"]


def test_rows_in_any_order_give_one_order() -> None:
    waiting = [
        request(f"n{i}", project=f"p{i % 3}", priority=i % 2, created=later(-(i % 5)))
        for i in range(30)
    ]
    slices = [held(f"s{i}", (2 * (i % 2), 2 * (i // 2)), project=f"p{i % 3}") for i in range(4)]
    want = order(*waiting, slices=slices)
    assert order(*reversed(waiting), slices=slices[::-1]) == want
    assert sorted(want) == sorted(item.node_key for item in waiting)
    assert (
        order(*[dataclasses.replace(item, priority=0) for item in waiting], slices=slices) != want
    )


@pytest.mark.parametrize("weight", ["0", "-1", ".inf", ".nan", "true", "many"])
def test_a_share_is_a_weight_above_zero(weight: str) -> None:
    with pytest.raises(PodyardError, match=r"shares\.demo: .* is not a weight above 0"):
        load_fleet(f"{{zones: {{{ZONE}: {{v2: {{}}}}}}, shares: {{demo: {weight}}}}}")
