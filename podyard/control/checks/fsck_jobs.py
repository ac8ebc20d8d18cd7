"""Jobs: I3 (gangs are whole), I4 (one history of steps), I5 (none is lost)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podyard.control.checks.fsck_violation import GRACE_SECONDS, Violation
from podyard.db.views.fsck import Records
from podyard.domain.attempt import Attempt, AttemptState
from podyard.domain.fleet import Fleet
from podyard.domain.gang import allowed_sizes
from podyard.domain.job import WAITING_JOB_STATES, Job, JobState
from podyard.domain.node import NODE_STATES_LOST
from podyard.domain.replica import Replica, ReplicaOutcome, ReplicaState

_WITH_ATTEMPT = (JobState.PREPARING, JobState.RUNNING, JobState.CANCELLING)
_DONE = (ReplicaOutcome.SUCCEEDED, ReplicaOutcome.YIELDED)


def check_jobs(records: Records, fleet: Fleet) -> Iterator[Violation]:
    del fleet
    attempts: dict[str, list[Attempt]] = {}
    replicas: dict[str, list[Replica]] = {}
    for attempt in records.attempts.values():
        attempts.setdefault(attempt.job_key, []).append(attempt)
    for replica in records.replicas:
        replicas.setdefault(replica.attempt_id, []).append(replica)
    steps: dict[str, dict[int, Sequence[int]]] = {}
    for (key, number), reported in records.steps.items():
        steps.setdefault(key, {})[number] = reported
    running_on: dict[str, str] = {}
    for key, job in records.jobs.items():
        mine = sorted(attempts.get(key, ()), key=lambda attempt: attempt.attempt)
        for problem in _gangs(records, job, mine, replicas, running_on):
            yield Violation("I3", records.now, job.name, problem)
        for problem in _steps(job, mine, steps.get(key, {})):
            yield Violation("I4", records.now, job.name, problem)
        for problem in _losses(records, job, mine):
            yield Violation("I5", records.now, job.name, problem)


def _gangs(
    records: Records,
    job: Job,
    attempts: Sequence[Attempt],
    replicas: dict[str, list[Replica]],
    running_on: dict[str, str],
) -> Iterator[str]:
    is_open = [attempt for attempt in attempts if attempt.state is not AttemptState.ENDED]
    if len(is_open) > 1:
        yield f"{len(is_open)} attempts are under way at once"
    for attempt in attempts:
        gang = replicas.get(attempt.attempt_id, [])
        number, states = attempt.attempt, [replica.state for replica in gang]
        kind = job.kind_at(number)
        sizes = {size.host_count: size for size in allowed_sizes(job.spec, kind)}
        size = sizes.get(kind.host_count if attempt.host_count is None else attempt.host_count)
        wanted = (
            None if size is None else [size.hosts_of(rank) for rank in range(size.process_count)]
        )
        wanted = [] if job.spec.is_modelled else wanted
        if wanted is None or [replica.host_indices for replica in gang] != wanted:
            yield f"attempt {number} has {len(gang)} replicas, which are not one whole gang"
        live = [replica for replica in gang if replica.is_live]
        if attempt.state is AttemptState.ENDED and live:
            yield f"attempt {number} has ended, and {len(live)} of its replicas have not"
        # Replicas that have finished may go before the others.
        going = {replica.state for replica in gang if replica.outcome not in _DONE}
        if not attempt.has_begun_to_end and ReplicaState.EXITED in going:
            yield f"attempt {number} is {attempt.state}, and its replicas are {', '.join(states)}"
        if attempt.state is AttemptState.RUNNING and not going <= {ReplicaState.RUNNING}:
            yield f"attempt {number} is RUNNING, and its replicas are {', '.join(states)}"
        if len({replica.desired for replica in gang}) > 1:
            yield f"attempt {number}: its replicas are not all to do the same"
    for attempt in is_open:
        for key in records.node_keys_of(job):
            node = records.nodes.get(key)
            if not attempt.has_begun_to_end and (node is None or node.state != "READY"):
                yield f"attempt {attempt.attempt} is {attempt.state} on a node that is not READY"
            if key in running_on:
                yield f"it runs on the node of job {running_on[key]} at the same time"
            running_on[key] = job.job_id


def _steps(job: Job, attempts: Sequence[Attempt], steps: dict[int, Sequence[int]]) -> Iterator[str]:
    if [attempt.attempt for attempt in attempts] != list(range(1, len(attempts) + 1)):
        yield "its attempts are not numbered from 1 without a gap"
        return
    if attempts and job.attempt != attempts[-1].attempt:
        yield f"it is at attempt {job.attempt}, and the last one is {attempts[-1].attempt}"
    if job.spec.run is not None:
        return  # its steps are what its program says
    committed = 0
    for attempt in attempts:
        number, resumed = attempt.attempt, attempt.resume_step
        mine = sorted(steps.pop(number, []))
        # Those of a simulated job stand for all steps since the one before.
        if not job.spec.is_modelled and mine != list(range(resumed + 1, resumed + 1 + len(mine))):
            yield (
                f"attempt {number} resumed from step {resumed}, and its steps do not follow "
                "without a gap"
            )
            return
        if resumed > committed:
            yield (
                f"attempt {number} resumed from step {resumed}, and only {committed} were committed"
            )
            return
        committed = mine[-1] if mine else resumed
    if steps:
        yield f"it has steps of attempts {sorted(steps)}, which never were"
    if job.steps_done != committed:
        yield f"it says {job.steps_done} steps, and {committed} are committed"
    done = job.spec.steps
    early = job.stop_reason
    if (
        job.state is JobState.SUCCEEDED
        and job.spec.mode == "train"
        and committed != done
        and not early
    ):
        yield f"it has SUCCEEDED with {committed} of {done} steps"


def _losses(records: Records, job: Job, attempts: Sequence[Attempt]) -> Iterator[str]:
    state = job.state
    is_open = any(attempt.state is not AttemptState.ENDED for attempt in attempts)
    if job.has_ended:
        if is_open:
            yield f"it is {state}, and an attempt of it is under way"
        if job.ended is None or not job.state_reason:
            yield f"it is {state} without a time or a reason"
        if state is JobState.FAILED and job.error_code is None:
            yield "it has FAILED without an error"
        return
    if state in _WITH_ATTEMPT and not is_open:
        yield f"it is {state}, and no attempt of it is under way"
    since = max([job.created, *(attempt.ended for attempt in attempts if attempt.ended)])
    settled = since.plus_seconds(GRACE_SECONDS) < records.now and not is_open
    if state in WAITING_JOB_STATES and settled:
        node = records.nodes.get(job.node_key)
        if not job.state_reason:
            yield f"it is {state} and does not say why"
        if (node is None or node.state == "GONE") and not job.owns_node:
            yield f"it is {state} on a node that is gone"
        # A job on a slice of a multislice goes on on the slice that replaces it.
        followed = job.owns_node or (node is not None and node.queued_resource_key is not None)
        if node is not None and node.state in NODE_STATES_LOST and not followed:
            yield f"it is {state} on a node that is {node.state}"
