"""Which agents get the processes of a gang."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podyard.scheduler.spread import choose, company_of, room_of

ROOMS = st.dictionaries(st.sampled_from("abcdef"), st.integers(-2, 6), min_size=1)
COMPANIES = st.fixed_dictionaries({name: st.sampled_from(("x", "y")) for name in "abcdef"})


def test_one_agent_with_room_for_all_gets_all() -> None:
    assert choose(3, {"a": 4, "b": 8, "c": 2}, {}) == ("b", "b", "b")


def test_a_gang_that_needs_several_agents_fills_the_largest_first() -> None:
    assert choose(7, {"a": 2, "b": 4, "c": 3}, {}) == ("b", "b", "b", "b", "c", "c", "c")
    assert choose(8, {"a": 2, "b": 4, "c": 3}, {}) == ("b", "b", "b", "b", "c", "c", "c", "a")


def test_companies_are_not_mixed_even_where_all_together_had_room() -> None:
    companies = {"a": "x", "b": "y", "c": "x"}
    assert room_of({"a": 2, "b": 3, "c": 2}, companies) == 4
    assert choose(4, {"a": 2, "b": 3, "c": 2}, companies) == ("a", "a", "c", "c")
    assert company_of({"b": 1, "gone": 2}, companies) == "y"
    assert company_of({"gone": 2}, companies) is None


@given(ROOMS, COMPANIES, st.integers(1, 12))
def test_no_agent_gets_more_than_it_has_room_for(
    free: dict[str, int], companies: dict[str, str], count: int
) -> None:
    if count > room_of(free, companies):
        return
    chosen = choose(count, free, companies)
    assert len(chosen) == count
    assert all(chosen.count(agent) <= free[agent] for agent in chosen)
    assert len({companies[agent] for agent in chosen}) == 1
    assert list(chosen) == [
        agent for agent in dict.fromkeys(chosen) for _ in range(chosen.count(agent))
    ]
