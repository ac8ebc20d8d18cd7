"""Folders of the platform that a machine has a copy of: data sets and programs, fetched by digest,
once per machine."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.base.files import read_json, write_atomically
from podyard.workers.kit.http_store import HttpStore

_MANIFESTS = ".fetched"
_LOOK_SECONDS = 0.1
DISK_LEFT_BYTES_MIN = 64 << 20


def bring(
    store: HttpStore,
    root: Path,
    name: str,
    clock: RealClock,
    tell: Callable[[str], None],
    stopping: Callable[[], bool],
) -> None:
    """Makes `root`/`name` hold what `store` has. Replicas of one machine fetch it once: the others
    wait.

    `name` may be ".": the root itself. Raises FAILED_PRECONDITION for no room, ABORTED when it is
    to stop.
    """
    folder = root / name
    if not folder.resolve().is_relative_to(root.resolve()):
        raise invalid(f"{name!r} is not a folder below the data sets", "data")
    key = name.replace("%", "%25").replace("/", "%2F")
    (root / _MANIFESTS).mkdir(parents=True, exist_ok=True, mode=0o700)
    manifest = root / _MANIFESTS / f"{key}.json"
    with _lock(manifest.with_suffix(".lock"), clock, stopping):
        wanted = {file: (size, store.digest(file)) for file, size in store.sizes("").items()}
        there = read_json(manifest)
        missing = {
            file: size
            for file, (size, digest) in wanted.items()
            if there.get(file) != digest
            or not (folder / file).is_file()
            or (folder / file).stat().st_size != size
        }
        if missing:
            _check_room(root, sum(missing.values()), name)
            tell(
                f"fetching {name}: {len(missing)} files, "
                f"{sum(missing.values()) / (1 << 20):.1f} MiB"
            )
        for file in missing:
            if stopping():
                raise PodyardError(
                    Code.ABORTED, "the replica was asked to stop while it fetched its data"
                )
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            store.fetch(file, path)
            there[file] = wanted[file][1]
            write_atomically(manifest, json.dumps(there).encode())
        for file in set(there) - set(wanted):
            (folder / file).unlink(missing_ok=True)
        write_atomically(
            manifest, json.dumps({file: digest for file, (_, digest) in wanted.items()}).encode()
        )


def _check_room(root: Path, size: int, name: str) -> None:
    free = shutil.disk_usage(root).free
    if free < size + DISK_LEFT_BYTES_MIN:
        raise failed_precondition(
            f"this machine's disk has {free >> 20} MiB left, and {name} takes {size >> 20} "
            "MiB: free some"
        )


@contextlib.contextmanager
def _lock(path: Path, clock: RealClock, stopping: Callable[[], bool]) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if stopping():
                raise PodyardError(
                    Code.ABORTED, "the replica was asked to stop while it waited for its data"
                )
            clock.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(descriptor)
