"""The costs of a job's run so far: time, speed, what is left, and cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

from podyard.base.clock import NANOS_PER_SECOND
from podyard.base.money import Amount
from podyard.control.billing import usages
from podyard.control.platform import modelled_steps
from podyard.db.billing import cost_dimensions
from podyard.db.jobs import attempts, replicas
from podyard.db.jobs import history as job_history
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import JOB, Job
from podyard.domain.principal import Principal
from podyard.domain.ran_module import ProgramRun
from podyard.domain.replica import AttemptUse
from podyard.domain.usage import parts_within
from podyard.pricing import attribution
from podyard.pricing.amounts import total
from podyard.pricing.current_card import machine_card
from podyard.pricing.machines import MachineCost, cost_of
from podyard.pricing.sku import RateCard

# the speed is that of the newest steps: enough to smooth it, few enough to follow a change
SPEED_STEPS_MAX = 100


@dataclasses.dataclass(frozen=True, slots=True)
class JobProgress:
    """`wall_seconds`: real seconds of all attempts, up to now. `steps_per_second` and
    `seconds_left` (real seconds, of a simulated job platform seconds): of a job that runs and has
    done a step. `steps_done`: of a simulated job also those since it was last looked at.
    `cost`: US dollars of the job's seconds on its node at their prices, before commitments and
    credits; None for callers who may not see the bill. `is_estimated`: the cost still grows.

    `machine`: what all attempts have taken of one's own machines; None without a card for it, and
    for these callers. `run`: what a user's program has run, where one job is asked for.
    """

    wall_seconds: float
    steps_per_second: float | None
    seconds_left: float | None
    cost: Amount | None
    is_estimated: bool
    steps_done: int
    machine: MachineCost | None = None
    run: ProgramRun | None = None

    @property
    def cost_at_end(self) -> Fraction | None:
        """If the job goes on as it did: with its speed, its attempts and its prices."""
        if self.cost is None or self.seconds_left is None or not self.wall_seconds:
            return None
        return self.cost.fraction() * Fraction(1 + self.seconds_left / self.wall_seconds)


def of(uow: UnitOfWork, card: RateCard, principal: Principal, job: Job) -> JobProgress:
    progress = of_all(uow, card, principal, job.project, [job])[job.job_key]
    return dataclasses.replace(progress, run=_run_of(uow, job))


def of_all(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, jobs: Sequence[Job]
) -> dict[str, JobProgress]:
    """The progress of each of a project's jobs, by its key."""
    sees_bill = principal.may("podyard.billing.view", project)
    costs = _costs(uow, card, principal, project, jobs) if sees_bill else {}
    machines = machine_costs(uow, jobs) if sees_bill else {}
    return {
        job.job_key: _progress(uow, job, costs.get(job.job_key), machines.get(job.job_key))
        for job in jobs
    }


def machine_costs(
    uow: UnitOfWork, jobs: Sequence[Job], window: range | None = None
) -> dict[str, MachineCost]:
    """Return what jobs have taken of one's own machines, by their keys, in attempts that started in
    these POSIX seconds (None: in all); nothing without a card."""
    card = machine_card()
    if card is None:
        return {}
    used: dict[str, list[AttemptUse]] = {job.job_key: [] for job in jobs}
    for attempt in replicas.machine_use(uow, list(used)):
        if window is None or attempt.started.nanos // NANOS_PER_SECOND in window:
            used[attempt.job_key].append(attempt)
    return {key: cost_of(card, found) for key, found in used.items()}


def _progress(
    uow: UnitOfWork, job: Job, cost: Amount | None, machine: MachineCost | None
) -> JobProgress:
    wall = job.wall_seconds
    attempt = None if JOB.is_final(job.state) else attempts.find_open(uow, job.job_key)
    if attempt is not None:
        wall += max(0.0, uow.real_now.seconds_since(attempt.started_real))
    speed, done = None, job.steps_done
    if job.state == "RUNNING" and attempt is not None and job.spec.step_seconds is not None:
        speed = 1 / modelled_steps.step_seconds(uow, job)
        done = max(done, modelled_steps.steps_now(uow, job, attempt))
    elif job.state == "RUNNING":
        speed = _steps_per_second(uow, job)
    left = None if speed is None else max(0, job.spec.steps - done) / speed
    return JobProgress(wall, speed, left, cost, attempt is not None, done, machine)


def _run_of(uow: UnitOfWork, job: Job) -> ProgramRun | None:
    """Return what a user's program has run in the newest attempt that ran any; None: nothing."""
    runs = {} if job.spec.run is None else job_history.runs_of(uow, job.job_key)
    return runs[max(runs)] if runs else None


def _steps_per_second(uow: UnitOfWork, job: Job) -> float | None:
    """By the newest steps of the present attempt. Its first one compiles, so it is left out when
    there are others."""
    seconds = job_history.newest_seconds(uow, job.job_key, job.attempt, SPEED_STEPS_MAX + 1)
    counted = seconds[:-1] or seconds
    return len(counted) / sum(counted) if sum(counted) > 0 else None


def _costs(
    uow: UnitOfWork, card: RateCard, principal: Principal, project: str, jobs: Sequence[Job]
) -> dict[str, Amount]:
    """Of all nodes that jobs have and had. A node's second belongs to the attempt that touched it
    first, as in `costs.costs` (R12)."""
    nodes = cost_dimensions.node_keys(uow, jobs)
    keys = sorted({key for own in nodes.values() for key in own})
    used = usages.usage(uow, card, principal, project, resource_keys=keys)
    records = {node.resource_key: node.records for node in used.nodes}
    spans = cost_dimensions.job_spans_on(uow, keys)
    owned = {
        key: attribution.ownership([span for span in spans if span.resource_id == key], uow.now)
        for key in keys
    }
    found = {}
    for job in jobs:
        mine = [
            (key, one.seconds)
            for key in nodes[job.job_key]
            for one in owned[key]
            if one.job_id == job.job_key
        ]
        found[job.job_key] = total(
            part for key, seconds in mine for part in parts_within(records.get(key, ()), seconds)
        )
    return found
