"""The phase of a job, and advice for one that has failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podyard.domain.attempt import Attempt
from podyard.domain.job import JOB, Job, JobState
from podyard.domain.job_history import JobFailure

PHASES = ("Waiting", "Environment", "Compiling", "Training", "Saving")
_WORK = {
    "train": "Training",
    "evaluate": "Evaluating",
    "predict": "Predicting",
    "export": "Exporting",
}


class Advice(NamedTuple):
    """`says`: what the last lines or the error have in them; `action`: what to do then."""

    says: re.Pattern[str]
    action: str


def _advice(pattern: str, action: str) -> Advice:
    return Advice(re.compile(pattern, re.IGNORECASE), action)


# The first that fits.
ADVICE = (
    _advice(
        "ModuleNotFoundError|No module named",
        "Add the package to requirements.txt next to the program, or install it with a "
        "set-up command.",
    ),
    _advice(
        "RESOURCE_EXHAUSTED|MemoryError|out of memory|does not fit|signal 9|exit code 137",
        "Lower the global batch, raise the accumulation steps, or use a type with more "
        "memory per chip.",
    ),
    _advice(
        "diverged|not finite|loss is nan|\\bnan\\b",
        "The loss is not finite. Lower the learning rate, or start from an earlier checkpoint.",
    ),
    _advice("time limit", "Raise the time limit, or lower the number of steps."),
    _advice(
        "preempt",
        "Raise the maximum number of preemptions, save checkpoints more often, or use an "
        "on-demand node.",
    ),
    _advice(
        "FileNotFoundError|No such file|NoSuchKey|was not found",
        "Check the path: a program sees its own folder, its mounts and gs:// buckets, and no "
        "other files.",
    ),
    _advice(
        "PermissionError|PERMISSION_DENIED",
        "Check the roles of the node's service account in this project.",
    ),
    _advice(
        "SyntaxError|unrecognized arguments|usage:",
        "Correct the program or its arguments, then clone the job.",
    ),
)
USUAL_ADVICE = "Read the last lines of the worker below, then clone the job with other settings."


def advise(job: Job, failure: JobFailure | None) -> str:
    """Return what to do next about a job that has failed."""
    text = "\n".join([job.error_message or job.state_reason, *(failure.lines if failure else ())])
    return next((one.action for one in ADVICE if one.says.search(text)), USUAL_ADVICE)


def phases_of(job: Job) -> tuple[str, ...]:
    """Return what the job goes through, in order: a user's program reports no steps, so its work is
    one phase."""
    if job.spec.run is not None:
        return ("Waiting", "Environment", "Running")
    return tuple(_WORK[job.spec.mode] if name == "Training" else name for name in PHASES)


def phase_of(job: Job, attempts: Sequence[Attempt], reached: Mapping[int, int]) -> str:
    """The phase that the job is in; "" once it has ended. `reached`: the last step that each
    attempt reported."""
    phases = phases_of(job)
    attempt = attempts[-1] if attempts else None
    if JOB.is_final(job.state):
        return ""
    if attempt is None or job.state in (JobState.QUEUED, JobState.RECOVERING):
        return phases[0]
    if job.state is JobState.PREPARING:
        return phases[1]
    if job.spec.run is not None:
        return phases[2]
    step = reached.get(attempt.attempt)
    if step is None:
        return phases[2]
    is_saving = (
        attempt.yield_real is not None or step >= job.spec.steps or job.state is JobState.CANCELLING
    )
    return phases[4] if is_saving else phases[3]
