"""No plan breaks a rule, whatever waits; and the rules catch a scheduler that is wrong."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.base.rng import Streams
from podyard.domain.node import UsageClass
from podyard.domain.plan import Plan
from podyard.scheduler import cycle, preemption, queue, room
from podyard.scheduler.cycle import decide
from podyard.scheduler.holds import Hold
from podyard.scheduler.predict import after, predict
from podyard.scheduler.queue import Queue
from podyard.scheduler.room import Room
from tests.unit.scheduler.plan_rules import check, snapshot_of
from tests.unit.scheduler.scheduling import NOW

SEEDS = range(120)


def plan_of(seed: int) -> Plan:
    return decide(snapshot_of(seed), NOW, Streams(1))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 40))
def test_no_plan_breaks_a_rule(seed: int) -> None:
    check(snapshot_of(seed), plan_of(seed))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 40))
def test_the_order_of_the_rows_changes_nothing(seed: int) -> None:
    snapshot, chance = snapshot_of(seed), Streams(seed).stream("shuffle")
    slices, waiting = list(snapshot.slices), list(snapshot.waiting)
    chance.shuffle(slices)
    chance.shuffle(waiting)
    mixed = dataclasses.replace(snapshot, slices=slices, waiting=waiting)
    assert decide(mixed, NOW, Streams(2)) == plan_of(seed)
    assert predict(mixed, NOW) == predict(snapshot, NOW)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 40))
def test_cycles_that_follow_each_other_break_no_rule_and_preempt_nobody_again(seed: int) -> None:
    snapshot, now = snapshot_of(seed), NOW
    for _ in range(4):
        plan = decide(snapshot, now, Streams(1))
        check(snapshot, plan, now)
        snapshot = after(snapshot, plan, now)


@pytest.mark.slow
def test_another_hash_seed_gives_the_same_plans() -> None:
    program = (
        "from tests.unit.scheduler.plan_rules import NOW, snapshot_of\n"
        "from podyard.base.rng import Streams\n"
        "from podyard.scheduler.cycle import decide\n"
        "for seed in range(40): print(decide(snapshot_of(seed), NOW, Streams(1)))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


# Each one is a way to be wrong: where it is put in, and what stands there instead.
def _ignores_the_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Hold, "bars", lambda _self, _until: False)


def _takes_open_ended_for_short(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cycle, "certain_end", lambda _gang, now, _seconds: now)


def _takes_a_victim_twice(patch: pytest.MonkeyPatch) -> None:
    cheapest = preemption.cheapest

    def twice(*given: Any) -> Any:
        found = cheapest(*given)
        return found and (found[0], [*found[1], *found[1]])

    patch.setattr(preemption, "cheapest", twice)


def _forgets_who_is_under_notice(patch: pytest.MonkeyPatch) -> None:
    may_take = preemption.may_take
    patch.setattr(
        preemption,
        "may_take",
        lambda r, item, now: may_take(r, dataclasses.replace(item, reclaim=None), now),
    )
    patch.setattr(Room, "under_notice", lambda _self, _pod: 0)


def _preempts_on_demand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        preemption, "may_take", lambda _r, item, now: item.reclaim is None and item.ends is None
    )


def _lets_spot_preempt_spot(patch: pytest.MonkeyPatch) -> None:
    may_take = preemption.may_take
    on_demand = UsageClass.ON_DEMAND
    patch.setattr(
        preemption,
        "may_take",
        lambda r, *rest: may_take(dataclasses.replace(r, usage_class=on_demand), *rest),
    )
    patch.setattr(preemption, "may_preempt", lambda _r: True)


def _orders_without_class(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "CLASS_RANK", dict.fromkeys(queue.CLASS_RANK, 0))


def _orders_without_priority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "level_of", lambda group: (queue.CLASS_RANK[group[0].usage_class], 0))


def _ignores_shares(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "chips_held", lambda _snapshot: {})
    patch.setattr(Queue, "took", lambda _self, _gang: None)


def _counts_a_share_only_in_the_next_cycle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "took", lambda _self, _gang: None)


def _ignores_weights(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "WEIGHT_DEFAULT", 2.0)


def _places_a_gang_in_parts(patch: pytest.MonkeyPatch) -> None:
    fit = cycle.fit

    def partly(fleet: Any, group: Any, free: Any) -> Any:
        found = fit(fleet, group, free)
        return fit(fleet, group[:1], free) if isinstance(found, cycle.Unfit) else found

    patch.setattr(cycle, "fit", partly)
    patch.setattr(cycle, "zip", lambda *rows, strict: zip(*rows, strict=False), raising=False)
    patch.setattr(room, "zip", lambda *rows, strict: zip(*rows, strict=False), raising=False)


def _gives_chips_away_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Room, "take", lambda *_given: None)


def _gives_broken_chips_away(patch: pytest.MonkeyPatch) -> None:
    made = Room.__init__
    patch.setattr(
        Room,
        "__init__",
        lambda self, snapshot, now: made(self, dataclasses.replace(snapshot, broken_chips={}), now),
    )


def _answers_a_plain_node_with_nothing(patch: pytest.MonkeyPatch) -> None:
    answer = cycle.Cycle._answer
    patch.setattr(
        cycle.Cycle, "_answer", lambda self, group: answer(self, group) if group[0].queued else []
    )


def _places_before_its_time(patch: pytest.MonkeyPatch) -> None:
    waiting = Queue.in_order

    def early(self: Queue) -> Iterator[Any]:
        for group in waiting(self):
            yield tuple(dataclasses.replace(request, not_before=None) for request in group)

    patch.setattr(Queue, "in_order", early)


WRONG: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    _ignores_the_hold,
    _takes_open_ended_for_short,
    _takes_a_victim_twice,
    _forgets_who_is_under_notice,
    _preempts_on_demand,
    _lets_spot_preempt_spot,
    _orders_without_class,
    _orders_without_priority,
    _ignores_shares,
    _counts_a_share_only_in_the_next_cycle,
    _ignores_weights,
    _places_a_gang_in_parts,
    _gives_chips_away_twice,
    _gives_broken_chips_away,
    _answers_a_plain_node_with_nothing,
    _places_before_its_time,
)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__.strip("_"))
def test_a_wrong_scheduler_is_caught(wrong: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        wrong(patch)
        assert any(_is_caught(seed) for seed in SEEDS)


def _is_caught(seed: int) -> bool:
    try:
        check(snapshot_of(seed), plan_of(seed))
    except AssertionError:
        return True
    return False


def test_the_right_scheduler_passes_with_the_seeds_that_catch_the_wrong_ones() -> None:
    for seed in SEEDS:
        check(snapshot_of(seed), plan_of(seed))
