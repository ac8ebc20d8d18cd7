"""Which gangs start and who makes room, place by place: written without the code that it is held
against.

Agents are lists of places; a place holds the name of a job, or None. Each decision is carried out
before the next one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

HOSTS, CORES_PER_HOST = 4, 8  # v3-32
PAUSE_SECONDS = 10.0


@dataclasses.dataclass
class OracleRun:
    """An attempt that has not ended."""

    state: str  # STARTING, RUNNING, ENDING
    hosts: int
    seconds: float  # since it began
    asked: bool = False
    outcome: str | None = None


@dataclasses.dataclass
class Work:
    """A job. `least` None: it is not elastic. `most`: it was set to so many replicas; None: to all.
    `rests`: it may not try again yet. `nodes`: of its slices; only the first one counts for its
    size here."""

    name: str
    project: str
    priority: int
    age: int  # the greater, the older; no two have the same
    state: str
    nodes: tuple[str, ...]
    batch: int
    least: int | None = None
    most: int | None = None
    run: OracleRun | None = None
    rests: bool = False

    def shares_nodes_with(self, other: Work) -> bool:
        return bool(set(self.nodes) & set(other.nodes))

    def counts(self) -> list[int]:
        """Numbers of replicas, one on each host, that the batch divides for."""
        if self.least is None:
            return [HOSTS]
        fits = [n for n in range(self.least, HOSTS) if self.batch % (n * CORES_PER_HOST) == 0]
        return [n for n in (*fits, HOSTS) if self.most is None or n <= self.most]

    @property
    def waits(self) -> bool:
        return self.state in ("QUEUED", "RECOVERING")


@dataclasses.dataclass
class OracleWorld:
    """`agents`: the places of those that live; `dead`: of the others. An agent may hold more than
    it has places for."""

    works: list[Work]
    agents: dict[str, list[str | None]]
    dead: dict[str, list[str | None]]
    blocked: set[str]  # nodes that are not READY, or are taken back
    shares: dict[str, float]

    def free(self) -> int:
        return sum(place is None for places in self.agents.values() for place in places)

    def living(self, name: str) -> int:
        return sum(place == name for places in self.agents.values() for place in places)

    def all_of(self, names: set[str]) -> int:
        return sum(
            place in names
            for places in (*self.agents.values(), *self.dead.values())
            for place in places
        )

    def held(self, project: str) -> int:
        return self.all_of({work.name for work in self.works if work.project == project})


@dataclasses.dataclass
class Decided:
    """`starts`: the agents of each replica; `asked`: what the end of a gang counts as; both by
    job."""

    starts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    asked: dict[str, str] = dataclasses.field(default_factory=dict)
    waits: set[str] = dataclasses.field(default_factory=set)


def starts(world: OracleWorld) -> Decided:
    found, ready, rivals = Decided(), list[Work](), list[Work]()
    for work in _in_turn([work for work in world.works if work.waits]):
        if work.run is not None:
            if work.run.outcome == "RESIZED":
                rivals.append(work)
        elif set(work.nodes) & world.blocked or work.rests or _is_kept_off(world, work, found):
            found.waits.add(work.name)
        else:
            ready.append(work)
            rivals.append(work)
    for work in ready:
        count = _count(world, work, rivals)
        if count is None:
            _shrink_others(world, work, found)
            found.waits.add(work.name)
            continue
        taken: list[str] = []
        for _ in range(count):
            taken.append(_take(world, work, taken))
        found.starts[work.name] = taken
        rivals = [rival for rival in rivals if rival is not work]
    return found


def sizes(world: OracleWorld, only: str | None = None) -> dict[str, int]:
    """The job whose gang is asked to leave for another size, with the number of hosts that it may
    have."""
    if any(work.run is not None and work.run.asked for work in world.works):
        return {}
    runs = [
        work
        for work in world.works
        if work.state == "RUNNING" and work.run and work.run.state == "RUNNING"
    ]
    for work in sorted(runs, key=lambda work: (-_run(work).seconds, work.name)):
        if work.least is None or (only or work.name) != work.name:
            continue
        if only is None and _run(work).seconds <= PAUSE_SECONDS:
            continue
        hosts, counts, room = (
            _run(work).hosts,
            work.counts(),
            world.free() + world.living(work.name),
        )
        if hosts < max(counts):
            free = room
            room -= sum(_least_need(work, rival, free) for rival in _rivals_of_running(world))
        best = max([count for count in counts if count <= room], default=min(counts))
        if hosts > max(counts) or best > hosts:
            return {work.name: best}
    return {}


def _rivals_of_running(world: OracleWorld) -> list[Work]:
    return [
        work
        for work in world.works
        if work.waits
        and work.run is None
        and not set(work.nodes) & world.blocked
        and not work.rests
        and not any(
            other is not work
            and other.shares_nodes_with(work)
            and (other.run is not None or (_is_before(other, work) and not other.rests))
            for other in world.works
        )
    ]


def _run(work: Work) -> OracleRun:
    assert work.run is not None
    return work.run


def _is_before(one: Work, other: Work) -> bool:
    if one.priority != other.priority:
        return one.priority > other.priority
    if (one.state == "RECOVERING") != (other.state == "RECOVERING"):
        return one.state == "RECOVERING"
    return one.age > other.age


def _in_turn(works: Sequence[Work]) -> list[Work]:
    left, found = list(works), []
    while left:
        first = next(
            work for work in left if all(work is other or _is_before(work, other) for other in left)
        )
        left.remove(first)
        found.append(first)
    return found


def _is_kept_off(world: OracleWorld, work: Work, found: Decided) -> bool:
    others = [other for other in world.works if other is not work and other.shares_nodes_with(work)]
    running = sorted(
        (other for other in others if other.run is not None), key=lambda other: -other.priority
    )
    if running:
        other = running[0]
        room = world.free() + world.living(other.name)
        can_ask = (
            other.priority < work.priority
            and _run(other).state == "RUNNING"
            and not _run(other).asked
        )
        if can_ask and min(work.counts()) <= room:
            _run(other).asked = True
            found.asked[other.name] = "PREEMPTED"
        return True
    return any(_is_before(other, work) and not other.rests for other in others)


def _yields_to(one: Work, other: Work) -> bool:
    """Return whether `one` makes room for `other`."""
    if one.project == other.project and one.priority != other.priority:
        return one.priority < other.priority
    return one.age < other.age


def _least_need(work: Work, rival: Work, free: int) -> int:
    """Places that `work` leaves to a rival."""
    if rival is work or min(rival.counts()) > free:
        return 0
    if rival.state != "QUEUED" and work.state == "QUEUED":
        return max(rival.counts())
    return min(rival.counts()) if _yields_to(work, rival) else 0


def _count(world: OracleWorld, work: Work, rivals: Sequence[Work]) -> int | None:
    free = world.free()
    left = free - sum(_least_need(work, rival, free) for rival in rivals)
    fits = [count for count in work.counts() if count <= left]
    if fits:
        return max(fits)
    return min(work.counts()) if min(work.counts()) <= free else None


def _take(world: OracleWorld, work: Work, before: Sequence[str]) -> str:
    """The agent that the job's last process went to while it has an empty place; else the first of
    the agents with
    the most."""
    empty = {name: places.count(None) for name, places in world.agents.items()}
    name = min(name for name, count in empty.items() if count == max(empty.values()))
    if before and empty[before[-1]]:
        name = before[-1]
    world.agents[name][world.agents[name].index(None)] = work.name
    return name


def _shrink_others(world: OracleWorld, work: Work, found: Decided) -> None:
    if any(other.run is not None and other.run.asked for other in world.works):
        return
    missing = min(work.counts()) - world.free()
    gives: dict[str, list[int]] = {}
    for other in world.works:
        settled = (
            other.state == "RUNNING" and other.run is not None and other.run.state == "RUNNING"
        )
        if (
            other.least is None
            or not settled
            or _run(other).seconds <= PAUSE_SECONDS
            or not _yields_to(other, work)
        ):
            continue
        if other.project != work.project:
            mine = (world.held(work.project) + min(work.counts())) / world.shares.get(
                work.project, 1.0
            )
            theirs = (world.held(other.project) - missing) / world.shares.get(other.project, 1.0)
            if mine > theirs:
                continue
        places = world.living(other.name)
        if given := [places - count for count in other.counts() if count < places]:
            gives[other.name] = given
    late = sorted(
        (other for other in world.works if other.name in gives),
        key=lambda other: (other.priority, other.age),
    )
    chosen: Sequence[Work] = ()
    alone = [(min(g for g in gives[other.name] if g >= missing), n) for n, other in enumerate(late)
             if max(gives[other.name]) >= missing]  # fmt: skip
    if alone:
        chosen = (late[min(alone)[1]],)
    else:
        for size in range(len(late) + 1):
            if sum(max(gives[other.name]) for other in late[:size]) >= missing:
                chosen = late[:size]
                break
    for other in chosen:
        _run(other).asked = True
        found.asked[other.name] = "RESIZED"


def settled(
    state: str, asked_for: str | None, gang: Sequence[tuple[str, str | None]]
) -> tuple[bool, str | None, bool]:
    """(whether the attempt runs, what it ends as, whether it is over); `gang`: state and outcome of
    each replica."""
    left = sum(state != "EXITED" for state, _ in gang)
    if state == "ENDING":
        return False, None, left == 0
    outcomes = [outcome for _, outcome in gang]
    gone = [state for state, outcome in gang if state == "EXITED" and outcome is None]
    ends: str | None = None
    if "RELEASED" in outcomes:
        ends = "PREEMPTED"
    elif "REFUSED" in outcomes or "FAILED" in outcomes or gone:
        ends = "FAILED"
    elif outcomes.count("SUCCEEDED") == len(gang):
        ends = "SUCCEEDED"
    elif outcomes.count("SUCCEEDED") + outcomes.count("YIELDED") == len(gang):
        ends = asked_for or "RESIZED"
    starts = state == "STARTING"
    runs = starts and (
        ends == "SUCCEEDED" or (ends is None and all(state == "RUNNING" for state, _ in gang))
    )
    return runs, ends, ends is not None and left == 0


def gangs(size: int) -> itertools.product[tuple[tuple[str, str | None], ...]]:
    """Every gang of so many replicas."""
    states = ("PENDING", "STARTING", "RUNNING", "EXITED")
    outcomes = (None, "SUCCEEDED", "FAILED", "YIELDED", "REFUSED", "RELEASED")
    return itertools.product(itertools.product(states, outcomes), repeat=size)
