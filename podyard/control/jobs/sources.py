"""Files and programs that users bring with a job: found in the storage, looked at, and pinned by
digest.

In three steps, since what is large is read outside of any unit of work: `find` (a unit that reads),
`look` (no unit), and `pin` (in the unit that creates the job).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import posixpath
import tomllib
from pathlib import Path

from podyard.base import archives
from podyard.base.archives import ArchiveError
from podyard.base.contents import Content, Contents
from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.access import identity
from podyard.control.compute import hosts
from podyard.control.storage import buckets, objects
from podyard.db.jobs import files as job_files
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.stored import StoredObject
from podyard.domain.user_program import (
    MOUNTS_MAX,
    PROJECT,
    REQUIREMENTS,
    SEPARATOR,
    ProgramFile,
    UserProgram,
    choose_entry,
    depends_on_source,
    gs_parts,
)

SOURCE_BYTES_MAX = 512 << 20  # packed; data belongs into a bucket, from where the program reads it
FOLDER = "sources"  # of what is sent with a job, in the bucket for jobs


def check_upload(principal: Principal, project: str, name: str) -> None:
    """Raises PERMISSION_DENIED, and INVALID_ARGUMENT for what is not the name of a file."""
    for permission in ("podyard.jobs.create", hosts.USE):
        principal.require(permission, project, f"projects/{project}/locations/-/jobs")
    if name != posixpath.basename(name) or not name.isprintable() or not 0 < len(name) <= 200:
        raise invalid(f"name is {name[:200]!r}: it must be the name of a file", "name")


def keep(uow: UnitOfWork, principal: Principal, project: str, name: str, content: Content) -> str:
    """Makes an object of what was sent for a job that will be submitted; returns its gs:// name.
    Equal contents are
    one object."""
    identity.project_row(uow, project)
    bucket = buckets.of_jobs(uow, project).name
    path = f"{FOLDER}/{content.digest[:16]}/{name}"
    objects.put(uow, dataclasses.replace(PLATFORM, email=principal.email), bucket, path, content)
    return f"gs://{bucket}/{path}"


def find(uow: UnitOfWork, principal: Principal, run: UserProgram) -> UserProgram:
    """The program with the digests of its files. A mount that ends in "/" stands for all objects
    below it."""
    source = run.source
    if source is not None:
        source = _pin(_store(uow, principal, source.uri, "run.source"), source)
        if source.bytes > SOURCE_BYTES_MAX:
            text = f"run.source has {source.bytes} bytes: at most {SOURCE_BYTES_MAX} are allowed"
            raise invalid(f"{text}; keep data in a bucket, and read it from there", "run.source")
    mounts: list[ProgramFile] = []
    for mount in run.mounts:
        if mount.uri.endswith("/"):
            mounts += _below(uow, principal, mount)
        else:
            mounts.append(_pin(_store(uow, principal, mount.uri, "run.files"), mount))
    if len(mounts) > MOUNTS_MAX:
        raise invalid(
            f"run.files stands for {len(mounts)} objects: at most {MOUNTS_MAX} are allowed",
            "run.files",
        )
    return dataclasses.replace(run, source=source, mounts=tuple(mounts))


def look(run: UserProgram, contents: Contents) -> UserProgram:
    """Return what `find` has found, with the file that is run and the packages that it needs.
    Raises INVALID_ARGUMENT for an archive that no host is to unpack."""
    for mount in run.mounts:
        if mount.is_unpacked:
            _check_archive(mount, contents)
    source = run.source
    if source is None:
        return run
    path = contents.path(source.digest)
    try:
        files = list(_files(path, source.name))
        is_wheel = source.name.endswith(".whl")
        folder = (
            ""
            if run.module and not is_wheel and _has_module(run.module, files)
            else archives.top_folder(files)
        )
        if is_wheel:
            packages, key = source.name, source.digest
        else:
            files = [name.removeprefix(f"{folder}/") if folder else name for name in files]
            packages, key = _packages(path, source, folder, files)
    except ArchiveError as error:
        raise invalid(f"run.source {source.uri}: {error}", "run.source") from None
    except FileNotFoundError:
        raise _change(source) from None
    if is_wheel and not run.module and not run.command:
        raise invalid("run.module is required for a wheel: name the module to start", "run.module")
    entry = "" if run.command or run.module else choose_entry(run, files)
    source = dataclasses.replace(source, folder="" if is_wheel else folder)
    return dataclasses.replace(run, source=source, entry=entry, packages=packages, packages_key=key)


@functools.lru_cache(256)
def _files(path: Path, name: str) -> tuple[str, ...]:
    """The files of an archive; the jobs of a sweep have the same one, and its contents never
    change."""
    return tuple(archives.list_files(path, name))


def _check_archive(mount: ProgramFile, contents: Contents) -> None:
    try:
        _files(contents.path(mount.digest), mount.name)
    except ArchiveError as error:
        raise invalid(f"run.files {mount.uri}: {error}", "run.files") from None


def pin(uow: UnitOfWork, principal: Principal, job_key: str, run: UserProgram) -> None:
    """Keeps the contents for as long as there is the job. Raises ABORTED if the source has changed
    since `find`."""
    if run.source is not None:
        now = _store(uow, principal, run.source.uri, "run.source")
        if now.digest != run.source.digest:
            raise _change(run.source)
    job_files.add(uow, job_key, sorted({file.digest for file in run.files}))


def _change(source: ProgramFile) -> PodyardError:
    return PodyardError(Code.ABORTED, f"{source.uri} has changed meanwhile: submit the job again")


def _store(uow: UnitOfWork, principal: Principal, uri: str, field: str) -> StoredObject:
    return objects.find(uow, principal, *gs_parts(uri, field))


def _below(uow: UnitOfWork, principal: Principal, mount: ProgramFile) -> list[ProgramFile]:
    bucket, prefix = gs_parts(f"{mount.uri}x", "run.files")
    prefix = prefix.removesuffix("x")
    page = objects.list_objects(uow, principal, bucket, MOUNTS_MAX + 1, prefix=prefix)
    found = [stored for stored in page.objects if not stored.name.endswith("/")]
    if not found:
        raise invalid(f"run.files: there are no objects below {mount.uri}", "run.files")
    made = []
    for stored in found:
        target = f"{mount.target.rstrip('/')}/{stored.name.removeprefix(prefix)}"
        made.append(_pin(stored, ProgramFile(uri=f"gs://{bucket}/{stored.name}", target=target)))
    return made


def _pin(stored: StoredObject, file: ProgramFile) -> ProgramFile:
    return dataclasses.replace(file, digest=stored.digest, bytes=stored.size)


def _has_module(module: str, files: list[str]) -> bool:
    path = module.replace(".", "/")
    return any(file in (f"{path}.py", f"{path}/__main__.py") for file in files)


def _packages(path: Path, source: ProgramFile, folder: str, files: list[str]) -> tuple[str, str]:
    """(what pip is given, and what it makes depends on: the text alone, where that says all)."""

    def read(name: str) -> str:
        own = f"{folder}/{name}" if folder else name
        return archives.read_file(path, source.name, own).decode(errors="replace")

    found, key = [], source.digest
    if REQUIREMENTS in files:
        found.append(REQUIREMENTS)
        text = read(REQUIREMENTS)
        if not depends_on_source(text) and not any(name.endswith(".whl") for name in files):
            key = hashlib.sha256(text.encode()).hexdigest()
    if PROJECT in files:
        try:
            project = tomllib.loads(read(PROJECT))
        except tomllib.TOMLDecodeError as error:
            raise ArchiveError(f"{PROJECT} is not TOML: {error}") from error
        if project.keys() & {"project", "build-system"}:
            found.append(PROJECT)
            key = source.digest
    return SEPARATOR.join(found), key
