"""Metrics and checkpoints of jobs, as records.

The committed history is that of the attempts, each cut at the checkpoint that the next one resumed
from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    false,
    func,
    or_,
    select,
)

from podyard.db.jobs import attempts
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.jobs import checkpoints, job_evaluations, job_metrics, job_runs, jobs
from podyard.domain.attempt import committed_ranges
from podyard.domain.job_history import CheckpointRecord, EvaluationRecord, MetricPoint
from podyard.domain.ran_module import ProgramRun


def _of_attempt(query: Select[Any], table: Table) -> Select[Any]:
    return query.where(
        table.c.job_key == bindparam("job_key"), table.c.attempt == bindparam("attempt")
    )


_LAST_STEP = _of_attempt(select(func.max(job_metrics.c.step)), job_metrics)
_KEPT = {
    table.name: _of_attempt(select(table.c.step), table) for table in (checkpoints, job_evaluations)
}
_NEWEST = (
    _of_attempt(select(job_metrics.c.wall_seconds), job_metrics)
    .order_by(job_metrics.c.step.desc())
    .limit(bindparam("most"))
)
_POINT = tuple(job_metrics.c[field.name] for field in dataclasses.fields(MetricPoint))
_UNTIL_NOW = _of_attempt(
    select(
        func.max(job_metrics.c.step).label("step"),
        func.sum(job_metrics.c.modelled_seconds).label("seconds"),
    ),
    job_metrics,
)
_REACHED = (
    select(job_metrics.c.attempt, func.max(job_metrics.c.step).label("step"))
    .where(job_metrics.c.job_key == bindparam("job_key"))
    .group_by(job_metrics.c.attempt)
)

_STEPS = (
    select(
        job_metrics.c.job_key,
        job_metrics.c.attempt,
        func.max(job_metrics.c.step).label("last"),
        func.min(job_metrics.c.modelled_seconds).label("modelled"),
    )
    .join(jobs, jobs.c.job_key == job_metrics.c.job_key)
    .where(jobs.c.project == bindparam("project"))
    .group_by(job_metrics.c.job_key, job_metrics.c.attempt)
    .order_by(job_metrics.c.job_key, job_metrics.c.attempt)
)


def last_step(uow: UnitOfWork, job_key: str, attempt: int) -> int | None:
    """The last step that an attempt has reported."""
    step: int | None = uow.execute(_LAST_STEP, {"job_key": job_key, "attempt": attempt}).scalar()
    return step


def sum_until_now(uow: UnitOfWork, job_key: str, attempt: int) -> tuple[int | None, float]:
    """The last step that an attempt has reported, and the modelled time of all that it has."""
    found = uow.first(_UNTIL_NOW, {"job_key": job_key, "attempt": attempt})
    assert found is not None
    return found["step"], float(found["seconds"] or 0.0)


def last_steps(uow: UnitOfWork, job_key: str) -> dict[int, int]:
    """The last step that each attempt reported, committed or lost."""
    return {row["attempt"]: row["step"] for row in uow.all(_REACHED, {"job_key": job_key})}


def steps_of_project(uow: UnitOfWork, project: str) -> dict[str, dict[int, tuple[int, float]]]:
    """By job and attempt: the last step that was reported, and the least modelled time of one in
    seconds."""
    found: dict[str, dict[int, tuple[int, float]]] = {}
    for row in uow.execute(_STEPS, {"project": project}):
        found.setdefault(row.job_key, {})[row.attempt] = (row.last, row.modelled)
    return found


def newest_seconds(uow: UnitOfWork, job_key: str, attempt: int, most: int) -> list[float]:
    """Return what the newest steps of an attempt took in real time, the newest first."""
    rows = uow.all(_NEWEST, {"job_key": job_key, "attempt": attempt, "most": most})
    return [row["wall_seconds"] for row in rows]


def add_points(uow: UnitOfWork, job_key: str, points: Sequence[MetricPoint]) -> None:
    if points:
        uow.insert_all(job_metrics, [{"job_key": job_key, **columns(point)} for point in points])


def merge_points(
    uow: UnitOfWork, job_key: str, attempt: int, points: Sequence[MetricPoint]
) -> None:
    """Adds points; of a step that the attempt has told before, the newer metrics."""
    told: dict[int, dict[str, float]] = {}
    for point in points:
        told.setdefault(point.step, {}).update(point.metrics)
    c = job_metrics.c
    known = select(c.step, c.metrics).where(
        c.job_key == job_key, c.attempt == attempt, c.step.in_(list(told))
    )
    for row in uow.all(known):
        step = row["step"]
        uow.update(
            job_metrics,
            {"job_key": job_key, "attempt": attempt, "step": step},
            {"metrics": {**row["metrics"], **told.pop(step)}},
        )
    add_points(
        uow,
        job_key,
        [MetricPoint(step, attempt, metrics, 0.0, 0.0) for step, metrics in told.items()],
    )


def add_checkpoints(
    uow: UnitOfWork, job_key: str, attempt: int, saved: Sequence[CheckpointRecord]
) -> None:
    _add_once(uow, checkpoints, job_key, attempt, saved)


def add_evaluations(
    uow: UnitOfWork, job_key: str, attempt: int, measured: Sequence[EvaluationRecord]
) -> None:
    _add_once(uow, job_evaluations, job_key, attempt, measured)


def _add_once(
    uow: UnitOfWork,
    table: Table,
    job_key: str,
    attempt: int,
    items: Iterable[CheckpointRecord | EvaluationRecord],
) -> None:
    """Inserts those that the attempt has not told before."""
    if not items:
        return
    known = {
        row["step"] for row in uow.all(_KEPT[table.name], {"job_key": job_key, "attempt": attempt})
    }
    for item in items:
        if item.step not in known:
            uow.insert(table, {"job_key": job_key, **columns(item)})
            known.add(item.step)


def remove_checkpoints(uow: UnitOfWork, job_key: str, steps: Sequence[int]) -> None:
    if steps:
        uow.execute(
            delete(checkpoints).where(
                checkpoints.c.job_key == job_key, checkpoints.c.step.in_(steps)
            )
        )


def committed_points(
    uow: UnitOfWork, job_key: str, after_step: int, limit: int
) -> list[MetricPoint]:
    query = select(*_POINT).where(
        _committed_rows(uow, job_key, job_metrics), job_metrics.c.step > after_step
    )
    return [MetricPoint(**row) for row in uow.all(query.order_by(job_metrics.c.step).limit(limit))]


def thinned_points(uow: UnitOfWork, job_key: str, most: int) -> list[MetricPoint]:
    """About `most` committed ones, evenly over what there are: the first and the last among
    them."""
    committed = _committed_rows(uow, job_key, job_metrics)
    count = int(
        uow.execute(select(func.count()).select_from(job_metrics).where(committed)).scalar() or 0
    )
    stride = max(1, -(-count // most))
    number = func.row_number().over(order_by=job_metrics.c.step)
    numbered = select(*_POINT, number.label("number")).where(committed).subquery()
    kept = or_(numbered.c.number % stride == 0, numbered.c.number.in_((1, count)))
    query = (
        select(*(numbered.c[column.name] for column in _POINT))
        .where(kept)
        .order_by(numbered.c.step)
    )
    return [MetricPoint(**row) for row in uow.all(query)]


def committed_checkpoints(uow: UnitOfWork, job_key: str) -> list[CheckpointRecord]:
    """The newest step first."""
    query = select(checkpoints).where(_committed_rows(uow, job_key, checkpoints))
    rows = uow.all(query.order_by(checkpoints.c.step.desc()))
    return [CheckpointRecord(**_without_job(row)) for row in rows]


def committed_evaluations(uow: UnitOfWork, job_key: str) -> list[EvaluationRecord]:
    """By step.

    The step that an attempt resumed from may have been evaluated before it or by it: the newer one
    counts.
    """
    query = select(job_evaluations).where(
        _committed_rows(uow, job_key, job_evaluations, before_first=1)
    )
    rows = uow.all(query.order_by(job_evaluations.c.step, job_evaluations.c.attempt))
    return list({row["step"]: EvaluationRecord(**_without_job(row)) for row in rows}.values())


def modelled_seconds_until(uow: UnitOfWork, job_key: str, last_step: int) -> float:
    query = select(func.sum(job_metrics.c.modelled_seconds)).where(
        _committed_rows(uow, job_key, job_metrics), job_metrics.c.step <= last_step
    )
    return float(uow.execute(query).scalar() or 0.0)


def put_run(uow: UnitOfWork, job_key: str, attempt: int, run: ProgramRun) -> None:
    """Keep what a user's program has run in an attempt, in place of what it had before."""
    key = {"job_key": job_key, "attempt": attempt}
    row = {"run": dataclasses.asdict(run)}
    if not uow.update(job_runs, key, row):
        uow.insert(job_runs, {**key, **row})


def runs_of(uow: UnitOfWork, job_key: str) -> dict[int, ProgramRun]:
    """Return what a user's program has run, by attempt."""
    query = select(job_runs.c.attempt, job_runs.c.run).where(job_runs.c.job_key == job_key)
    rows = uow.all(query.order_by(job_runs.c.attempt))
    return {row["attempt"]: ProgramRun.of_stored(row["run"]) for row in rows}


def seconds_of_runs(uow: UnitOfWork, job_key: str) -> float:
    """Return the time of all attempts of a user's program on the slice, as far as it is known."""
    return sum(run.seconds or 0.0 for run in runs_of(uow, job_key).values())


def _without_job(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "job_key"}


def _committed_rows(
    uow: UnitOfWork, job_key: str, table: Table, before_first: int = 0
) -> ColumnElement[bool]:
    """`before_first`: how many steps before an attempt's first one count as well."""
    pieces = []
    for attempt, first, last in committed_ranges(attempts.of_job(uow, job_key)):
        piece = and_(table.c.attempt == attempt, table.c.step >= first - before_first)
        pieces.append(piece if last is None else and_(piece, table.c.step <= last))
    return and_(table.c.job_key == job_key, or_(false(), *pieces))


def all_checkpoints(uow: UnitOfWork) -> set[tuple[str, str]]:
    """(job, name) of every checkpoint."""
    query = select(checkpoints.c.job_key, checkpoints.c.name)
    return {(row["job_key"], row["name"]) for row in uow.all(query)}
