"""The commands that do what a form does: so that what was clicked once can be scripted."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from podyard.domain.node import NodeSpec, UsageClass

EXPORTS = 'eval "$(podyard env)"'  # what leads gcloud here, and away from Google


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    label: str
    text: str


def create_node(project: str, zone: str, node_id: str, spec: NodeSpec) -> list[Command]:
    node_id = node_id or "NODE"
    flags = [
        ("--project", project),
        ("--zone", zone),
        ("--accelerator-type", spec.accelerator_type),
    ]
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
        Command("podyard", line(["podyard", "tpu", "create", node_id], flags, switches)),
        Command(
            "gcloud",
            f"{EXPORTS}\n"
            + line(["gcloud", "compute", "tpus", "tpu-vm", "create", node_id], flags, switches),
        ),
        Command("curl", post(path, {"nodeId": node_id}, body)),
    ]


def node_commands(project: str, zone: str, node_id: str) -> list[Command]:
    place = [("--project", project), ("--zone", zone)]
    return [
        Command("podyard", line(["podyard", "tpu", "describe", node_id], place, [])),
        Command(
            "gcloud",
            f"{EXPORTS}\n"
            + line(["gcloud", "compute", "tpus", "tpu-vm", "describe", node_id], place, []),
        ),
        Command("curl", get(f"/v2/projects/{project}/locations/{zone}/nodes/{node_id}")),
    ]


def notebook_command(project: str, zone: str, node_id: str) -> Command:
    place = [("--project", project), ("--zone", zone)]
    return Command("podyard", line(["podyard", "tpu", "notebook", node_id], place, []))


def job_commands(project: str, zone: str, job_id: str) -> list[Command]:
    place = [("--project", project), ("--zone", zone)]
    return [
        Command("podyard", line(["podyard", "job", "describe", job_id], place, [])),
        Command("logs", line(["podyard", "job", "logs", job_id], place, ["--follow"])),
        Command("curl", get(f"/podyard/v1/projects/{project}/locations/{zone}/jobs/{job_id}")),
    ]


def resize_job(project: str, zone: str, job_id: str, type_name: str) -> list[Command]:
    flags = [("--project", project), ("--zone", zone), ("--accelerator-type", type_name)]
    path = f"/podyard/v1/projects/{project}/locations/{zone}/jobs/{job_id}:resize"
    return [
        Command("podyard", line(["podyard", "job", "resize", job_id], flags, [])),
        Command("curl", post(path, {}, {"acceleratorType": type_name})),
    ]


def job_target(
    node: str | NodeSpec,
) -> tuple[list[tuple[str, str]], list[str], dict[str, Any]]:
    """(flags, switches, fields of the body) that say on which node a job runs."""
    if isinstance(node, str):
        return [("--node", node)], [], {"node": node}
    flags = [("--accelerator-type", node.accelerator_type), ("--version", node.runtime_version)]
    body: dict[str, Any] = {
        "acceleratorType": node.accelerator_type,
        "runtimeVersion": node.runtime_version,
    }
    if node.usage_class is UsageClass.ON_DEMAND:
        return flags, [], body
    config = {"schedulingConfig": scheduling(node.usage_class)}
    return flags, [f"--{node.usage_class}"], body | config


def submit_program(
    path: str, job_id: str, file: str, program: Mapping[str, Any], body: Mapping[str, Any]
) -> str:
    """Return the lines that submit a program; a `file` that is named is uploaded first."""
    query = {"jobId": job_id} if job_id else {}
    if not file:
        return post(path, query, {**body, "run": program})
    upload = (
        f'SOURCE=$(curl -sS -X POST "$PODYARD_URL"'
        f"{shlex.quote(quote(path, safe='/:') + ':upload?' + urlencode({'name': file}))} \\\n"
        '  -H "Authorization: Bearer $PODYARD_TOKEN" \\\n'
        "  -H 'Content-Type: application/octet-stream' \\\n"
        f'  --data-binary @{shlex.quote(file)} | sed \'s/.*"uri": *"\\([^"]*\\)".*/\\1/\')\n'
    )
    submit = post(path, query, {**body, "run": {**program, "source": "$SOURCE"}})
    # the shell writes the address into the quoted text
    return upload + submit.replace('"$SOURCE"', """"'"$SOURCE"'\"""")


def bill_commands(project: str) -> list[Command]:
    return [
        Command("podyard", line(["podyard", "bill", "show"], [("--project", project)], [])),
        Command("curl", get(f"/podyard/v1/projects/{project}/usage")),
    ]


def scheduling(usage_class: UsageClass) -> dict[str, bool]:
    """The wire's schedulingConfig of a usage class."""
    return {} if usage_class is UsageClass.ON_DEMAND else {str(usage_class): True}


def line(words: Sequence[str], flags: Sequence[tuple[str, str]], switches: Sequence[str]) -> str:
    parts = [" ".join(map(shlex.quote, words))]
    parts += [f"{name}={shlex.quote(value)}" for name, value in flags]
    return " \\\n  ".join([*parts, *switches])


def post(path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> str:
    target = quote(path, safe="/:") + ("?" + urlencode(query) if query else "")
    return (
        f'curl -X POST "$PODYARD_URL"{shlex.quote(target)} \\\n'
        '  -H "Authorization: Bearer $PODYARD_TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
    )


def get(path: str) -> str:
    return (
        f'curl "$PODYARD_URL"{shlex.quote(quote(path, safe="/:"))} \\\n  -H "Authorization: Bearer '
        '$PODYARD_TOKEN"'
    )
