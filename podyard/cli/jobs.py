"""`podyard job ...`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from podyard.base.clock import OsClock
from podyard.cli.client import Client
from podyard.cli.options import client_of, output_option, pairs, target_options, value_of
from podyard.cli.output import emit, say

FOLLOW_SECONDS = 0.4
FINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELLED")
_COLUMNS = {
    "JOB": "id",
    "ZONE": "zone",
    "RECIPE": "recipe",
    "TYPE": "acceleratorType",
    "STATE": "state",
    "STEPS": "progress",
    "ACCURACY": "metrics.latest.accuracy",
    "WALL_S": "wallSeconds",
    "MODELLED_S": "modelledSeconds",
}


@click.group()
def job() -> None:
    """Jobs that really run."""


@job.command()
@click.argument("job_id", required=False)
@target_options
@click.option("--recipe", required=True)
@click.option("--node", help="A node that is READY.")
@click.option("--accelerator-type", help="Or: make a node of this type for the job.")
@click.option("--version", "runtime_version", help="Runtime version of that node.")
@click.option("--preemptible", is_flag=True)
@click.option("--spot", is_flag=True)
@click.option("--mode", default="train", show_default=True)
@click.option("--steps", type=int)
@click.option("--global-batch", type=int)
@click.option("--seed", type=int)
@click.option("--checkpoint-every-steps", type=int)
@click.option("--max-failures", type=int)
@click.option("--max-preemptions", type=int)
@click.option("--replica-processes", type=int, help="Processes for the slice's hosts (default: one per host).")
@click.option("--arg", "arguments", multiple=True, metavar="NAME=VALUE", help="Argument of the recipe.")
@click.option("--labels", metavar="K=V,...")
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait for the end, with progress.")
@output_option
def submit(
    job_id: str | None, data: str | None, project: str | None, location: str | None, output: str, **flags: Any
) -> int:
    """Submit a job."""
    client = client_of(data, project, location)
    body: dict[str, Any] = {"recipe": flags["recipe"], "mode": flags["mode"]}
    for flag, field in (
        ("node", "node"),
        ("accelerator_type", "acceleratorType"),
        ("runtime_version", "runtimeVersion"),
        ("steps", "steps"),
        ("global_batch", "globalBatch"),
        ("seed", "seed"),
        ("checkpoint_every_steps", "checkpointEverySteps"),
        ("max_failures", "maxFailures"),
        ("max_preemptions", "maxPreemptions"),
        ("replica_processes", "replicaProcesses"),
    ):
        if flags[flag] is not None:
            body[field] = flags[flag]
    scheduling = {name: True for name in ("preemptible", "spot") if flags[name]}
    if scheduling:
        body["schedulingConfig"] = scheduling
    if flags["labels"]:
        body["labels"] = pairs(flags["labels"], "--labels")
    body["arguments"] = {
        key: value_of(value) for pair in flags["arguments"] for key, value in pairs(pair, "--arg").items()
    }
    found = client.call("POST", f"{client.own_path()}/jobs", body, jobId=job_id)
    if flags["wait_for_end"]:
        found = _wait(client, found["name"], None)
    _print(found, output)
    return 0 if found["state"] not in ("FAILED", "CANCELLED") else 1


@job.command(name="list")
@target_options
@output_option
def list_jobs(data: str | None, project: str | None, location: str | None, output: str) -> None:
    """List jobs, the newest first, of all zones unless --zone names one."""
    client = client_of(data, project, location)
    found = list(client.pages(f"{client.own_path(location or '-')}/jobs", "jobs"))
    emit([_row(item) for item in found] if output == "table" else found, output, _COLUMNS)


@job.command()
@click.argument("job_id")
@target_options
@output_option
def describe(job_id: str, data: str | None, project: str | None, location: str | None, output: str) -> None:
    """Show a job."""
    client = client_of(data, project, location)
    found = client.call("GET", f"{client.own_path()}/jobs/{quote(job_id)}")
    emit(found, "yaml" if output == "table" else output)


@job.command()
@click.argument("job_id")
@target_options
@click.option("--worker", type=int, help="Only this replica.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
def logs(
    job_id: str, data: str | None, project: str | None, location: str | None, worker: int | None, follow: bool
) -> None:
    """Print a job's log lines."""
    client, clock = client_of(data, project, location), OsClock()
    path = f"{client.own_path()}/jobs/{quote(job_id)}"
    token: str | None = None
    while True:
        over = client.call("GET", path)["state"] in FINAL_STATES
        page = client.call("GET", f"{path}:logs", pageToken=token, worker=worker)
        for line in page["lines"]:
            click.echo(f"{line['time']} [{line['attempt']}.{line['worker']}] {line['line']}")
        token = page["nextPageToken"]
        if not page["lines"]:
            if over or not follow:
                return
            clock.sleep(FOLLOW_SECONDS)


@job.command()
@click.argument("job_id")
@target_options
@output_option
def cancel(job_id: str, data: str | None, project: str | None, location: str | None, output: str) -> None:
    """Cancel a job."""
    client = client_of(data, project, location)
    _print(client.call("POST", f"{client.own_path()}/jobs/{quote(job_id)}:cancel", {}), output)


@job.command()
@click.argument("job_id")
@target_options
@click.option("--timeout", type=float, help="Give up after this many seconds; the job goes on.")
@output_option
def wait(
    job_id: str, data: str | None, project: str | None, location: str | None, timeout: float | None, output: str
) -> int:
    """Wait for a job's end. Exit code 1 unless it has succeeded."""
    client = client_of(data, project, location)
    name = f"projects/{client.target.project}/locations/{client.target.location}/jobs/{job_id}"
    found = _wait(client, name, timeout)
    _print(found, output)
    return 0 if found["state"] == "SUCCEEDED" else 1


def _wait(client: Client, name: str, timeout_seconds: float | None) -> dict[str, Any]:
    said = ""

    def ask() -> dict[str, Any]:
        nonlocal said
        found = client.call("GET", f"/podyard/v1/{name}")
        text = progress_line(found)
        if text != said:
            say(text)
            said = text
        return found

    return client.poll(ask, lambda found: found["state"] in FINAL_STATES, timeout_seconds or float("inf"), name)


def progress_line(found: dict[str, Any]) -> str:
    latest = found["metrics"]["latest"]
    loss = f"  loss {latest['loss']:.4f}  accuracy {latest['accuracy']:.3f}" if "loss" in latest else ""
    why = f"  ({found['stateReason']})" if found.get("stateReason") and found["state"] != "RUNNING" else ""
    return f"{found['state']:<10} step {found['stepsDone']}/{found['steps']}{loss}{why}"


def _row(found: dict[str, Any]) -> dict[str, Any]:
    parts = found["name"].split("/")
    return {**found, "id": parts[-1], "zone": parts[3], "progress": f"{found['stepsDone']}/{found['steps']}"}


def _print(found: dict[str, Any], output: str) -> None:
    emit(_row(found) if output == "table" else found, output, _COLUMNS)


COMMANDS = {"job": job}
