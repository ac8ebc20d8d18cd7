"""The commands that do what a form does: so that what was clicked once can be scripted."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from podyard.domain.job import JobSpec
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.recipes import RECIPES, RecipeManifest


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
        Command("gcloud", _line(["gcloud", "compute", "tpus", "tpu-vm", "create", node_id], flags, switches)),
        Command("curl", _post(path, {"nodeId": node_id}, body)),
    ]


def submit_job(project: str, zone: str, job_id: str, spec: JobSpec, node: str | NodeSpec) -> list[Command]:
    """What differs from the recipe's defaults is said; the rest the server fills in as the form did."""
    defaults = RECIPES[spec.recipe]
    flags = [("--project", project), ("--zone", zone), ("--recipe", spec.recipe)]
    body: dict[str, Any] = {"recipe": spec.recipe}
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
    for flag, field, value in _job_settings(spec, defaults):
        flags.append((flag, str(value)))
        body[field] = value
    known = defaults.arguments
    changed = {key: value for key, value in spec.arguments.items() if value != known[key].default}
    flags += [("--arg", f"{name}={json.dumps(value)}") for name, value in changed.items()]
    if changed:
        body["arguments"] = changed
    if spec.labels:
        flags.append(("--labels", ",".join(f"{key}={value}" for key, value in spec.labels.items())))
        body["labels"] = dict(spec.labels)
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
        Command("gcloud", _line(["gcloud", "compute", "tpus", "tpu-vm", "describe", node_id], place, [])),
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


def _job_settings(spec: JobSpec, defaults: RecipeManifest) -> list[tuple[str, str, Any]]:
    settings: list[tuple[str, str, Any, Any]] = [
        ("--mode", "mode", spec.mode, "train"),
        ("--steps", "steps", spec.steps, defaults.default_steps),
        ("--global-batch", "globalBatch", spec.global_batch, defaults.default_global_batch),
        ("--seed", "seed", spec.seed, 0),
        (
            "--checkpoint-every-steps",
            "checkpointEverySteps",
            spec.checkpoint_every_steps,
            defaults.default_checkpoint_every_steps,
        ),
        ("--replica-processes", "replicaProcesses", spec.replica_processes, None),
    ]
    return [(flag, field, value) for flag, field, value, usual in settings if value != usual]


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
