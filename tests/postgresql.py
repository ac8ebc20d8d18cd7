"""A PostgreSQL server of the tests' own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import patient


def binaries() -> str | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if versions:
        return str(versions[-1].parent)
    on_path = shutil.which("initdb")
    return None if on_path is None else str(Path(on_path).resolve().parent)


@contextlib.contextmanager
def serve(programs: str) -> Iterator[str]:
    """The URL of a private server on a free port. `programs`: the folder of `binaries`."""
    # Not in pytest's folder: that is closed to other users again whenever another run of pytest
    # begins.
    with tempfile.TemporaryDirectory(
        prefix="podyard-postgresql-", ignore_cleanup_errors=True
    ) as folder:
        as_user: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            as_user = ["runuser", "-u", "postgres", "--"]
            shutil.chown(folder, "postgres")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        data = f"{folder}/data"
        init = [
            *as_user,
            f"{programs}/initdb",
            "-D",
            data,
            "-A",
            "trust",
            "-U",
            "podyard",
            "--no-sync",
        ]
        subprocess.run(init, check=True, capture_output=True, cwd=folder)
        serve = [
            f"{programs}/postgres",
            "-D",
            data,
            "-p",
            str(port),
            "-c",
            "listen_addresses=127.0.0.1",
        ]
        server = subprocess.Popen(
            [*as_user, *serve, "-k", folder, "-c", "fsync=off", "-c", "autovacuum=off"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        ready = [f"{programs}/pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        deadline = time.monotonic() + patient(30)
        while subprocess.run(ready, capture_output=True).returncode != 0:
            assert time.monotonic() < deadline, "PostgreSQL does not start"
            time.sleep(0.05)
        yield f"postgresql://podyard@127.0.0.1:{port}"
        server.terminate()
        server.wait(20)
