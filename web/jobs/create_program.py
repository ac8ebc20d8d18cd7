"""Whose step time the "Create" page shows: a recipe, a job that was submitted before, or a module
in a bucket."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request

from podyard.base.contents import Contents
from podyard.base.errors import PodyardError, invalid
from podyard.control.jobs import job_list, jobs
from podyard.control.storage import objects
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import Job
from podyard.domain.listing import ListQuery
from podyard.domain.principal import Principal
from podyard.domain.recipes import RECIPES
from podyard.domain.user_program import gs_parts
from podyard.engine.plan.forecast import RunRequest
from podyard.engine.plan.tokens import read_count
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.http import context, step_time
from podyard.http.step_time import StepEstimate
from podyard.web.kit import formats, forms

JOBS_OFFERED_MAX = 10
JOBS_READ_MAX = 50  # the newest, most of which may be of the same settings
MODULE_BYTES_MAX = 1 << 20  # a training step of a transformer is some 200 kB of text
GS = "gs://"


@dataclasses.dataclass(frozen=True, slots=True)
class TimedProgram:
    """`name`: a recipe, ZONE/JOB, or gs://BUCKET/NAME of a StableHLO module; empty: none is
    chosen. `run`: the whole run that is asked for."""

    name: str = ""
    batch: int | None = None
    run: RunRequest = dataclasses.field(default_factory=RunRequest)

    @property
    def is_module(self) -> bool:
        return self.name.startswith(GS)


def program_of(fields: Mapping[str, str]) -> TimedProgram:
    """Raises INVALID_ARGUMENT for a batch that is not a number."""
    name = fields.get("module", "").strip() or fields.get("recipe", "")
    if fields.get("module", "").strip() and not name.startswith(GS):
        raise invalid(f"module is {name[:200]!r}: it must be gs://BUCKET/NAME", "module")
    batch = forms.whole_if_given(fields, "batch", "Global batch")
    return TimedProgram(name, batch if batch is None else max(1, batch), _run_of(fields))


def _run_of(fields: Mapping[str, str]) -> RunRequest:
    """Raises INVALID_ARGUMENT for what is not a number of tokens."""
    text = fields.get("tokens", "").strip()
    per_step = forms.whole_if_given(fields, "tokens_per_step", "Tokens of a step")
    if per_step is not None and per_step < 1:
        raise invalid(f"Tokens of a step is {per_step}: it must be at least 1", "tokens_per_step")
    try:
        return RunRequest(read_count(text) if text else None, per_step)
    except ValueError as error:
        raise invalid(str(error), "tokens") from None


def own_jobs(uow: UnitOfWork, caller: Principal, project: str) -> list[tuple[str, str]]:
    """(ZONE/JOB, what it trains) of the newest jobs with a recipe, each setting once."""
    if not caller.may("podyard.jobs.list", project):
        return []
    newest = job_list.list_page(uow, caller, project, ListQuery("created", descending=True)).rows
    found: dict[tuple[Any, ...], tuple[str, str]] = {}
    for job in newest[:JOBS_READ_MAX]:
        if job.spec.run is None and job.spec.recipe in RECIPES:
            key = (job.spec.recipe, job.spec.global_batch, *sorted(job.spec.arguments.items()))
            label = f"{job.job_id} ({job.spec.recipe}, batch {job.spec.global_batch})"
            found.setdefault(key, (f"{job.zone}/{job.job_id}", label))
    return list(found.values())[:JOBS_OFFERED_MAX]


def steps(
    request: Request, project: str, program: TimedProgram, kinds: Sequence[str]
) -> tuple[Mapping[str, StepEstimate], str]:
    """(what a step takes by type, "") or ({}, why that is not known). Blocks for some seconds."""
    if not program.name or not kinds:
        return {}, ""
    try:
        if program.is_module:
            return step_time.estimates_of_module(_module_text(request, program.name), kinds), ""
        if "/" in program.name:
            job = _job(request, project, program.name)
            batch = program.batch or job.spec.global_batch
            return step_time.estimates(job.spec.recipe, job.spec.arguments, batch, kinds), ""
        return step_time.estimates(program.name, {}, program.batch, kinds), ""
    except PodyardError as error:
        return {}, error.message


def memory_text(step: StepEstimate, kind: AcceleratorType) -> str:
    """Return what a step needs of the memory of one device; empty where that is not known."""
    if step.error:
        return ""
    least = "at least " if step.is_lower_bound else ""
    needed, usable = formats.data_size(step.needed_bytes), formats.data_size(step.usable_bytes)
    return f"{least}{needed} of {usable} per {kind.generation.device_word}"


def _job(request: Request, project: str, name: str) -> Job:
    caller, (zone, _, job_id) = context.principal(request), name.partition("/")
    job = context.read(request, lambda uow: jobs.get(uow, caller, project, zone, job_id))
    if job.spec.run is not None:
        raise invalid(f"{job_id} runs a program: its step is not known before it runs", "recipe")
    return job


def _module_text(request: Request, uri: str) -> str:
    caller, (bucket, name) = context.principal(request), gs_parts(uri, "module")
    stored = context.read(request, lambda uow: objects.find(uow, caller, bucket, name))
    if stored.size > MODULE_BYTES_MAX:
        raise invalid(f"{uri} has {stored.size} bytes: use at most {MODULE_BYTES_MAX}", "module")
    path = Contents(context.platform(request).settings.contents_path).path(stored.digest)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise invalid(
            f"{uri} is not StableHLO text: write it with jax.jit(f).lower(...).as_text()", "module"
        ) from None
