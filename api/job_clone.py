"""A job as the body that submits it again, with changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from podyard.api.job_answers import to_api_fallback
from podyard.base.errors import invalid
from podyard.base.sealing import unseal
from podyard.domain.job import Job, JobTerms, job_name
from podyard.domain.job_fields import JOB_FIELDS, job_body
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.recipes import is_program
from podyard.domain.user_program import UserProgram, default_output

CLONE = "cloneOf"
_TRAINS_ONLY = ("steps", "seed", "checkpoint_every_steps")
# Fields that are copied as they are: the others are the work, or where it runs.
_TERMS = {field.name for field in dataclasses.fields(JobTerms)} - {
    "mode", "step_seconds", "training", "elastic", "run", "fallbacks"
}  # fmt: skip
_WORK = (
    "recipe",
    "program",
    "startFrom",
    "stablehlo",
)  # another one of these is another job, with settings that are its own
# other steps, other times
_TIMED_BY = ("arguments", "globalBatch", "node", "acceleratorType", "execution", *_WORK)
_NEW_NODE = ("acceleratorType", "runtimeVersion", "schedulingConfig")


def source_of(body: Any, project: str) -> tuple[str, str] | None:
    """(zone, id) of the job that a body is to be filled from; the zone "-" is any. Raises
    INVALID_ARGUMENT."""
    if not isinstance(body, dict) or CLONE not in body:
        return None
    name = body[CLONE]
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) == 1 and parts[0]:
        return "-", parts[0]
    if len(parts) != 6 or name != job_name(project, parts[3], parts[5]):
        raise invalid(
            f"{CLONE} must be the id of a job, "
            f"or a name such as {job_name(project, 'ZONE', 'JOB')}",
            CLONE,
        )
    return parts[3], parts[5]


def fill_from(body: Mapping[str, Any], job: Job, node: NodeSpec) -> dict[str, Any]:
    """`body` with what `job` was asked to do wherever the body does not say otherwise. `node`: what
    the job's node was asked to be; one that was made for the job is made again."""
    changes = {name: value for name, value in body.items() if name != CLONE}
    found = _terms(job) if changes.keys() & set(_WORK) else _terms(job) | _work(job)
    if changes.keys() & {"node", *_WORK}:
        found.pop("numNodes", None)  # it counts nodes that are made for a program
    if not changes.keys() & set(_TIMED_BY) and job.spec.step_seconds is not None:
        found["stepSeconds"] = job.spec.step_seconds
    if "node" not in changes:
        if job.wants_own_node:
            found |= _new_node(node)
            found["fallbacks"] = [to_api_fallback(one) for one in job.spec.fallbacks[:-1]]
        elif not changes.keys() & set(_NEW_NODE):
            found["node"] = job.node_id
    for name, value in changes.items():
        nested = name in ("arguments", "training", "elastic", "run") and isinstance(value, dict)
        found[name] = {**(found.get(name) or {}), **value} if nested else value
    return found


def _work(job: Job) -> dict[str, Any]:
    spec = job.spec
    if spec.run is not None:
        found = _run(spec.run)
        if found["output"].endswith(default_output(job.zone, job.job_id)):
            del found["output"]  # the copy has one, too
        return {"run": found}
    found = {"mode": spec.mode, "globalBatch": spec.global_batch}
    if spec.start_from is not None:
        return {
            "mode": spec.mode,
            "startFrom": {"job": spec.start_from.job_id, "step": spec.start_from.step},
        }
    found |= job_body(
        (field, field.value_of(spec)) for field in JOB_FIELDS if field.path in _TRAINS_ONLY
    )
    found["program" if is_program(spec.recipe) else "recipe"] = spec.recipe
    elastic = spec.elastic
    if elastic is not None:
        rate = elastic.learning_rate
        found["elastic"] = {
            "minReplicas": elastic.min_replicas,
            "batch": elastic.batch,
            "learningRate": rate,
        }
    return {**found, "arguments": dict(spec.arguments), "training": spec.training.as_json()}


def _run(run: UserProgram) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: getattr(run, name) for name in ("command", "entry", "module", "setup", "output")
    }
    found |= {"args": list(run.args), "env": dict(run.env)}
    found["secrets"] = {name: unseal(value) for name, value in run.secrets.items()}
    found["files"] = {mount.target: mount.uri for mount in run.mounts}
    return found | ({} if run.source is None else {"source": run.source.uri})


def _terms(job: Job) -> dict[str, Any]:
    """Return what says nothing of the work itself."""
    values = ((field, field.value_of(job.spec)) for field in JOB_FIELDS if field.path in _TERMS)
    return job_body((field, value) for field, value in values if value is not None)


def _new_node(spec: NodeSpec) -> dict[str, Any]:
    usage = spec.usage_class
    scheduling = {} if usage is UsageClass.ON_DEMAND else {"schedulingConfig": {str(usage): True}}
    return {
        "acceleratorType": spec.accelerator_type,
        "runtimeVersion": spec.runtime_version,
        **scheduling,
    }
