"""Kernels in the order of time and what each of them finds in memory; how the compiler changes that
order, runs kernels again when memory is short, and lays the values out in one block. Read off its
own record of what it does.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

# Kernels that make less than so many bytes are not run again (an option of the compiler's); nor is
# looked for them without end.
_WORTH_REPEATING_BYTES = 10 * 2**20
_LOOKS_MAX = 10**6
# Largest values that are laid out in one block; the others are taken to fit between them.
_PACKED_BLOCKS_MAX = 256


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """What a kernel takes. A collective that runs next to others takes its `latency`, in cycles,
    and has a `kind`; `inside`: the kinds of those in a loop."""

    cycles: float = 0.0
    latency: float = 0.0
    kind: str = ""
    inside: tuple[str, ...] = ()
    is_loop: bool = False
    is_product: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A kernel in the order of time: values read and made, bytes that it needs by itself, whether
    it may run twice,
    and what it can put a result of the program in the place of."""

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    extra: int
    is_repeatable: bool
    over: tuple[int, ...] = ()
    is_fetched: bool = False
    # Of a collective that the compiler makes one of several: which.
    tuple_number: int | None = None
    # What it needs by itself on the chip.
    near_extra: int = 0
    run: Run = Run()
    # What is gathered while it runs, a product.
    gathered: tuple[int, ...] = ()
    # Whether it looks rows up.
    is_lookup: bool = False
    # Of a scatter, to which the compiler gives no cycles: the bytes that it moves.
    moves: int = 0
    # Bytes of what a loop carries that it changes in its place on the chip.
    doubled: int = 0
    # Whether it scatters a sum over devices, by itself or around a ring.
    scatters: bool = False
    # Whether it writes its results to HBM, and so reads there what they take the place of.
    writes_far: bool = False
    # Whether it is a sum over devices of several arrays.
    is_joined: bool = False


class MemorySchedule:
    """Steps in order, and what each of them finds in memory; `sizes` has the values that are
    temporaries."""

    def __init__(self, steps: Sequence[Step], sizes: Mapping[int, int]) -> None:
        self.steps = list(steps)
        self.sizes = sizes
        # Bytes in memory while a step runs: what it reads and makes, what later ones read, and what
        # it needs by itself.
        self.nbytes = [0] * len(self.steps)
        live, live_bytes = set[int](), 0
        for place in reversed(range(len(self.steps))):
            step = self.steps[place]
            own = {value for value in (*step.reads, *step.makes) if value in sizes}
            self.nbytes[place] = live_bytes + sum(sizes[value] for value in own - live) + step.extra
            before = own.difference(step.makes) | own.intersection(step.reads)
            live_bytes += sum(sizes[value] for value in before - live)
            live_bytes -= sum(sizes[value] for value in live.intersection(step.makes) - before)
            live.difference_update(step.makes)
            live |= before

    def holds(self, place: int) -> set[int]:
        """Values in memory while a step runs."""
        live: set[int] = set()
        for step in reversed(self.steps[place + 1 :]):
            live.difference_update(step.makes)
            live.update(value for value in step.reads if value in self.sizes)
        step = self.steps[place]
        return live | {value for value in (*step.reads, *step.makes) if value in self.sizes}

    @property
    def peak(self) -> int:
        return max(self.nbytes, default=0)

    def without_overwritten(self) -> MemorySchedule:
        """The same with values that lie where a result of the program takes their place."""
        last = {value: place for place, step in enumerate(self.steps) for value in step.reads}
        gone = {
            value
            for place, step in enumerate(self.steps)
            for value in step.over
            if last.get(value) == place
        }
        return MemorySchedule(
            self.steps, {value: size for value, size in self.sizes.items() if value not in gone}
        )

    def _spans(self) -> dict[int, tuple[int, int]]:
        """The steps that make each value and read it for the last time."""
        spans = {
            value: (place, place) for place, step in enumerate(self.steps) for value in step.makes
        }
        for place, step in enumerate(self.steps):
            spans.update(
                (value, (spans[value][0], place)) for value in step.reads if value in spans
            )
        return spans

    def with_hosts(self, results: Collection[int]) -> MemorySchedule:
        """The same; a value that is gone before a result of the program is made lies in the place
        of that result, which is taken then as a whole. The largest choose first, and take the
        smallest place that is large enough (openxla/xla, buffer_assignment.cc)."""
        spans = self._spans()
        hosts = sorted((self.sizes[value], value) for value in results if value in self.sizes)
        taken = {value: [spans[value]] for _, value in hosts}
        sizes = dict(self.sizes)
        for value in sorted(self.sizes, key=lambda one: -self.sizes[one]):
            if value in taken or value not in spans:
                continue
            first, last = spans[value]
            for size, host in hosts:
                if size >= self.sizes[value] and all(
                    end < first or last < start for start, end in taken[host]
                ):
                    taken[host].append(spans[value])
                    sizes[value] = size
                    break
        return MemorySchedule(self.steps, sizes)

    def packed_bytes(self) -> int:
        """Bytes of a block in which every value has one place as long as it lives: the largest
        first, each into the smallest gap that is large enough. Never less than `peak`; more where
        no values fit into the gaps."""
        spans = self._spans()
        blocks = [
            (self.sizes[value], *span) for value, span in spans.items() if value in self.sizes
        ]
        blocks += [
            (step.extra, place, place) for place, step in enumerate(self.steps) if step.extra
        ]
        placed: list[tuple[int, int, int, int]] = []
        # Of equals the one that lives longer, then the one that is made first.
        for size, first, last in heapq.nsmallest(
            _PACKED_BLOCKS_MAX, blocks, key=lambda block: (-block[0], block[1] - block[2], block[1])
        ):
            taken = sorted(
                (start, end) for start, end, made, read in placed if made <= last and first <= read
            )
            best, gap, top = -1, math.inf, 0
            for start, end in taken:
                if size <= start - top < gap:
                    best, gap = top, start - top
                top = max(top, end)
            start = top if best < 0 else best
            placed.append((start, start + size, first, last))
        return max([self.peak, *(end for _, end, _, _ in placed)])

    @property
    def values_at_peak(self) -> list[int]:
        """Return what is in memory at the peak."""
        return sorted(self.holds(self.nbytes.index(self.peak))) if self.steps else []


def late_constants(steps: Sequence[Step]) -> list[Step]:
    """The same steps; what is made of nothing, such as zeros to add to, is made when it is read."""
    early = {value: step for step in steps if not step.reads for value in step.makes}
    done: set[int] = set()
    ordered: list[Step] = []
    for step in steps:
        for made in (step, *(early[value] for value in step.reads if value in early)):
            if made is step or id(made) in done:
                continue
            done.add(id(made))
            ordered.append(made)
        if step.reads or not step.makes:
            ordered.append(step)
    return [
        *ordered,
        *(step for step in steps if not step.reads and step.makes and id(step) not in done),
    ]


def together(steps: Sequence[Step]) -> list[Step]:
    """The same steps; those with one `tuple_number` are one, a collective of several arrays. It
    runs when all that it sends is there, and what reads any of its results waits for it."""
    members: dict[int, list[int]] = {}
    for place, step in enumerate(steps):
        if step.tuple_number is not None:
            members.setdefault(step.tuple_number, []).append(place)
    groups = [places for places in members.values() if len(places) > 1]
    if not groups:
        return list(steps)
    nodes = dict(enumerate(steps))
    for places in groups:
        nodes[places[0]] = _join([nodes.pop(place) for place in places])
    makers = {value: place for place, step in nodes.items() for value in step.makes}
    wanted, readers = dict.fromkeys(nodes, 0), dict[int, list[int]]()
    for place, step in nodes.items():
        for maker in {makers[value] for value in step.reads if value in makers} - {place}:
            wanted[place] += 1
            readers.setdefault(maker, []).append(place)
    ready = [place for place, count in wanted.items() if not count]
    heapq.heapify(ready)
    ordered: list[Step] = []
    while ready:
        place = heapq.heappop(ready)
        ordered.append(nodes[place])
        for reader in readers.get(place, ()):
            wanted[reader] -= 1
            if not wanted[reader]:
                heapq.heappush(ready, reader)
    # A kernel that reads one of the sums and makes what another one sends: they stay apart.
    return ordered if len(ordered) == len(nodes) else list(steps)


def _join(steps: Sequence[Step]) -> Step:
    reads = dict.fromkeys(value for step in steps for value in step.reads)
    makes = dict.fromkeys(value for step in steps for value in step.makes)
    near = sum(step.near_extra for step in steps)
    run = Run(sum(step.run.cycles for step in steps))
    return Step(
        tuple(reads),
        tuple(makes),
        sum(step.extra for step in steps),
        False,
        near_extra=near,
        run=run,
        is_joined=True,
    )


def ending_late(steps: Sequence[Step], last_loop: int) -> list[Step]:
    """The same steps; what the loop at `last_loop` does not wait for comes after it."""
    wanted: set[int] = set()
    first: list[Step] = []
    late: list[Step] = []
    for place in range(last_loop, -1, -1):
        step = steps[place]
        if place == last_loop or not wanted.isdisjoint(step.makes):
            wanted.update(step.reads)
            first.append(step)
        else:
            late.append(step)
    return [*reversed(first), *reversed(late), *steps[last_loop + 1 :]]


def scattering_last(steps: Sequence[Step]) -> list[Step]:
    """The same steps; scattered sums, and what waits for them, come after all others: while
    collectives run next to kernels, those that nothing needs are what can wait."""
    first: list[Step] = []
    late: list[Step] = []
    waiting: set[int] = set()
    for step in steps:
        if step.scatters or not waiting.isdisjoint(step.reads):
            late.append(step)
            waiting.update(step.makes)
        else:
            first.append(step)
    return [*first, *late]


def ending_with_numbers(steps: Sequence[Step], arrays: Iterable[int]) -> list[Step]:
    """The same steps; what none of these results waits for, as what only a loss is made from, comes
    last."""
    wanted = set(arrays)
    first: list[Step] = []
    late: list[Step] = []
    for step in reversed(steps):
        if step.makes and wanted.isdisjoint(step.makes):
            late.append(step)
        else:
            wanted.update(step.reads)
            first.append(step)
    return [*reversed(first), *reversed(late)]


def freeing_first(steps: Sequence[Step], sizes: Mapping[int, int]) -> list[Step]:  # noqa: C901
    """The same steps; one that frees more than it makes runs as soon as it can (list scheduling by
    memory)."""
    maker = {value: place for place, step in enumerate(steps) for value in step.makes}
    waiting: dict[int, set[int]] = {}
    for place, step in enumerate(steps):
        for value in step.reads:
            waiting.setdefault(value, set()).add(place)
    done: set[int] = set()
    ordered: list[Step] = []
    # A step that frees something goes on doing so: fewer and fewer others read what it reads.
    freeing: list[int] = []

    def is_ready(place: int) -> bool:
        return all(
            maker.get(value, place) in done for value in steps[place].reads if value in maker
        )

    def frees(place: int) -> bool:
        step = steps[place]
        freed = sum(
            sizes[value] for value in set(step.reads) if value in sizes and len(waiting[value]) == 1
        )
        return freed > sum(sizes.get(value, 0) for value in step.makes) + step.extra

    def look_at(places: Iterable[int]) -> None:
        for place in places:
            if place not in done and frees(place) and is_ready(place):
                heapq.heappush(freeing, place)

    def run(place: int) -> None:
        done.add(place)
        ordered.append(steps[place])
        changed: set[int] = set()
        for value in set(steps[place].reads):
            waiting[value].discard(place)
            if len(waiting[value]) == 1:
                changed |= waiting[value]
        for value in steps[place].makes:
            changed |= waiting.get(value, set())
        look_at(changed)

    look_at(range(1, len(steps)))
    for place in range(len(steps)):
        if place not in done:
            run(place)
        while freeing:
            chosen = heapq.heappop(freeing)
            if chosen not in done:
                run(chosen)
    return ordered


def depth_first(
    steps: Sequence[Step], sizes: Mapping[int, int], *, ends_by_weight: bool = False
) -> list[Step]:
    """The same steps, each just before the first that reads what it makes. Of what one step waits
    for, that with most readers in and before it runs first, then that with most bytes (openxla/xla,
    hlo_memory_scheduler.cc); so it is with what nothing waits for (`ends_by_weight`), or the first
    comes first."""
    maker = {value: place for place, step in enumerate(steps) for value in step.makes}
    waits = [
        sorted({maker[value] for value in step.reads if maker.get(value, place) < place})
        for place, step in enumerate(steps)
    ]
    readers = Counter(earlier for places in waits for earlier in places)
    weights: list[tuple[int, int]] = []
    for place, step in enumerate(steps):
        others = max(0, readers[place] - 1) + sum(weights[earlier][0] for earlier in waits[place])
        nbytes = sum(sizes.get(value, 0) for value in step.makes) + sum(
            weights[earlier][1] for earlier in waits[place]
        )
        weights.append((min(others, len(steps)), nbytes))
    ordered: dict[int, Step] = {}
    ends = (place for place in range(len(steps)) if not readers[place])
    stack = sorted(ends, key=lambda place: weights[place] if ends_by_weight else -place)
    while stack:
        place = stack[-1]
        missing = [earlier for earlier in waits[place] if earlier not in ordered]
        if missing:
            stack.append(max(missing, key=lambda earlier: weights[earlier]))
        else:
            ordered.setdefault(stack.pop(), steps[place])
    return list(ordered.values())


class MadeAgain:
    """Rematerialisation, step by step in the compiler's way. At a step that finds too much in
    memory, an earlier kernel whose results are not needed right now is run again later, or moved
    there if nothing has read them yet. The copy runs before all that is still to read its results
    or what it reads itself, so that nothing is kept longer for it. It is a greedy rule: it may stay
    above the limit, and a move may make the peak higher than it was."""

    def __init__(self, schedule: MemorySchedule, limit_bytes: float) -> None:
        self.steps = list(schedule.steps)
        self.sizes = dict(schedule.sizes)
        # Copies of values have numbers of their own; these are the values that they are copies of.
        self.originals = {value: value for value in self.sizes}
        self._limit = limit_bytes
        self._live: set[int] = set()
        self._live_bytes = 0
        self._maker: dict[int, int] = {}
        self._was_read: set[int] = set()
        self._unread = Counter(value for step in self.steps for value in set(step.reads))
        self._next_value = (
            max([0, *(value for step in self.steps for value in (*step.reads, *step.makes))]) + 1
        )
        self._copies = self._next_value
        self._moves: set[int] = set()
        self._dead: set[int] = set()
        self._looks = 0

    def schedule(self) -> MemorySchedule:
        """Runs through all steps; the schedule that comes of it."""
        place = 0
        while place < len(self.steps):
            step = self.steps[place]
            self._was_read.update(step.reads)
            self._maker.update(dict.fromkeys(step.makes, place))
            self._add(step.makes)
            if not self.sizes.keys().isdisjoint(step.makes):
                self._relieve(place)
            for value in set(step.reads):
                self._unread[value] -= 1
            self._drop(value for value in (*step.reads, *step.makes) if not self._unread[value])
            place += 1
        read = {value for step in self.steps for value in step.reads}
        kept = [
            # Of a copy only what is read; of a kernel of the program everything.
            dataclasses.replace(
                step,
                makes=tuple(value for value in step.makes if value < self._copies or value in read),
            )
            for place, step in enumerate(self.steps)
            if place not in self._dead
        ]
        return MemorySchedule(kept, self.sizes)

    def _add(self, values: Iterable[int]) -> None:
        for value in values:
            if value in self.sizes and value not in self._live:
                self._live.add(value)
                self._live_bytes += self.sizes[value]

    def _drop(self, values: Iterable[int]) -> None:
        for value in values:
            if value in self._live:
                self._live.remove(value)
                self._live_bytes -= self.sizes[value]

    def _relieve(self, place: int) -> None:
        while self._live_bytes + self.steps[place].extra > self._limit and self._looks < _LOOKS_MAX:
            chosen = self._best(place)
            if chosen is None:
                break
            self._run_again(chosen, place)

    def _best(self, place: int) -> int | None:
        """Moves cost nothing, the others the less the more they free; of equals the first."""
        used = {*self.steps[place].reads, *self.steps[place].makes}
        best: tuple[int, int] | None = None
        for earlier in sorted({self._maker[value] for value in self._live - used}):
            step = self.steps[earlier]
            self._looks += len(step.makes) + len(step.reads)
            large = sum(self.sizes.get(value, 0) for value in step.makes) >= _WORTH_REPEATING_BYTES
            if not step.is_repeatable or not large or not used.isdisjoint(step.makes):
                continue
            gain = sum(self.sizes[value] for value in step.makes if value in self._live)
            gain -= sum(
                self.sizes.get(value, 0) for value in set(step.reads) if value not in self._live
            )
            if gain > 0:
                cost = 0 if self._was_read.isdisjoint(step.makes) else int(self._limit // gain)
                best = min(best or (cost, earlier), (cost, earlier))
        return best[1] if best else None

    def _run_again(self, earlier: int, place: int) -> None:
        step = self.steps[earlier]
        copies = {value: self._next_value + index for index, value in enumerate(step.makes)}
        self._next_value += len(copies)
        for value, copy in copies.items():
            self._unread[copy] = self._unread.pop(value, 0)
            if value in self.sizes:
                self.sizes[copy] = self.sizes[value]
                self.originals[copy] = self.originals[value]
        # Results that were read by then are taken off, too: the compiler counts too little from
        # here on.
        self._live.difference_update(copies)
        self._live_bytes -= sum(self.sizes.get(value, 0) for value in copies)
        self._add(step.reads)
        self._unread.update(set(step.reads))
        wanted = {*copies.values(), *step.reads}
        before = 0
        for later in reversed(range(place + 1, len(self.steps))):
            other = self.steps[later]
            if not copies.keys().isdisjoint(other.reads):
                renamed = tuple(copies.get(value, value) for value in other.reads)
                other = self.steps[later] = dataclasses.replace(other, reads=renamed)
            if not wanted.isdisjoint(other.reads):
                before = later
        is_move = self._was_read.isdisjoint(copies)
        # What was moved twice is not moved again: two of them could take turns for ever.
        again = dataclasses.replace(
            step,
            makes=tuple(copies.values()),
            is_repeatable=not (is_move and self._moves.issuperset(copies)),
        )
        if is_move:
            self._dead.add(earlier)
            self._moves.update(copies.values())
        self.steps.insert(before, again)
