"""Costs of work: jobs with all of their attempts, idle nodes, savings of spot, and what-if on real
usage.

A node's second belongs to the attempt that touched it first, else it is idle (R12). So the jobs and
the idle time of a node sum to what the node cost, exactly. All amounts come from `bills.compute`,
as invoices do.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.base.money import Amount
from podyard.control.billing import accounts, bills
from podyard.control.billing.job_progress import machine_costs
from podyard.db.billing import cost_dimensions, usage_events
from podyard.db.jobs import attempts
from podyard.db.jobs import history as job_history
from podyard.db.jobs import jobs as job_rows
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain import months
from podyard.domain.account import Account
from podyard.domain.attempt import Attempt
from podyard.domain.invoice import JobSpan
from podyard.domain.job import Job
from podyard.domain.node import INTERRUPTIBLE, UsageClass
from podyard.domain.principal import Principal
from podyard.domain.recipes import is_program, manifest_of
from podyard.domain.usage import BilledKind, BilledResource, UsageRecord, parts_within
from podyard.pricing import attribution
from podyard.pricing.amounts import total
from podyard.pricing.attribution import IDLE, Share
from podyard.pricing.bill import Resource, Terms, extend_to_hosts, resource_of, resources_of
from podyard.pricing.commitments import OWN
from podyard.pricing.machines import MachineCost
from podyard.pricing.sku import RateCard

Reported = Mapping[int, tuple[int, float]]  # as of `job_history.steps_of_project`, of one job
NOTHING = Share(0, Amount())
_DEARER = "on-demand:"  # before the key of a node that can be taken back


@dataclasses.dataclass(frozen=True, slots=True)
class AttemptCost:
    """Billed seconds of one attempt and what they cost. `lost_steps` were done again by a later
    attempt.

    `on_demand`: what the same seconds cost on demand; None where the node is on demand itself, or
    has no such price.
    """

    attempt: int
    outcome: str | None
    share: Share
    first_step: int
    last_step: int
    lost_steps: int
    on_demand: Amount | None

    @property
    def lost_share(self) -> Fraction:
        """The part of the attempt that was done again, if every step of it took the same time."""
        steps = self.last_step - self.first_step
        return Fraction(self.lost_steps, steps) if steps > 0 else Fraction(0)


@dataclasses.dataclass(frozen=True, slots=True)
class JobCost:
    """A job with all of its attempts. `examples_per_epoch` None: the job's data decides.
    `estimate`: what the steps that are done should have cost by the timing model at the node's
    price; None before the first step, or without a price. `machine`: what it has taken of one's own
    machines; None without a card for it."""

    name: str
    node: str
    usage_class: UsageClass
    state: str
    steps: int
    global_batch: int
    examples_per_epoch: int | None
    estimate: Amount | None
    attempts: Sequence[AttemptCost]
    machine: MachineCost | None

    @property
    def share(self) -> Share:
        return sum((attempt.share for attempt in self.attempts), NOTHING)

    @property
    def per_step(self) -> Fraction | None:
        return self.share.amount.fraction() / self.steps if self.steps else None

    @property
    def per_1000_examples(self) -> Fraction | None:
        return None if self.per_step is None else self.per_step * 1000 / self.global_batch

    @property
    def per_epoch(self) -> Fraction | None:
        if self.per_step is None or self.examples_per_epoch is None:
            return None
        return self.per_step * Fraction(self.examples_per_epoch, self.global_batch)

    @property
    def lost_cost(self) -> Fraction:
        """Return what steps have cost that were done again, in US dollars."""
        return sum((a.share.amount.fraction() * a.lost_share for a in self.attempts), Fraction(0))

    @property
    def saving(self) -> Fraction | None:
        """Return what the seconds that were not lost would have cost on demand, less what all
        seconds cost, in US dollars."""
        if not self.attempts or any(attempt.on_demand is None for attempt in self.attempts):
            return None
        useful = (
            a.on_demand.fraction() * (1 - a.lost_share)
            for a in self.attempts
            if a.on_demand is not None
        )
        return sum(useful, Fraction(0)) - self.share.amount.fraction()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeCost:
    """One node: all of it, and what of it no job has used. `idle_on_demand`: the price of the idle
    seconds on demand,
    of a node that can be taken back."""

    name: str
    accelerator_type: str
    usage_class: UsageClass
    share: Share
    idle: Share
    idle_on_demand: Amount | None = None

    @property
    def idle_saved(self) -> Fraction:
        """Return what the seconds without a job would have cost more on demand, in US dollars."""
        if self.idle_on_demand is None:
            return Fraction(0)
        return self.idle_on_demand.fraction() - self.idle.amount.fraction()


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """Nodes' costs are net of what commitments cover; `commitments` is what these cost themselves,
    `storage` what disks and buckets do. All of one month, or (`month` None) of all time."""

    as_of: PlatformTime
    month: str | None
    jobs: Sequence[JobCost]
    nodes: Sequence[NodeCost]
    commitments: Amount
    storage: Amount

    @property
    def total(self) -> Amount:
        return (
            Amount(sum(node.share.amount.parts for node in self.nodes))
            + self.commitments
            + self.storage
        )


class Needed(enum.Enum):
    """Whose costs a reader looks at: of all nodes, of those that have run a job, or of these and of
    all that can be taken back. A project of 50,000 nodes takes seconds to meter."""

    ALL = enum.auto()
    JOBS = enum.auto()
    SPOT = enum.auto()


def costs(
    uow: UnitOfWork,
    card: RateCard,
    principal: Principal,
    project: str,
    month: str | None = None,
    needed: Needed = Needed.ALL,
) -> Costs:
    """Every job and node of the project that cost something, by name; at least the nodes that are
    needed."""
    accounts.require_to_view(uow, principal, project, "costs")
    account = accounts.of(uow, project)
    window = window_of(account, month, uow.now)
    terms = bills.project_terms(uow, account)
    spans = cost_dimensions.job_spans(uow, project, by_attempt=True)
    keys = None
    if needed is not Needed.ALL and not terms.commitments:  # what these cover depends on all nodes
        keys = _keys(uow, project, spans, window, needed)
    facts = bills.billed_resources(uow, card, [project], keys)
    resources = resources_of(card, facts)
    dearer, is_part = _on_demand(card, facts, resources), keys is not None
    if terms.commitments:  # they are of on-demand SKUs, and would cover these too
        charges = charges_of(uow, project, resources, terms, window)
        charges += charges_of(uow, project, dearer, Terms(), window)
    else:
        charges = charges_of(uow, project, {**resources, **dearer}, terms, window, few=is_part)
    instead = [charge for charge in charges if charge.resource_id in dearer]
    charges = [charge for charge in charges if charge.resource_id not in dearer]
    own = total(charge for charge in charges if charge.resource_id.startswith(OWN))
    storage = total(charge for charge in charges if _is_storage(facts, charge))
    charges = [charge for charge in charges if not _is_storage(facts, charge)]
    shares = _attribute(charges, spans, resources, uow.now)
    on_demand = _attribute(instead, spans, dearer, uow.now)
    nodes = [
        NodeCost(
            facts[key].name,
            facts[key].type,
            facts[key].usage_class,
            sum(found.values(), NOTHING),
            found.get(IDLE, NOTHING),
            on_demand[key].get(IDLE, NOTHING).amount if key in on_demand else None,
        )
        for key, found in shares.items()
    ]
    return Costs(
        uow.now,
        month,
        _jobs(uow, project, facts, resources, shares, on_demand, window),
        sorted(nodes, key=lambda node: node.name),
        own,
        storage,
    )


def _is_storage(facts: Mapping[str, BilledResource], charge: UsageRecord) -> bool:
    found = facts.get(charge.resource_id)
    return found is not None and found.kind.is_storage


def window_of(account: Account, month: str | None, now: PlatformTime) -> range:
    """The POSIX seconds whose charges count: none after now."""
    until = -(-now.nanos // NANOS_PER_SECOND)
    if month is None:
        return range(until)
    seconds = months.seconds_of(accounts.check_month(month), account.time_zone)
    return range(seconds.start, min(seconds.stop, until))


def _keys(
    uow: UnitOfWork, project: str, spans: Sequence[JobSpan], window: range, needed: Needed
) -> list[str]:
    keys = {
        span.resource_id
        for span in spans
        if span.end is None or span.end.nanos >= window.start * NANOS_PER_SECOND
    }
    if needed is Needed.SPOT:
        start = PlatformTime(window.start * NANOS_PER_SECOND)
        keys.update(usage_events.keys_used_since(uow, project, start, INTERRUPTIBLE))
    return sorted(keys)


def charges_of(
    uow: UnitOfWork,
    project: str,
    resources: Mapping[str, Resource],
    terms: Terms,
    window: range,
    *,
    few: bool = False,
) -> list[UsageRecord]:
    bill = bills.compute(uow, [project], resources, terms, uow.now, few=few)
    return list(parts_within(bill.charges, window))


def _attribute(
    charges: Sequence[UsageRecord],
    spans: Sequence[JobSpan],
    resources: Mapping[str, Resource],
    as_of: PlatformTime,
) -> Mapping[str, Mapping[str, Share]]:
    """Shares by node and job: the node's seconds, and what they cost with its hosts."""
    of_nodes = (charge for charge in charges if not charge.resource_id.startswith(OWN))
    found: dict[str, dict[str, Share]] = {}
    for key, shares in attribution.attribute(
        of_nodes, extend_to_hosts(resources, spans), as_of
    ).items():
        mine = found.setdefault(resources[key].source, {})
        for job_id, share in shares.items():
            part = Share(0, share.amount) if resources[key].kind == BilledKind.HOST else share
            mine[job_id] = mine[job_id] + part if job_id in mine else part
    return found


def _on_demand(
    card: RateCard, facts: Mapping[str, BilledResource], resources: Mapping[str, Resource]
) -> dict[str, Resource]:
    """For each node that can be taken back, a resource of the same events that is sold on demand;
    those without such a price are left out. The free first minute stays theirs: what was not
    charged is not saved either."""
    found = {}
    sold: dict[tuple[str, str, BilledKind], Resource] = {}  # many nodes are of one kind
    for key, node in facts.items():
        if node.usage_class not in INTERRUPTIBLE:
            continue
        kind = (node.type, node.zone, node.kind)
        if kind not in sold:
            sold[kind] = resource_of(
                card, dataclasses.replace(node, usage_class=UsageClass.ON_DEMAND)
            )
        if sold[kind].sku is not None:
            own = resources[key]
            found[_DEARER + key] = dataclasses.replace(
                own,
                resource_id=_DEARER + key,
                sku=sold[kind].sku,
                quantity=sold[kind].quantity,
                held_because="",
                node=own.source,
            )
    return found


def _jobs(
    uow: UnitOfWork,
    project: str,
    facts: Mapping[str, BilledResource],
    resources: Mapping[str, Resource],
    shares: Mapping[str, Mapping[str, Share]],
    on_demand: Mapping[str, Mapping[str, Share]],
    window: range,
) -> list[JobCost]:
    jobs = job_rows.tried_since(uow, project, PlatformTime(window.start * NANOS_PER_SECOND))
    machines = machine_costs(uow, jobs, window)
    tries, steps = attempts.of_project(uow, project), job_history.steps_of_project(uow, project)
    nodes = cost_dimensions.node_keys(uow, jobs)
    found = []
    for job in jobs:
        keys = [key for key in nodes[job.job_key] if key in facts]
        mine = _of_nodes(shares, keys)
        dearer = _of_nodes(on_demand, keys) if on_demand.keys() & set(keys) else None
        reported = steps.get(job.job_key, {})
        costs_of = [
            _attempt(attempt, later, reported, mine, dearer)
            for attempt, later in _with_next(tries.get(job.job_key, []))
        ]
        if keys and any(cost.share.seconds for cost in costs_of):
            own = (facts[keys[0]], resources[keys[0]])
            found.append(_job(job, *own, costs_of, reported, machines.get(job.job_key)))
    return found


def _of_nodes(
    shares: Mapping[str, Mapping[str, Share]], keys: Sequence[str]
) -> Mapping[str, Share]:
    """The shares of attempts in all nodes of their job."""
    found: dict[str, Share] = {}
    for key in keys:
        for attempt_id, share in shares.get(key, {}).items():
            found[attempt_id] = found[attempt_id] + share if attempt_id in found else share
    return found


def _with_next(found: Sequence[Attempt]) -> list[tuple[Attempt, Attempt | None]]:
    return [*itertools.pairwise(found), (found[-1], None)] if found else []


def _attempt(
    attempt: Attempt,
    later: Attempt | None,
    reported: Reported,
    shares: Mapping[str, Share],
    dearer: Mapping[str, Share] | None,
) -> AttemptCost:
    first = attempt.resume_step
    last_step, _ = reported.get(attempt.attempt, (first, 0.0))
    last_step = max(first, last_step)
    lost = 0 if later is None else max(0, last_step - max(first, later.resume_step))
    same = None if dearer is None else dearer.get(attempt.attempt_id, NOTHING).amount
    share = shares.get(attempt.attempt_id, NOTHING)
    return AttemptCost(attempt.attempt, attempt.outcome, share, first, last_step, lost, same)


def _job(
    job: Job,
    node: BilledResource,
    resource: Resource,
    costs_of: Sequence[AttemptCost],
    reported: Reported,
    machine: MachineCost | None,
) -> JobCost:
    recipe = job.spec.recipe
    spec = job.spec
    modelled = (
        [seconds for _, seconds in reported.values()]
        if spec.step_seconds is None
        else [spec.step_seconds]
    )
    return JobCost(
        name=job.name,
        node=node.name,
        usage_class=node.usage_class,
        state=job.state,
        steps=job.steps_done,
        global_batch=job.spec.global_batch,
        examples_per_epoch=None
        if job.spec.run or is_program(recipe)
        else manifest_of(recipe).training_example_count,
        estimate=_estimate(resource, job.steps_done, modelled[0], job.created)
        if modelled
        else None,
        attempts=costs_of,
        machine=machine,
    )


def _estimate(
    resource: Resource, steps: int, step_seconds: float, at: PlatformTime
) -> Amount | None:
    """Return the cost of steps by the timing model, in whole seconds, at the node's price
    at that time."""
    version = None if resource.sku is None else resource.sku.version_at(at)
    if version is None:
        return None
    seconds = math.ceil(Fraction(step_seconds) * steps)
    return Amount.of_hourly(version.nanos, seconds * resource.quantity)
