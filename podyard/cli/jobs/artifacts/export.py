"""`podyard job export`: a trained model as files that JAX, TensorFlow and XLA load."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from podyard.base.errors import Code, PodyardError
from podyard.cli.jobs.artifacts.download import artifact_names, output_dir_option, save
from podyard.cli.jobs.logs import job_path
from podyard.cli.jobs.progress import wait_for_job
from podyard.cli.kit.client import Client
from podyard.cli.kit.names import complete_job
from podyard.cli.kit.options import client_of, target_options
from podyard.cli.kit.output import say
from podyard.domain.job import export_request
from podyard.domain.job_fields import JOB_FIELDS, job_body

_PREFIX = "export/"
_FOLDER = "saved_model"


@click.command()
@click.argument("job_id", shell_complete=complete_job)
@target_options
@output_dir_option
@click.option("--step", type=int, help="Step of the checkpoint to export (default: the newest).")
def export(
    job_id: str,
    data: str | None,
    project: str | None,
    location: str | None,
    output_dir: Path,
    step: int | None,
) -> None:
    """Export the model of a recipe's job: StableHLO for cpu, cuda and tpu, and a SavedModel.

    A job that has no export starts a second job, which makes it from a checkpoint.
    """
    client = client_of(data, project, location)
    job = ExportedJob.of(client.call("GET", job_path(client, location, job_id)))
    if step is not None or not _files(client, job):
        job = _start(client, job, step)
    path = job_path(client, job.zone, job.job_id)
    save(client, path, _files(client, job), output_dir, _PREFIX)
    if importlib.util.find_spec("jax") is None:
        say("no SavedModel was written: it needs pip install 'podyard[engine]'")
        return
    say(str(_write_saved_model(output_dir)))


@dataclasses.dataclass(frozen=True, slots=True)
class ExportedJob:
    """A job as the API describes it. `reason`: why it is in its state."""

    zone: str
    job_id: str
    state: str
    accelerator_type: str
    reason: str

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> ExportedJob:
        match answer:
            case {"name": str(name), "state": str(state), "acceleratorType": str(kind), **others}:
                _, _, _, zone, _, job_id = name.split("/")
                error = others.get("error") or {}
                reason = error.get("message") or others.get("stateReason") or state
                return cls(zone, job_id, state, kind, str(reason))
        raise PodyardError(Code.DATA_LOSS, f"the server describes a job as {answer!r}"[:200])


def _files(client: Client, job: ExportedJob) -> list[str]:
    names = artifact_names(client, job.zone, job.job_id)
    return [name for name in names if name.startswith(_PREFIX)]


def _start(client: Client, source: ExportedJob, step: int | None) -> ExportedJob:
    """Return a job that has exported the model of another one."""
    request = export_request(source.job_id, step)
    values = ((field, field.value_of(request)) for field in JOB_FIELDS if field.form)
    body = job_body(
        (field, value) for field, value in values if value not in (None, {}, field.usual_of(None))
    )
    body |= {"acceleratorType": source.accelerator_type}
    say(f"job {source.job_id} has no such export: another job makes it")
    answer = client.call("POST", f"{client.own_path(source.zone)}/jobs", body)
    name = f"projects/{client.target.project}/locations/{source.zone}/jobs/"
    job = ExportedJob.of(wait_for_job(client, name + ExportedJob.of(answer).job_id, None))
    if job.state != "SUCCEEDED":
        raise click.ClickException(f"the model was not exported: {job.reason}")
    return job


def _write_saved_model(folder: Path) -> Path:
    from podyard.engine.training import xla

    xla.prepare_environment()
    # Only now, in the environment that JAX needs.
    from podyard.engine.exported import read_files
    from podyard.engine.saved_model import FILE, saved_model_of

    target = folder / _FOLDER / FILE
    try:
        content = saved_model_of(read_files(folder))
    except PodyardError as error:
        raise click.ClickException(f"({error.code.name}) {error.message}") from error
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target
