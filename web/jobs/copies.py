"""A job as the form that submits it again with changes, and as the request that submits it again as
it was."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from typing import Any

from podyard.base.sealing import unseal
from podyard.domain.job import Job, JobRequest, JobTerms
from podyard.domain.job_fields import Section, inputs
from podyard.domain.node import NodeSpec
from podyard.domain.recipes import RECIPES
from podyard.domain.user_program import ProgramFile, UserProgram, default_output
from podyard.web.jobs.form import INPUTS
from podyard.web.jobs.place import NEW_NODE


def has_form(job: Job) -> bool:
    """Return whether the console's forms can say all of it: programs of agents' folders have
    none."""
    return job.spec.run is not None or job.spec.recipe in RECIPES


def form_fields(job: Job, node: NodeSpec) -> dict[str, str]:
    """The fields of the form, filled from a job. `node`: what the job's node was asked to be."""
    fields = {"node": NEW_NODE if job.wants_own_node else f"{job.zone_of_node}/{job.node_id}"}
    if job.wants_own_node:
        kind, version = node.accelerator_type, node.runtime_version
        fields |= {"zone": job.zone, "accelerator_type": kind, "usage": str(node.usage_class)}
        fields["runtime_version"] = version
    if job.spec.run is not None:
        several = {"num_nodes": str(job.spec.num_nodes)} if job.spec.num_nodes > 1 else {}
        return fields | several | _program_fields(job, job.spec.run)
    spec = job.spec
    fields |= {"mode": spec.mode, "recipe": spec.recipe}
    if spec.start_from is not None:
        fields["start_from"] = f"{spec.start_from.job_id}@{spec.start_from.step}"
    recipe = RECIPES[spec.recipe]
    for field, _ in (
        pair
        for section in INPUTS
        if section is not Section.SOURCE
        for pair in inputs(section, spec.mode)
    ):
        value = field.value_of(spec)
        if value not in (None, {}, field.usual_of(recipe)):
            fields[field.name] = field.as_text(value)
    return fields | {
        f"arg.{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in spec.arguments.items()
    }


def _program_fields(job: Job, run: UserProgram) -> dict[str, str]:
    given = {name: getattr(run, name) for name in ("command", "entry", "module", "setup")}
    given |= {"source": run.source.uri if run.source else "", "output": own_output(job, run)}
    given |= {
        "args": shlex.join(run.args),
        "env": "\n".join(f"{name}={value}" for name, value in run.env.items()),
    }
    return {name: value for name, value in given.items() if value}


def own_output(job: Job, run: UserProgram) -> str:
    """Return where the program was told to write; "" for the folder that every job gets, since the
    copy gets another one."""
    return "" if run.output.endswith(default_output(job.zone, job.job_id)) else run.output


def request_of(job: Job) -> JobRequest:
    """Return what the job was asked to do."""
    spec = job.spec
    terms: Mapping[str, Any] = {
        field.name: getattr(spec, field.name) for field in dataclasses.fields(JobTerms)
    }
    # the last one is the node that was asked for
    terms = {**terms, "fallbacks": spec.fallbacks[:-1]}
    if spec.run is not None:
        secrets = {name: unseal(value) for name, value in spec.run.secrets.items()}
        # looked at again: it may have changed
        source = spec.run.source and ProgramFile(uri=spec.run.source.uri)
        run = dataclasses.replace(
            spec.run, output=own_output(job, spec.run), secrets=secrets, source=source
        )
        return JobRequest(**{**terms, "run": run})
    if spec.start_from is not None:
        return JobRequest(**terms, start_from=(spec.start_from.job_id, spec.start_from.step))
    work = ("recipe", "arguments", "steps", "global_batch", "seed", "checkpoint_every_steps")
    return JobRequest(**terms, **{name: getattr(spec, name) for name in work})
