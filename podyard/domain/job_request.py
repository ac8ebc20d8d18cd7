"""Specs of jobs, from what users ask for: what is left open is decided, and all of it is
checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from podyard.base.errors import invalid
from podyard.domain.gang import whole_gang
from podyard.domain.job import JOB_EXECUTIONS, JOB_MODES, JobRequest, JobSpec, JobTerms, StartFrom
from podyard.domain.job_fields import NUM_NODES_MAX, check_limits
from podyard.domain.recipes import (
    PROGRAM_CHECKPOINT_EVERY_STEPS,
    check_arguments,
    check_batch,
    check_mode,
    is_program,
    manifest_of,
)
from podyard.domain.training import check_elastic, check_training
from podyard.domain.user_program import check_user_program, refused_fields
from podyard.hardware.accelerator_types import AcceleratorType

STEP_SECONDS_LEAST, STEP_SECONDS_MAX = 1e-6, 86_400.0
_TERMS = tuple(field.name for field in dataclasses.fields(JobTerms))


def wanted_checkpoint(request: JobRequest) -> tuple[str, int | None] | None:
    """The job that the request starts from, and the step (None: the newest). Raises
    INVALID_ARGUMENT where the mode needs one, or allows none."""
    if request.mode not in JOB_MODES:
        raise invalid(f"unknown mode {request.mode!r}: use {', '.join(JOB_MODES)}", "mode")
    if request.start_from is None:
        if request.mode != "train":
            raise invalid(
                f"mode {request.mode} requires startFrom: name the job to load the checkpoint from",
                "startFrom",
            )
    elif request.mode == "train":
        raise invalid(
            "startFrom cannot be used with mode train: use mode evaluate, predict or export",
            "startFrom",
        )
    return request.start_from


def check_num_nodes(request: JobRequest) -> None:
    """Raises INVALID_ARGUMENT for a number of slices that no job has. Checked before they are
    made."""
    if not 1 <= request.num_nodes <= NUM_NODES_MAX:
        text = f"numNodes is {request.num_nodes}: it must be from 1 to {NUM_NODES_MAX}"
        raise invalid(text, "numNodes")
    if request.num_nodes > 1 and request.run is None:
        raise invalid(
            "numNodes requires run: recipes and programs of the platform run on one slice",
            "numNodes",
        )


def spec_of(
    request: JobRequest, kind: AcceleratorType, source: tuple[StartFrom, JobSpec] | None
) -> JobSpec:
    """`source`: the checkpoint that the job starts from, and what its job was asked to do. Raises
    INVALID_ARGUMENT."""
    if request.run is not None:
        return _spec_of_run(request)
    spec = _spec_of_training(request) if source is None else _of_source(request, *source, kind)
    check_on(spec, kind)
    return spec


def _spec_of_run(request: JobRequest) -> JobSpec:
    """The program's own affair: its steps, its batch, its checkpoints."""
    assert request.run is not None
    given = {
        "recipe": request.recipe,
        "arguments": request.arguments,
        "startFrom": request.start_from,
        "steps": request.steps,
        "globalBatch": request.global_batch,
        "seed": request.seed,
        "checkpointEverySteps": request.checkpoint_every_steps,
        "replicaProcesses": request.replica_processes,
        "elastic": request.elastic,
        "stepSeconds": request.step_seconds,
    }
    if (refusal := refused_fields(given)) is not None:
        raise refusal
    if request.execution != "real":
        raise invalid("run requires execution real: simulated jobs run nothing", "execution")
    check_user_program(request.run)
    spec = JobSpec(
        **{name: getattr(request, name) for name in _TERMS},
        recipe="", arguments={}, steps=0, global_batch=0, seed=0, checkpoint_every_steps=0,
    )  # fmt: skip
    check_limits(dataclasses.replace(spec, steps=1))
    return spec


def _of_source(
    request: JobRequest, start: StartFrom, other: JobSpec, kind: AcceleratorType
) -> JobSpec:
    """A job that looks at another one's checkpoint once: recipe, arguments and seed are that
    job's."""
    same = {"recipe": (request.recipe, other.recipe), "seed": (request.seed, other.seed)}
    same |= {
        f"arguments.{name}": (value, other.arguments.get(name))
        for name, value in request.arguments.items()
    }
    for field, (given, theirs) in same.items():
        if given is not None and given != theirs:
            raise invalid(
                f"{field} is {given!r}, but job {start.job_id} has {theirs!r}: omit it", field
            )
    for field, value in (
        ("steps", request.steps),
        ("checkpointEverySteps", request.checkpoint_every_steps),
    ):
        if value is not None:
            raise invalid(
                f"{field} can only be set with mode train, not with {request.mode}", field
            )
    check_training(request.training, 0)  # before its numbers divide anything
    parts = kind.core_count * request.training.accumulation_steps
    batch = parts if other.global_batch % parts else other.global_batch
    return _spec(request, other.recipe, other.arguments, 1, batch, other.seed, 0, start)


def _spec_of_training(request: JobRequest) -> JobSpec:
    recipe = request.recipe
    if recipe is None:
        raise invalid("a job needs a recipe or a program", "recipe")
    if is_program(recipe):
        for field, value in (("steps", request.steps), ("globalBatch", request.global_batch)):
            if value is None:
                raise invalid(
                    f"{field} is required for program {recipe}: programs have no default", field
                )
        steps, batch, every = 0, 0, PROGRAM_CHECKPOINT_EVERY_STEPS
    else:
        manifest = manifest_of(recipe)
        steps, batch = manifest.default_steps, manifest.default_global_batch
        every = manifest.default_checkpoint_every_steps
    return _spec(
        request, recipe, check_arguments(recipe, request.arguments), steps, batch, 0, every, None
    )


def _spec(  # noqa: PLR0913
    request: JobRequest,
    recipe: str,
    arguments: Mapping[str, Any],
    steps: int,
    global_batch: int,
    seed: int,
    checkpoint_every_steps: int,
    start_from: StartFrom | None,
) -> JobSpec:
    """The request, with the numbers given here where it has none."""

    def choose(asked: int | None, usual: int) -> int:
        return usual if asked is None else asked

    check_mode(recipe, request.mode)
    return JobSpec(
        **{name: getattr(request, name) for name in _TERMS},
        recipe=recipe,
        arguments=arguments,
        steps=choose(request.steps, steps),
        global_batch=choose(request.global_batch, global_batch),
        seed=choose(request.seed, seed),
        checkpoint_every_steps=choose(request.checkpoint_every_steps, checkpoint_every_steps),
        start_from=start_from,
    )


def check_on(spec: JobSpec, kind: AcceleratorType) -> None:
    """Raise INVALID_ARGUMENT for a recipe's job that cannot run on this type."""
    if spec.execution not in JOB_EXECUTIONS:
        raise invalid(
            f"unknown execution {spec.execution!r}: use {', '.join(JOB_EXECUTIONS)}", "execution"
        )
    _check_execution(spec)
    check_limits(spec)
    check_training(spec.training, spec.checkpoint_every_steps)
    check_batch(
        spec.global_batch, kind.core_count, accumulation_steps=spec.training.accumulation_steps
    )
    if spec.replica_processes is not None and not 1 <= spec.replica_processes <= kind.host_count:
        text = (
            f"replicaProcesses is {spec.replica_processes}: {kind.name} has {kind.host_count} hosts"
        )
        raise invalid(text, "replicaProcesses")
    if spec.elastic is not None:
        check_elastic(spec.elastic, whole_gang(spec, kind).process_count)


def _check_execution(spec: JobSpec) -> None:
    seconds = spec.step_seconds
    if not spec.is_modelled:
        if seconds is not None:
            raise invalid("stepSeconds can only be set with execution simulated", "stepSeconds")
        return
    if seconds is None:
        text = (
            "execution simulated requires stepSeconds for a program that cannot be "
            "estimated: set it"
        )
        raise invalid(text, "stepSeconds")
    # NaN compares false with everything, so it is refused here.
    if not STEP_SECONDS_LEAST <= seconds <= STEP_SECONDS_MAX:
        text = (
            f"stepSeconds is {seconds}: it must be from {STEP_SECONDS_LEAST:g} to "
            f"{STEP_SECONDS_MAX:g}"
        )
        raise invalid(text, "stepSeconds")
    for field, value in (("elastic", spec.elastic), ("replicaProcesses", spec.replica_processes)):
        if value is not None:
            raise invalid(
                f"{field} cannot be set with execution simulated: it has no processes", field
            )
    if spec.mode != "train":
        raise invalid(
            f"mode {spec.mode} requires execution real: simulated jobs have no parameters",
            "execution",
        )
