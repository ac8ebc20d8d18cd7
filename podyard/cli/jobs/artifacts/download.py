"""`podyard job artifacts` and `podyard job download`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from podyard.base.errors import Code, PodyardError
from podyard.cli.jobs.logs import job_path
from podyard.cli.kit.client import Client
from podyard.cli.kit.listing import Item, lists
from podyard.cli.kit.names import complete_job
from podyard.cli.kit.options import client_of, target_options
from podyard.cli.kit.output import say

output_dir_option = click.option(
    "-o",
    "--output-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder to write to.",
)


@click.command()
@click.argument("job_id", shell_complete=complete_job)
@target_options
@lists({"NAME": "name", "SIZE": "bytes|bytes"})
def artifacts(
    job_id: str, data: str | None, project: str | None, location: str | None
) -> Iterable[Item]:
    """List a job's artifacts: exports and predictions."""
    client = client_of(data, project, location)
    return artifacts_of(client, location, job_id)


@click.command()
@click.argument("job_id", shell_complete=complete_job)
@click.argument("names", nargs=-1)
@target_options
@output_dir_option
@click.option("--checkpoints", is_flag=True, help="The checkpoints, too.")
def download(
    job_id: str,
    names: tuple[str, ...],
    checkpoints: bool,
    data: str | None,
    project: str | None,
    location: str | None,
    output_dir: Path,
) -> None:
    """Download all artifacts of a job, or only the given ones."""
    client = client_of(data, project, location)
    known = artifact_names(client, location, job_id, checkpoints=checkpoints or bool(names))
    unknown = sorted(set(names) - set(known))
    if unknown or not known:
        what = f"no artifact {unknown[0]!r}" if unknown else "no artifacts"
        raise PodyardError(
            Code.NOT_FOUND, f"job {job_id} has {what}; `podyard job artifacts` lists them"
        )
    save(client, job_path(client, location, job_id), names or known, output_dir)


def save(
    client: Client, job: str, names: Sequence[str], output_dir: Path, prefix: str = ""
) -> None:
    """Write artifacts of the job at the path `job` into a folder, without the `prefix` of their
    names."""
    for name in names:
        target = output_dir / name.removeprefix(prefix)
        if not target.resolve().is_relative_to(output_dir.resolve()):
            raise PodyardError(
                Code.DATA_LOSS,
                f"the server names an artifact {name!r}, which is outside of the output folder",
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(client.content(f"{job}:artifact", name=name))
        say(str(target))


def artifacts_of(
    client: Client, location: str | None, job_id: str, *, checkpoints: bool = False
) -> list[dict[str, Any]]:
    asked = {"checkpoints": "true"} if checkpoints else {}
    path = f"{job_path(client, location, job_id)}:artifacts"
    found: list[dict[str, Any]] = client.call("GET", path, **asked)["artifacts"]
    return found


def artifact_names(
    client: Client, location: str | None, job_id: str, *, checkpoints: bool = False
) -> list[str]:
    every = artifacts_of(client, location, job_id, checkpoints=checkpoints)
    return [item["name"] for item in every]
