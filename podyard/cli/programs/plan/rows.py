"""The rows of a plan: one accelerator type in one zone, bought in one way."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import click

from podyard.base.clock import NANOS_PER_SECOND, OsClock, PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.base.money import Amount
from podyard.cli.programs.estimate import USAGES
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.node import UsageClass
from podyard.engine.report.compare import Outcome
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.pricing import planning
from podyard.pricing.current_card import default_rate_card
from podyard.pricing.planning import Draws, PlannedRuns, TrainingRun
from podyard.pricing.sku import RateCard
from podyard.settings import fleet_name, from_environment
from podyard.stack.fleets import read_fleet

PREEMPTIONS_USUAL = 1.0  # per day
CHECKPOINT_STEPS_USUAL = 100  # as jobs that say nothing
PARTS = {"p50": 0.5, "p95": 0.95}
LIMIT = "p95"  # the quantile that has to meet the limits


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and units of the currency; None: any."""

    deadline: float | None
    budget: Fraction | None


@dataclasses.dataclass(frozen=True)
class PlanRow:
    """One way to do it. `reasons`: why it is not one that meets both limits. `costs` None: it has
    no price."""

    accelerator_type: str
    zone: str
    usage: str
    step_seconds: float | None
    fits: bool
    runs: PlannedRuns | None = None
    costs: Mapping[str, Amount] | None = None
    reasons: tuple[str, ...] = ()
    # Why its step, and with it time and cost, is a lower bound; empty where it is not.
    doubts: tuple[str, ...] = ()

    @property
    def finishes(self) -> Mapping[str, float]:
        """Seconds, by name of the quantile; of a row with runs."""
        assert self.runs is not None
        return {name: self.runs.finish_at(part) for name, part in PARTS.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class PlanRequest:
    """The run to plan, the zones to plan it in, and with which figures."""

    steps: int
    limits: Limits
    preemptions_per_day: float
    checkpoint_every_steps: int
    restart_seconds: float
    zones: Sequence[str]
    fleet: Fleet
    card: RateCard
    draws: Draws
    start: PlatformTime

    def rows_of(self, kind: AcceleratorType, outcome: Outcome) -> list[PlanRow]:
        """Return the rows of one accelerator type: one for each zone and usage that offers it, or
        one that says why the program cannot run."""
        if outcome.error is not None or outcome.report is None:
            return [_impossible(kind, outcome)]
        estimate, rows = outcome.report.estimate, list[PlanRow]()
        for usage in USAGES:
            zones = [zone for zone in self.zones if offers(self.fleet, zone, kind, usage)]
            if not zones:
                continue
            run = TrainingRun(
                self.steps,
                estimate.modelled_seconds,
                self.checkpoint_every_steps,
                usage,
                self.preemptions_per_day,
                self.fleet.timings.creation_seconds(kind.host_count),
                self.restart_seconds,
            )
            runs = planning.play(run, self.draws, self.start)
            for zone in zones:
                row = _row(kind, zone, runs, self.draws, self.card, self.start, self.limits)
                rows.append(dataclasses.replace(row, doubts=estimate.reasons))
        return rows


def now_in_seconds() -> PlatformTime:
    """Return the time of day, in whole seconds."""
    return PlatformTime(OsClock().now().nanos // NANOS_PER_SECOND * NANOS_PER_SECOND)


def predict(
    kind: AcceleratorType, step_seconds: float, steps: int, usage: UsageClass, zone: str
) -> PlanRow:
    """A run of `steps` in a zone, with all that `podyard plan` takes if nothing else is said."""
    fleet, start = fleet_of(None), now_in_seconds()
    create = fleet.timings.creation_seconds(kind.host_count)
    run = TrainingRun(steps, step_seconds, CHECKPOINT_STEPS_USUAL, usage, PREEMPTIONS_USUAL, create)
    draws = Draws(0)
    return _row(
        kind,
        zone,
        planning.play(run, draws, start),
        draws,
        default_rate_card(),
        start,
        Limits(None, None),
    )


def fleet_of(name_or_path: str | None) -> Fleet:
    """Return the fleet of a name or a file, or of the environment. Raises a usage error."""
    try:
        return read_fleet(
            from_environment().fleet if name_or_path is None else fleet_name(name_or_path)
        )
    except PodyardError as error:
        raise click.BadParameter(error.message, param_hint="--fleet") from None


def offers(fleet: Fleet, zone: str, kind: AcceleratorType, usage: UsageClass) -> bool:
    offer = fleet.zone(zone).offers.get(kind.generation.name)
    return offer is not None and offer.fits(kind) and usage in offer.usage_classes


def _impossible(kind: AcceleratorType, outcome: Outcome) -> PlanRow:
    seconds = None if outcome.report is None else outcome.report.estimate.modelled_seconds
    why = outcome.error.message if outcome.error is not None else ""
    doubts = () if outcome.report is None else outcome.report.estimate.reasons
    return PlanRow(
        kind.name, "", "", seconds, outcome.report is None, reasons=(why,), doubts=doubts
    )


def _row(
    kind: AcceleratorType,
    zone: str,
    runs: PlannedRuns,
    draws: Draws,
    card: RateCard,
    start: PlatformTime,
    limits: Limits,
) -> PlanRow:
    usage = runs.run.usage
    row = PlanRow(kind.name, zone, str(usage), runs.run.step_seconds, True, runs)
    reasons: list[str] = []
    late = row.finishes["p95"]
    if math.isinf(late):
        reasons.append("does not end")
    elif limits.deadline is not None and late > limits.deadline:
        reasons.append("too late")
    costs: dict[str, Amount] | None = None
    try:
        sku, quantity = card.sku_for(kind.name, region_of(zone), usage)
    except PodyardError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        reasons.append("no price")
    else:
        costs = {}
        for name, part in PARTS.items():
            nodes = planning.lives(runs.run, draws, runs.billed_index(part), start)
            costs[name], _ = planning.cost(nodes, usage, sku, quantity, start)
        if limits.budget is not None and costs["p95"].fraction() > limits.budget:
            reasons.append("too dear")
    return dataclasses.replace(row, costs=costs, reasons=tuple(reasons))


def order(row: PlanRow) -> tuple[bool, bool, int, float, str, str]:
    """Return the key of a sort: rows within both limits, then the cheaper, then the sooner."""
    late = math.inf if row.runs is None else row.finishes["p95"]
    dear = 0 if row.costs is None else row.costs["p95"].parts
    return (bool(row.reasons), row.costs is None, dear, late, row.accelerator_type, row.zone)
