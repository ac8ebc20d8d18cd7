"""The order of kernels where collectives run next to them: a list scheduler, from the last kernel to the first, after
openxla/xla, latency_hiding_scheduler.cc. Which of its rules are in force was read off compiled orders: those of its
aggressive policies, one gather at a time and five permutations; bodies without such collectives keep their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from podyard.engine.timing.graph import Kernel
from podyard.engine.timing.pricing import Pricer
from podyard.engine.timing.schedule import Run, Step

# Collectives of a kind that run at one time (options of the compiler's, as it writes them down).
_AT_ONE_TIME = {"all_gather": 1, "collective_permute": 5}
# What goes around a ring: both ways, two turns at a time.
_IN_A_RING = ("collective_permute",) * 4
# Those of fewer bytes do not run next to kernels (gathers of 2,048 bytes do not, those of 4,096 do).
_LEAST_BYTES = 4096
# How long the scheduler takes a collective to last, which is not what it takes. With this and the compiler's own
# cycles, kernels come within 3 % of all places of where they are in 17 compiled orders (80 to 250 were tried, and fixed
# cycles: 4 %).
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
    """The same steps; a collective with a latency stands where it starts. `sizes`: bytes of values, of arguments, too;
    `results`: those that are in memory at the end; `limit_bytes`: what all of them may take at one time."""
    if not any(step.run.latency for step in steps):
        return list(steps)
    return _Scheduler(steps, sizes, results, limit_bytes).ordered()


def _end_of(place: int) -> str:
    return f"end of {place}"


class _Scheduler:
    """Nodes are numbers: a step, and the end of a collective at the number of the collective plus that of all steps.
    What is ready when a step has its place is counted by values: the compiler takes each result of several apart."""

    def __init__(
        self, steps: Sequence[Step], sizes: Mapping[int, int], results: Collection[int], limit_bytes: float
    ) -> None:
        self._steps = steps
        self._sizes = sizes
        self._limit = limit_bytes
        count = self._count = len(steps)
        self._latency = {place: step.run.latency for place, step in enumerate(steps) if step.run.latency}
        # A collective's end makes what the collective makes; what its start makes is that end.
        self._makes: dict[int, set[int | str]] = {
            (place + count if step.run.latency else place): set(step.makes) for place, step in enumerate(steps)
        }
        self._makes |= {place: {_end_of(place)} for place in self._latency}
        self._reads: dict[int, set[int | str]] = {place: set(step.reads) for place, step in enumerate(steps)}
        self._reads |= {place + count: {_end_of(place)} for place in self._latency}
        self._maker = {value: node for node, values in self._makes.items() for value in values}
        self._readers: dict[int | str, list[int]] = {value: [] for value in self._maker}
        for node, values in self._reads.items():
            for value in values:
                self._readers.setdefault(value, []).append(node)
        self._unread = {value: len(nodes) for value, nodes in self._readers.items()}
        self._waiting = {node: sum(self._unread[value] > 0 for value in self._makes[node]) for node in self._reads}
        self._position = {node: node if node < count else node - count + 0.5 for node in self._reads}
        self._depth: dict[int, float] = {}
        for node in sorted(self._reads, key=lambda one: self._position[one]):
            before = {self._maker[value] for value in self._reads[node] if value in self._maker}
            depth = max((self._depth.get(one, 0.0) for one in before), default=0.0)
            self._depth[node] = depth + (self._latency[node - count] if node >= count else 0.0)
        self._makes_ready = {node: self._counted(node) for node in self._reads}
        self._is_awaiting = {
            node: any(self._maker.get(value, 0) >= count for value in values) for node, values in self._reads.items()
        }
        self._room = dict(_AT_ONE_TIME)
        self._queued = dict.fromkeys(_AT_ONE_TIME, 0)
        self._now = 0.0
        self._time: dict[int, float] = {}
        self._ready: list[int] = []
        self._later: set[int] = set()
        self._live = {value for value in results if value in sizes}
        self._live_bytes = sum(sizes[value] for value in self._live)

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
                made.append(dataclasses.replace(step, gathered=tuple(gathered)) if step.run.is_product else step)
            self._run(node)
        # Values that are made twice could keep a step from its place.
        return made[::-1] if len(made) == self._count else list(self._steps)

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
        is_kernel = node < self._count and not self._is_start(node)
        self._now = self._time[node] + (self._steps[node].run.cycles if is_kernel else 0.0)
        self._later = {one for one in self._later if self._time[one] >= self._now}
        gone, come = self._changed(node)
        self._live -= gone
        self._live |= come
        self._live_bytes += sum(self._sizes[one] for one in come) - sum(self._sizes[one] for one in gone)
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
        """Values that are not in memory any more before a node, and those that are."""
        step = self._steps[node % self._count]
        if self._is_end(node):
            return set(), set()
        come = {value for value in step.reads if value in self._sizes and value not in self._live}
        return {value for value in step.makes if value in self._live}, come

    def _best(self) -> int:
        open_ends = [
            node for node in self._ready
            if (not self._is_end(node) or self._room[self._kind(node)] > 0) and self._has_room(node)
        ]  # fmt: skip
        best = open_ends[0]
        for node in open_ends[1:]:
            if self._is_better(node, best):
                best = node
        return best

    def _has_room(self, node: int) -> bool:
        """A loop with collectives of a kind in it is not next to others of that kind."""
        inside = self._steps[node].run.inside if node < self._count else ()
        return all(self._room[line] >= min(inside.count(line), _AT_ONE_TIME[line]) for line in set(inside))

    def _is_constrained(self, node: int) -> bool:
        line = self._kind(node)
        return bool(line) and not self._room[line] and self._queued[line] > 0

    def _is_better(self, one: int, other: int) -> bool:
        sign = self._by_memory(one, other) if self._live_bytes > self._limit / 2 else 0
        if sign:
            return sign > 0
        if self._is_end(one) != self._is_end(other):
            return self._is_end(one)
        stalls = [max(0.0, self._time[node] - self._now) for node in (one, other)]
        if stalls[0] != stalls[1]:
            return stalls[0] < stalls[1]
        starts = [self._is_start(node) for node in (one, other)]
        if any(starts):
            constrained = [self._is_constrained(node) for node in (one, other)]
            early = [
                start and not self._depth[node] and not held
                for node, start, held in zip((one, other), starts, constrained, strict=True)
            ]
            if early[0] != early[1]:
                return not early[0]
            freeing = [start and held for start, held in zip(starts, constrained, strict=True)]
            if freeing[0] != freeing[1]:
                return freeing[0]
        if self._depth[one] != self._depth[other]:
            return self._depth[one] > self._depth[other]
        if self._later:
            left = min(self._time[node] for node in self._later) - self._now
            wastes = [abs(left - self._cost(node)) for node in (one, other)]
            is_less = not starts[0] and wastes[0] < wastes[1]
            is_more = not starts[1] and wastes[1] < wastes[0]
            if is_less != is_more:
                return is_less
        keys = [(self._is_awaiting[node], self._makes_ready[node]) for node in (one, other)]
        if keys[0] != keys[1]:
            return keys[0] > keys[1]
        if self._live_bytes > self._limit / 2:
            frees = [self._grows(node) < 0 for node in (one, other)]
            if frees[0] != frees[1]:
                return frees[0]
        return self._position[one] > self._position[other]

    def _cost(self, node: int) -> float:
        return self._steps[node].run.cycles if node < self._count and not self._is_start(node) else 0.0

    def _grows(self, node: int) -> int:
        if self._is_end(node):
            node -= self._count
        gone, come = self._changed(node)
        return sum(self._sizes[one] for one in come) - sum(self._sizes[one] for one in gone)

    def _by_memory(self, one: int, other: int) -> int:
        """Whether one is better (1) or the other (-1) because memory is short."""
        if self._live_bytes >= self._limit:
            grows = self._grows(one), self._grows(other)
            if grows[0] != grows[1]:
                return 1 if grows[0] < grows[1] else -1
        tops = []
        for node in (one, other):
            _, come = self._changed(node)
            tops.append(self._live_bytes + sum(self._sizes[value] for value in come) <= self._limit)
        return tops[0] - tops[1]
