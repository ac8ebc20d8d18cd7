"""Boxes from inside: what programs of users cannot reach, cannot break and cannot leave behind."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from podyard.base.boxes import sentence, why_not
from podyard.workers.box import limit as box_limit
from tests.conftest import require
from tests.distributed.boxes import (
    FORK_BOMB,
    ZONE,
    box_of,
    digest,
    hosts,
    machine_address,
    run_on,
    ways_out,
)
from tests.stack import PODYARD, Stack, open_stack, until

_QUIET: Any = {
    "stdout": subprocess.DEVNULL,
    "stderr": subprocess.DEVNULL,
    "stdin": subprocess.DEVNULL,
}
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    require(
        None if why_not("on") or os.geteuid() != 0 else "boxes",
        f"root, and what boxes need ({why_not('on')})",
    )
    with open_stack(tmp_path_factory.mktemp("boxes"), {"PODYARD_BOXES": "on"}) as found:
        found.create_node("one", "v3-8", ZONE)
        found.create_node("other", "v3-32", ZONE)
        yield found


def _argv(stack: Stack, node: str, command: str, worker: str = "0") -> list[str]:
    found = ["--data", str(stack.data), "--zone", ZONE, "--worker", worker]
    return [*PODYARD, "tpu", "exec", node, *found, "--", command]


def _env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}


def test_a_host_is_a_machine_of_its_own(stack: Stack) -> None:
    said = run_on(
        stack, "other",
        "id -un; sudo id -u; sudo -n -u podyard id -un; hostname; pwd; ls /dev | grep -c accel; "
        "pgrep -c sleep;"
        " touch /tmp/x ~/y; sudo touch /etc/z /usr/z; echo $TPU_WORKER_HOSTNAMES;"
        " curl -sH Metadata-Flavor:Google "
        "http://metadata.google.internal/computeMetadata/v1/instance/name;"
        " echo; curl -sH Metadata-Flavor:Google "
        "http://169.254.169.254/computeMetadata/v1/instance/attributes/"
        "agent-worker-number; echo; curl -s -o /dev/null -w '%{http_code}' "
        "$PODYARD_URL/podyard/v1/projects",
    )  # fmt: skip
    addresses = ",".join(host["internalIp"] for host in hosts(stack, "other"))
    assert (said.returncode, said.stdout.split("\n")) == (
        0,
        [
            "podyard",
            "0",
            "podyard",
            "other-w-0",
            "/home/podyard",
            "4",
            "1",
            addresses,
            "other-w-0",
            "0",
            "401",
        ],
    ), said.stderr
    assert not Path("/etc/z").exists() and not Path("/usr/z").exists()
    assert {host["isolation"] for host in hosts(stack, "other") if host["state"] == "RUNNING"} == {
        sentence("")
    }


# What containers are not given either: as the box's root. Each is tried, and says its error.
_CALLS = """
import ctypes, errno, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
key = {"x86_64": 248, "aarch64": 217}[platform.machine()]
def said(name, result):
    print(name, "works" if result >= 0 else errno.errorcode[ctypes.get_errno()])
def made(name, family):
    try:
        socket.socket(family, socket.SOCK_RAW).close()
    except OSError as error:
        print(name, errno.errorcode[error.errno])
    else:
        print(name, "works")
said("add_key", libc.syscall(key, b"user", b"x", b"y", 1, -3))
said("keyctl", libc.syscall(key + 2, 0, -3, 0))
said("io_uring", libc.syscall(425, 1, ctypes.create_string_buffer(120)))
said("bpf", libc.syscall({"x86_64": 321, "aarch64": 280}[platform.machine()], 0, None, 0))
said("userfaultfd", libc.syscall({"x86_64": 323, "aarch64": 282}[platform.machine()], 1))
made("packets", socket.AF_PACKET)
for kind in (b"binfmt_misc", b"cgroup2", b"tmpfs", b"proc"):
    said(kind.decode(), libc.mount(b"none", b"/mnt", kind, 0, None))
said("fsopen", libc.syscall(430, b"cgroup2", 0))
said("unshare", libc.unshare(0x10000000))
"""


def test_a_box_has_no_more_system_calls_than_a_container(stack: Stack) -> None:
    for who in ("", "sudo "):
        done = run_on(stack, "one", f"{who}python -c {shlex.quote(_CALLS)}")
        words = dict(line.split() for line in done.stdout.splitlines())
        assert len(words) == 12 and set(words.values()) == {"EPERM"}, (words, done.stderr)
    usual = (
        "python -c 'import threading, subprocess, multiprocessing as m;"
        " t = threading.Thread(target=print); t.start(); t.join();"
        ' subprocess.run(["true"], check=True); m.get_context("spawn");'
        " m.Pool(2).map(abs, [1])' && ping -c 1 -W 2 10.128.0.1 >/dev/null; sudo true"
        " && bash -c 'sleep 0.1 & wait' && echo fine"
    )
    done = run_on(stack, "one", usual)
    assert done.stdout.split()[-1] == "fine", done.stderr


def test_the_first_process_of_a_box_has_them_neither(stack: Stack) -> None:
    """Root of the box could have it make calls (ptrace)."""
    done = run_on(stack, "one", "sudo grep Seccomp: /proc/1/status")
    assert done.stdout.split() == ["Seccomp:", "2"]


def test_hosts_of_a_slice_reach_each_other_at_all_ports_and_each_has_its_own(stack: Stack) -> None:
    serve = "sudo python -m http.server $port >/dev/null 2>&1 &"
    done = run_on(
        stack,
        "other",
        f"for port in 80 8476; do {serve} done; sleep 1.5; echo $TPU_WORKER_ID",
        "all",
    )
    assert (done.returncode, done.stdout) == (0, "0\n1\n2\n3\n"), done.stderr
    ask = (
        "curl --retry 9 --retry-connrefused --retry-delay 1 -so /dev/null -w '%{http_code} ' "
        "http://other-w-$n:$p/"
    )
    assert (
        run_on(
            stack, "other", f"for n in 0 1 2 3; do for p in 80 8476; do {ask}; done; done"
        ).stdout
        == "200 " * 8
    )
    greeting = (
        "python -c 'import socket; print(socket.create_connection((\"other-w-3\", 22)).recv(4))'"
    )
    assert run_on(stack, "other", greeting).stdout == "b'SSH-'\n"


def test_what_launchers_do_to_a_host_leaves_the_machine_as_it_is(stack: Stack) -> None:
    """What SkyPilot runs on a host, and the effect of `ray stop`: the end of every process that it
    sees."""
    outside = subprocess.Popen(["sleep", "600"])
    tops = [Path(name) for name in ("/etc", "/home", "/usr")]
    before = [digest(top) for top in tops]
    done = run_on(
        stack, "one",
        "sudo rm -rf /etc/security/limits.d; echo x | sudo tee -a /etc/profile >/dev/null; sudo "
        "pkill -9 dpkg;"
        "sudo rm -f /usr/bin/wget /usr/bin/perl; sudo chmod 777 /etc /usr; ls /etc/security;"
        "sudo rm -rf /home/* /usr/share/doc /usr/lib/python3; setsid sudo sh -c 'kill -9 -1' & "
        "sleep 1; echo gone",
    )  # fmt: skip
    assert "limits.d" not in done.stdout
    assert [digest(top) for top in tops] == before
    assert outside.poll() is None
    outside.kill()
    outside.wait()
    assert (
        run_on(stack, "one", "test ! -e /etc/security/limits.d && echo still").stdout == "still\n"
    )


def test_forty_ways_out_of_a_box_lead_nowhere(stack: Stack) -> None:
    """Tried as the box's user and as its root. What they look for is there, as the test itself
    sees."""
    assert ways_out(stack) == []


def test_a_fork_bomb_is_ended_and_its_host_goes_on(stack: Stack) -> None:
    began = time.monotonic()
    done = run_on(stack, "one", FORK_BOMB)
    why = box_limit.reason(box_of(stack, "one"))
    assert (done.returncode, done.stderr) == (137, f"podyard: {why}\n")
    print(f"fork bomb: ended {time.monotonic() - began:.1f} s after the start of its session")
    # The last ones are cleared up by the machine's own first process.
    until(
        lambda: run_on(stack, "one", "pgrep -c python3").stdout == "0\n" or None,
        10,
        "the end of its processes",
    )
    until(lambda: hosts(stack, "one")[0]["problem"] == why or None, 10, "the problem of the host")


def test_a_memory_hog_ends_in_its_box(stack: Stack) -> None:
    run_on(stack, "one", "true")
    place = box_of(stack, "one")
    files = [
        path / name for path in place.cgroups for name in ("memory.max", "memory.limit_in_bytes")
    ]
    path = Path(
        require(next((str(file) for file in files if file.exists()), None), "a memory cgroup")
    )
    usual = path.read_text()
    # the same limit, smaller: the machine's memory is not for tests
    path.write_text(str(256 << 20))
    try:
        hog = "python -c 'b = []\nwhile True: b.append(bytes(1 << 20))'; echo $?"
        assert run_on(stack, "one", hog).stdout == "137\n"
        assert run_on(stack, "one", "echo fine").stdout == "fine\n"
    finally:
        path.write_text(usual)


def test_a_host_has_the_files_of_its_chips(stack: Stack) -> None:
    """As Ray counts them: /dev/accel* up to v4, the numbers in /dev/vfio from v5e on."""
    stack.create_node("vfio", "v6e-8", ZONE)
    files = "cd /dev; ls -d accel* vfio/* 2>/dev/null | paste -sd ' '"
    assert run_on(stack, "one", files).stdout == "accel0 accel1 accel2 accel3\n"
    numbers = " ".join(f"vfio/{number}" for number in range(8))
    assert run_on(stack, "vfio", files).stdout == f"{numbers} vfio/vfio\n"


def test_what_a_killed_yard_leaves_is_adopted_or_removed(stack: Stack, tmp_path: Path) -> None:
    """kill -9 for the whole stack, boxes gone on; then a start that finds one of them alive and the
    other dead."""
    with open_stack(tmp_path, {"PODYARD_BOXES": "on"}) as yard:
        for node in ("stays", "ends"):
            yard.create_node(node, "v3-8", ZONE)
            assert (
                run_on(yard, node, "setsid sleep 7777 >/dev/null 2>&1 & echo ok").stdout == "ok\n"
            )
        stays, ends = box_of(yard, "stays"), box_of(yard, "ends")
        networks = {item.name for item in Path("/run/netns").glob("podyard-*")}
        for process in [item for item in yard.processes() if item.pid not in (stays.pid, ends.pid)]:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        ends.kill()
        yard.up()
        # Until another host server listens, hosts that the API takes for running answer nobody.
        until(lambda: run_on(yard, "stays", "true").returncode == 0 or None, 20, "the hosts")
        # with the box's first process
        assert run_on(yard, "stays", "pgrep -c sleep").stdout == "2\n"
        assert stays.is_alive()
        assert run_on(yard, "ends", "pgrep -c sleep").stdout == "1\n"
        assert {item.name for item in Path("/run/netns").glob("podyard-*")} == networks
        cgroups = {*stays.cgroups, *ends.cgroups}
    assert not stays.is_alive()
    assert [path for path in cgroups if path.exists() or path.parent.exists()] == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    mine = {stays.network, ends.network}
    assert mine & {item.name for item in Path("/run/netns").glob("podyard-*")} == set()
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert "veth" not in links and "br0" not in links


def test_two_yards_on_one_machine_do_not_meet(stack: Stack, tmp_path: Path) -> None:
    """Both give their first node the same internal address."""
    with open_stack(tmp_path, {"PODYARD_BOXES": "on"}) as yard:
        yard.create_node("one", "v3-8", ZONE)
        for found, word in ((yard, "second"), (stack, "first")):
            serve = (
                f"mkdir -p s && cd s && echo {word} > w && (python -m http.server "
                "9000 >/dev/null "
                "2>&1 &); sleep 1"
            )
            assert run_on(found, "one", serve).returncode == 0
        for found, word in ((yard, "second"), (stack, "first")):
            assert run_on(found, "one", "curl -s http://one-w-0:9000/w").stdout == f"{word}\n"
        assert box_of(yard, "one").network != box_of(stack, "one").network


def test_a_way_out_is_a_setting(tmp_path: Path) -> None:
    require(None if why_not("on") else "boxes", f"what boxes need ({why_not('on')})")
    own = machine_address()
    with open_stack(tmp_path, {"PODYARD_BOXES": "on", "PODYARD_BOX_NETWORK": "any"}) as yard:
        yard.create_node("one", "v3-8", ZONE)
        said = run_on(
            yard,
            "one",
            f"curl -s http://{own}:1/; curl -s http://127.0.0.1.nip.invalid/; echo $https_proxy",
        )
        assert "PODYARD_BOX_NETWORK=any" in said.stdout
        assert said.stdout.endswith("http://169.254.169.254:3128\n"), said.stderr


def test_the_cost_of_abox_of(stack: Stack) -> None:
    """Printed for the documents; the bounds are wide, since this machine may be busy."""
    began = time.monotonic()
    stack.create_node("cost", "v3-8", ZONE)
    until(lambda: hosts(stack, "cost") or None, 10, "the host")
    assert run_on(stack, "cost", "true").returncode == 0
    first = psutil.Process(box_of(stack, "cost").pid)
    memory = first.memory_full_info().uss
    print(
        f"first process {memory / 1024:.0f} KiB, node to first command "
        f"{time.monotonic() - began:.2f} s"
    )
    assert memory < 2 << 20
    stack.delete_node("cost", ZONE)


def test_without_boxes_up_and_the_host_say_what_is_shared(tmp_path: Path) -> None:
    with open_stack(tmp_path, {"PODYARD_BOXES": "off"}) as yard:
        yard.create_node("one", "v3-8", ZONE)
        assert run_on(yard, "one", "true").returncode == 0
        said = sentence("PODYARD_BOXES is off")
        assert [host["isolation"] for host in hosts(yard, "one")] == [said]
        yard.down()
        done = yard.podyard("up", "--detach", *yard.up_options())
        assert said in done.stdout + done.stderr
