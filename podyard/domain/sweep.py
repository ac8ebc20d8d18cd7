"""Sweeps: one job for each set of values, compared by a metric."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from podyard.base.errors import invalid
from podyard.domain.job import Job, JobSpec

SWEEP_JOBS_MAX = 500  # one unit creates them all; nobody reads a longer table
PARALLEL_MAX = 64
JOB_VALUES = ("seed", "steps", "globalBatch")  # names that are the job's and not of its arguments


def sweep_name(project: str, zone: str, sweep_id: str) -> str:
    return f"projects/{project}/locations/{zone}/sweeps/{sweep_id}"


def rows_of(
    values: Mapping[str, Sequence[Any]], table: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The values of each job: every row of the table, with every combination of the lists. Raises
    INVALID_ARGUMENT."""
    if not values and not table:
        raise invalid("a sweep needs values or rows", "values")
    for name, listed in values.items():
        if not listed:
            raise invalid(f"values.{name} is empty: list at least one value", f"values.{name}")
    count = math.prod(len(listed) for listed in values.values()) * (len(table) or 1)
    if count > SWEEP_JOBS_MAX:
        raise invalid(
            f"the sweep has {count:,} jobs: at most {SWEEP_JOBS_MAX} are allowed", "values"
        )
    names = {frozenset(row) for row in table}
    if len(names) > 1:
        raise invalid("rows must all have the same names", "rows")
    if both := sorted({name for row in names for name in row} & values.keys()):
        raise invalid(f"{both[0]} is in rows and in values: give it once", f"values.{both[0]}")
    combined = [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]
    return [{**row, **chosen} for row in table or ({},) for chosen in combined]


def differing_values(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Of each job of a sweep, the values that are not the same in all."""
    rows = [_values_of(job.spec) for job in jobs]
    names = (
        [name for name in rows[0] if any(row.get(name) != rows[0][name] for row in rows)]
        if rows
        else []
    )
    return [{name: row.get(name) for name in names} for row in rows]


def _values_of(spec: JobSpec) -> dict[str, Any]:
    run = spec.run
    if run is None:
        own = {"seed": spec.seed, "steps": spec.steps, "globalBatch": spec.global_batch}
        return {**spec.arguments, **own}
    named = (text.removeprefix("--").partition("=") for text in run.args if text.startswith("--"))
    return {**run.env, **{name: value for name, _, value in named}}


def best_of(jobs: Sequence[Job], metric: str, way: str) -> Job | None:
    """The first job with the best newest value of a metric; None: none has one. `way`: min or
    max."""
    known = [job for job in jobs if _is_number(job.latest.get(metric))]
    return (min if way == "min" else max)(known, key=lambda job: job.latest[metric], default=None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
