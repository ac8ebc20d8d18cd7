"""jax.distributed on two v3-32 slices of one machine at the same time, as users start it.

    python -m tests.distributed.jax_slices [--rounds 20]

Each round starts one program with `ssh --worker=all` on both slices at once: the sum over 32 devices must be the
slice's own on each of its four hosts. Rounds take turns: `jax.distributed.initialize()` without arguments; the
program's own address, with one port on both slices; and without Podyard's folder on PYTHONPATH. After every round one
slice's gang is killed while it runs, and started again at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.stack import PODYARD, Stack, open_stack
from tests.waiting import patient, until

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
"""
WAYS = ("plain", "own", "bare")  # `bare`: the user's own PYTHONPATH has taken the place of the host's
_ENVIRONMENT = {"bare": "PYTHONPATH=. "}
_SECONDS_MAX = 120.0


def create(stack: Stack, node: str, folder: Path) -> None:
    """A v3-32 with the program on all of its hosts."""
    stack.create_node(node, "v3-32", ZONE)
    program = folder / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(_tpu(stack, "scp", str(program), f"{node}:", "--worker=all"), env=_environment())
    assert done.returncode == 0


def start(stack: Stack, node: str, how: str) -> subprocess.Popen[str]:
    command = f"{_ENVIRONMENT.get(how, '')}python program.py {VALUES[node]} {how}"
    argv = _tpu(stack, "ssh", node, "--worker=all", f"--command={command}")
    return subprocess.Popen(
        argv, env=_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def check(node: str, process: subprocess.Popen[str]) -> None:
    """The program's end: each host of the slice has the sum of the slice's own 32 devices."""
    try:
        out, err = process.communicate(timeout=patient(_SECONDS_MAX))
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError((node, "did not end", *process.communicate())) from None
    expected = [f"{worker} 8 32 {VALUES[node] * 32.0}" for worker in range(4)]
    found = sorted(re.findall(r"<(.*?)>", out))  # among what Gloo's threads print, which is no whole lines
    assert (process.returncode, found) == (0, expected), (node, out, err)


def at_once(stack: Stack, how: str) -> None:
    """The program on both slices at the same time."""
    with contextlib.ExitStack() as running:
        for node, process in [(node, running.enter_context(_ended(start(stack, node, how)))) for node in VALUES]:
            check(node, process)


def killed_and_restarted(stack: Stack, node: str) -> None:
    """kill -9 for all four processes of a gang that has met, and the same program again at once."""
    with _ended(start(stack, node, "wait")) as waiting:
        until(lambda: _has_met(stack, node), _SECONDS_MAX, "the gang to have met")
        for process in gang(stack, node):
            os.kill(process.pid, signal.SIGKILL)
        with _ended(start(stack, node, "plain")) as again:
            check(node, again)
        assert waiting.wait(patient(_SECONDS_MAX)) != 0


def gang(stack: Stack, node: str) -> list[psutil.Process]:
    """The processes of the program that waits on the hosts of a node."""
    found = []
    for process in stack.processes():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:] == ["program.py", str(VALUES[node]), "wait"]:
                found.append(process)
    return found


def _has_met(stack: Stack, node: str) -> bool | None:
    """True once each of the four has a connection to the host of the coordinator."""
    address = stack.call("GET", f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/{node}/hosts")["hosts"][0]["address"]
    met = 0
    for process in gang(stack, node):
        with contextlib.suppress(psutil.Error):
            ends = [connection.raddr for connection in process.net_connections("tcp") if connection.raddr]
            met += any(end.ip.removeprefix("::ffff:") == address for end in ends)
    return met == 4 or None


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _tpu(stack: Stack, *arguments: str) -> list[str]:
    return [*PODYARD, "tpu", arguments[0], "--data", str(stack.data), "--zone", ZONE, *arguments[1:]]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args(arguments).rounds
    with tempfile.TemporaryDirectory() as folder, open_stack(Path(folder) / "data") as stack:
        for node in VALUES:
            create(stack, node, Path(folder))
        for number in range(rounds):
            how, node = WAYS[number % len(WAYS)], list(VALUES)[number % len(VALUES)]
            began = time.monotonic()
            at_once(stack, how)
            between = time.monotonic()
            killed_and_restarted(stack, node)
            seconds = f"{between - began:.0f} s, {node} killed and restarted {time.monotonic() - between:.0f} s"
            print(f"round {number + 1} of {rounds}: {how}, both sums right: {seconds}", flush=True)
    print(f"{rounds} rounds, every slice with its own sum; no process left, fsck green")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
