"""jax.distributed on two v3-32 slices of one machine at the same time, as users start it.

    python -m tests.distributed.jax_slices [--rounds 20] [--client podyard]

`gcloud compute tpus tpu-vm scp --worker=all` sends one program to both slices. Each round starts it
with `ssh --worker=all` on both at once: the sum over 32 devices must be the slice's own on each of
its four hosts. Rounds take turns: `jax.distributed.initialize()` without arguments; the program's
own address, with one port on both slices; and without Podyard's folder on PYTHONPATH. After every
round one slice's gang is killed while it runs, and started again at once. `--client podyard` does
all this with `podyard tpu scp` and `ssh`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.gcloud import TPU_VM, Terminal, create_node, dials_port_22, end
from tests.stack import PODYARD, Stack, open_stack
from tests.waiting import patient, set_slowness, until

ZONE = "europe-west4-a"
VALUES = {"left": 1, "right": 1000}  # what each device of a slice adds
PROGRAM = """\
import os, sys, time
import jax

value, how = float(sys.argv[1]), sys.argv[2]
if how == "own":  # the program's own address, port and number
    first = os.environ["TPU_WORKER_HOSTNAMES"].split(",")[0]
    jax.distributed.initialize(f"{first}:8476", 4, int(os.environ["TPU_WORKER_ID"]))
else:
    jax.distributed.initialize()
if how == "wait":
    print("waits", flush=True)
    time.sleep(1000)
import jax.numpy as jnp

added = jax.pmap(lambda x: jax.lax.psum(x, "d"), axis_name="d")(jnp.full(jax.local_device_count(), value))
total = float(added.addressable_shards[0].data[0])
print(f"<{jax.process_index()} {jax.local_device_count()} {jax.device_count()} {total}>")
"""  # noqa: E501
CLIENTS = ("gcloud", "podyard")
# `bare`: the user's own PYTHONPATH has taken the place of the host's
WAYS = ("plain", "own", "bare")
_ENVIRONMENT = {"bare": "PYTHONPATH=. "}
_SECONDS_MAX = 120.0


class Slices:
    """Two v3-32 and a user who sends the program to them and starts it. `folder`: the user's home.

    `client`: one of CLIENTS.
    """

    def __init__(self, stack: Stack, folder: Path, client: str) -> None:
        self._stack = stack
        self._client = client
        podyard = f"PODYARD_DATA={shlex.quote(str(stack.data))} {shlex.join(PODYARD)} tpu"
        self._tpu = TPU_VM if client == "gcloud" else podyard
        self._terminal = Terminal(stack, folder)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        for node in VALUES:
            self._create(node)
            done = self._terminal.run(
                f"{self._tpu} scp {program} {node}: --zone {ZONE} --worker=all"
            )
            assert done.returncode == 0, done.stderr

    def at_once(self, how: str) -> None:
        """The program on both slices at the same time."""
        with contextlib.ExitStack() as running:
            for node, process in [
                (node, running.enter_context(self._started(node, how))) for node in VALUES
            ]:
                _check(node, process)

    def killed_and_restarted(self, node: str) -> None:
        """kill -9 for all four processes of a gang that has met, and the same program again at
        once."""
        with self._started(node, "wait") as waiting:
            until(lambda: self._has_met(node), _SECONDS_MAX, "the gang to have met")
            for process in self._gang(node):
                os.kill(process.pid, signal.SIGKILL)
            if self._client == "gcloud":
                # After 5 s it would start the killed gang again by itself, among the new one: ssh's
                # exit code after a signal is 255, which gcloud takes for a connection that failed.
                end(waiting)
            with self._started(node, "plain") as again:
                _check(node, again)
            assert waiting.wait(patient(_SECONDS_MAX)) != 0
            assert self._gang(node) == []

    def _create(self, node: str) -> None:
        if self._client == "gcloud":
            create_node(self._stack, node, "v3-32", ZONE)
        else:
            self._stack.create_node(node, "v3-32", ZONE)

    @contextlib.contextmanager
    def _started(self, node: str, how: str) -> Iterator[subprocess.Popen[str]]:
        command = f"{_ENVIRONMENT.get(how, '')}python program.py {VALUES[node]} {how}"
        process = self._terminal.start(
            f"{self._tpu} ssh {node} --zone {ZONE} --worker=all --command='{command}'"
        )
        try:
            yield process
        finally:
            end(process)

    def _gang(self, node: str) -> list[psutil.Process]:
        """The processes of the program that waits on the hosts of a node."""
        hosts = {host["host"] for host in self._hosts(node)}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[1:] == ["program.py", str(VALUES[node]), "wait"]:
                    found += [process] if process.environ().get("PODYARD_HOST") in hosts else []
        return found

    def _has_met(self, node: str) -> bool | None:
        """True once each of the four has a connection to the host of the coordinator."""
        first = self._hosts(node)[0]
        met = 0
        for process in self._gang(node):
            with contextlib.suppress(psutil.Error, OSError):
                met += bool({first["address"], first["internalIp"]} & _peers(process))
        return met == 4 or None

    def _hosts(self, node: str) -> list[dict[str, Any]]:
        path = f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/{node}/hosts"
        found: list[dict[str, Any]] = self._stack.call("GET", path)["hosts"]
        return found


def _peers(process: psutil.Process) -> set[str]:
    """The addresses that a process is connected to, or where it has a network of its own, its
    box."""
    if Path(f"/proc/{process.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
        return {
            item.raddr.ip.removeprefix("::ffff:")
            for item in process.net_connections("tcp")
            if item.raddr
        }
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process.pid}/net/{name}").read_text().splitlines()[1:]:
            remote, state = line.split()[2:4]
            # established; the last four bytes are those of IPv4, in the machine's order
            if state == "01":
                found.add(
                    ".".join(
                        map(str, int(remote.split(":")[0][-8:], 16).to_bytes(4, sys.byteorder))
                    )
                )
    return found


def _check(node: str, process: subprocess.Popen[str]) -> None:
    """The program's end: each host of the slice has the sum of the slice's own 32 devices."""
    try:
        out, err = process.communicate(timeout=patient(_SECONDS_MAX))
    except subprocess.TimeoutExpired:
        raise AssertionError((node, "did not end", *end(process))) from None
    expected = [f"{worker} 8 32 {VALUES[node] * 32.0}" for worker in range(4)]
    # among what Gloo's threads print, whose lines may be broken
    found = sorted(re.findall(r"<(.*?)>", out))
    assert (process.returncode, found) == (0, expected), (node, out, err)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--client", choices=CLIENTS, default="gcloud")
    options = parser.parse_args(arguments)
    if options.client == "gcloud" and not dials_port_22():
        parser.error(
            "gcloud is not installed, or hosts cannot listen on port 22 here: use --client podyard"
        )
    rounds, began = options.rounds, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, open_stack(Path(folder) / "data") as stack:
        set_slowness(time.monotonic() - began)
        slices = Slices(stack, Path(folder), options.client)
        for number in range(rounds):
            how, node = WAYS[number % len(WAYS)], list(VALUES)[number % len(VALUES)]
            began = time.monotonic()
            slices.at_once(how)
            between = time.monotonic()
            slices.killed_and_restarted(node)
            seconds = (
                f"{between - began:.0f} s, {node} killed and restarted "
                f"{time.monotonic() - between:.0f} s"
            )
            print(f"round {number + 1} of {rounds}: {how}, both sums right: {seconds}", flush=True)
    print(
        f"{rounds} rounds with {options.client}, every slice with its own sum; no process "
        "left, fsck green"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
