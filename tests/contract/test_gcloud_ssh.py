"""`gcloud compute tpus tpu-vm ssh` and `scp` as a user types them after `eval "$(podyard env)"`: as
root, where hosts listen on port 22, and as an ordinary user after `podyard ssh setup`."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podyard.base import boxes
from podyard.cli.nodes.ssh_setup import needs_setup
from tests.gcloud import PERSON, TPU_VM, Terminal, create_node
from tests.ordinary_user import UserStack, make_user
from tests.stack import PODYARD, Stack

ZONE = "europe-west4-a"
PATH = f"/podyard/v1/projects/demo/locations/{ZONE}/nodes"
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.xdist_group("contract"),
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
    pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed"),
    pytest.mark.skipif(
        sys.platform != "linux", reason="only on Linux have hosts addresses of their own"
    ),
]

Shell = Callable[[str], subprocess.CompletedProcess[str]]


def _states(stack: Stack, node: str) -> set[str]:
    return {host["state"] for host in stack.call("GET", f"{PATH}/{node}/hosts")["hosts"]}


def _numbers(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The workers that have answered: ssh-keygen draws a picture before, when gcloud makes its
    key."""
    return sorted(line for line in done.stdout.splitlines() if line.isdigit())


def _works_on_all_workers(stack: Stack, shell: Shell, node: str, folder: Path) -> None:
    assert _states(stack, node) == {"VIRTUAL"}
    done = shell(f"{TPU_VM} ssh {node} --zone {ZONE} --worker=all --command='echo $TPU_WORKER_ID'")
    assert _numbers(done) == ["0", "1", "2", "3"], done.stderr
    done = shell(
        f"{TPU_VM} ssh {node} --zone {ZONE} --worker=2 --command='echo $TPU_WORKER_ID; exit 7'"
    )
    assert (done.returncode, done.stdout) == (7, "2\n"), done.stderr
    there = folder / "there"
    there.write_bytes(bytes(range(256)) * 64)
    there.chmod(0o644)
    done = shell(f"{TPU_VM} scp {there} {node}:copied --zone {ZONE} --worker=all")
    assert done.returncode == 0, done.stderr
    done = shell(
        f"{TPU_VM} ssh {node} --zone {ZONE} --worker=3 --command='echo $TPU_WORKER_ID >> copied'"
    )
    assert done.returncode == 0, done.stderr
    for worker, more in (("0", b""), ("3", b"3\n")):
        back = folder / f"back-{worker}"
        done = shell(f"{TPU_VM} scp {node}:copied {back} --zone {ZONE} --worker={worker}")
        assert done.returncode == 0, done.stderr
        assert back.read_bytes() == there.read_bytes() + more
    # A second ssh checks the keys that the first one has noted: they must be the same.
    done = shell(f"{TPU_VM} ssh {node} --zone {ZONE} --worker=all --command='echo $TPU_WORKER_ID'")
    assert _numbers(done) == ["0", "1", "2", "3"], done.stderr


@pytest.mark.skipif(needs_setup(), reason="port 22 cannot be opened here")
def test_all_workers_are_reached_on_port_22(stack: Stack, tmp_path: Path) -> None:
    create_node(stack, "m1", "v3-32", ZONE)
    shell = Terminal(stack, tmp_path).run
    _works_on_all_workers(stack, shell, "m1", tmp_path)
    # A key of the project opens all its hosts, and a node is not changed for it.
    key = (tmp_path / ".ssh" / "google_compute_engine.pub").read_text().split()
    node = f"/v2/projects/demo/locations/{ZONE}/nodes/m1"
    stack.call("PATCH", f"{node}?updateMask=metadata", {"metadata": {"ssh-keys": ""}})
    done = shell(
        f"gcloud compute project-info add-metadata --metadata='ssh-keys={PERSON}:{key[0]} "
        f"{key[1]} {PERSON}'"
    )
    assert done.returncode == 0, done.stderr
    done = shell(f"{TPU_VM} ssh m1 --zone {ZONE} --command='echo in'")
    assert done.stdout == "in\n", done.stderr
    assert "google_compute_engine" not in stack.call("GET", node)["metadata"].get("ssh-keys", "")
    stack.delete_node("m1", ZONE)


@pytest.fixture
def user() -> Iterator[tuple[str, Path]]:
    with make_user() as (name, home):
        yield name, home


def test_an_ordinary_user_reaches_all_workers_after_a_set_up(user: tuple[str, Path]) -> None:
    name, home = user
    stack = UserStack(home / "data", name)
    try:
        stack.up()
        create_node(stack, "m1", "v3-32", ZONE)
        config = home / ".ssh" / "config"
        said = stack.podyard("env")
        assert "run `podyard ssh setup` once" in said.stderr
        assert not config.exists()  # it is never edited unasked
        refused = stack.podyard("ssh", "setup")
        assert refused.returncode == 2 and "not a terminal" in refused.stderr  # nobody can say yes
        assert not config.exists()
        before = "Host somewhere\n  User me\n"
        done = stack.run("sh", "-c", f"mkdir -m 700 -p ~/.ssh && printf '{before}' > ~/.ssh/config")
        for _ in range(2):  # the second time changes nothing
            done = stack.podyard("ssh", "setup", "--yes")
            assert done.returncode == 0, done.stderr
        assert config.read_text() == f'Include "{stack.data}/ssh/config"\n{before}'
        assert stack.podyard("env").stderr == ""

        def shell(command: str) -> subprocess.CompletedProcess[str]:
            return stack.run("sh", "-c", f"{said.stdout}\n{command}")

        _works_on_all_workers(stack, shell, "m1", home)
        done = stack.podyard("ssh", "setup", "--remove")
        assert done.returncode == 0, done.stderr
        assert config.read_text() == before
        _by_proxy_command(stack, shell, home)
    finally:
        stack.down()
        stack.http.close()
    assert stack.violations() == []


@pytest.mark.long
def test_without_boxes_an_ordinary_user_is_told_exactly_what_hosts_share(
    user: tuple[str, Path],
) -> None:
    """One probe for each word of the sentence, and some for what even these hosts do not reach."""
    name, home = user
    stack = UserStack(home / "data", name, {"PODYARD_BOXES": "off"})
    try:
        started = stack.podyard("up", "--detach", *stack.up_options())
        said = boxes.sentence("PODYARD_BOXES is off")
        assert said in started.stdout + started.stderr
        stack.down()
        stack.up()
        stack.create_node("m1", "v3-32", ZONE)
        (home / "mine").write_text("mine")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            probes = {
                "files": f"cat {home}/mine",
                "processes": f"kill -0 {stack.pid('agent')}",
                "ports": "bash -c 'echo > /dev/tcp/127.0.0.1/$(cat ~/../../*-w-1/home/port)'",
                "the network": f"bash -c 'echo > /dev/tcp/127.0.0.1/{listener.getsockname()[1]}'",
                "memory and CPU": (
                    f'test "$(cat /proc/self/cgroup)" = "$(cat /proc/{stack.pid("agent")}/cgroup)"'
                ),
                "a file of root": "cat /etc/shadow",
                "a process of root": "kill -0 1",
                "root": "sudo -n true",
                "port 22": "python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 22))'",
            }
            serve = (
                "import socket, time; s = socket.create_server(('', 0)); "
                "print(s.getsockname()[1], flush=True)"
            )
            serve = (
                f'setsid python3 -c "{serve}; time.sleep(60)" >port 2>&1 & until test '
                "-s port; do "
                "sleep 0.1; done"
            )

            def run(worker: str, command: str) -> int:
                where = ("--data", str(stack.data), "--worker", worker, "--zone", ZONE)
                return stack.command("tpu", "exec", "m1", *where, "--", command).returncode

            assert run("1", serve) == 0
            reached = [what for what, command in probes.items() if run("0", command) == 0]
        assert reached == list(boxes.SHARED)
        hosts = stack.call("GET", f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/m1/hosts")[
            "hosts"
        ]
        assert {host["isolation"] for host in hosts if host["state"] == "RUNNING"} == {said}
    finally:
        stack.down()
        stack.http.close()


def _by_proxy_command(stack: UserStack, shell: Shell, home: Path) -> None:
    """As on a system where hosts have no address of their own."""
    node: dict[str, Any] = stack.call("GET", f"/v2/projects/demo/locations/{ZONE}/nodes/m1")
    address = node["networkEndpoints"][1]["accessConfig"]["externalIp"]
    proxy = home / "proxy"
    proxy.write_text(
        f"#!/bin/sh\nexec {stack.python} -c '{PODYARD[-1]}' ssh connect --data {stack.data} $1\n"
    )
    proxy.chmod(0o755)
    options = (
        f"-o StrictHostKeyChecking=no -o ProxyCommand='{proxy} %h' -i ~/.ssh/google_compute_engine"
    )
    done = shell(f"ssh {options} {address} 'echo $TPU_WORKER_ID'")
    assert done.stdout == "1\n", done.stderr


def test_the_exports_lead_gcloud_to_compute_engine_here(stack: Stack) -> None:
    exports = json.loads(stack.podyard("env", "-o", "json").stdout)
    assert exports["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"] == f"{stack.url}/"
