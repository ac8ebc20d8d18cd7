"""A whole yard: two control planes on one PostgreSQL and one Redis, and machines that have joined
over TLS.

The second plane has an API and a loop in a data folder of its own; the agents know the first one's
door. Redis is where all machines reach it.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import redis

from podyard.base.rng import secret_token
from tests.conftest import require
from tests.distributed.machines import MachineYard, open_machines
from tests.distributed.test_control_planes import lease_of, share_folders
from tests.stack import Stack

LEASES = {"PODYARD_AGENT_LEASE_SECONDS": "3", "PODYARD_REPLICA_LEASE_SECONDS": "4"}
_PLATFORM = {**LEASES, "PODYARD_REPLICAS_MAX": "0", "PODYARD_HOSTS_MAX": "0"}


class Broker:
    """A Redis of our own, which keeps nothing."""

    def __init__(self, folder: Path, address: str) -> None:
        with socket.socket() as probe:
            probe.bind((address, 0))
            port = probe.getsockname()[1]
        password = secret_token(16)
        server = require(shutil.which("redis-server"), "Redis")
        self._command = [
            server,
            "--bind",
            address,
            "--port",
            str(port),
            "--requirepass",
            password,
            "--save",
            "",
        ]
        self._command += ["--dir", str(folder)]
        self.url = f"redis://:{password}@{address}:{port}/0"
        self._process = self._start()

    def restart(self) -> None:
        """SIGKILL, and another one at the same place."""
        self.stop()
        self._process = self._start()

    def flush(self) -> bool:
        """It forgets everything; False while it is not there."""
        try:
            with redis.Redis.from_url(self.url) as client:
                client.flushall()
        except redis.RedisError:
            return False
        return True

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.DEVNULL)


class WholeYard:
    def __init__(self, machines: MachineYard, second: Stack, database: str, broker: Broker) -> None:
        self.yard = machines
        self.first, self.second = machines.platform, second
        self.broker = broker
        self._database = database

    def unsent(self) -> int:
        """Messages that wait for the broker."""
        with psycopg.connect(self._database) as connection:
            row = connection.execute("SELECT count(*) FROM outbox WHERE sent IS NULL").fetchone()
        assert row is not None
        return int(row[0])

    def leader_pid(self) -> int:
        return int(lease_of(self._database)[0].split("/")[1])


@contextlib.contextmanager
def open_whole_yard(root: Path, server: str, places: Sequence[int]) -> Iterator[WholeYard]:
    """`server`: the URL of a PostgreSQL server. `places`: how many replicas each machine may
    run."""
    name = f"whole_{secret_token(4).lower().replace('-', '_')}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    with contextlib.ExitStack() as stack:
        brokers: list[Broker] = []

        def prepare(found: MachineYard) -> None:
            brokers.append(Broker(root, found.platform.address))
            stack.callback(brokers[0].stop)
            found.platform.env |= {
                "PODYARD_DATABASE_URL": f"{server}/{name}",
                "PODYARD_BROKER_URL": brokers[0].url,
            }

        machines = stack.enter_context(open_machines(root, len(places), dict(_PLATFORM), prepare))
        second = Stack(root / "second", {**machines.platform.env, "PODYARD_ROLES": "api,loop"})
        share_folders(machines.platform.data, second.data)
        stack.callback(lambda: second.http.close())
        stack.callback(second.down)
        second.up()
        for machine, most in zip(machines.machines, places, strict=True):
            machine.join("--replicas-max", str(most))
        for machine in machines.machines:
            machine.wait_ready()
        yield WholeYard(machines, second, f"{server}/{name}", brokers[0])
