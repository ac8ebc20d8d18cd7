"""`podyard tpu ...`, with gcloud's flag names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import click

from podyard.base.errors import Code, PodyardError
from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.names import complete_node, complete_type
from podyard.cli.kit.options import client_of, output_option, pairs, quiet_option, target_options
from podyard.cli.kit.output import emit, say, warn_of
from podyard.cli.kit.terminal import confirm
from podyard.cli.kit.zones.offers import move_to_offer
from podyard.cli.kit.zones.resources import NODES, client_at
from podyard.cli.kit.zones.versions import generation_named, usual_version
from podyard.cli.nodes import tpu_hosts
from podyard.cli.nodes.notebooks.command import notebook
from podyard.cli.programs.run_report.modules import module_table
from podyard.cli.programs.tpu_devices import devices
from podyard.domain.ran_module import modules_of
from podyard.hardware.accelerator_types import parse

OPERATION_SECONDS_MAX = 900.0  # as google-cloud-tpu waits
_COLUMNS = {
    "NAME": "id",
    "ZONE": "zone",
    "ACCELERATOR_TYPE": "acceleratorType",
    "TOPOLOGY": "acceleratorConfig.topology",
    "HOSTS": "hosts",
    "STATE": "state",
}
_WIDE = {
    "AGE": "createTime|age",
    "PER_HOUR": "pricePerHour|usd",
    "COST": "cost|usd",
    "VERSION": "runtimeVersion",
    "CLASS": "usage",
    "INTERNAL_IP": "internalIp",
    "EXTERNAL_IP": "externalIp",
    "HEALTH": "health",
    "LABELS": "labels|text",
}


@click.group(cls=CommandGroup)
def tpu() -> None:
    """Manage TPU nodes."""


@tpu.command()
@click.argument("node")
@target_options
@click.option(
    "--accelerator-type", shell_complete=complete_type, help="Accelerator type, for example v3-32."
)
@click.option("--type", help="Generation for --topology, for example v4.")
@click.option("--topology", help="Topology, for example 2x2x2.")
@click.option(
    "--version",
    "runtime_version",
    help="Runtime version (default: the usual one of the generation).",
)
@click.option("--preemptible", is_flag=True, help="Create a preemptible node.")
@click.option("--spot", is_flag=True, help="Create a spot node.")
@click.option("--reserved", is_flag=True, help="Use a reservation.")
@click.option("--labels", metavar="K=V,...", help="Labels of the node.")
@click.option("--metadata", metavar="K=V,...", help="Metadata of the node's hosts.")
@click.option("--description", default="", help="Description of the node.")
@click.option("--network", default="default", show_default=True, help="Network of the node.")
@click.option(
    "--async", "asynchronous", is_flag=True, help="Return without waiting for the operation."
)
@output_option
def create(
    node: str,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
    **flags: Any,
) -> None:
    """Create a node and wait until it is READY."""
    client = client_of(data, project, location)
    scheduling = {name: True for name in ("preemptible", "spot", "reserved") if flags[name]}
    kind = flags.get("accelerator_type")
    move_to_offer(client, kind)
    body: dict[str, Any] = {
        "runtimeVersion": flags["runtime_version"] or usual_version(kind, flags.get("type")),
        "networkConfig": {"network": flags["network"], "enableExternalIps": True},
        "schedulingConfig": scheduling,
        "labels": pairs(flags["labels"], "--labels"),
        "metadata": pairs(flags["metadata"], "--metadata"),
        "description": flags["description"],
    }
    if flags["topology"] or flags.get("type"):
        body["acceleratorConfig"] = {
            "type": _wire_type(flags.get("type")),
            "topology": flags["topology"] or "",
        }
    else:
        body["acceleratorType"] = kind
    operation = client.call("POST", f"{client.zone_path()}/nodes", body, nodeId=node)
    _finish(client, operation, flags["asynchronous"], output)


@tpu.command(name="list")
@target_options
@lists(_COLUMNS, wide=_WIDE, together=("PER_HOUR", "COST"), row=lambda node: _row(node))
def list_nodes(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List nodes in all zones. --zone selects one zone. --sort-by=-cost shows price and cost, the
    most expensive node first."""
    client = client_of(data, project, location)
    nodes = list(client.pages(f"{client.zone_path(location or '-')}/nodes", "nodes"))
    costs = _costs(client) if nodes else {}
    return [{**node, **costs.get(node.get("name"), {})} for node in nodes]


def _costs(client: Client) -> dict[object, Item]:
    """Return price and cost so far by the name of a node; nothing for who may not see the bill."""
    try:
        usage = client.call("GET", f"{client.project_path()}/usage")
    except PodyardError as error:
        if error.code is not Code.PERMISSION_DENIED:
            raise
        return {}
    return {
        item.get("node"): {"pricePerHour": item.get("pricePerHour"), "cost": item.get("amount")}
        for item in usage.get("nodes", ())
        # a node that is held has no price yet
        if not item.get("heldBecause")
    }


@tpu.command()
@click.argument("node", shell_complete=complete_node)
@target_options
@output_option
def describe(
    node: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Show a node."""
    client = client_at(NODES, node, data, project, location)
    found = client.call("GET", f"{client.zone_path()}/nodes/{quote(node)}")
    emit(found, "yaml" if output == "table" else output)


@tpu.command()
@click.argument("node", shell_complete=complete_node)
@target_options
@output_option
def programs(
    node: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Show the modules that programs on a node ran, and their times on the slice.

    Programs started by ssh and by jobs count, since their host started.
    """
    client = client_at(NODES, node, data, project, location)
    kind = client.call("GET", f"{client.zone_path()}/nodes/{quote(node)}")["acceleratorType"]
    hosts = client.call("GET", f"{client.own_path()}/nodes/{quote(node)}/hosts")["hosts"]
    of_hosts: list[list[Item]] = [host.get("programs", []) for host in hosts]
    modules = next(filter(None, of_hosts), [])  # each host of a slice runs the same ones
    if output != "table":
        emit(modules, output)
    elif modules:
        click.echo(module_table(modules_of(modules), parse(kind).generation.device_word))
    else:
        say(f"no program on {node} has run a module for the TPU")


def _verb(name: str, method: str, suffix: str, text: str) -> click.Command:
    @tpu.command(name=name, help=text)
    @click.argument("node", shell_complete=complete_node)
    @target_options
    @click.option(
        "--async", "asynchronous", is_flag=True, help="Return without waiting for the operation."
    )
    @quiet_option
    @output_option
    def command(
        node: str,
        data: str | None,
        project: str | None,
        location: str | None,
        asynchronous: bool,
        quiet: bool,
        output: str,
    ) -> None:
        client = client_at(NODES, node, data, project, location)
        if name == "delete" and not quiet:
            confirm(f"Delete node {node} in {client.target.location}?", "--quiet")
        body: dict[str, Any] | None = {} if method == "POST" else None
        operation = client.call(method, f"{client.zone_path()}/nodes/{quote(node)}{suffix}", body)
        _finish(client, operation, asynchronous, output)

    assert isinstance(command, click.Command)
    return command


_verb("delete", "DELETE", "", "Delete a node and wait until it is gone.")
_verb("stop", "POST", ":stop", "Stop a node. Only nodes with one host can be stopped.")
_verb("start", "POST", ":start", "Start a stopped node.")


@tpu.command()
@click.argument("node", shell_complete=complete_node)
@target_options
@output_option
def preempt(
    node: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Preempt a preemptible or spot node now, as Google might."""
    client = client_at(NODES, node, data, project, location)
    found = client.call("POST", f"{client.own_path()}/nodes/{quote(node)}:preempt", {})
    emit(_row(found) if output == "table" else found, output, _COLUMNS)


@tpu.command(name="schedule-maintenance")
@click.argument("node", shell_complete=complete_node)
@target_options
@click.option(
    "--start",
    required=True,
    metavar="TIME",
    help="Start of the maintenance window, for example 2030-01-31T09:00:00Z.",
)
@click.option("--end", required=True, metavar="TIME", help="End of the maintenance window.")
@output_option
def schedule_maintenance(
    node: str,
    data: str | None,
    project: str | None,
    location: str | None,
    start: str,
    end: str,
    output: str,
) -> None:
    """Schedule maintenance of a node, as Google might."""
    client = client_at(NODES, node, data, project, location)
    window = {"windowStartTime": start, "windowEndTime": end}
    found = client.call(
        "POST", f"{client.own_path()}/nodes/{quote(node)}:scheduleMaintenance", window
    )
    emit(_row(found) if output == "table" else found, output, _COLUMNS)


def _finish(client: Client, operation: dict[str, Any], asynchronous: bool, output: str) -> None:
    warn_of(operation)
    if asynchronous:
        say(f"operation {operation['name']} goes on")
        emit(operation, "yaml" if output == "table" else output)
        return
    done = client.wait_operation(operation, OPERATION_SECONDS_MAX)
    response = done.get("response", {})
    if "name" in response:
        emit(_row(response) if output == "table" else response, output, _COLUMNS)
    else:
        say(f"{done['metadata']['verb']} of {done['metadata']['target']} is done")


def _row(node: dict[str, Any]) -> dict[str, Any]:
    parts = node["name"].split("/")
    endpoints, scheduling = node.get("networkEndpoints", []), node.get("schedulingConfig", {})
    first = endpoints[0] if endpoints else {}
    return {
        **node,
        "id": parts[-1],
        "zone": parts[3],
        "hosts": len(endpoints),
        "usage": next(
            (name for name in ("spot", "preemptible", "reserved") if scheduling.get(name)),
            "on-demand",
        ),
        "internalIp": first.get("ipAddress"),
        "externalIp": first.get("accessConfig", {}).get("externalIp"),
    }


def _wire_type(text: str | None) -> str:
    generation = generation_named(text)
    return (text or "").upper() if generation is None else str(generation.wire_type)


for _command in (*tpu_hosts.HOST_COMMANDS, notebook, devices):
    tpu.add_command(_command)

COMMANDS = {"tpu": tpu}
