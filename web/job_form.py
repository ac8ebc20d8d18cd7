"""The form that submits a job: what its fields ask for, and the commands that do the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from podyard.base.errors import invalid
from podyard.base.training_settings import USUAL_TRAINING, TrainingSettings
from podyard.domain.job import DEFAULT_MAX_FAILURES, DEFAULT_MAX_PREEMPTIONS, Elastic, JobRequest
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.recipes import RECIPES, FolderArgument, RecipeManifest, manifest_of
from podyard.domain.training import usual_rate
from podyard.web import commands, forms

# The training settings that the form has, by their field on the wire.
TRAINING_FLAGS = {"accumulationSteps": "--accumulation-steps", "evaluateEverySteps": "--evaluate-every-steps"}


def job_request(fields: Mapping[str, str]) -> JobRequest:
    """The job that the fields ask for; an empty field is left to the recipe, or to the job that it starts from."""

    def number(name: str, label: str) -> int | None:
        return forms.whole_if_given(fields, name, label)

    mode = fields.get("mode") or "train"
    asked = JobRequest(
        mode=mode,
        global_batch=number("global_batch", "Global batch"),
        max_failures=forms.whole(fields, "max_failures", "Failures at most", DEFAULT_MAX_FAILURES),
        max_preemptions=forms.whole(fields, "max_preemptions", "Preemptions at most", DEFAULT_MAX_PREEMPTIONS),
        replica_processes=number("replica_processes", "Replica processes"),
        labels=forms.labels(fields),
        elastic=_elastic(number("min_replicas", "Fewest replica processes")),
    )
    if mode != "train":
        return dataclasses.replace(asked, start_from=_start_from(fields.get("start_from", "").strip()))
    recipe = manifest_of(fields.get("recipe", ""))
    return dataclasses.replace(
        asked,
        recipe=recipe.name,
        arguments=_arguments(recipe, fields),
        steps=number("steps", "Steps"),
        seed=number("seed", "Seed"),
        checkpoint_every_steps=number("checkpoint_every_steps", "Checkpoint every"),
        training=TrainingSettings(
            accumulation_steps=forms.whole(fields, "accumulation_steps", "Accumulation steps", 1),
            evaluate_every_steps=forms.whole(fields, "evaluate_every_steps", "Evaluate every", 0),
        ),
    )


def _elastic(min_replicas: int | None) -> Elastic | None:
    return None if min_replicas is None else Elastic(min_replicas, "keep", usual_rate("keep"))


def _start_from(text: str) -> tuple[str, int | None]:
    """`job` or `job@step`."""
    name, at, step = text.partition("@")
    if not name or (at and not (step.isascii() and step.isdigit())):
        raise invalid(f"Start from is {text!r}: it must be a job, or job@step", "startFrom")
    return name, int(step) if at else None


def _arguments(recipe: RecipeManifest, fields: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, argument in recipe.arguments.items():
        if isinstance(argument, FolderArgument):
            found[name] = fields.get(f"arg.{name}", "").strip()
            continue
        read = forms.whole if argument.kind is int else forms.decimal
        found[name] = read(fields, f"arg.{name}", name, argument.default)  # type: ignore[arg-type]
    return found


def submit_commands(
    project: str, zone: str, job_id: str, asked: JobRequest, node: str | NodeSpec
) -> list[commands.Command]:
    """What differs from the recipe's defaults is said; the rest the server fills in as the form did."""
    flags = [("--project", project), ("--zone", zone)]
    body: dict[str, Any] = {}
    switches = []
    if isinstance(node, str):
        flags.append(("--node", node))
        body["node"] = node
    else:
        flags += [("--accelerator-type", node.accelerator_type), ("--version", node.runtime_version)]
        body |= {"acceleratorType": node.accelerator_type, "runtimeVersion": node.runtime_version}
        if node.usage_class is not UsageClass.ON_DEMAND:
            switches.append(f"--{node.usage_class}")
            body["schedulingConfig"] = commands.scheduling(node.usage_class)
    for flag, field, value in _job_settings(asked):
        flags.append((flag, str(value)))
        body[field] = value
    if asked.start_from is not None:
        name, step = asked.start_from
        flags.append(("--start-from", name if step is None else f"{name}@{step}"))
        body["startFrom"] = {"job": name, **({} if step is None else {"step": step})}
    usual = USUAL_TRAINING.as_json()
    training = {field: value for field, value in asked.training.as_json().items() if value != usual[field]}
    flags += [(TRAINING_FLAGS[field], str(value)) for field, value in training.items()]
    if training:
        body["training"] = training
    if asked.elastic is not None:
        flags.append(("--elastic", str(asked.elastic.min_replicas)))
        body["elastic"] = {"minReplicas": asked.elastic.min_replicas}
    known = {} if asked.recipe is None else RECIPES[asked.recipe].arguments
    changed = {key: value for key, value in asked.arguments.items() if value != known[key].default}
    flags += [("--arg", f"{name}={json.dumps(value)}") for name, value in changed.items()]
    if changed:
        body["arguments"] = changed
    if asked.labels:
        flags.append(("--labels", ",".join(f"{key}={value}" for key, value in asked.labels.items())))
        body["labels"] = dict(asked.labels)
    path = f"/podyard/v1/projects/{project}/locations/{zone}/jobs"
    names = [job_id] if job_id else []
    return [
        commands.Command("podyard", commands.line(["podyard", "job", "submit", *names], flags, switches)),
        commands.Command("curl", commands.post(path, {"jobId": job_id} if job_id else {}, body)),
    ]


def _job_settings(asked: JobRequest) -> list[tuple[str, str, Any]]:
    """(flag, field, value) of what is not as usual."""
    recipe = None if asked.recipe is None else RECIPES[asked.recipe]
    settings: list[tuple[str, str, Any, Any]] = [
        ("--recipe", "recipe", asked.recipe, None),
        ("--mode", "mode", asked.mode, "train"),
        ("--steps", "steps", asked.steps, recipe and recipe.default_steps),
        ("--global-batch", "globalBatch", asked.global_batch, recipe and recipe.default_global_batch),
        ("--seed", "seed", asked.seed, 0 if recipe else None),
        (
            "--checkpoint-every-steps",
            "checkpointEverySteps",
            asked.checkpoint_every_steps,
            recipe and recipe.default_checkpoint_every_steps,
        ),
        ("--max-failures", "maxFailures", asked.max_failures, DEFAULT_MAX_FAILURES),
        ("--max-preemptions", "maxPreemptions", asked.max_preemptions, DEFAULT_MAX_PREEMPTIONS),
        ("--replica-processes", "replicaProcesses", asked.replica_processes, None),
    ]
    return [(flag, field, value) for flag, field, value, usual in settings if value not in (None, usual)]
