"""When what waits will start: the known ends played forward."""

import dataclasses

import pytest

from podyard.base.rng import Streams
from podyard.domain.fleet import NodeTimings
from podyard.domain.fleet_file import load_fleet
from podyard.scheduler.cycle import PREEMPTING_MAX, decide, order
from podyard.scheduler.predict import ENDS_MAX, predict
from podyard.scheduler.queue import Queue, key_of
from tests.unit.scheduler.scheduling import (
    HOSTS,
    NOW,
    WIDE,
    ZONE,
    decided,
    everything,
    held,
    later,
    queued,
    request,
    snapshot,
    victims,
)


def test_gangs_start_one_after_the_other_as_slices_end() -> None:
    ends = [100, 200, 300]
    slices = [
        held(str(i), (2 * (i % 2), 2 * (i // 2)), ends=later(seconds))
        for i, seconds in enumerate(ends)
    ]
    waiting = [queued(f"q{i}", created=later(i - 9), duration_seconds=150.0) for i in range(5)]
    starts = predict(snapshot(HOSTS, waiting, slices), NOW)
    # The box that is free is given back after 150 s.
    assert starts == {
        "q0": later(0),
        "q1": later(100),
        "q2": later(150),
        "q3": later(200),
        "q4": later(250),
    }


def test_the_slices_of_a_job_start_when_there_is_room_for_all() -> None:
    both = [request(f"j-{n}", created=later(-9), queued=True, job_group="j") for n in range(2)]
    ends = [held(f"n{n}", (0, 2 * n), ends=later(100 * (n + 1))) for n in range(2)]
    rest = held("rest", (2, 0), (2, 4), "on-demand")
    assert predict(snapshot(HOSTS, both, [*ends, rest]), NOW) == {"j": later(200)}


def test_what_waits_for_an_endless_slice_or_has_no_end_to_wait_for_is_not_predicted() -> None:
    starts = predict(snapshot(HOSTS, [queued("a"), queued("b")], [everything("all")]), NOW)
    assert starts == {"a": None, "b": None}


def test_the_victims_of_a_gang_are_gone_after_their_notice() -> None:
    fleet = dataclasses.replace(HOSTS, timings=NodeTimings(preemption_notice_seconds=30.0))
    taken = snapshot(fleet, [queued("firm", usage="on-demand")], [everything("all", "spot")])
    assert predict(taken, NOW) == {"firm": later(30)}


def test_a_full_pool_without_known_ends_is_not_played_through() -> None:
    """Thousands of slices, and nothing that can happen: no box is looked for."""
    job = dataclasses.replace(queued("job"), job_priority=5)
    taken = snapshot(HOSTS, [job, queued("b")], [everything("all", "on-demand")])
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("podyard.scheduler.predict.Cycle")
        assert predict(taken, NOW) == {"job": None, "b": None}
    lower = dataclasses.replace(everything("all", "spot"), job_priority=1)
    assert predict(snapshot(HOSTS, [job], [lower]), NOW)["job"] is not None, (
        "it may take the slice of a lower job"
    )


def test_two_projects_take_turns_and_one_project_needs_no_cycle_to_be_ordered() -> None:
    waiting = [queued("b", project="p"), queued("a", project="p"), queued("c", project="q")]
    assert not Queue(snapshot(WIDE, waiting)).is_fixed
    assert Queue(snapshot(WIDE, waiting[:2])).is_fixed
    assert [key_of(group) for group in order(snapshot(WIDE, waiting[:2]), NOW)] == ["a", "b"]


def test_a_time_that_has_not_come_is_waited_for() -> None:
    assert predict(snapshot(HOSTS, [queued("a", not_before=later(50))]), NOW) == {"a": later(50)}


def test_a_plain_node_is_not_predicted_and_not_in_the_way() -> None:
    waiting = [request("plain", "v2-32", usage="on-demand"), queued("small")]
    slices = [held("a", (0, 0), usage="on-demand")]
    assert predict(snapshot(HOSTS, waiting, slices), NOW) == {"small": later(0)}


def test_the_prediction_is_what_happens() -> None:
    slices = [held(str(i), (2 * (i % 2), 2 * (i // 2)), ends=later(60 * i + 60)) for i in range(4)]
    waiting = [
        queued(f"big{i}", "v2-32", created=later(-i), duration_seconds=500.0) for i in range(2)
    ]
    starts = predict(snapshot(HOSTS, waiting, slices), NOW)
    assert starts == {"big1": later(240), "big0": later(740)}
    for key, start in starts.items():
        assert start is not None
        left = [item for item in slices if item.ends is not None and item.ends > start]
        others = [item for item in waiting if starts[item.group] == start]
        plan = decide(snapshot(HOSTS, others, left), start, Streams(1))
        assert [place.node_key for place in plan.places] == [key]


def test_the_play_ends_at_its_limit() -> None:
    chain = [
        queued(f"q{i:03d}", "v2-128", created=later(i), duration_seconds=10.0)
        for i in range(ENDS_MAX)
    ]
    running = held("now", (0, 0), (8, 8), ends=later(10), pod_shape=(8, 8))
    starts = predict(snapshot(WIDE, chain, [running]), NOW)
    found = [start for start in starts.values() if start is not None]
    assert len(found) == ENDS_MAX - 1
    assert found == sorted(found)


def test_only_the_pools_that_are_asked_for() -> None:
    assert predict(snapshot(HOSTS, [queued("a")]), NOW, {(ZONE, "v4")}) == {}
    assert predict(snapshot(HOSTS, [queued("a")]), NOW, {(ZONE, "v2")}) == {"a": NOW}


def test_the_order_is_that_in_which_the_cycle_decides() -> None:
    waiting = [queued("b", project="p"), queued("a", project="p"), queued("c", project="q")]
    assert [key_of(group) for group in order(snapshot(WIDE, waiting), NOW)] == ["a", "c", "b"]


def test_a_cycle_preempts_for_so_many_gangs_and_the_next_ones_have_their_turn_later() -> None:
    boxes = [(2 * x, 2 * y) for x in range(8) for y in range(8)]
    slices = [held(f"n{i:02d}", origin, pod_shape=(16, 16)) for i, origin in enumerate(boxes)]
    fleet = load_fleet(f"zones: {{{ZONE}: {{v2: {{shape: 16x16}}}}}}")
    asking = [request(f"r{i:02d}", usage="on-demand") for i in range(PREEMPTING_MAX + 5)]
    plan = decided(fleet, *asking, slices=slices)
    assert len(victims(plan)) == PREEMPTING_MAX
    assert not any(wait.stockout for wait in plan.waits)
    again = [
        dataclasses.replace(s, reclaim=NOW) if s.node_key in victims(plan) else s for s in slices
    ]
    assert len(victims(decided(fleet, *asking, slices=again))) == 5
