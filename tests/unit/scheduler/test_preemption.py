"""Whose slices are taken, and what the requester is told."""

import dataclasses

import pytest

from podyard.domain.fleet import NodeTimings
from podyard.domain.fleet_file import load_fleet
from podyard.domain.plan import Preempt, Wait, WaitGroup
from podyard.domain.slice import SliceRecord
from podyard.scheduler.preemption import VICTIM_CHIP_SECONDS, cost, may_take
from tests.unit.scheduler.scheduling import (
    HOSTS,
    ZONE,
    decided,
    everything,
    held,
    later,
    placed,
    queued,
    reasons,
    request,
    victims,
)

BOXES = [(0, 0), (2, 0), (0, 2), (2, 2)]


def full(**changes: object) -> list[SliceRecord]:
    return [held(f"n{i}", origin, **changes) for i, origin in enumerate(BOXES)]


def test_an_on_demand_request_takes_a_spot_slice_and_waits_for_it() -> None:
    notice = dataclasses.replace(HOSTS, timings=NodeTimings(preemption_notice_seconds=30.0))
    plan = decided(notice, request("new", usage="on-demand"), slices=full(node_version=7))
    preempt, wait = plan.actions
    assert preempt == Preempt("n0", 7, "its chips are needed for an on-demand request")
    assert isinstance(wait, Wait)
    assert not wait.stockout
    assert wait.reason == (
        f"v2-8 waits for 1 slice taken back for it; they are gone from {later(30).rfc3339()}"
    )


@pytest.mark.parametrize("usage", ["on-demand", "reserved"])
def test_on_demand_and_reserved_slices_are_never_taken(usage: str) -> None:
    for asking in ("on-demand", "spot"):
        plan = decided(HOSTS, request("new", usage=asking, priority=1000), slices=full(usage=usage))
        assert victims(plan) == []
        (wait,) = plan.waits
        assert wait.stockout


def test_spot_takes_nothing_from_spot() -> None:
    assert victims(decided(HOSTS, request("new", priority=1000), slices=full())) == []


def test_a_free_box_is_taken_before_anybody_is_preempted() -> None:
    plan = decided(HOSTS, request("new", usage="on-demand"), slices=full()[:3])
    assert (placed(plan), victims(plan)) == (["new"], [])


def test_the_least_lost_work_goes() -> None:
    work = [500.0, 80.0, 2000.0, 81.0]
    slices = [
        dataclasses.replace(item, lost_work_seconds=lost)
        for item, lost in zip(full(), work, strict=True)
    ]
    assert victims(decided(HOSTS, request("new", usage="on-demand"), slices=slices)) == ["n1"]
    assert victims(
        decided(HOSTS, *(request(f"x{i}", usage="on-demand") for i in "ab"), slices=slices)
    ) == ["n1", "n3"]


def test_one_victim_goes_rather_than_two_that_lose_a_little_less() -> None:
    # A box of 4x4 in a pod of 8x4: on the left one slice with 100 s to lose, on the right two that
    # have just saved.
    fleet = load_fleet(f"zones: {{{ZONE}: {{v2: {{shape: 8x4}}}}}}")
    slices = [
        held("one", (0, 0), (4, 4), pod_shape=(8, 4), lost_work_seconds=100.0),
        held("two", (4, 0), (4, 2), pod_shape=(8, 4)),
        held("three", (4, 2), (4, 2), pod_shape=(8, 4)),
    ]
    assert cost(slices[0]) == 100 * 16 + VICTIM_CHIP_SECONDS
    assert victims(decided(fleet, request("new", "v2-32", "on-demand"), slices=slices)) == ["one"]
    slices[0] = dataclasses.replace(slices[0], lost_work_seconds=300.0)
    assert victims(decided(fleet, request("new", "v2-32", "on-demand"), slices=slices)) == [
        "three",
        "two",
    ]


def test_a_gang_takes_each_slice_once() -> None:
    group = [queued(f"g/{i}", usage="on-demand", group="g") for i in range(4)]
    plan = decided(HOSTS, *group, slices=[everything("all", "spot")])
    assert victims(plan) == ["all"]
    assert isinstance(plan.actions[-1], WaitGroup)
    assert sorted(victims(decided(HOSTS, *group, slices=full()))) == ["n0", "n1", "n2", "n3"]


def test_a_gang_that_preemption_cannot_help_takes_nobody() -> None:
    group = [queued(f"g/{i}", usage="on-demand", group="g") for i in range(4)]
    slices = [*full()[:3], held("firm", (2, 2), usage="on-demand")]
    assert victims(decided(HOSTS, *group, slices=slices)) == []


def test_what_is_under_notice_is_waited_for_and_nothing_more_is_taken() -> None:
    slices = full()
    slices[2] = dataclasses.replace(slices[2], reclaim=later(20))
    plan = decided(HOSTS, request("new", usage="on-demand"), slices=slices)
    assert victims(plan) == []
    assert not plan.waits[0].stockout
    assert "1 slice taken back for it" in plan.waits[0].reason
    # A second one needs a separate slice: the one under notice is for the first.
    two = decided(
        HOSTS, request("new", usage="on-demand"), request("newer", usage="on-demand"), slices=slices
    )
    assert len(victims(two)) == 1


def test_nobody_else_is_placed_on_the_free_part_of_the_box_that_is_waited_for() -> None:
    slices = [dataclasses.replace(full()[0], reclaim=later(20))]
    waiting = [
        request("whole", "v2-32", usage="on-demand"),
        request("spot"),
        queued("short", duration_seconds=19.0),
    ]
    plan = decided(HOSTS, *waiting, slices=slices)
    assert placed(plan) == ["short"]
    assert (
        f"held for a request that comes before it from {later(20).rfc3339()}"
        in reasons(plan)["spot"]
    )


def test_a_slice_that_is_leaving_is_not_taken_again() -> None:
    asked = request("new", usage="on-demand")
    assert may_take(asked, full()[0], later(0))
    assert not may_take(asked, dataclasses.replace(full()[0], ends=later(0)), later(0))
    assert not may_take(asked, dataclasses.replace(full()[0], reclaim=later(9)), later(0))


def test_a_job_takes_the_nodes_of_lower_jobs_of_its_project_only() -> None:
    def taken(asked: object, **changes: object) -> bool:
        return bool(victims(decided(HOSTS, asked, slices=full(**changes))))  # type: ignore[arg-type]

    job = queued("job", usage="on-demand", group="", job_priority=5, priority=5)
    spot_job = dataclasses.replace(job, usage_class=request("x").usage_class)
    assert taken(job, usage="on-demand", job_priority=4)
    assert not taken(job, usage="on-demand", job_priority=5)
    assert not taken(job, usage="on-demand", job_priority=4, project="other")
    assert not taken(job, usage="on-demand")  # a user made it
    assert taken(job, project="other")  # spot gives way to on-demand, in any project
    assert taken(spot_job, job_priority=4)
    assert not taken(spot_job, job_priority=4, project="other")
    assert not taken(spot_job)


def test_the_reason_of_a_victim_says_nothing_of_whose_request_it_is() -> None:
    plan = decided(
        HOSTS, request("secret-name", usage="on-demand", project="theirs"), slices=full()
    )
    (preempt,) = [action for action in plan.actions if isinstance(action, Preempt)]
    assert "secret-name" not in preempt.reason
    assert "theirs" not in preempt.reason
