"""`podyard job logs` and `podyard job stacks`: what a job's processes write, and what they are
doing."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from podyard.base.clock import OsClock
from podyard.cli.kit.client import Client
from podyard.cli.kit.names import complete_job
from podyard.cli.kit.options import client_of, target_options
from podyard.domain.log import STREAMS

ANY_ZONE = "-"  # of a job whose zone is not named: the API finds it
FINAL_STATES = ("SUCCEEDED", "FAILED", "CANCELLED")
FOLLOW_SECONDS = 0.4
LINES_AT_ONCE = 1000
STACKS_SECONDS_MAX, STACKS_QUIET_SECONDS = 10.0, 1.5  # replicas report twice a second


@click.command()
@click.argument("job_id", shell_complete=complete_job)
@target_options
@click.option("--worker", type=int, help="Only the lines of this replica.")
@click.option("--attempt", type=int, help="Only the lines of this attempt.")
@click.option("--grep", "search", metavar="TEXT", help="Only lines with this text, in any case.")
@click.option("--stream", type=click.Choice(list(STREAMS)), help="Only the lines of this stream.")
@click.option("--since", metavar="TIME", help="Start at this platform time (RFC 3339).")
@click.option("--first-error", is_flag=True, help="Start a few lines before the first error.")
@click.option(
    "--tail",
    type=click.IntRange(1, LINES_AT_ONCE),
    metavar="LINES",
    help="Start with the last lines.",
)
@click.option("--follow", "-f", is_flag=True, help="Follow the log until the job ends.")
def logs(  # noqa: PLR0913
    job_id: str,
    data: str | None,
    project: str | None,
    location: str | None,
    since: str | None,
    first_error: bool,
    tail: int | None,
    follow: bool,
    **chosen: int | str | None,
) -> None:
    """Print a job's log lines: their time, [attempt.worker], the slice if there are several, and
    the stream unless it
    is stdout."""
    if sum((since is not None, first_error, tail is not None)) > 1:
        raise click.UsageError("specify at most one of --since, --first-error and --tail")
    client, clock = client_of(data, project, location), OsClock()
    path = job_path(client, location, job_id)
    starts = {"time": since, "error": first_error or None, "end": tail}
    where: dict[str, Any] = {
        "from": next((name for name, given in starts.items() if given), None),
        "time": since,
    }
    size = tail or LINES_AT_ONCE
    token: str | None = None
    is_over, has_more = False, False
    while True:
        if not has_more:
            is_over = client.call("GET", path)["state"] in FINAL_STATES
        page = client.call("GET", f"{path}:logs", pageToken=token, pageSize=size, **where, **chosen)
        where, size = {}, LINES_AT_ONCE
        click.echo("".join(map(_log_line, page["lines"])), nl=False)
        token, has_more = page["nextPageToken"], page["more"]
        if not page["lines"] and not has_more:
            if is_over or not follow:
                return
            clock.sleep(FOLLOW_SECONDS)


def _log_line(line: dict[str, Any]) -> str:
    stream = "" if line["stream"] == "stdout" else f" {line['stream']}"
    of_slice = f" slice {line['slice']}" if "slice" in line else ""
    return f"{line['time']} [{line['attempt']}.{line['worker']}{of_slice}{stream}] {line['line']}\n"


@click.command()
@click.argument("job_id", shell_complete=complete_job)
@target_options
@click.option("--worker", type=int, help="Only the stacks of this replica.")
def stacks(
    job_id: str, data: str | None, project: str | None, location: str | None, worker: int | None
) -> None:
    """Print what the processes of a running job are doing: the stack of each thread."""
    client, clock = client_of(data, project, location), OsClock()
    path = job_path(client, location, job_id)
    token = client.call("POST", f"{path}:stacks", {})["nextPageToken"]
    began = heard = clock.monotonic_seconds()
    has_heard = False
    while True:
        page = client.call("GET", f"{path}:logs", pageToken=token, worker=worker)
        token = page["nextPageToken"]
        lines = [line for line in page["lines"] if line["stream"] != "stdout"]
        now = clock.monotonic_seconds()
        if lines:
            has_heard, heard = True, now
            click.echo("".join(map(_log_line, lines)), nl=False)
        if now - began > STACKS_SECONDS_MAX or (has_heard and now - heard > STACKS_QUIET_SECONDS):
            return
        clock.sleep(FOLLOW_SECONDS)


def job_path(client: Client, location: str | None, job_id: str) -> str:
    return f"{client.own_path(location or ANY_ZONE)}/jobs/{quote(job_id)}"
