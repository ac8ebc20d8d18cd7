"""`podyard job ...`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from podyard.base.clock import OsClock
from podyard.base.durations import duration_for_people
from podyard.base.errors import Code, PodyardError
from podyard.base.money import money_text
from podyard.cli.client import Client
from podyard.cli.options import client_of, output_option, pairs, target_options, value_of
from podyard.cli.output import emit, say

FOLLOW_SECONDS = 0.4
ANY_ZONE = "-"  # of a job whose zone is not named: the API finds it
FINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELLED")
_COLUMNS = {
    "JOB": "id",
    "ZONE": "zone",
    "RECIPE": "recipe",
    "TYPE": "acceleratorType",
    "STATE": "state",
    "STEPS": "progress",
    "ACCURACY": "metrics.latest.accuracy",
    "WALL": "wallSeconds|seconds",
    "LEFT": "remainingSeconds|seconds",
    "MODELLED": "modelledSeconds|seconds",
    "COST": "cost|usd",
}


@click.group()
def job() -> None:
    """Manage jobs, which really run."""


@job.command()
@click.argument("job_id", required=False)
@target_options
@click.option("--recipe", help="Recipe to run.")
@click.option("--program", metavar="MODULE:FUNCTION", help="Program to run: MODULE.py in the agents' programs folder.")
@click.option(
    "--start-from", metavar="JOB[@STEP]", help="Job to continue from: run its recipe or program from its checkpoint."
)
@click.option("--node", help="Node to run on. It must be READY.")
@click.option("--accelerator-type", help="Create a node of this type for the job, instead of --node.")
@click.option("--version", "runtime_version", help="Runtime version of the created node.")
@click.option("--preemptible", is_flag=True, help="Make the created node preemptible.")
@click.option("--spot", is_flag=True, help="Make the created node a spot node.")
@click.option("--mode", default="train", show_default=True, help="Mode: train, evaluate, predict or export.")
@click.option("--steps", type=int, help="Number of training steps.")
@click.option("--global-batch", type=int, help="Examples per step, over the whole slice.")
@click.option("--seed", type=int, help="Random seed.")
@click.option("--checkpoint-every-steps", type=int, help="Steps between checkpoints.")
@click.option("--max-failures", type=int, help="Maximum number of failed attempts before the job fails.")
@click.option("--max-preemptions", type=int, help="Maximum number of preemptions before the job fails.")
@click.option("--priority", type=click.IntRange(-1000, 1000), help="Priority: higher runs first (default: 0).")
@click.option("--replica-processes", type=int, help="Processes for the slice's hosts (default: one per host).")
@click.option("--accumulation-steps", type=int, help="Number of parts into which a core's batch is divided.")
@click.option("--iterations-per-loop", type=int, help="Steps per training loop.")
@click.option("--evaluate-every-steps", type=int, help="Steps between evaluations; 0 evaluates only at the end.")
@click.option(
    "--early-stopping",
    metavar="METRIC[:min|max]:PATIENCE[:MIN_DELTA]",
    help="Metric and patience, for example val_loss:3.",
)
@click.option(
    "--checkpoint-name", metavar="PATTERN", help="Pattern of checkpoint names, for example {epoch:02d}-{val_loss:.2f}."
)
@click.option("--keep-checkpoints", type=int, help="Number of checkpoints to keep; 0 keeps all.")
@click.option("--keep-best", metavar="METRIC[:min|max]", help="Keep the checkpoint of the best evaluation.")
@click.option("--export", "export_at_end", is_flag=True, help="Export the trained model at the end.")
@click.option("--elastic", type=int, metavar="MIN_REPLICAS", help="Minimum number of processes of an elastic job.")
@click.option(
    "--elastic-batch",
    type=click.Choice(["keep", "scale"]),
    help="Batch while fewer processes run: keep it or scale it down.",
)
@click.option(
    "--elastic-learning-rate", type=click.Choice(["keep", "linear"]), help="Learning rate while fewer processes run."
)
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of the recipe or program; may be repeated.",
)
@click.option("--labels", metavar="K=V,...", help="Labels of the job.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait until the job ends, and show its progress.")
@output_option
def submit(
    job_id: str | None, data: str | None, project: str | None, location: str | None, output: str, **flags: Any
) -> int:
    """Submit a job."""
    client = client_of(data, project, location)
    body: dict[str, Any] = {"mode": flags["mode"]}
    for flag, field in (
        ("recipe", "recipe"),
        ("program", "program"),
        ("node", "node"),
        ("accelerator_type", "acceleratorType"),
        ("runtime_version", "runtimeVersion"),
        ("steps", "steps"),
        ("global_batch", "globalBatch"),
        ("seed", "seed"),
        ("checkpoint_every_steps", "checkpointEverySteps"),
        ("max_failures", "maxFailures"),
        ("max_preemptions", "maxPreemptions"),
        ("priority", "priority"),
        ("replica_processes", "replicaProcesses"),
    ):
        if flags[flag] is not None:
            body[field] = flags[flag]
    for field, found in (("training", _training(flags)), ("elastic", _elastic(flags))):
        if found:
            body[field] = found
    if flags["start_from"]:
        body["startFrom"] = _start_from(flags["start_from"])
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


def _training(flags: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        field: flags[flag]
        for flag, field in (
            ("accumulation_steps", "accumulationSteps"),
            ("iterations_per_loop", "iterationsPerLoop"),
            ("evaluate_every_steps", "evaluateEverySteps"),
            ("checkpoint_name", "checkpointName"),
            ("keep_checkpoints", "keepCheckpoints"),
        )
        if flags[flag] is not None
    }
    if flags["export_at_end"]:
        found["exportAtEnd"] = True
    if flags["early_stopping"]:
        found["earlyStopping"] = _early_stopping(flags["early_stopping"])
    if flags["keep_best"]:
        watched, rest = _parse_metric(flags["keep_best"])
        if rest:
            raise click.UsageError(f"--keep-best: {flags['keep_best']!r} is not METRIC[:min|max]")
        found["best"] = watched
    return found


def _early_stopping(text: str) -> dict[str, Any]:
    watched, rest = _parse_metric(text)
    try:
        patience, min_delta = (*rest, "0")[:2] if len(rest) < 3 else ("", "")
        return {**watched, "patience": int(patience), "minDelta": float(min_delta)}
    except ValueError:
        text = f"--early-stopping: {text!r} is not METRIC[:min|max]:PATIENCE[:MIN_DELTA]"
        raise click.UsageError(text) from None


def _parse_metric(text: str) -> tuple[dict[str, str], list[str]]:
    """The metric, which of its values are better if that is said, and what else stands there."""
    metric, *rest = text.split(":")
    if rest and rest[0] in ("min", "max"):
        return {"metric": metric, "mode": rest[0]}, rest[1:]
    return {"metric": metric}, rest


def _elastic(flags: Mapping[str, Any]) -> dict[str, Any]:
    rules = {"batch": flags["elastic_batch"], "learningRate": flags["elastic_learning_rate"]}
    given = {field: value for field, value in rules.items() if value is not None}
    if flags["elastic"] is None:
        if given:
            raise click.UsageError("--elastic-batch and --elastic-learning-rate need --elastic")
        return {}
    return {"minReplicas": flags["elastic"], **given}


def _start_from(text: str) -> dict[str, Any]:
    name, at, step = text.partition("@")
    if at and not (step.isascii() and step.isdigit()):
        raise click.UsageError(f"--start-from: {text!r} is not JOB[@STEP]")
    return {"job": name, **({"step": int(step)} if at else {})}


@job.command(name="list")
@target_options
@output_option
def list_jobs(data: str | None, project: str | None, location: str | None, output: str) -> None:
    """List jobs in all zones, newest first. --zone selects one zone."""
    client = client_of(data, project, location)
    found = list(client.pages(f"{client.own_path(location or ANY_ZONE)}/jobs", "jobs"))
    emit([_row(item) for item in found] if output == "table" else found, output, _COLUMNS)


@job.command()
@click.argument("job_id")
@target_options
@output_option
def describe(job_id: str, data: str | None, project: str | None, location: str | None, output: str) -> None:
    """Show a job."""
    client = client_of(data, project, location)
    found = client.call("GET", _path(client, location, job_id))
    emit(found, "yaml" if output == "table" else output)


@job.command()
@click.argument("job_id")
@target_options
@click.option("--worker", type=int, help="Only the lines of this replica.")
@click.option("--follow", "-f", is_flag=True, help="Follow the log until the job ends.")
def logs(
    job_id: str, data: str | None, project: str | None, location: str | None, worker: int | None, follow: bool
) -> None:
    """Print a job's log lines."""
    client, clock = client_of(data, project, location), OsClock()
    path = _path(client, location, job_id)
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
    _print(client.call("POST", f"{_path(client, location, job_id)}:cancel", {}), output)


@job.command()
@click.argument("job_id")
@click.option("--replicas", required=True, metavar="N|max", help="Maximum number of processes.")
@target_options
@output_option
def resize(
    job_id: str, replicas: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Change the number of processes of an elastic job."""
    if replicas != "max" and not replicas.isdecimal():
        raise click.BadParameter(f"{replicas!r} is neither a number nor max", param_hint="--replicas")
    body = {"replicas": replicas if replicas == "max" else int(replicas)}
    client = client_of(data, project, location)
    _print(client.call("POST", f"{_path(client, location, job_id)}:resize", body), output)


@job.command()
@click.argument("job_id")
@target_options
@click.option("--timeout", type=float, help="Seconds to wait at most. The job keeps running.")
@output_option
def wait(
    job_id: str, data: str | None, project: str | None, location: str | None, timeout: float | None, output: str
) -> int:
    """Wait until a job ends. Exit code 1 unless it succeeded."""
    client = client_of(data, project, location)
    name = f"projects/{client.target.project}/locations/{location or ANY_ZONE}/jobs/{job_id}"
    found = _wait(client, name, timeout)
    _print(found, output)
    return 0 if found["state"] == "SUCCEEDED" else 1


@job.command()
@click.argument("job_id")
@target_options
@output_option
def evaluations(job_id: str, data: str | None, project: str | None, location: str | None, output: str) -> None:
    """List a job's evaluations."""
    client = client_of(data, project, location)
    found = client.call("GET", f"{_path(client, location, job_id)}:evaluations")["evaluations"]
    emit(found, output, {"STEP": "step", "ATTEMPT": "attempt", "METRICS": "metrics"})


@job.command()
@click.argument("job_id")
@target_options
@output_option
def artifacts(job_id: str, data: str | None, project: str | None, location: str | None, output: str) -> None:
    """List a job's artifacts: exports and predictions."""
    client = client_of(data, project, location)
    emit(_artifacts(client, location, job_id), output, {"NAME": "name", "BYTES": "bytes"})


@job.command()
@click.argument("job_id")
@click.argument("names", nargs=-1)
@target_options
@click.option(
    "-o",
    "--output-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder to write to.",
)
def download(
    job_id: str,
    names: tuple[str, ...],
    data: str | None,
    project: str | None,
    location: str | None,
    output_dir: Path,
) -> None:
    """Download artifacts of a job: those given, or all."""
    client = client_of(data, project, location)
    known = [item["name"] for item in _artifacts(client, location, job_id)]
    unknown = sorted(set(names) - set(known))
    if unknown or not known:
        what = f"no artifact {unknown[0]!r}" if unknown else "no artifacts"
        raise PodyardError(Code.NOT_FOUND, f"job {job_id} has {what}; `podyard job artifacts` lists them")
    for name in names or known:
        target = output_dir / name
        if not target.resolve().is_relative_to(output_dir.resolve()):
            raise PodyardError(Code.DATA_LOSS, f"the server names an artifact {name!r}, which would lie elsewhere")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(client.content(f"{_path(client, location, job_id)}:artifact", name=name))
        say(str(target))


def _path(client: Client, location: str | None, job_id: str) -> str:
    return f"{client.own_path(location or ANY_ZONE)}/jobs/{quote(job_id)}"


def _artifacts(client: Client, location: str | None, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.call("GET", f"{_path(client, location, job_id)}:artifacts")["artifacts"]
    return found


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
    run = ""
    if "stepsPerSecond" in found:
        left = duration_for_people(found["remainingSeconds"])
        run = f"  {found['stepsPerSecond']:.3g} steps/s, {left} left"
    cost = f"  {money_text(found['cost'])}" if "cost" in found else ""
    wall = f"  {duration_for_people(found['wallSeconds'])}" if found["wallSeconds"] else ""
    return f"{found['state']:<10} step {found['stepsDone']}/{found['steps']}{loss}{wall}{run}{cost}{why}"


def _row(found: dict[str, Any]) -> dict[str, Any]:
    parts = found["name"].split("/")
    return {
        **found,
        "recipe": found.get("recipe") or found.get("program"),
        "id": parts[-1],
        "zone": parts[3],
        "progress": f"{found['stepsDone']}/{found['steps']}",
    }


def _print(found: dict[str, Any], output: str) -> None:
    emit(_row(found) if output == "table" else found, output, _COLUMNS)


COMMANDS = {"job": job}
