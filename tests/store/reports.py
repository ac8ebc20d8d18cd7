"""What replicas report, from plain figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podyard.control.jobs.reports import Progress
from podyard.db.unit_of_work import Database
from podyard.domain.job_history import CheckpointRecord, EvaluationRecord, MetricPoint
from podyard.domain.replica import Replica

Figures = Sequence[Mapping[str, Any]]


def progress(
    database: Database,
    replica: Replica,
    state: str,
    *,
    points: Figures = (),
    evaluations: Figures = (),
    checkpoints: Figures = (),
    **fields: Any,
) -> Progress:
    number, now = replica.fence, database.read(lambda uow: uow.now)
    said = {"error": None, "pruned": [], "lines": [], "summary": {}, **fields}
    return Progress(
        fence=number,
        state=state,
        points=[MetricPoint(attempt=number, **point) for point in points],
        evaluations=[EvaluationRecord(attempt=number, **measured) for measured in evaluations],
        checkpoints=[CheckpointRecord(attempt=number, at=now, **saved) for saved in checkpoints],
        **said,
    )
