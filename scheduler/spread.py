"""Agents for the processes of one gang, or the hosts of one node.

1. All of them are of one company: their kernels give the same bits, and each reaches the others. Of
  several companies with room, the one with the most room is taken.
2. As few agents as can be: within a machine they share memory. One agent that has room for all is
  the one with the most room; else the agents with the most room are filled, one after the other.
3. Neighbours stay together: the processes of an agent follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping


def room_of(free: Mapping[str, int], companies: Mapping[str, str]) -> int:
    """The most processes that can start together."""
    return max(_rooms(free, companies).values(), default=0)


def choose(count: int, free: Mapping[str, int], companies: Mapping[str, str]) -> tuple[str, ...]:
    """The agent of each of `count` processes, in their order. There is room for them."""
    rooms = _rooms(free, companies)
    company = max(sorted(rooms), key=lambda name: rooms[name])
    assert rooms[company] >= count, (count, free)
    mine = sorted(
        agent for agent in free if companies.get(agent, "") == company and free[agent] > 0
    )
    chosen: list[str] = []
    for agent in sorted(mine, key=lambda name: -free[name]):
        chosen += [agent] * min(free[agent], count - len(chosen))
    return tuple(chosen)


def company_of(places: Mapping[str, int], companies: Mapping[str, str]) -> str | None:
    """The company that a gang runs in, by its agents that live; None where none does."""
    return next((companies[agent] for agent in sorted(places) if agent in companies), None)


def _rooms(free: Mapping[str, int], companies: Mapping[str, str]) -> dict[str, int]:
    rooms: dict[str, int] = {}
    for agent, count in free.items():
        company = companies.get(agent, "")
        rooms[company] = rooms.get(company, 0) + max(0, count)
    return rooms
