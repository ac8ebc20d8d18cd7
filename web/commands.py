"""The commands that do what a form does: so that what was clicked once can be scripted."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from podyard.base.training_settings import USUAL_TRAINING
from podyard.domain.job import DEFAULT_MAX_FAILURES, DEFAULT_MAX_PREEMPTIONS, JobRequest
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.recipes import RECIPES

# The training settings that the form has, by their field on the wire.
TRAINING_FLAGS = {"accumulationSteps": "--accumulation-steps", "evaluateEverySteps": "--evaluate-every-steps"}


EXPORTS = 'eval "$(podyard env)"'  # what leads gcloud here, and away from Google


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    label: str
    text: str


def create_node(project: str, zone: str, node_id: str, spec: NodeSpec) -> list[Command]:
    node_id = node_id or "NODE"
    flags = [("--project", project), ("--zone", zone), ("--accelerator-type", spec.accelerator_type)]
    flags.append(("--version", spec.runtime_version))
    switches = [] if spec.usage_class is UsageClass.ON_DEMAND else [f"--{spec.usage_class}"]
    if spec.description:
        flags.append(("--description", spec.description))
    if spec.labels:
        flags.append(("--labels", ",".join(f"{key}={value}" for key, value in spec.labels.items())))
    body: dict[str, Any] = {
        "acceleratorType": spec.accelerator_type,
        "runtimeVersion": spec.runtime_version,
        "networkConfig": {"network": "default", "enableExternalIps": True},
        "schedulingConfig": scheduling(spec.usage_class),
    }
    if spec.description:
        body["description"] = spec.description
    if spec.labels:
        body["labels"] = dict(spec.labels)
    path = f"/v2/projects/{project}/locations/{zone}/nodes"
    return [
        Command("podyard", _line(["podyard", "tpu", "create", node_id], flags, switches)),
        Command(
            "gcloud",
            f"{EXPORTS}\n" + _line(["gcloud", "compute", "tpus", "tpu-vm", "create", node_id], flags, switches),
        ),
        Command("curl", _post(path, {"nodeId": node_id}, body)),
    ]


def submit_job(project: str, zone: str, job_id: str, asked: JobRequest, node: str | NodeSpec) -> list[Command]:
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
            body["schedulingConfig"] = scheduling(node.usage_class)
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
        Command("podyard", _line(["podyard", "job", "submit", *names], flags, switches)),
        Command("curl", _post(path, {"jobId": job_id} if job_id else {}, body)),
    ]


def node_commands(project: str, zone: str, node_id: str) -> list[Command]:
    place = [("--project", project), ("--zone", zone)]
    return [
        Command("podyard", _line(["podyard", "tpu", "describe", node_id], place, [])),
        Command(
            "gcloud", f"{EXPORTS}\n" + _line(["gcloud", "compute", "tpus", "tpu-vm", "describe", node_id], place, [])
        ),
        Command("curl", _get(f"/v2/projects/{project}/locations/{zone}/nodes/{node_id}")),
    ]


def job_commands(project: str, zone: str, job_id: str) -> list[Command]:
    place = [("--project", project), ("--zone", zone)]
    return [
        Command("podyard", _line(["podyard", "job", "describe", job_id], place, [])),
        Command("logs", _line(["podyard", "job", "logs", job_id], place, ["--follow"])),
        Command("curl", _get(f"/podyard/v1/projects/{project}/locations/{zone}/jobs/{job_id}")),
    ]


def bill_commands(project: str) -> list[Command]:
    return [
        Command("podyard", _line(["podyard", "bill", "show"], [("--project", project)], [])),
        Command("curl", _get(f"/podyard/v1/projects/{project}/usage")),
    ]


def scheduling(usage_class: UsageClass) -> dict[str, bool]:
    """The wire's schedulingConfig of a usage class."""
    return {} if usage_class is UsageClass.ON_DEMAND else {str(usage_class): True}


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


def _line(words: Sequence[str], flags: Sequence[tuple[str, str]], switches: Sequence[str]) -> str:
    parts = [" ".join(map(shlex.quote, words))]
    parts += [f"{name}={shlex.quote(value)}" for name, value in flags]
    return " \\\n  ".join([*parts, *switches])


def _post(path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> str:
    target = quote(path) + ("?" + urlencode(query) if query else "")
    return (
        f'curl -X POST "$PODYARD_URL"{shlex.quote(target)} \\\n'
        '  -H "Authorization: Bearer $PODYARD_TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
    )


def _get(path: str) -> str:
    return f'curl "$PODYARD_URL"{shlex.quote(quote(path))} \\\n  -H "Authorization: Bearer $PODYARD_TOKEN"'
