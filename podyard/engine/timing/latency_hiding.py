"""The order of kernels where collectives run next to them: a list scheduler, from the last kernel
to the first, after openxla/xla, latency_hiding_scheduler.cc. Which of its rules are in force was
read off compiled orders: those of its aggressive policies, one gather at a time and five
permutations; bodies without such collectives keep their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from podyard.engine.timing.graph import Kernel
from podyard.engine.timing.pricing import Pricer
from podyard.engine.timing.schedule import Run, Step

# Collectives of a kind that run at one time (options of the compiler's, as it writes them down).
_AT_ONE_TIME = {"all_gather": 1, "collective_permute": 5}
# What goes around a ring: both ways, two turns at a time.
_IN_A_RING = ("collective_permute",) * 4
# Those of fewer bytes do not run next to kernels (gathers of 2,048 bytes do not, those of 4,096
# do).
_LEAST_BYTES = 4096
# How long the scheduler takes a collective to last, which is not what it takes. With this and the
# compiler's own cycles, kernels come within 2.9 % of all places of where they are in 17 compiled
# orders of 12 programs (30 to 400 were tried, and up to 15,000 fixed cycles: 3.0 to 6.8 %).
_BYTES_PER_CYCLE = 150.0


def run_of(kernel: Kernel, inside_cycles: float, inside: tuple[str, ...], pricer: Pricer) -> Run:
    """`inside`: of what the bodies of a loop run."""
    anchor, cycles = kernel.anchor, pricer.price(kernel).cycles + inside_cycles
    if anchor is None:
        return Run(cycles)
    is_hidden, is_ring = pricer.costs.hides_gathers, bool(anchor.text("ring_axis"))
    made = pricer.program.types[anchor.results[0]].nbytes if anchor.results else 0
    if is_hidden and anchor.opcode in _AT_ONE_TIME and made >= _LEAST_BYTES:
        return Run(cycles, made / _BYTES_PER_CYCLE, anchor.opcode)
    if is_ring or kernel.kind == "control":
        return Run(cycles, inside=_IN_A_RING if is_ring and is_hidden else inside, is_loop=True)
    return Run(cycles, is_product=anchor.opcode == "dot_general")


def hiding_latency(
    steps: Sequence[Step], sizes: Mapping[int, int], results: Collection[int], limit_bytes: float
) -> list[Step]:
    """The same steps; a collective with a latency stands where it starts. `sizes`: bytes of values,
    of arguments, too; `results`: those that are in memory at the end; `limit_bytes`: what all of
    them may take at one time."""
    if not any(step.run.latency for step in steps):
        return list(steps)
    return _Scheduler(steps, sizes, results, limit_bytes).ordered()


def _end_of(place: int) -> str:
    return f"end of {place}"


def _by_versions(
    steps: Sequence[Step],
) -> tuple[dict[int, set[int | str]], dict[int, set[int | str]]]:
    """Return what each step reads and makes. A value that is made a second time (a table that is
    copied for each of two lookups) has another name from then on."""
    names: dict[int, int | str] = {}
    reads: dict[int, set[int | str]] = {}
    makes: dict[int, set[int | str]] = {}
    for place, step in enumerate(steps):
        reads[place] = {names.setdefault(value, value) for value in step.reads}
        again = {value: f"{value} of {place}" for value in step.makes if value in names}
        makes[place] = {
            names.setdefault(value, value) for value in step.makes if value not in again
        }
        makes[place] |= set(again.values())
        names |= again
    return reads, makes


class _Scheduler:
    """Nodes are numbers: a step, and the end of a collective at the number of the collective plus
    that of all steps. What is ready when a step has its place is counted by values: the compiler
    takes each result of several apart."""

    def __init__(
        self,
        steps: Sequence[Step],
        sizes: Mapping[int, int],
        results: Collection[int],
        limit_bytes: float,
    ) -> None:
        self._steps = steps
        self._sizes = sizes
        self._limit = limit_bytes
        count = self._count = len(steps)
        self._latency = {
            place: step.run.latency for place, step in enumerate(steps) if step.run.latency
        }
        self._reads, self._makes = _by_versions(steps)
        # A collective's end makes what the collective makes; what its start makes is that end.
        for place in self._latency:
            end = place + count
            self._makes[end], self._makes[place] = self._makes[place], {_end_of(place)}
            self._reads[end] = {_end_of(place)}
        self._maker = {value: node for node, values in self._makes.items() for value in values}
        self._readers: dict[int | str, list[int]] = {value: [] for value in self._maker}
        for node, values in self._reads.items():
            for value in values:
                self._readers.setdefault(value, []).append(node)
        self._unread = {value: len(nodes) for value, nodes in self._readers.items()}
        self._waiting = {
            node: sum(self._unread[value] > 0 for value in self._makes[node])
            for node in self._reads
        }
        self._position = {
            node: node if node < count else node - count + 0.5 for node in self._reads
        }
        self._depth: dict[int, float] = {}
        for node in sorted(self._reads, key=lambda one: self._position[one]):
            before = {self._maker[value] for value in self._reads[node] if value in self._maker}
            depth = max((self._depth.get(one, 0.0) for one in before), default=0.0)
            self._depth[node] = depth + (self._latency[node - count] if node >= count else 0.0)
        self._makes_ready = {node: self._counted(node) for node in self._reads}
        self._is_awaiting = {
            node: any(self._maker.get(value, 0) >= count for value in values)
            for node, values in self._reads.items()
        }
        self._room = dict(_AT_ONE_TIME)
        self._queued = dict.fromkeys(_AT_ONE_TIME, 0)
        self._now = 0.0
        self._time: dict[int, float] = {}
        self._ready: list[int] = []
        self._later: set[int] = set()
        self._live = {value for value in results if value in sizes}
        self._live_bytes = self._nbytes(self._live)

    def _counted(self, node: int) -> int:
        """Of a loop, what it reads is one."""
        if node < self._count and self._steps[node].run.is_loop:
            return 1
        return sum(self._unread[value] == 1 for value in self._reads[node])

    def ordered(self) -> list[Step]:
        for node in self._reads:
            if not self._waiting[node]:
                self._release(node)
        made: list[Step] = []
        gathered: set[int] = set()
        while self._ready:
            node = self._best()
            self._ready.remove(node)
            self._later.discard(node)
            step = self._steps[node % self._count]
            if self._is_end(node):
                gathered |= set(step.makes) if step.run.kind == "all_gather" else set()
            else:
                gathered -= set(step.makes)
                made.append(
                    dataclasses.replace(step, gathered=tuple(gathered))
                    if step.run.is_product
                    else step
                )
            self._run(node)
        return made[::-1]

    def _kind(self, node: int) -> str:
        return self._steps[node % self._count].run.kind

    def _is_end(self, node: int) -> bool:
        return node >= self._count

    def _is_start(self, node: int) -> bool:
        return node in self._latency

    def _release(self, node: int) -> None:
        after = [
            self._time[one] + self._latency.get(node, 0.0)
            for value in self._makes[node] for one in self._readers[value]
        ]  # fmt: skip
        self._time[node] = max([self._now, *after])
        if self._is_end(node):
            self._queued[self._kind(node)] += 1
        self._ready.append(node)
        if self._time[node] > self._now:
            self._later.add(node)

    def _run(self, node: int) -> None:
        if self._is_end(node):
            self._room[self._kind(node)] -= 1
            self._queued[self._kind(node)] -= 1
        elif self._is_start(node):
            self._room[self._kind(node)] += 1
        self._time[node] = max(self._now, self._time[node])
        self._now = self._time[node] + self._cycles(node)
        self._later = {one for one in self._later if self._time[one] >= self._now}
        if not self._is_end(node):
            gone, come = self._changed(node)
            self._live = self._live - gone | come
            self._live_bytes += self._nbytes(come) - self._nbytes(gone)
        for value in self._reads[node]:
            self._unread[value] -= 1
            if self._unread[value] == 1:
                for other in self._readers[value]:
                    self._makes_ready[other] = self._counted(other)
            elif not self._unread[value] and value in self._maker:
                maker = self._maker[value]
                self._waiting[maker] -= 1
                if not self._waiting[maker]:
                    self._release(maker)

    def _changed(self, node: int) -> tuple[set[int], set[int]]:
        """Values that are not in memory any more before a step, and those that are; of a
        collective's end, its own."""
        step = self._steps[node % self._count]
        come = {value for value in step.reads if value in self._sizes and value not in self._live}
        return {value for value in step.makes if value in self._live}, come

    def _nbytes(self, values: Iterable[int]) -> int:
        return sum(self._sizes[value] for value in values)

    def _best(self) -> int:
        ready = [node for node in self._ready if self._has_room(node)]
        best = ready[0]
        for node in ready[1:]:
            if self._is_better(node, best):
                best = node
        return best

    def _has_room(self, node: int) -> bool:
        """Of collectives of a kind, so many at one time, and those in a loop next to no more of
        that kind."""
        if self._is_end(node):
            return self._room[self._kind(node)] > 0
        inside = self._steps[node].run.inside
        return all(
            self._room[kind] >= min(inside.count(kind), _AT_ONE_TIME[kind]) for kind in set(inside)
        )

    def _is_better(self, one: int, other: int) -> bool:
        if self._is_short:
            relief = self._relief(one), self._relief(other)
            if relief[0] != relief[1]:
                return relief[0] > relief[1]
        urgency = self._urgency(one), self._urgency(other)
        if urgency[0] != urgency[1]:
            return urgency[0] > urgency[1]
        wastes = [self._waste(node) for node in (one, other)]
        is_less = not self._is_start(one) and wastes[0] < wastes[1]
        is_more = not self._is_start(other) and wastes[1] < wastes[0]
        return is_less if is_less != is_more else self._use(one) > self._use(other)

    @property
    def _is_short(self) -> bool:
        """Return whether what memory holds counts: above half of the limit."""
        return self._live_bytes > self._limit / 2

    def _relief(self, node: int) -> tuple[int, bool]:
        """Above the limit, what a step frees; and whether it keeps below it."""
        gone, come = self._changed(node)
        frees = self._nbytes(gone) - self._nbytes(come) if self._live_bytes >= self._limit else 0
        return frees, self._live_bytes + self._nbytes(come) <= self._limit

    def _urgency(self, node: int) -> tuple[bool, float, bool, bool, float]:
        """Ends of collectives first; then what waits least; a start that waits for no other
        collective last, unless another one waits for its room, which then comes first; then what
        waits for the longest collectives."""
        is_start, kind = self._is_start(node), self._kind(node)
        is_awaited = is_start and not self._room[kind] and self._queued[kind] > 0
        is_first = is_start and not self._depth[node] and not is_awaited
        stall = max(0.0, self._time[node] - self._now)
        return self._is_end(node), -stall, not is_first, is_awaited, self._depth[node]

    def _waste(self, node: int) -> float:
        """Return how far the cycles of a kernel are from those that a collective still has to be
        hidden for."""
        if not self._later:
            return 0.0
        left = min(self._time[one] for one in self._later) - self._now
        return abs(left - self._cycles(node))

    def _use(self, node: int) -> tuple[bool, int, bool, float]:
        """Return what reads a collective's result first; then what makes most others ready; then
        the last in the program."""
        gone, come = self._changed(node)
        is_freeing = self._is_short and self._nbytes(come) < self._nbytes(gone)
        return self._is_awaiting[node], self._makes_ready[node], is_freeing, self._position[node]

    def _cycles(self, node: int) -> float:
        return 0.0 if self._is_end(node) or self._is_start(node) else self._steps[node].run.cycles
