"""The next state of an attempt, by what its replicas have said, and then of its job.

`settle`, for an attempt that has not begun to end; the first rule that fits:
1. A machine that left, in order or lost, took a replica along: the attempt ends as PREEMPTED.
2. A replica found its job or its data wrong, failed, or is gone without a word: the attempt ends as
  FAILED. The line of that replica in the log says so.
3. All have succeeded: the attempt ends as SUCCEEDED.
4. The others have yielded: the attempt ends as what it was asked to yield for.
5. All run: so does the attempt.
An attempt that ends is over when the last process is gone.

`final_outcome`, for an attempt that is over:
10. An attempt that has failed while a machine was lost counts as PREEMPTED. The ring of a gang
  breaks at once, and that a machine is lost is known when its lease is over. `maxPreemptions`
  bounds it.

`job_end`, for the job of an attempt that is over; the first rule that fits:
6. A job that was cancelled is CANCELLED.
7. A job whose attempt has succeeded has SUCCEEDED.
8. A job fails if its time limit is over, no other attempt would do better, or its failures or
  preemptions are more than it may have.
9. Otherwise it goes on with another attempt; `retry_delay_seconds` after one that has failed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.base.durations import duration_for_people
from podyard.base.errors import Code
from podyard.domain.attempt import Attempt, AttemptOutcome, AttemptState
from podyard.domain.job import Job, JobState
from podyard.domain.job_fields import RETRY_SECONDS_MAX
from podyard.domain.replica import Replica, ReplicaOutcome, ReplicaState

_DOUBLINGS_MAX = 12  # a second becomes an hour
_YIELDED_TO = {
    AttemptOutcome.RESIZED: "for a gang of another size",
    AttemptOutcome.PREEMPTED: "and saved: the job goes on when it has room",
    AttemptOutcome.TIMED_OUT: "and saved",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Settlement:
    """`runs`: all replicas have been seen to run. `outcome`, `reason`: it ends now. `blamed`: whose
    failure ends it. `is_over`: no process is left."""

    runs: bool = False
    outcome: AttemptOutcome | None = None
    reason: str = ""
    blamed: Replica | None = None
    is_over: bool = False


def settle(attempt: Attempt, gang: Sequence[Replica]) -> Settlement:
    found = Settlement() if attempt.has_begun_to_end else _verdict(attempt, gang)
    ends = found.outcome is not None or attempt.state is AttemptState.ENDING
    return dataclasses.replace(found, is_over=ends and not any(replica.is_live for replica in gang))


def _verdict(attempt: Attempt, gang: Sequence[Replica]) -> Settlement:
    if not gang:
        return Settlement()  # nothing computes: its steps pass by the clock
    said = {replica.outcome for replica in gang}
    if (released := _first(gang, ReplicaOutcome.RELEASED)) is not None:
        return Settlement(
            outcome=AttemptOutcome.PREEMPTED, reason=f"replica {released.rank}: {released.reason}"
        )
    blamed = _first(gang, ReplicaOutcome.REFUSED) or next(filter(_is_lost, gang), None)
    if blamed is not None:
        text = f"replica {blamed.rank}: {blamed.reason}"
        return Settlement(outcome=AttemptOutcome.FAILED, reason=text, blamed=blamed)
    if said == {ReplicaOutcome.SUCCEEDED}:
        # The first ones may have finished before the last one was heard of: then nobody has seen
        # all of them run.
        starts = attempt.state is AttemptState.STARTING
        return Settlement(
            runs=starts, outcome=AttemptOutcome.SUCCEEDED, reason="all replicas finished"
        )
    if said <= {ReplicaOutcome.SUCCEEDED, ReplicaOutcome.YIELDED}:
        outcome = attempt.yield_outcome or AttemptOutcome.RESIZED
        return Settlement(
            outcome=outcome, reason=f"all replicas have yielded {_YIELDED_TO[outcome]}"
        )
    all_run = all(replica.state is ReplicaState.RUNNING for replica in gang)
    return Settlement(runs=all_run and attempt.state is AttemptState.STARTING)


def _first(gang: Sequence[Replica], outcome: ReplicaOutcome) -> Replica | None:
    return next((replica for replica in gang if replica.outcome is outcome), None)


def _is_lost(replica: Replica) -> bool:
    return replica.outcome is ReplicaOutcome.FAILED or (
        not replica.is_live and replica.outcome is None
    )


def final_outcome(attempt: Attempt, gang: Sequence[Replica]) -> AttemptOutcome | None:
    """Return what an attempt that is over counts as."""
    is_disrupted = (
        attempt.outcome is AttemptOutcome.FAILED
        and _first(gang, ReplicaOutcome.RELEASED) is not None
        and _first(gang, ReplicaOutcome.REFUSED) is None
    )
    return AttemptOutcome.PREEMPTED if is_disrupted else attempt.outcome


def job_end(
    job: Job, attempt: Attempt, gang: Sequence[Replica]
) -> tuple[str, Code | None, str] | None:
    """Event, code of the error and message; None: the job goes on. `job`: with this attempt
    counted."""
    spec, mode = job.spec, job.spec.mode
    if job.state is JobState.CANCELLING:
        return "cancelled", None, "cancelled by the user"
    if attempt.outcome is AttemptOutcome.SUCCEEDED:
        early = job.stop_reason if job.steps_done < spec.steps else None
        if spec.run is not None:
            return "succeed", None, "the program ended with exit code 0 on all workers"
        return (
            "succeed",
            None,
            str(early or ("all steps done" if mode == "train" else f"{mode} is done")),
        )
    if attempt.outcome is AttemptOutcome.TIMED_OUT:
        limit = duration_for_people(spec.time_limit_seconds)
        return (
            "fail",
            Code.DEADLINE_EXCEEDED,
            f"the job's attempts have taken its time limit of {limit}",
        )
    refused = _first(gang, ReplicaOutcome.REFUSED)
    if attempt.outcome is AttemptOutcome.FAILED and refused is not None:
        return "fail", *_refusal(refused.reason)
    if job.failures > spec.max_failures:
        failed = "1 attempt" if job.failures == 1 else f"{job.failures} attempts"
        text = f"{failed} failed (maxFailures {spec.max_failures}); the last: {attempt.reason}"
        return "fail", Code.ABORTED, text
    if job.preemptions > spec.max_preemptions:
        return (
            "fail",
            Code.ABORTED,
            f"preempted {job.preemptions} times (maxPreemptions {spec.max_preemptions})",
        )
    return None


def retry_delay_seconds(job: Job, attempt: Attempt) -> int:
    """Return how long a job waits after an attempt, which is counted."""
    if attempt.outcome is not AttemptOutcome.FAILED:
        return 0
    return min(
        RETRY_SECONDS_MAX, job.spec.retry_delay_seconds << min(job.failures - 1, _DOUBLINGS_MAX)
    )


def _refusal(reason: str) -> tuple[Code, str]:
    """Return what a replica says as "CODE: message"."""
    name, _, message = reason.partition(": ")
    return (Code[name], message) if name in Code.__members__ else (Code.INVALID_ARGUMENT, reason)
