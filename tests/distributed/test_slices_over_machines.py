"""Hosts of one slice on three machines, in boxes: programs find each other as on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from podyard.base.boxes import why_not
from podyard.workers.kit import slice_tls
from tests.conftest import require
from tests.distributed.machines import MachineYard, YardMachine, open_machines
from tests.stack import until
from tests.waiting import patient

ZONE = "europe-west4-a"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineYard]:
    """The platform's own machine runs no host."""
    require("namespaces" if os.geteuid() == 0 else None, "network namespaces (root)")
    require(None if why_not("on") else "boxes", f"what boxes need ({why_not('on')})")
    Path("/run/netns").mkdir(exist_ok=True)
    with open_machines(tmp_path_factory.mktemp("slices"), 3, {"PODYARD_HOSTS_MAX": "0"}) as found:
        for machine in found.machines:
            machine.join("--hosts-max", "2", PODYARD_BOXES="on")
        for machine in found.machines:
            machine.wait_ready()
        found.platform.create_node("slice", "v3-32", ZONE)
        yield found


# Each host listens, and reads 4 MiB from every other one: more than any switch keeps for a while.
_ALL_TO_ALL = """
import os, socket, threading, time
names = os.environ["TPU_WORKER_HOSTNAMES"].split(",")
me, size = int(os.environ["TPU_WORKER_ID"]), 4 << 20
listener = socket.create_server((names[me], 7000))
def serve():
    for _ in names:
        connection, _ = listener.accept()
        connection.sendall(bytes([me]) * size)
        connection.close()
served = threading.Thread(target=serve)
served.start()
for other, name in enumerate(names):
    for _ in range(300):
        try:
            connection = socket.create_connection((name, 7000), 10)
            break
        except OSError:
            time.sleep(0.1)
    with connection, connection.makefile("rb") as file:
        assert file.read() == bytes([other]) * size, (me, other)
print("host", me, "has read from", len(names), flush=True)
served.join()
"""
_PSUM = """
import jax, jax.numpy as jnp
jax.distributed.initialize()
print("sum", float(jax.pmap(lambda x: jax.lax.psum(x, "i"), "i")(jnp.ones(jax.local_device_count()))[0]), flush=True)
"""  # noqa: E501
_WRITES = """
import os, sys, urllib.request
bucket, name = sys.argv[1], "from-host-" + os.environ["TPU_WORKER_ID"]
url = os.environ["STORAGE_EMULATOR_HOST"] + "/upload/storage/v1/b/" + bucket + "/o?uploadType=media&name=" + name
urllib.request.urlopen(urllib.request.Request(url, data=b"x" * 3_000_000, method="POST")).close()
"""  # noqa: E501


def _exec(yard: MachineYard, program: str, *arguments: str) -> str:
    """Return what the program prints on all hosts. A host whose server starts again is not reached
    for some seconds."""
    command = shlex.join(["python3", "-c", program, *arguments])

    def ask() -> str | None:
        done = yard.platform.podyard(
            "tpu", "exec", "slice", "--zone", ZONE, "--worker", "all", "--", command
        )
        if done.returncode != 0 and "Connect call failed" in done.stderr:
            return None
        assert done.returncode == 0, (
            done.stdout + done.stderr + "".join(one.said() for one in yard.machines)
        )
        return done.stdout

    said: str = until(ask, 60, "every host is reached")
    return said


def _everybody_reads(yard: MachineYard) -> None:
    said = _exec(yard, _ALL_TO_ALL)
    assert sum("has read from 4" in line for line in said.splitlines()) == 4, said


def _with_boxes(yard: MachineYard) -> list[YardMachine]:
    return [one for one in yard.machines if list(one.data.glob("agents/*/hosts/*/box/box.json"))]


def test_hosts_reach_each_other_over_machines(yard: MachineYard) -> None:
    _everybody_reads(yard)
    assert len(_with_boxes(yard)) >= 2


def test_an_unmodified_jax_program_sums_over_machines(yard: MachineYard) -> None:
    said = _exec(yard, _PSUM)
    assert (
        sorted(line for line in said.splitlines() if line.startswith("sum")) == ["sum 32.0"] * 4
    ), said


def test_hosts_of_other_machines_write_objects_through_the_door(yard: MachineYard) -> None:
    made = yard.platform.podyard("storage", "mb", "gs://from-machines")
    assert made.returncode == 0, made.stderr
    _exec(yard, _WRITES, "from-machines")
    listed = yard.platform.podyard("storage", "ls", "-l", "-o", "json", "gs://from-machines")
    found = {item["url"]: item["size"] for item in json.loads(listed.stdout)}
    assert found == {f"gs://from-machines/from-host-{index}": 3_000_000 for index in range(4)}, (
        listed
    )


def test_a_slice_is_whole_again_after_a_machine_was_cut_off_for_a_moment(yard: MachineYard) -> None:
    machine = _with_boxes(yard)[0]
    machine.cut()
    time.sleep(1)
    machine.heal()
    _everybody_reads(yard)


def test_cables_are_laid_again_after_a_host_server_was_killed(yard: MachineYard) -> None:
    processes = map(psutil.Process, _with_boxes(yard)[0].pids())
    (server,) = [one for one in processes if "podyard.workers.host.server" in one.cmdline()]
    server.kill()
    _everybody_reads(yard)


def test_who_has_not_the_key_of_the_slice_gets_no_cable(yard: MachineYard) -> None:
    other, _ = slice_tls.contexts(b"another key of thirty-two bytes.")
    path = f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/slice/hosts"

    def open_places() -> set[tuple[str, int]] | None:
        """Of servers that listen now: one that started again has another port."""
        hosts = yard.platform.call("GET", path)["hosts"]
        found = {(host["address"], host["ports"].get("tunnel", 0)) for host in hosts}
        return found if all(_listens(*place) for place in found) else None

    places = until(open_places, 60, "every server listens")
    assert {address for address, _ in places} <= {machine.address for machine in yard.machines}
    for address, port in places:
        for name in ("podyard slice", "0" * 32, ""):
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                asyncio.run(_knock(address, port, other, name))


def _listens(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), patient(2)):
        return True
    return False


async def _knock(address: str, port: int, context: ssl.SSLContext, name: str) -> None:
    reader, writer = await asyncio.open_connection(address, port, ssl=context, server_hostname=name)
    try:
        writer.write(b"second\n")
        await writer.drain()
        assert await reader.read(1) == b"", "a stranger is heard"
    finally:
        writer.close()
