"""The event files that a user's program has written to its output."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from podyard.base import event_files
from podyard.base.contents import Contents
from podyard.base.errors import Code, PodyardError
from podyard.control.storage import objects
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.job import Job
from podyard.domain.principal import Principal
from podyard.domain.stored import StoredObject
from podyard.domain.user_program import gs_parts

FILES_MAX = 32  # of one job
FILE_BYTES_MAX = 2 << 20  # that is drawn: reading it takes a fifth of a second, once
FILES_KEPT = 64
FOLDER = "events/"  # before their names among what a job has made


def event_objects(uow: UnitOfWork, principal: Principal, job: Job) -> dict[str, StoredObject]:
    """By their path below the output; none for who may not see it."""
    if job.spec.run is None or not job.spec.run.output:
        return {}
    bucket, prefix = gs_parts(f"{job.spec.run.output.rstrip('/')}/", "output")
    try:
        found = objects.list_objects(
            uow,
            principal,
            bucket,
            FILES_MAX,
            prefix=prefix,
            is_wanted=lambda name: event_files.MARK in name,
        )
    except PodyardError as error:
        if error.code not in (Code.NOT_FOUND, Code.PERMISSION_DENIED):
            raise
        return {}
    return {item.name.removeprefix(prefix): item for item in found.objects}


def event_curves(
    uow: UnitOfWork, principal: Principal, job: Job, contents: Contents
) -> tuple[dict[str, dict[int, float]], int]:
    """(values by step of each curve, how many files are too large to be drawn). A curve is named by
    its folder below
    the output, if there are several, and its tag."""
    found: dict[str, dict[int, float]] = {}
    too_large = 0
    files = event_objects(uow, principal, job)
    several = len({path.rpartition("/")[0] for path in files}) > 1
    for path, stored in files.items():
        if stored.size > FILE_BYTES_MAX:
            too_large += 1
            continue
        folder = path.rpartition("/")[0]
        for scalar in _read(contents.path(stored.digest)):
            name = f"{folder}/{scalar.tag}" if several and folder else scalar.tag
            found.setdefault(name, {})[scalar.step] = scalar.value
    return found, too_large


@lru_cache(maxsize=FILES_KEPT)
def _read(path: Path) -> tuple[event_files.Scalar, ...]:
    """A content never changes."""
    try:
        return tuple(event_files.scalars(path.read_bytes()))
    except OSError:
        return ()
