"""PostgreSQL goes away in the middle of a job and comes back: clear answers meanwhile, and the job
is not to blame."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests import postgresql
from tests.conftest import require
from tests.stack import open_stack, until
from tests.waiting import patient

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]

ZONE = "us-central1-f"
LEASE_SECONDS = 4.0  # of replicas; 15 s as users have it would make the test three times as long
NODES = f"/v2/projects/demo/locations/{ZONE}/nodes"


class Server:
    """A PostgreSQL of this test alone, which it may stop."""

    def __init__(self, folder: Path) -> None:
        self._binaries = require(postgresql.binaries(), "PostgreSQL")
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as_user:
            shutil.chown(folder, "postgres")
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._run("initdb", "-A", "trust", "-U", "podyard", "--no-sync")

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder} -c fsync=off"
        self._run("pg_ctl", "start", "-w", "-o", options, "-l", str(self._folder / "log"))

    def stop(self) -> None:
        if (self._folder / "data" / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-w", "-m", "immediate")

    def _run(self, program: str, *arguments: str) -> None:
        command = [
            *self._as_user,
            f"{self._binaries}/{program}",
            "-D",
            f"{self._folder}/data",
            *arguments,
        ]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder, timeout=patient(60)
        )


@pytest.fixture
def server() -> Iterator[Server]:
    # Not in pytest's folder, which is closed to other users.
    with tempfile.TemporaryDirectory(
        prefix="podyard-outage-", ignore_cleanup_errors=True
    ) as folder:
        found = Server(Path(folder))
        found.start()
        yield found
        found.stop()


def test_an_outage_of_postgresql_is_answered_in_words_and_no_failure_of_the_job(
    server: Server, tmp_path: Path
) -> None:
    url = f"postgresql://podyard@127.0.0.1:{server.port}"
    with psycopg.connect(f"{url}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE stack")
    env = {
        "PODYARD_DATABASE_URL": f"{url}/stack",
        "PODYARD_REPLICA_LEASE_SECONDS": str(LEASE_SECONDS),
    }
    with open_stack(tmp_path / "data", env) as stack:
        stack.create_node("n1", "v2-8", ZONE)
        path = stack.submit(
            "job", ZONE, node="n1", steps=400, checkpointEverySteps=20, maxFailures=0
        )
        stack.wait_steps(path, 30)
        server.stop()
        spec = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
        for request in (
            ("GET", NODES),
            ("POST", f"{NODES}?nodeId=n2"),
            ("GET", "/podyard/v1/agents"),
        ):
            answer = stack.http.request(*request, json=spec if request[0] == "POST" else None)
            assert answer.status_code == 503, answer.text
            assert answer.json()["error"]["status"] == "UNAVAILABLE"
            assert int(answer.headers["Retry-After"]) >= 1
        until(
            lambda: True if not stack.replicas() else None,
            4 * LEASE_SECONDS,
            "the replicas give up",
        )
        time.sleep(1)
        server.start()
        job = stack.wait_job(path)
        assert (job["state"], job["failures"], job["preemptions"]) == ("SUCCEEDED", 0, 1), job
        events = stack.call("GET", "/podyard/v1/projects/demo/events")["events"]
        assert any("lost contact with the API for 4 s" in str(event) for event in events)
    log = (tmp_path / "data" / "podyard.log").read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 400 :][:3000]
