"""Programs of other clients that create a node or connect to one, as the tests run them."""

from __future__ import annotations

import json

from podyard.domain.node import NodeSpec, UsageClass
from podyard.web.kit.commands import Command

PYTHON_CLIENT = """\
# pip install google-cloud-tpu
import os

from google.cloud import tpu_v2
from google.oauth2.credentials import Credentials

client = tpu_v2.TpuClient(
    credentials=Credentials(os.environ["PODYARD_TOKEN"]),
    transport="rest",
    client_options={"api_endpoint": os.environ["PODYARD_URL"]},
)
"""
_SKYPILOT = """\
# pip install 'skypilot[gcp]==0.14.1' pysocks, then: podyard run -- python FILE
from sky.provision.gcp.instance_utils import GCPTPUVMInstance as TPU

"""


def create_node(project: str, zone: str, node_id: str, spec: NodeSpec) -> list[Command]:
    return [
        Command("Python", _python(project, zone, node_id, spec)),
        Command("Terraform", _terraform(project, zone, node_id, spec)),
        Command("SkyPilot", _skypilot(project, zone, node_id, spec)),
    ]


def list_nodes(project: str, zone: str) -> list[Command]:
    """Return what a new client tries first."""
    every = (
        PYTHON_CLIENT + f'for node in client.list_nodes(parent="projects/{project}/locations/-"):\n'
    )
    found = (
        _SKYPILOT + f"print(TPU.filter({json.dumps(project)}, {json.dumps(zone)}, {{}}, None))\n"
    )
    return [
        Command("Python", every + "    print(node.name, node.state.name)\n"),
        Command("SkyPilot", found),
    ]


def _python(project: str, zone: str, node_id: str, spec: NodeSpec) -> str:
    fields = [
        ("accelerator_type", spec.accelerator_type),
        ("runtime_version", spec.runtime_version),
    ]
    if spec.description:
        fields.append(("description", spec.description))
    lines = [f"    {name}={json.dumps(value, ensure_ascii=False)}," for name, value in fields]
    if spec.labels:
        lines.append(f"    labels={json.dumps(dict(spec.labels))},")
    if spec.usage_class is not UsageClass.ON_DEMAND:
        lines.append(f"    scheduling_config=tpu_v2.SchedulingConfig({spec.usage_class}=True),")
    node = "\n".join(["node = tpu_v2.Node(", *lines, ")"])
    parent = json.dumps(f"projects/{project}/locations/{zone}")
    asked = f"client.create_node(parent={parent}, node_id={json.dumps(node_id)}, node=node)"
    return f"{PYTHON_CLIENT}{node}\noperation = {asked}\nprint(operation.result().state.name)\n"


def _terraform(project: str, zone: str, node_id: str, spec: NodeSpec) -> str:
    fields = [("name", node_id), ("zone", zone), ("accelerator_type", spec.accelerator_type)]
    fields.append(("runtime_version", spec.runtime_version))
    if spec.description:
        fields.append(("description", spec.description))
    lines = [f"  {name} = {_hcl(value)}" for name, value in fields]
    if spec.labels:
        lines += [
            "  labels = {",
            *(f"    {name} = {_hcl(value)}" for name, value in spec.labels.items()),
            "  }",
        ]
    if spec.usage_class is not UsageClass.ON_DEMAND:
        lines += ["  scheduling_config {", f"    {spec.usage_class} = true", "  }"]
    provider = f'provider "google-beta" {{\n  project = {_hcl(project)}\n}}\n'
    return (
        f'# eval "$(podyard env)" first\n{provider}\nresource "google_tpu_v2_vm" "node" {{\n'
        + "\n".join(["  provider = google-beta", *lines, "}\n"])
    )


def _skypilot(project: str, zone: str, node_id: str, spec: NodeSpec) -> str:
    node: dict[str, object] = {
        "acceleratorType": spec.accelerator_type,
        "runtimeVersion": spec.runtime_version,
    }
    if spec.usage_class is not UsageClass.ON_DEMAND:
        node["schedulingConfig"] = {str(spec.usage_class): True}
    where = ", ".join(json.dumps(word) for word in (node_id, project, zone))
    call = (
        f"TPU.create_instances({where}, node, {{}}, count=1, total_count=1, include_head_node=True)"
    )
    return f"{_SKYPILOT}node = {node!r}\n{call}\n"


def _hcl(text: str) -> str:
    """A string of Terraform's language: `${` and `%{` would begin a template."""
    return json.dumps(text, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")
