"""`podyard project reset`, for one project: webhooks first, so that nobody is told of the rest,
then jobs, what they ran on, and what they wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from podyard.base.errors import Code, PodyardError
from podyard.cli.jobs.logs import ANY_ZONE, FINAL_STATES
from podyard.cli.kit.client import Client

JOBS_SECONDS_MAX = 120.0  # until processes have saved and exited
OPERATION_SECONDS_MAX = 900.0  # as google-cloud-tpu waits
_GOING_STATES = ("DELETING",)


def reset_project(client: Client, buckets: Client | None) -> list[str]:
    """Return what was ended or deleted: `2 jobs ended`. `buckets`: the client of the storage, if
    there is one."""
    counts = (
        ("webhook", "deleted", _delete_webhooks(client)),
        ("job", "ended", _cancel_jobs(client)),
        ("queued resource", "deleted", _delete_queued(client)),
        ("node", "deleted", _delete_nodes(client)),
        ("disk", "deleted", _delete_disks(client)),
        ("reservation", "deleted", _delete_reservations(client)),
        ("bucket", "deleted", 0 if buckets is None else _delete_buckets(buckets)),
    )
    return [
        f"{count} {noun}{'' if count == 1 else 's'} {verb}" for noun, verb, count in counts if count
    ]


def _delete_webhooks(client: Client) -> int:
    """They would tell the next user's events to an address of the last one. Budgets are limits, and
    stay."""
    path = f"{client.project_path()}/webhooks"
    found = client.call("GET", path)["webhooks"]
    for endpoint in found:
        client.call("DELETE", f"{path}/{quote(endpoint['name'].rpartition('/')[2])}")
    return len(found)


def _cancel_jobs(client: Client) -> int:
    sweeps = f"{client.own_path(ANY_ZONE)}/sweeps"
    for sweep in client.pages(sweeps, "sweeps"):
        if sweep["ended"] < sweep["jobs"]:
            client.call("POST", f"/podyard/v1/{sweep['name']}:cancel", {})
    live = [job["name"] for job in _jobs(client) if job["state"] not in FINAL_STATES]
    for name in live:
        client.call("POST", f"/podyard/v1/{name}:cancel", {})
    for name in live:
        path = f"/podyard/v1/{name}"
        client.poll(lambda path=path: client.call("GET", path), _has_ended, JOBS_SECONDS_MAX, name)  # type: ignore[misc]
    return len(live)


def _has_ended(job: dict[str, Any]) -> bool:
    return job["state"] in FINAL_STATES


def _jobs(client: Client) -> Iterable[dict[str, Any]]:
    return client.pages(f"{client.own_path(ANY_ZONE)}/jobs", "jobs")


def _delete_queued(client: Client) -> int:
    """With their nodes."""
    all_of_them = client.pages(
        f"{client.zone_path('-', 'v2alpha1')}/queuedResources", "queuedResources"
    )
    found = [item for item in all_of_them if item["state"]["state"] not in _GOING_STATES]
    _end_all(client, [f"/v2alpha1/{item['name']}" for item in found], force="true")
    return len(found)


def _delete_nodes(client: Client) -> int:
    nodes = client.pages(f"{client.zone_path('-')}/nodes", "nodes")
    names = [node["name"] for node in nodes if node["state"] not in _GOING_STATES]
    _end_all(client, [f"/v2/{name}" for name in names])
    return len(names)


def _end_all(client: Client, paths: Iterable[str], **query: str) -> None:
    """Begins all deletions before it waits for the first."""
    for operation in [_begin(client, path, query) for path in paths]:
        if operation is not None:
            client.wait_operation(operation, OPERATION_SECONDS_MAX)


def _begin(client: Client, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
    """None: it is gone. A job's own node goes with its job, at any moment: it may be on its way
    since it was listed."""
    try:
        return client.call("DELETE", path, **query)
    except PodyardError:
        found = _find(client, path)
        if found and _state_of(found) not in _GOING_STATES:
            raise
    if found:
        client.poll(
            lambda: _find(client, path), lambda answer: not answer, OPERATION_SECONDS_MAX, path
        )
    return None


def _find(client: Client, path: str) -> dict[str, Any]:
    """A node or a queued resource; empty: there is none."""
    try:
        return client.call("GET", path)
    except PodyardError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return {}


def _state_of(found: Mapping[str, Any]) -> str:
    state = found["state"]
    return str(state["state"] if isinstance(state, Mapping) else state)


def _delete_reservations(client: Client) -> int:
    found = list(client.pages(f"{client.own_path(ANY_ZONE)}/reservations", "reservations"))
    for item in found:
        client.call("DELETE", f"/podyard/v1/{item['name']}")
    return len(found)


def _delete_disks(client: Client) -> int:
    """Those that nodes had are free by now."""
    project = f"/compute/v1/projects/{client.target.project}"
    found = client.call("GET", f"{project}/aggregated/disks")["items"]
    paths = [
        f"{zone}/disks/{disk['name']}" for zone, mine in found.items() for disk in mine["disks"]
    ]
    for path in paths:
        client.call("DELETE", f"{project}/{path}")
    return len(paths)


def _delete_buckets(client: Client) -> int:
    found = list(client.pages("/storage/v1/b", "items", project=client.target.project))
    for bucket in found:
        path = f"/storage/v1/b/{quote(bucket['name'], safe='')}"
        for one in list(client.pages(f"{path}/o", "items")):
            client.delete(f"{path}/o/{quote(one['name'], safe='')}")
        client.delete(path)
    return len(found)
