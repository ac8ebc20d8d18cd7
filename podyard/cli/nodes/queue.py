"""`podyard qr ...` over Google's wire, with gcloud's flag names, and `podyard reservation ...` and
`podyard queue ...` over own REST."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import click

from podyard.base.clock import seconds_to_nanos
from podyard.base.durations import duration_text
from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.names import complete_type
from podyard.cli.kit.options import client_of, output_option, pairs, quiet_option, target_options
from podyard.cli.kit.output import emit, say, warn_of
from podyard.cli.kit.terminal import confirm
from podyard.cli.kit.zones.offers import move_to_offer
from podyard.cli.kit.zones.resources import QUEUED_RESOURCES, RESERVATIONS, client_at
from podyard.cli.kit.zones.versions import usual_version
from podyard.domain.queued_resource import KEEP_REFUSED_HEADER

OPERATION_SECONDS_MAX = 900.0  # as google-cloud-tpu waits
_QR_COLUMNS = {
    "NAME": "id",
    "ZONE": "zone",
    "NODE_COUNT": "count",
    "ACCELERATOR_TYPE": "kind",
    "STATE": "state.state",
    "REASON": "state.failedData.error.message|text",
}
_RESERVATION_COLUMNS = {
    "NAME": "id",
    "ZONE": "zone",
    "GENERATION": "generation",
    "SIZE": "size",
    "USED": "used",
    "UNITS": "capacityUnits",
    "STATE": "state",
}
_QUEUE_COLUMNS = {
    "POSITION": "position",
    "KIND": "kind",
    "NAME": "id",
    "ZONE": "zone",
    "ACCELERATOR_TYPE": "acceleratorType",
    "PRIORITY": "priority",
    "WAITING": "waitingSince|age",
    "START": "predictedStart",
    "REASON": "reason|text",
}


@click.group(cls=CommandGroup, default="list")
def qr() -> None:
    """Manage queued resources."""


@qr.command(name="create")
@click.argument("queued_resource")
@target_options
@click.option("--node-id", help="Id of the node to create.")
@click.option("--node-count", type=click.IntRange(2), help="Number of slices of a multislice.")
@click.option("--node-prefix", help="Prefix of node ids, as in PREFIX-0 and PREFIX-1.")
@click.option(
    "--accelerator-type",
    required=True,
    shell_complete=complete_type,
    help="Accelerator type, for example v3-32.",
)
@click.option(
    "--runtime-version", help="Runtime version (default: the usual one of the generation)."
)
@click.option("--spot", is_flag=True, help="Request spot nodes.")
@click.option("--best-effort", is_flag=True, help="Request preemptible nodes.")
@click.option("--reserved", is_flag=True, help="Use a reservation.")
@click.option(
    "--reservation",
    metavar="NAME",
    help="Reservation to use with --reserved (default: any in the zone).",
)
@click.option(
    "--valid-after-duration",
    metavar="SECONDS",
    type=float,
    help="Create no node before this much time has passed.",
)
@click.option(
    "--valid-until-duration",
    metavar="SECONDS",
    type=float,
    help="Fail the request if it still waits after this much time.",
)
@click.option("--labels", metavar="K=V,...", help="Labels of the nodes.")
@click.option("--metadata", metavar="K=V,...", help="Metadata of the nodes.")
@output_option
def create_qr(
    queued_resource: str,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
    **flags: Any,
) -> None:
    """Create a queued resource. Does not wait for its nodes. A request beyond quota or budget
    stays in the list as FAILED."""
    if bool(flags["node_id"]) == bool(flags["node_count"]):
        raise click.UsageError("specify --node-id for one node, or --node-count for a multislice")
    client = client_of(data, project, location)
    move_to_offer(client, flags.get("accelerator_type"))
    body = {
        "tpu": {"nodeSpec": [_node_spec(client, flags)]},
        **_tier(client, flags),
        **_policy(flags),
    }
    keep = {KEEP_REFUSED_HEADER: "true"}
    operation = client.post(_place(client), body, keep, queuedResourceId=queued_resource)
    warn_of(operation)
    _show(client, operation, output)


@qr.command(name="list")
@target_options
@lists(
    _QR_COLUMNS,
    wide={"AGE": "createTime|age", "INITIATOR": "state.stateInitiator"},
    row=lambda item: _row(item),
)
def list_qr(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List queued resources in all zones. --zone selects one zone."""
    client = client_of(data, project, location)
    return client.pages(_place(client, location or "-"), "queuedResources")


@qr.command(name="describe")
@click.argument("queued_resource")
@target_options
@output_option
def describe_qr(
    queued_resource: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Show a queued resource."""
    client = client_at(QUEUED_RESOURCES, queued_resource, data, project, location)
    found = client.call("GET", f"{_place(client)}/{quote(queued_resource)}")
    emit(found, "yaml" if output == "table" else output)


@qr.command(name="reset")
@click.argument("queued_resource")
@target_options
@output_option
def reset_qr(
    queued_resource: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Put an ACTIVE or SUSPENDED queued resource back into the queue. Its nodes are created
    again."""
    client = client_at(QUEUED_RESOURCES, queued_resource, data, project, location)
    operation = client.call("POST", f"{_place(client)}/{quote(queued_resource)}:reset", {})
    _show(client, operation, output)


@qr.command(name="delete")
@click.argument("queued_resource")
@target_options
@click.option("--force", is_flag=True, help="Delete its nodes, too.")
@quiet_option
def delete_qr(
    queued_resource: str,
    data: str | None,
    project: str | None,
    location: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Delete a queued resource and wait until it is gone."""
    client = client_at(QUEUED_RESOURCES, queued_resource, data, project, location)
    if not quiet:
        confirm(f"Delete queued resource {queued_resource} in {client.target.location}?", "--quiet")
    path = f"{_place(client)}/{quote(queued_resource)}"
    operation = client.call("DELETE", path, force="true" if force else None)
    client.wait_operation(operation, OPERATION_SECONDS_MAX)
    say(f"queued resource {queued_resource} is deleted")


@click.group(cls=CommandGroup, default="list")
def reservation() -> None:
    """Manage reservations of chips of a generation."""


@reservation.command(name="create")
@click.argument("name")
@target_options
@click.option("--generation", required=True, help="Generation, for example v4.")
@click.option(
    "--size",
    required=True,
    type=click.IntRange(1),
    help="Number of chips, or of cores (--units CORES).",
)
@click.option(
    "--units",
    type=click.Choice(("CHIPS", "CORES")),
    default="CHIPS",
    show_default=True,
    help="Unit of --size.",
)
@click.option("--start-time", metavar="TIME", help="Start in RFC 3339 (default: now).")
@click.option("--end-time", metavar="TIME", help="End in RFC 3339 (default: never).")
@output_option
def create_reservation(
    name: str,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
    **flags: Any,
) -> None:
    """Create a reservation."""
    client = client_of(data, project, location)
    body = {
        "generation": flags["generation"],
        "size": flags["size"],
        "capacityUnits": flags["units"],
    }
    body |= {
        wire: flags[flag]
        for flag, wire in (("start_time", "startTime"), ("end_time", "endTime"))
        if flags[flag]
    }
    found = client.call("POST", f"{client.own_path()}/reservations", body, reservationId=name)
    emit(_row(found) if output == "table" else found, output, _RESERVATION_COLUMNS)


@reservation.command(name="list")
@target_options
@lists(
    _RESERVATION_COLUMNS,
    wide={"AGE": "createTime|age", "END": "endTime"},
    row=lambda item: _row(item),
)
def list_reservations(
    data: str | None, project: str | None, location: str | None
) -> Iterable[Item]:
    """List reservations in all zones. --zone selects one zone."""
    client = client_of(data, project, location)
    return client.pages(f"{client.own_path(location or '-')}/reservations", "reservations")


@reservation.command(name="delete")
@click.argument("name")
@target_options
@quiet_option
def delete_reservation(
    name: str, data: str | None, project: str | None, location: str | None, quiet: bool
) -> None:
    """Delete a reservation that no node uses."""
    client = client_at(RESERVATIONS, name, data, project, location)
    if not quiet:
        confirm(f"Delete reservation {name} in {client.target.location}?", "--quiet")
    client.call("DELETE", f"{client.own_path()}/reservations/{quote(name)}")
    say(f"reservation {name} is deleted")


@click.group(cls=CommandGroup, default="list")
def queue() -> None:
    """Show waiting requests and jobs."""


@queue.command(name="list")
@target_options
@lists(_QUEUE_COLUMNS, row=lambda item: {**_row(item), "kind": item["kind"]})
def list_queue(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List waiting requests and jobs with reason and predicted start. --zone selects one zone."""
    client = client_of(data, project, location)
    return client.pages(f"{client.own_path(location or '-')}/queue", "waiting")


def _place(client: Client, location: str | None = None) -> str:
    """v2alpha1: best effort is known to no other version."""
    return f"{client.zone_path(location, 'v2alpha1')}/queuedResources"


def _node_spec(client: Client, flags: dict[str, Any]) -> dict[str, Any]:
    target = client.target
    version = flags["runtime_version"] or usual_version(flags.get("accelerator_type"))
    spec: dict[str, Any] = {
        "parent": f"projects/{target.project}/locations/{target.location}",
        "node": {
            "acceleratorType": flags["accelerator_type"],
            "runtimeVersion": version,
            "labels": pairs(flags["labels"], "--labels"),
            "metadata": pairs(flags["metadata"], "--metadata"),
        },
    }
    if flags["node_id"]:
        return {**spec, "nodeId": flags["node_id"]}
    several = {"nodeCount": flags["node_count"]}
    if flags["node_prefix"]:
        several["nodeIdPrefix"] = flags["node_prefix"]
    return {**spec, "multiNodeParams": several}


def _tier(client: Client, flags: dict[str, Any]) -> dict[str, Any]:
    chosen = [name for name in ("spot", "best_effort", "reserved") if flags[name]]
    if len(chosen) > 1:
        raise click.UsageError(
            f"{' and '.join('--' + name.replace('_', '-') for name in chosen)} cannot be combined"
        )
    if flags["reservation"] and not flags["reserved"]:
        raise click.UsageError("--reservation requires --reserved")
    if flags["spot"]:
        return {"spot": {}}
    if flags["best_effort"]:
        return {"bestEffort": {}}
    if flags["reserved"]:
        target = client.target
        name = (
            f"projects/{target.project}/locations/{target.location}/reservations/"
            f"{flags['reservation'] or '-'}"
        )
        return {"guaranteed": {"reserved": True}, "reservationName": name}
    return {}


def _policy(flags: dict[str, Any]) -> dict[str, Any]:
    wire = {
        "valid_after_duration": "validAfterDuration",
        "valid_until_duration": "validUntilDuration",
    }
    policy = {
        wire[flag]: duration_text(seconds_to_nanos(flags[flag]))
        for flag in wire
        if flags[flag] is not None
    }
    return {"queueingPolicy": policy} if policy else {}


def _show(client: Client, operation: dict[str, Any], output: str) -> None:
    found = client.wait_operation(operation, OPERATION_SECONDS_MAX)["response"]
    emit(_row(found) if output == "table" else found, output, _QR_COLUMNS)


def _row(item: dict[str, Any]) -> dict[str, Any]:
    parts = item["name"].split("/")
    specs = item.get("tpu", {}).get("nodeSpec", ())
    counts = [spec.get("multiNodeParams", {}).get("nodeCount", 1) for spec in specs]
    kinds = dict.fromkeys(spec["node"].get("acceleratorType", "-") for spec in specs)
    return {
        **item,
        "id": parts[-1],
        "zone": parts[3],
        "count": sum(counts),
        "kind": " ".join(kinds),
    }


COMMANDS = {"qr": qr, "reservation": reservation, "queue": queue}
