"""Room for a node that nobody has asked for: the same answer as the cycle would give."""

import dataclasses

from podyard.domain.fleet import NodeTimings
from podyard.scheduler.probe import NODES_COUNTED_MAX, probe
from tests.unit.scheduler.scheduling import (
    HOSTS,
    NOW,
    WIDE,
    decided,
    everything,
    held,
    later,
    queued,
    request,
    snapshot,
)


def test_as_many_as_fit_are_counted_up_to_the_limit() -> None:
    wanted = request("~probe")
    assert probe(snapshot(HOSTS, []), wanted, NOW).nodes == 4
    assert probe(snapshot(WIDE, []), wanted, NOW).nodes == NODES_COUNTED_MAX
    one = probe(snapshot(HOSTS, [], [held("a", (0, 0)), held("b", (2, 2))]), wanted, NOW)
    assert (one.nodes, one.free_chips, one.chips) == (2, 8, 16)


def test_what_waits_comes_first() -> None:
    assert probe(snapshot(HOSTS, [queued("q", "v2-32")]), request("~probe"), NOW).nodes == 0


def test_without_room_the_reason_is_that_of_the_cycle_and_the_start_is_predicted() -> None:
    slices = [held(str(i), (2 * (i % 2), 2 * (i // 2)), ends=later(60 * i + 60)) for i in range(4)]
    wanted = request("~probe", "v2-32")
    found = probe(snapshot(HOSTS, [], slices), wanted, NOW)
    (wait,) = decided(HOSTS, wanted, slices=slices).waits
    assert (
        found.nodes == 0
        and found.reason == wait.reason
        and "needs a free box of 4x4" in found.reason
    )
    assert found.starts == later(240)
    assert probe(snapshot(HOSTS, [], [everything("all")]), request("~probe"), NOW).starts is None


def test_what_may_preempt_starts_after_the_notice() -> None:
    fleet = dataclasses.replace(HOSTS, timings=NodeTimings(preemption_notice_seconds=30.0))
    found = probe(
        snapshot(fleet, [], [everything("all", "spot")]), request("~probe", usage="on-demand"), NOW
    )
    assert (found.nodes, found.starts) == (0, later(30))
    assert "gone from" in found.reason


def test_a_denied_zone_has_no_room() -> None:
    found = probe(snapshot(HOSTS, []), request("~probe", fault="f1"), NOW)
    assert found.nodes == 0 and "fault f1: stockout" in found.reason
