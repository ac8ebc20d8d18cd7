"""`podyard job ...`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import click
from typing_extensions import override

from podyard.cli.jobs import artifacts as job_artifacts
from podyard.cli.jobs.logs import ANY_ZONE, job_path, logs, stacks
from podyard.cli.jobs.progress import emit_job, steps_text, wait_for_job
from podyard.cli.kit.client import Client
from podyard.cli.kit.command_names.groups import CommandGroup
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.names import FIELD_NAMES, complete_job, complete_node
from podyard.cli.kit.options import (
    Command,
    client_of,
    output_option,
    pairs,
    target_options,
    value_of,
)
from podyard.cli.kit.output import emit, say
from podyard.cli.kit.zones.jobs import move_for_job
from podyard.cli.kit.zones.offers import move_to_region
from podyard.domain.job_fields import JOB_FIELDS, FieldKind, JobField, job_body

_PROGRAM_ARGUMENTS = "podyard.program_arguments"
_TYPES = {
    FieldKind.WHOLE: int,
    FieldKind.TEXT: str,
    FieldKind.SWITCH: bool,
    FieldKind.LABELS: str,
    FieldKind.ARGUMENTS: str,
}
_COLUMNS = {
    "JOB": "id",
    "ZONE": "zone",
    "RECIPE": "recipe|text",
    "TYPE": "acceleratorType",
    "STATE": "state",
    "STEPS": "progress|count",
    "ACCURACY": "metrics.latest.accuracy",
    "WALL": "wallSeconds|seconds",
    "LEFT": "remainingSeconds|seconds",
    "MODELLED": "modelledSeconds|seconds",
    "COST": "cost|usd",
}
_WIDE = {
    "AGE": "createTime|age",
    "NODE": "node",
    "ATTEMPT": "attempt",
    "STEPS/S": "stepsPerSecond",
    "LOSS": "metrics.latest.loss",
    "BY": "createdBy",
    "LABELS": "labels|text",
    "REASON": "stateReason|text",
}
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Check the job and estimate its time and cost; submit nothing."
)
_WAIT = click.option(
    "--wait", "wait_for_end", is_flag=True, help="Wait until the job ends, and show its progress."
)
_ESTIMATE_COLUMNS = {
    "TYPE": "type",
    "STEPS": "steps",
    "STEP": "stepSeconds|seconds",
    "TIME": "seconds|seconds",
    "PER HOUR": "pricePerHour|usd",
    "COST": "cost|usd",
}


@click.group(cls=CommandGroup)
def job() -> None:
    """Manage jobs."""


def field_options(command: Command, *, usual: bool = True) -> Command:
    """The options of the fields of a job, in the order of their table; with their usual values or
    without."""
    for field in reversed(JOB_FIELDS):
        kind = (
            click.IntRange(*field.limits)
            if field.limits and field.is_ranged
            else _TYPES[field.kind]
        )
        command = click.option(
            *filter(None, (field.short, field.option)),
            _parameter(field),
            type=click.Choice(field.choices) if field.choices else kind,
            is_flag=field.kind is FieldKind.SWITCH,
            multiple=field.kind is FieldKind.ARGUMENTS,
            default=field.usual
            if usual and field.kind is FieldKind.TEXT and field.read is None
            else None,
            show_default=usual,
            metavar=field.metavar,
            shell_complete=FIELD_NAMES.get(field.path),
            help=field.help,
        )(command)
    return command


def _parameter(field: JobField) -> str:
    return field.path.replace(".", "_")


def variable_options(command: Command) -> Command:
    for option, name, text in (
        ("--secret", "secrets", "Variable whose value is not shown; may be repeated."),
        ("--env", "env", "Variable of the program; may be repeated."),
    ):
        command = click.option(option, name, multiple=True, metavar="NAME=VALUE", help=text)(
            command
        )
    return command


class WithArguments(click.Command):
    """A command whose words behind "--" are a program's."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, dashes, rest = args, "--" in args, []
        if dashes:
            own, rest = args[: args.index("--")], args[args.index("--") + 1 :]
        ctx.meta[_PROGRAM_ARGUMENTS] = rest
        return super().parse_args(ctx, own)


@job.command(cls=WithArguments)
@click.argument("job_id", required=False)
@target_options
@field_options
@variable_options
@click.option(
    "-f", "--file", metavar="FILE", help="Job file (YAML), in the format of SkyPilot's tasks."
)
@click.option(
    "--stablehlo",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="StableHLO module of a step, as text, for --execution simulated.",
)
@click.option(
    "--region", help="Create the node in any zone of this region that has its type and capacity."
)
@_DRY_RUN
@_WAIT
@output_option
def submit(
    job_id: str | None,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
    **flags: Any,
) -> int:
    """Submit a job. Arguments after -- are passed to the program."""
    client = client_of(data, project, location)
    if flags["file"]:
        if flags["dry_run"]:
            raise click.UsageError("--dry-run cannot be combined with --file")
        return _launch(client, flags["file"], job_id, location, given_fields(flags), flags, output)
    move_for_job(client, flags, location)
    body = new_job(client, flags)
    if flags["stablehlo"]:
        body["stablehlo"] = flags["stablehlo"].read()
    if flags["region"]:
        if location is not None or "acceleratorType" not in body:
            text = "--region requires --accelerator-type, and cannot be combined with --zone"
            raise click.UsageError(text)
        others = move_to_region(client, body["acceleratorType"], flags["region"])
        body["fallbacks"] = [*({"location": zone} for zone in others), *body.get("fallbacks", ())]
    return _submit(client, job_id, body, flags, output)


@job.command(cls=WithArguments)
@click.argument("file")
@target_options
@click.option("--name", metavar="JOB", help="Id of the job (default: the name in the file).")
@click.option(
    "--node",
    metavar="NODE",
    shell_complete=complete_node,
    help="Node to run on, instead of one that is made for the job.",
)
@variable_options
@_WAIT
@output_option
def launch(
    file: str,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
    **flags: Any,
) -> int:
    """Submit the job of a YAML file, as sky launch does."""
    changes = {} if flags["node"] is None else {"node": flags["node"]}
    return _launch(
        client_of(data, project, location), file, flags["name"], location, changes, flags, output
    )


def _launch(
    client: Client,
    file: str,
    job_id: str | None,
    location: str | None,
    changes: dict[str, Any],
    flags: Mapping[str, Any],
    output: str,
) -> int:
    from podyard.cli.jobs.launch import launch as launch_file

    more = _more_of_run(flags, click.get_current_context().meta[_PROGRAM_ARGUMENTS])
    if "args" in more:
        raise click.UsageError("a job file has its arguments in run: remove what follows --")
    found = launch_file(
        client, file, job_id, location, changes, more.get("env", {}), more.get("secrets", {})
    )
    if flags["wait_for_end"]:
        found = wait_for_job(client, found["name"], None)
    _print(found, output)
    return 0 if found["state"] not in ("FAILED", "CANCELLED") else 1


@job.command()
@click.argument("job_id", shell_complete=complete_job)
@click.argument("new_id", required=False)
@target_options
@partial(field_options, usual=False)
@_DRY_RUN
@_WAIT
@output_option
def clone(
    job_id: str,
    new_id: str | None,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
    **flags: Any,
) -> int:
    """Submit a copy of a job, with changes: what an option does not name is as in JOB_ID.

    --zone is the zone of the copy (default: that of the job).
    """
    client = client_of(data, project, location)
    source = client.call("GET", job_path(client, None, job_id))["name"]
    zone = location or source.split("/")[3]
    body = {**_upload(client, given_fields(flags)), "cloneOf": source}
    return _submit(client_of(data, project, zone), new_id, body, flags, output)


def new_job(client: Client, flags: dict[str, Any]) -> dict[str, Any]:
    """The body of POST .../jobs that the options ask for, its source uploaded."""
    body = given_fields(flags)
    if more := _more_of_run(flags, click.get_current_context().meta[_PROGRAM_ARGUMENTS]):
        body.setdefault("run", {}).update(more)
    if "elastic" in body and "minReplicas" not in body["elastic"]:
        raise click.UsageError("--elastic-batch and --elastic-learning-rate require --elastic")
    return _upload(client, body)


def _upload(client: Client, body: dict[str, Any]) -> dict[str, Any]:
    if "source" in body.get("run", {}):
        from podyard.cli.jobs.source import upload

        body["run"]["source"] = upload(client, body["run"]["source"])
    return body


def given_fields(flags: dict[str, Any]) -> dict[str, Any]:
    """The fields of a job that the options give, as the API takes them."""
    given = [(field, _value(field, flags[_parameter(field)])) for field in JOB_FIELDS]
    return job_body((field, value) for field, value in given if value is not None)


def _submit(
    client: Client, job_id: str | None, body: dict[str, Any], flags: Mapping[str, Any], output: str
) -> int:
    path = f"{client.own_path()}/jobs"
    if flags["dry_run"]:
        found = client.call("POST", path, {**body, "validateOnly": True}, jobId=job_id)
        emit(_estimate_row(found) if output == "table" else found, output, _ESTIMATE_COLUMNS)
        say(found["estimate"]["note"])
        return 0
    found = client.call("POST", path, body, jobId=job_id)
    if flags["wait_for_end"]:
        found = wait_for_job(client, found["name"], None)
    _print(found, output)
    return 0 if found["state"] not in ("FAILED", "CANCELLED") else 1


def _estimate_row(found: dict[str, Any]) -> dict[str, Any]:
    return {**found["estimate"], "type": found["acceleratorType"], "steps": found["steps"]}


def _more_of_run(flags: Mapping[str, Any], args: Sequence[str]) -> dict[str, Any]:
    """Return what a program gets that no field of the table says."""
    found: dict[str, Any] = {"args": list(args)} if args else {}
    for name, option in (("env", "--env"), ("secrets", "--secret")):
        if flags[name]:
            wrong = next((item for item in flags[name] if "=" not in item), None)
            if wrong is not None:
                raise click.UsageError(f"{option}: {wrong!r} is not NAME=VALUE")
            found[name] = dict(item.split("=", 1) for item in flags[name])
    return found


def _value(field: JobField, given: Any) -> Any:
    """Return what an option was given, as the API takes it; None: nothing."""
    if field.kind is FieldKind.SWITCH:
        return given or None
    if field.kind is FieldKind.LABELS:
        return pairs(given, field.option) or None
    if field.kind is FieldKind.ARGUMENTS:
        named = (pairs(pair, field.option) for pair in given)
        return {name: value_of(value) for pair in named for name, value in pair.items()} or None
    if field.read is None:
        return given
    try:
        return field.read(given) if given else None
    except ValueError:
        raise click.UsageError(
            f"{field.option}: {given!r} is not a valid {field.metavar}. {field.help}"
        ) from None


@job.command(name="list")
@target_options
@lists(_COLUMNS, wide=_WIDE, row=lambda found: _row(found))
def list_jobs(data: str | None, project: str | None, location: str | None) -> Iterable[Item]:
    """List jobs in all zones, newest first. --zone selects one zone."""
    client = client_of(data, project, location)
    return client.pages(f"{client.own_path(location or ANY_ZONE)}/jobs", "jobs")


@job.command()
@click.argument("job_id", shell_complete=complete_job)
@target_options
@output_option
def describe(
    job_id: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Show a job."""
    client = client_of(data, project, location)
    found = client.call("GET", job_path(client, location, job_id))
    emit_job(found, output)


@job.command()
@click.argument("job_id", shell_complete=complete_job)
@target_options
@output_option
def cancel(
    job_id: str, data: str | None, project: str | None, location: str | None, output: str
) -> None:
    """Cancel a job."""
    client = client_of(data, project, location)
    _print(client.call("POST", f"{job_path(client, location, job_id)}:cancel", {}), output)


@job.command()
@click.argument("job_id", shell_complete=complete_job)
@click.option("--accelerator-type", metavar="TYPE", help="Type that the job continues on.")
@click.option("--replicas", metavar="N|max", help="Maximum number of processes of an elastic job.")
@target_options
@output_option
def resize(
    job_id: str,
    accelerator_type: str | None,
    replicas: str | None,
    data: str | None,
    project: str | None,
    location: str | None,
    output: str,
) -> None:
    """Continue a job on another type, or with another number of processes."""
    if (replicas is None) == (accelerator_type is None):
        raise click.UsageError("set either --accelerator-type or --replicas")
    if replicas not in (None, "max") and not replicas.isdecimal():
        raise click.BadParameter(f"{replicas!r}: use a number or max", param_hint="--replicas")
    count = int(replicas) if replicas and replicas != "max" else replicas
    body = {"replicas": count} if replicas else {"acceleratorType": accelerator_type}
    client = client_of(data, project, location)
    _print(client.call("POST", f"{job_path(client, location, job_id)}:resize", body), output)


@job.command()
@click.argument("job_id", shell_complete=complete_job)
@target_options
@click.option("--timeout", type=float, help="Seconds to wait at most. The job keeps running.")
@output_option
def wait(
    job_id: str,
    data: str | None,
    project: str | None,
    location: str | None,
    timeout: float | None,
    output: str,
) -> int:
    """Wait until a job ends. Exit code 1 unless it succeeded."""
    client = client_of(data, project, location)
    name = f"projects/{client.target.project}/locations/{location or ANY_ZONE}/jobs/{job_id}"
    found = wait_for_job(client, name, timeout)
    _print(found, output)
    return 0 if found["state"] == "SUCCEEDED" else 1


@job.command()
@click.argument("job_id", shell_complete=complete_job)
@target_options
@lists({"STEP": "step", "ATTEMPT": "attempt", "METRICS": "metrics"})
def evaluations(
    job_id: str, data: str | None, project: str | None, location: str | None
) -> Iterable[Item]:
    """List a job's evaluations."""
    client = client_of(data, project, location)
    found: list[Item] = client.call("GET", f"{job_path(client, location, job_id)}:evaluations")[
        "evaluations"
    ]
    return found


def _row(found: dict[str, Any]) -> dict[str, Any]:
    parts = found["name"].split("/")
    return {
        **found,
        "recipe": found.get("recipe") or found.get("program") or title_of(found["run"]),
        "id": parts[-1],
        "zone": parts[3],
        "progress": steps_text(found),
    }


def title_of(run: Mapping[str, Any]) -> str:
    """Return what a job runs, in a few words."""
    lines = str(run.get("command", "")).strip().splitlines()
    if lines:
        return lines[0][:60]
    return f"-m {run['module']}" if "module" in run else str(run.get("entry", ""))


def _print(found: dict[str, Any], output: str) -> None:
    emit(_row(found) if output == "table" else found, output, _COLUMNS)


for _command in (logs, stacks, *job_artifacts.COMMANDS):
    job.add_command(_command)

COMMANDS = {"job": job}
