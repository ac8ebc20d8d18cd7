"""`podyard tensorboard`: TensorBoard on the event files of jobs."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.base.interpreter import python_command
from podyard.cli.jobs.logs import job_path
from podyard.cli.kit.client import Client
from podyard.cli.kit.names import complete_job
from podyard.cli.kit.options import client_of, target_options
from podyard.cli.kit.output import say

FOLDER = "events/"  # before the names of event files among the artifacts of a job
REFRESH_SECONDS = 5.0  # TensorBoard looks for news as often


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_job)
@target_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=6006,
    show_default=True,
    help="Port of TensorBoard.",
)
@click.option(
    "--logdir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the event files (default: a temporary one).",
)
@click.option(
    "--download-only", is_flag=True, help="Write the event files to --logdir, and start nothing."
)
def tensorboard(
    jobs: tuple[str, ...],
    data: str | None,
    project: str | None,
    location: str | None,
    port: int,
    logdir: Path | None,
    download_only: bool,
) -> int:
    """Start TensorBoard on the curves of jobs, which follow running jobs.

    Recipes write event files themselves; of your own programs, those in the job's output are shown.
    """
    if download_only and logdir is None:
        raise click.UsageError("--download-only requires --logdir")
    client = client_of(data, project, location)
    with _folder(logdir) as folder:
        sizes: dict[Path, int] = {}
        if not _download(client, location, jobs, folder, sizes):
            raise PodyardError(
                Code.NOT_FOUND, f"{' and '.join(jobs)} {_have(jobs)} no event files yet"
            )
        if download_only:
            return 0
        command = [*_command(), "--logdir", str(folder), "--port", str(port)]
        process = subprocess.Popen(command)
        try:
            while True:
                try:
                    return process.wait(REFRESH_SECONDS)
                except subprocess.TimeoutExpired:
                    _download(client, location, jobs, folder, sizes)
        finally:
            process.terminate()
            process.wait()


def _have(jobs: Sequence[str]) -> str:
    return "has" if len(jobs) == 1 else "have"


@contextlib.contextmanager
def _folder(logdir: Path | None) -> Iterator[Path]:
    if logdir is not None:
        logdir.mkdir(parents=True, exist_ok=True)
        yield logdir
        return
    with tempfile.TemporaryDirectory(prefix="podyard-tensorboard-") as found:
        yield Path(found)


def _command() -> list[str]:
    """Raises FAILED_PRECONDITION where TensorBoard is not installed."""
    program = shutil.which("tensorboard")
    if program is not None:
        return [program]
    if importlib.util.find_spec("tensorboard") is not None:
        return python_command("-m", "tensorboard.main")
    raise failed_precondition(
        "TensorBoard is not installed: pip install tensorboard, or use --download-only --logdir DIR"
    )


def _download(
    client: Client, location: str | None, jobs: Sequence[str], folder: Path, sizes: dict[Path, int]
) -> bool:
    """Brings what is new; False if there is nothing at all."""
    for job in jobs:
        path = job_path(client, location, job)
        for item in client.call("GET", f"{path}:artifacts")["artifacts"]:
            name = item["name"]
            if not name.startswith(FOLDER):
                continue
            target = folder / job / name.removeprefix(FOLDER)
            if not target.resolve().is_relative_to(folder.resolve()):
                raise PodyardError(
                    Code.DATA_LOSS,
                    f"the server names a file {name!r}, which is outside of the folder",
                )
            if sizes.get(target) == item["bytes"]:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            # In place: TensorBoard goes on reading where it stands.
            target.write_bytes(client.content(f"{path}:artifact", name=name))
            if target not in sizes:
                say(str(target))
            sizes[target] = item["bytes"]
    return bool(sizes)


COMMANDS = {"tensorboard": tensorboard}
