"""Jobs from a YAML file, as `sky launch` takes them (`domain/job_file.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from podyard.base.errors import Code, PodyardError
from podyard.cli.jobs.source import upload
from podyard.cli.kit.client import Client
from podyard.cli.kit.output import say
from podyard.cli.kit.zones.offers import zones_with
from podyard.domain.job_file import JobFile, read_job_file

# What another zone or another type may not say.
_TRY_NEXT = frozenset(
    {Code.RESOURCE_EXHAUSTED, Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION}
)


def launch(
    client: Client,
    path: str,
    job_id: str | None,
    location: str | None,
    changes: Mapping[str, Any],
    env: Mapping[str, str],
    secrets: Mapping[str, str],
) -> dict[str, Any]:
    """Submits the job of a file; returns it. `changes`: fields of the body that the command line
    gives, before those
    of the file. `location`: the zone that the command line names."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PodyardError(Code.INVALID_ARGUMENT, f"{path} cannot be read: {error}") from None
    file = read_job_file(text, path, env, secrets)
    for note in file.notes:
        say(f"{path}: {note}")
    body = {**file.body, **changes}
    body["run"] = {**file.body["run"], **changes.get("run", {}), **_files(client, file)}
    name = job_id or file.name or None
    refused: PodyardError | None = None
    for zone, target in _targets(client, file, location, changes):
        try:
            return client.call(
                "POST", f"{client.own_path(zone)}/jobs", {**body, **target}, jobId=name
            )
        except PodyardError as error:
            if error.code not in _TRY_NEXT:
                raise
            refused = error
            say(f"{zone}: {error.message}")
    assert refused is not None, "_targets gives one at least"
    raise refused


def _files(client: Client, file: JobFile) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if file.workdir:
        found["source"] = upload(client, file.workdir)
    mounts = {}
    for target, source in file.mounts.items():
        is_folder = not source.startswith("gs://") and Path(source).expanduser().is_dir()
        mounts[f"{target.rstrip('/')}/" if is_folder else target] = upload(client, source)
    return found | ({"files": mounts} if mounts else {})


def _targets(
    client: Client, file: JobFile, location: str | None, changes: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(zone, the node to run on or to make), in the order in which they are tried."""
    if "node" in changes:
        yield location or file.places[0].zone or client.target.location, {}
        return
    for place in file.places:
        target: dict[str, Any] = {
            "acceleratorType": place.accelerator_type,
            "runtimeVersion": place.runtime_version,
        }
        if place.is_spot:
            target["schedulingConfig"] = {"spot": True}
        named = location or place.zone
        try:
            zones = [named] if named else zones_with(client, place.accelerator_type, place.region)
        except PodyardError as error:
            if error.code not in _TRY_NEXT or place is file.places[-1]:
                raise
            say(error.message)
            continue
        for zone in zones:
            yield zone, target
