"""A control plane on PostgreSQL and Redis over TLS. The primary is killed, and a standby takes its
place: what was acknowledged stays, and what was under way can be asked for again."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests import postgresql
from tests.conftest import require
from tests.stack import Stack, open_stack, until
from tests.waiting import patient

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]

ZONE = "us-central1-f"
# that create without a pause: some are in the middle of a commit whenever the primary dies
CLIENTS = 8
RESOURCE_EXHAUSTED = 8  # google.rpc.Code
NODE = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}


class Pair:
    """A primary and its synchronous standby, which speak TLS only, and a Redis that does."""

    def __init__(self, folder: Path) -> None:
        self._binaries = require(postgresql.binaries(), "PostgreSQL")
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        self.folder = folder
        self.ports = _free_ports(3)
        self._redis: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._make_certificates()
        if self._as_user:
            for path in (self.folder, *self.folder.iterdir()):
                shutil.chown(path, "postgres")
        primary, standby = self.folder / "primary", self.folder / "standby"
        self._run("initdb", "-D", primary, "-A", "trust", "-U", "podyard", "--no-sync")
        (primary / "pg_hba.conf").write_text(
            "local all all trust\nhostssl all all 127.0.0.1/32 trust\nhostssl replication all "
            "127.0.0.1/32 trust\n"
        )
        self._start(primary, self.ports[0])
        with psycopg.connect(self.url(self.ports[0], "postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE stack")
        self._run(
            "pg_basebackup",
            "-D",
            standby,
            "-R",
            "-c",
            "fast",
            "-d",
            self.url(self.ports[0], "postgres"),
        )
        self._start(standby, self.ports[1])
        with psycopg.connect(self.url(self.ports[0], "postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            until(
                lambda: connection.execute(
                    "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
                ).fetchone(),
                30,
                "a synchronous standby",
            )
        server = require(shutil.which("redis-server"), "Redis")
        options = (
            "--port",
            "0",
            "--tls-port",
            str(self.ports[2]),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        )
        tls = (
            "--tls-cert-file",
            self.folder / "redis.pem",
            "--tls-key-file",
            self.folder / "redis.key",
        )
        more = (
            "--tls-ca-cert-file",
            self.folder / "ca.pem",
            "--tls-auth-clients",
            "no",
            "--dir",
            self.folder,
        )
        self._redis = subprocess.Popen([server, *options, *tls, *more], stdout=subprocess.DEVNULL)

    def url(self, port: int, name: str) -> str:
        return (
            f"postgresql://podyard@localhost:{port}/{name}?sslmode=verify-full&sslrootcert="
            f"{self.folder}/ca.pem"
        )

    def environment(self) -> dict[str, str]:
        """As the page on deployment has it."""
        hosts = "&".join(f"host=localhost:{port}" for port in self.ports[:2])
        tls = (
            f"target_session_attrs=read-write&sslmode=verify-full&sslrootcert={self.folder}/ca.pem"
        )
        redis = (
            f"rediss://localhost:{self.ports[2]}/0?ssl_cert_reqs=required&ssl_ca_certs="
            f"{self.folder}/ca.pem"
        )
        return {
            "PODYARD_DATABASE_URL": f"postgresql://podyard@/stack?{hosts}&{tls}",
            "PODYARD_BROKER_URL": redis,
        }

    def fail_over(self) -> None:
        """kill -9 for the primary with all its processes, as when its machine goes; the standby
        becomes the primary."""
        self._stop(self.folder / "primary")
        self._run("pg_ctl", "promote", "-w", "-D", self.folder / "standby")
        with psycopg.connect(self.url(self.ports[1], "postgres"), autocommit=True) as connection:
            assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)

    def stop(self) -> None:
        for name in ("primary", "standby"):
            self._stop(self.folder / name)
        if self._redis is not None:
            self._redis.kill()
            self._redis.wait()

    def _start(self, data: Path, port: int) -> None:
        tls = " ".join(
            f"-c ssl_{kind}_file={self.folder}/server.{end}"
            for kind, end in (("cert", "pem"), ("key", "key"))
        )
        options = (
            f"-p {port} -k {self.folder} -c listen_addresses=127.0.0.1 -c ssl=on {tls} -c fsync=off"
        )
        self._run("pg_ctl", "start", "-w", "-D", data, "-o", options, "-l", f"{data}.log")

    def _stop(self, data: Path) -> None:
        if (data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", data)

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [*self._as_user, f"{self._binaries}/{program}", *map(str, arguments)]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, timeout=patient(60)
        )

    def _make_certificates(self) -> None:
        """One authority, and a certificate of `localhost` for each server."""
        ca = (self.folder / "ca.key", self.folder / "ca.pem")
        usual = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
        _openssl("req", "-x509", *usual, "-subj", "/CN=test", "-keyout", ca[0], "-out", ca[1])
        for name in ("server", "redis"):
            key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.pem"
            signed = ("-CA", ca[1], "-CAkey", ca[0], "-addext", "subjectAltName=DNS:localhost")
            _openssl(
                "req",
                "-x509",
                *usual,
                "-subj",
                "/CN=localhost",
                *signed,
                "-keyout",
                key,
                "-out",
                certificate,
            )
            key.chmod(0o600)


def _openssl(*arguments: str | Path) -> None:
    program = require(shutil.which("openssl"), "OpenSSL's command")
    subprocess.run([program, *map(str, arguments)], check=True, capture_output=True)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture
def pair() -> Iterator[Pair]:
    # Not in pytest's folder, which is closed to other users.
    with tempfile.TemporaryDirectory(
        prefix="podyard-failover-", ignore_cleanup_errors=True
    ) as folder:
        found = Pair(Path(folder))
        try:
            found.start()
            yield found
        finally:
            found.stop()


class Creator(threading.Thread):
    """Creates nodes, one after the other. What got no answer, or 503, is asked for again with the
    same request id."""

    def __init__(self, stack: Stack, number: int, stopping: threading.Event) -> None:
        super().__init__()
        self._http = httpx.Client(
            base_url=stack.url, headers=stack.http.headers, timeout=patient(30), trust_env=False
        )
        self._number, self._stopping = number, stopping
        self.operations: dict[str, str] = {}  # by node: the operation that was acknowledged
        self.repeated = 0
        self.strange: list[str] = []

    def run(self) -> None:
        with self._http:
            while not self._stopping.is_set():
                node = f"c{self._number}-{len(self.operations)}"
                if (name := self._create(node, str(uuid4()))) is None:
                    return
                self.operations[node] = name

    def _create(self, node: str, request_id: str) -> str | None:
        deadline = time.monotonic() + patient(90)
        path = (
            f"/v2alpha1/projects/demo/locations/{ZONE}/nodes?nodeId={node}&requestId={request_id}"
        )
        while time.monotonic() < deadline:
            try:
                answer = self._http.post(path, json=NODE)
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                return str(answer.json()["name"])
            if answer.status_code != 503:
                self.strange.append(answer.text)
                return None
            self.repeated += 1
            time.sleep(0.2)
        self.strange.append(f"{node} cannot be created")
        return None


def _have_made(creators: list[Creator], counts: list[int]) -> bool | None:
    """Return whether each has made more than one node more."""
    assert [creator.strange for creator in creators] == [[]] * CLIENTS
    return (
        all(len(c.operations) > count + 1 for c, count in zip(creators, counts, strict=True))
        or None
    )


def test_what_was_acknowledged_survives_the_primary(pair: Pair, tmp_path: Path) -> None:
    with open_stack(tmp_path / "data", pair.environment()) as stack:
        stack.create_node("n1", "v2-8", ZONE)
        path = stack.submit(
            "job", ZONE, node="n1", steps=600, checkpointEverySteps=50, maxFailures=0
        )
        stack.wait_steps(path, 30)
        stopping = threading.Event()
        creators = [Creator(stack, number, stopping) for number in range(CLIENTS)]
        for creator in creators:
            creator.start()
        until(lambda: _have_made(creators, [0] * CLIENTS), 60, "nodes of each client")
        pair.fail_over()
        counts = [len(creator.operations) for creator in creators]
        until(lambda: _have_made(creators, counts), 90, "more nodes of each client")
        stopping.set()
        for creator in creators:
            creator.join()
        assert [creator.strange for creator in creators] == [[]] * CLIENTS
        print(f"{sum(len(creator.operations) for creator in creators)} nodes")
        assert sum(creator.repeated for creator in creators) > 0
        acknowledged = {
            node: name for creator in creators for node, name in creator.operations.items()
        }
        job = stack.wait_job(path)
        assert (job["state"], job["failures"]) == ("SUCCEEDED", 0), job
        assert [point["step"] for point in stack.metrics(path)] == list(range(1, 601))
        listed = stack.pages(f"/v2/projects/demo/locations/{ZONE}/nodes?pageSize=1000", "nodes")
        there = {node["name"].rpartition("/")[2] for node in listed}
        assert "n1" in there and there <= {"n1", *acknowledged}
        for node, name in acknowledged.items():
            operation = stack.call("GET", f"/v2/{name}")
            assert operation["metadata"]["target"].endswith(f"/{node}")
            # The zone has room for 16 nodes: those after them end with their operation.
            assert node in there or operation["error"]["code"] == RESOURCE_EXHAUSTED, operation
        with psycopg.connect(pair.url(pair.ports[1], "stack")) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE datname "
                "= 'stack' AND NOT ssl"
            ).fetchone()
        assert row == (0,)
    assert "Traceback" not in (tmp_path / "data" / "podyard.log").read_text()
