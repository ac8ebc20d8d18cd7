"""Time and cost of a training run on nodes that can be taken back: many runs drawn by chance,
billed for real.

The rules are the platform's. A node is READY after the fleet's `create_seconds`; a preemptible one
ends 24 hours after it was asked for; spot and preemptible ones are taken back as a Poisson process,
whose rate is given. What was done since the last checkpoint is lost. The next node is asked for at
once. Billed are the seconds that READY nodes touch, and a node's first minute is free when it is
taken back in it.

All rows of a plan share their draws: two rows differ by what they are, not by luck.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.errors import invalid
from podyard.base.money import Amount
from podyard.base.rng import Random, Streams
from podyard.domain.node import INTERRUPTIBLE, UsageClass
from podyard.domain.slice import PREEMPTIBLE_LIFE_SECONDS
from podyard.domain.usage import UsageEvent
from podyard.pricing import bill
from podyard.pricing.amounts import total
from podyard.pricing.sku import Sku

# the error of a P95 is then a third of a per cent of the runs: less than the model's own
SAMPLES = 4000
NODES_MAX = 1000  # of one run after another: a run that needs more is not one that anybody plans
RESTART_SECONDS = 60.0  # ours: to start the processes, compile, and read a checkpoint
PREEMPTIONS_PER_DAY_MAX = 86_400.0
DAY_SECONDS = 86_400.0
STREAM = "plan"

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class TrainingRun:
    """The run, on one accelerator type bought in one way. `preemptions_per_day` only counts for
    what can be taken back. `restart_seconds`: between READY and the first step."""

    steps: int
    step_seconds: float
    checkpoint_every_steps: int
    usage: UsageClass
    preemptions_per_day: float = 0.0
    create_seconds: float = 0.0
    restart_seconds: float = RESTART_SECONDS

    @property
    def rate(self) -> float:
        """Preemptions per second of a READY node."""
        can_be = self.usage in INTERRUPTIBLE
        return self.preemptions_per_day / DAY_SECONDS if can_be else 0.0

    @property
    def life_seconds(self) -> float:
        """From the request to the end that comes by itself."""
        return float(PREEMPTIBLE_LIFE_SECONDS) if self.usage is UsageClass.PREEMPTIBLE else math.inf

    @property
    def is_certain(self) -> bool:
        """Every run of it is the same."""
        return self.rate == 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Life:
    """A node of a run: seconds after the run's beginning, and the state that ends it being
    READY."""

    ready: float
    end: float
    ended_by: str


@dataclasses.dataclass(frozen=True)
class PlannedRuns:
    """Many runs of one kind, one number each: seconds until the end (infinite for one that does not
    end), seconds that are billed, seconds of work that was lost, and how often the node was taken
    back."""

    run: TrainingRun
    finish: Floats
    billed: Integers
    lost: Floats
    preemptions: Integers

    def finish_at(self, part: float) -> float:
        """The quantile: in `part` of all runs it takes no longer."""
        return float(self._in_order[_rank(len(self.finish), part)])

    def billed_index(self, part: float) -> int:
        """Index of the run that is the quantile of billed seconds, hence of cost at any price that
        does not change."""
        return int(self._by_billed[_rank(len(self.billed), part)])

    @functools.cached_property
    def _in_order(self) -> Floats:
        return np.sort(self.finish)

    @functools.cached_property
    def _by_billed(self) -> npt.NDArray[np.intp]:
        return np.argsort(self.billed, kind="stable")


class Draws:
    """Waiting times until preemptions, as multiples of their mean: one for each run and each of its
    nodes."""

    def __init__(self, seed: int, count: int = SAMPLES) -> None:
        self.count = count
        self._chance: Random = Streams(seed).stream(STREAM)
        self._nodes: list[Floats] = []

    def of_node(self, index: int) -> Floats:
        while len(self._nodes) <= index:
            row = (-math.log1p(-self._chance.random()) for _ in range(self.count))
            self._nodes.append(np.fromiter(row, np.float64, self.count))
        return self._nodes[index]


def check(run: TrainingRun) -> None:
    """Raises INVALID_ARGUMENT that names the figure which is none."""
    for name, value, least in (
        ("steps", run.steps, 1),
        ("checkpoint_every_steps", run.checkpoint_every_steps, 1),
        ("step_seconds", run.step_seconds, 1e-9),
        ("create_seconds", run.create_seconds, 0),
        ("restart_seconds", run.restart_seconds, 0),
        ("preemptions_per_day", run.preemptions_per_day, 0),
    ):
        if not least <= value < math.inf:
            raise invalid(f"{name} is {value:g}: it must be at least {least:g}", name)
    if run.preemptions_per_day > PREEMPTIONS_PER_DAY_MAX:
        raise invalid(
            f"preemptions_per_day is above {PREEMPTIONS_PER_DAY_MAX:g}: no step would be done",
            "rate",
        )


def play(run: TrainingRun, draws: Draws, start: PlatformTime) -> PlannedRuns:
    """All runs of the draws; one only where chance has no part. `start`: when the first node is
    asked for."""
    check(run)
    count = 1 if run.is_certain else draws.count
    everyone = np.arange(count)
    finish, billed, lost, times, _ = _play(run, draws, everyone, start)
    return PlannedRuns(run, finish, billed, lost, times)


def lives(run: TrainingRun, draws: Draws, index: int, start: PlatformTime) -> list[Life]:
    """The nodes of one of the runs that `play` plays, in their order."""
    return _play(run, draws, np.array([index]), start)[4]


def cost(
    nodes: Sequence[Life], usage: UsageClass, sku: Sku, quantity: int, start: PlatformTime
) -> tuple[Amount, int]:
    """Return what the nodes of a run cost, and the seconds that are billed: by the meter and the
    rating of the bill itself."""
    amount, seconds = Amount(), 0
    for number, life in enumerate(nodes):
        name = f"plan-{number}"
        events = [
            UsageEvent(f"{name}-ready", name, 1, "READY", start.plus_seconds(life.ready)),
            UsageEvent(f"{name}-end", name, 2, life.ended_by, start.plus_seconds(life.end)),
        ]
        resource = bill.node_resource(name, sku, quantity, usage)
        use = bill.use_of(resource, events, events[-1].at)
        if use.rated.suspense:
            raise invalid(use.rated.suspense[0].reason, "price")
        amount += total(use.rated.records)
        seconds += use.metered.seconds
    return amount, seconds


def _play(
    run: TrainingRun, draws: Draws, chosen: npt.NDArray[np.intp], start: PlatformTime
) -> tuple[Floats, Integers, Floats, Integers, list[Life]]:
    """The chosen runs, node after node, all of them at once; the nodes too where it is one run
    only.

    A node that works to the end of the run is DELETING then.
    """
    count = len(chosen)
    clock, done = np.zeros(count), np.zeros(count)
    finish, lost = np.full(count, np.inf), np.zeros(count)
    billed, times = np.zeros(count, np.int64), np.zeros(count, np.int64)
    going = np.ones(count, bool)
    found: list[Life] = []
    for node in range(NODES_MAX):
        ready = clock + run.create_seconds
        taken = (
            ready + draws.of_node(node)[chosen] / run.rate if run.rate else np.full(count, np.inf)
        )
        ends = clock + run.life_seconds
        work = ready + run.restart_seconds
        finished = work + (run.steps - done) * run.step_seconds
        cut = np.minimum(taken, ends)
        over = finished <= cut
        end = np.where(over, finished, cut)
        preempted = ~over & (taken <= ends)
        billed += np.where(going, _billed_seconds(run, start, ready, end, preempted), 0)
        kept = _kept_steps(run, done, end - work)
        lost += np.where(
            going & ~over, np.maximum(0.0, end - work - (kept - done) * run.step_seconds), 0.0
        )
        times += going & ~over
        finish = np.where(going & over, finished, finish)
        if count == 1:
            state = "DELETING" if over[0] else "PREEMPTED" if preempted[0] else "TERMINATED"
            found.append(Life(float(ready[0]), max(float(ready[0]), float(end[0])), state))
        done = np.where(over, run.steps, kept)
        clock = end
        going &= ~over
        if not going.any():
            break
    return finish, billed, lost, times, found


def _kept_steps(run: TrainingRun, done: Floats, worked_seconds: Floats) -> Floats:
    """Steps that a checkpoint holds, after so long a time of work since it went on from `done`."""
    steps = done + np.floor(np.maximum(worked_seconds, 0.0) / run.step_seconds)
    saved = np.floor(steps / run.checkpoint_every_steps) * run.checkpoint_every_steps
    kept: Floats = np.maximum(done, saved)
    return kept


def _billed_seconds(
    run: TrainingRun,
    start: PlatformTime,
    ready: Floats,
    end: Floats,
    preempted: npt.NDArray[np.bool_],
) -> Integers:
    """As the meter counts them: whole seconds that the time as READY touches, none where the first
    minute is free.

    The meter itself bills the runs that are shown; this orders them, and a test holds the two
    together.
    """
    begin_nanos = start.nanos % NANOS_PER_SECOND + np.rint(ready * NANOS_PER_SECOND).astype(
        np.int64
    )
    end_nanos = start.nanos % NANOS_PER_SECOND + np.rint(end * NANOS_PER_SECOND).astype(np.int64)
    touched = -(-end_nanos // NANOS_PER_SECOND) - begin_nanos // NANOS_PER_SECOND
    free_nanos = (
        bill.node_resource("", None, 1, run.usage).policy.preempt_free_seconds * NANOS_PER_SECOND
    )
    free = preempted & (end_nanos - begin_nanos < free_nanos)
    billed: Integers = np.where(free | (end_nanos <= begin_nanos), 0, touched)
    return billed


def _rank(count: int, part: float) -> int:
    return max(0, math.ceil(part * count) - 1)
