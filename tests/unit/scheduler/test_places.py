"""Who gets places for processes, and who gives some back: the rules alone."""

from __future__ import annotations

import pytest

from podyard.base.clock import PlatformTime
from podyard.scheduler.places import (
    Contender,
    Holder,
    comes_before,
    count_for,
    left_for_others,
    who_shrinks,
)


def job(
    name: str, *counts: int, project: str = "p", priority: int = 0, at: int = 0, begun: bool = False
) -> Contender:
    return Contender(name, project, priority, PlatformTime(at), counts or (1,), begun)


def shrinking(waiting: Contender, *holders: Holder, free: int = 0, **shares: float) -> list[str]:
    held: dict[str, int] = {}
    for item in holders:
        held[item.job.project] = held.get(item.job.project, 0) + item.places
    return [item.job.job_key for item in who_shrinks(waiting, holders, free, held, shares)]


OLD = job("old", 2, at=0)
WIDE = Holder(job("wide", 8, 4, 2, 1, at=5, begun=True), 8)
NARROW = Holder(job("narrow", 4, 3, 2, at=6, begun=True), 4)


@pytest.mark.parametrize(
    ("one", "other", "first"),
    [
        (job("a", priority=1, at=9), job("b", at=1), True),
        (job("a", at=1), job("b", at=9), True),
        (job("a", at=9), job("b", at=1), False),
        (job("a", at=1), job("b", at=1), True),
        (job("a", priority=1000, at=9, project="q"), job("b", at=1), False),
        (job("a", priority=-1000, at=1, project="q"), job("b", at=9), True),
    ],
)
def test_priority_counts_within_a_project_and_age_everywhere(
    one: Contender, other: Contender, first: bool
) -> None:
    assert comes_before(one, other) is first


def test_the_gang_that_gives_least_is_asked() -> None:
    assert shrinking(OLD, WIDE, NARROW) == ["narrow"]  # 2 places, where the other would give 4
    assert shrinking(job("old", 3), WIDE, NARROW) == ["wide"]


def test_several_are_asked_where_one_is_not_enough() -> None:
    assert shrinking(job("old", 9), WIDE, NARROW) == ["narrow", "wide"]
    assert shrinking(job("old", 10), WIDE, NARROW) == []
    assert shrinking(job("old", 10), WIDE, NARROW, free=1) == ["narrow", "wide"]


def test_nobody_is_asked_for_what_is_free_or_by_who_comes_later() -> None:
    assert shrinking(OLD, WIDE, free=2) == []
    assert shrinking(job("late", 2, at=99), WIDE, NARROW) == []
    assert shrinking(job("late", 2, at=99, priority=1), WIDE, NARROW) == ["narrow"]


def test_a_gang_that_has_its_least_gives_nothing() -> None:
    assert Holder(job("x", 4, 2), 2).gives() == []
    assert shrinking(OLD, Holder(job("x", 4, 2, at=9), 2)) == []


def test_another_project_gives_only_while_it_holds_more_for_its_share() -> None:
    theirs = job("theirs", 2, project="q", at=0)
    assert shrinking(theirs, WIDE) == ["wide"]
    # 2 places for a quarter of a share are more than 6 for a whole one
    assert shrinking(theirs, WIDE, q=0.25) == []
    mine = Holder(job("mine", 6, at=1, project="q"), 6)
    assert shrinking(theirs, WIDE, mine) == []  # theirs would be 8, and ours 6
    assert shrinking(job("younger", 2, project="q", at=7, priority=9), WIDE) == []


def test_a_job_takes_what_is_free_without_what_others_need() -> None:
    wide = job("wide", 4, 3, 2, 1, at=5, begun=True)
    assert count_for(wide, [wide], 4) == 4
    assert count_for(wide, [wide, OLD], 4) == 2
    assert count_for(wide, [wide, job("late", 2, at=9)], 4) == 4
    assert count_for(wide, [wide, OLD], 2) == 1
    assert count_for(wide, [wide], 0) is None


def test_who_has_not_begun_leaves_a_gang_what_it_had() -> None:
    wide, urgent = job("wide", 4, 3, 2, 1, at=5, begun=True), job("urgent", 4, 2, priority=9, at=9)
    assert count_for(urgent, [wide, urgent], 4) == 2
    assert count_for(job("stiff", 4, priority=9), [wide], 4) == 4


def test_what_cannot_start_keeps_nothing_from_others() -> None:
    assert left_for_others(job("a", 4, at=5), [job("huge", 9, at=0)], 8) == 0
    assert left_for_others(job("a", 4, at=5), [job("huge", 9, at=0)], 9) == 9
