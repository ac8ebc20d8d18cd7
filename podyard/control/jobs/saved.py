"""Checkpoints that a fault keeps from being written."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.db.compute.nodes import get_by_key as get_node
from podyard.db.jobs import jobs as rows
from podyard.db.platform import faults
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import Job
from podyard.domain.job_history import CheckpointRecord


def that_could_be_written(
    uow: UnitOfWork, job: Job, made: Sequence[CheckpointRecord]
) -> Sequence[CheckpointRecord]:
    """The checkpoints without those that a fault has kept from being written; the job says
    which."""
    if not made or not faults.standing(uow, "checkpoint"):
        return made
    subject = faults.of_node(get_node(uow, job.node_key))
    kept = []
    for item in made:
        rule = faults.struck(uow, "checkpoint", subject)
        if rule is None:
            kept.append(item)
            continue
        text = f"the checkpoint of step {item.step} could not be written: {rule.reason}"
        rows.set_reason(uow, job.job_key, text)
    return kept
