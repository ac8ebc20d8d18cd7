"""Boxes from inside: what programs of users cannot reach, cannot break and cannot leave behind."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from podyard.base.boxes import sentence, why_not
from podyard.workers import box
from tests.conftest import require
from tests.stack import PODYARD, Stack, open_stack, until

ZONE = "europe-west4-a"
_QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
_PLANTED, _PLANTED_IN = ".podyard-box-test", ("/root", "/home", "/tmp", "/var/tmp")
MARKER = "podyard-test-secret-6c1f"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    require(None if why_not("on") else "boxes", f"what boxes need ({why_not('on')})")
    with open_stack(tmp_path_factory.mktemp("boxes"), {"PODYARD_BOXES": "on"}) as found:
        found.create_node("one", "v3-8", ZONE)
        found.create_node("other", "v3-32", ZONE)
        yield found


def _argv(stack: Stack, node: str, command: str, worker: str = "0") -> list[str]:
    found = ["--data", str(stack.data), "--zone", ZONE, "--worker", worker]
    return [*PODYARD, "tpu", "exec", node, *found, "--", command]


def _env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}


def _run(
    stack: Stack, node: str, command: str, worker: str = "0", seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    argv = _argv(stack, node, command, worker)
    return subprocess.run(argv, env=_env(), capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)


def _hosts(stack: Stack, node: str) -> list[dict[str, Any]]:
    path = f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/{node}/hosts"
    found: list[dict[str, Any]] = stack.call("GET", path)["hosts"]
    return found


def _box(stack: Stack, node: str) -> box.Box:
    """The box of the node's first host, which has run a command."""
    found = box.find(stack.data / "agents" / "local" / "hosts" / _hosts(stack, node)[0]["host"])
    assert found is not None
    return found[0]


def _digest(top: Path) -> dict[str, str]:
    """SHA-256 of everything below a folder: owners, rights, times of change, and of files below 64 KiB the contents."""
    found = {}
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if name not in ("__pycache__", ".cache")]
        for name in (*names, *files):
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                seen = path.lstat()
                said = f"{seen.st_mode} {seen.st_uid} {seen.st_gid} {seen.st_size} {seen.st_ctime_ns}"
                if path.is_symlink():
                    said += str(path.readlink())
                elif path.is_file() and seen.st_size < 64 << 10:
                    said += hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path)] = hashlib.sha256(said.encode()).hexdigest()
    return found


def test_a_host_is_a_machine_of_its_own(stack: Stack) -> None:
    said = _run(
        stack, "other",
        "id -un; sudo id -u; sudo -n -u podyard id -un; hostname; pwd; ls /dev | grep -c accel; pgrep -c sleep;"
        " touch /tmp/x ~/y; sudo touch /etc/z /usr/z; echo $TPU_WORKER_HOSTNAMES;"
        " curl -sH Metadata-Flavor:Google http://metadata.google.internal/computeMetadata/v1/instance/name;"
        " echo; curl -sH Metadata-Flavor:Google http://169.254.169.254/computeMetadata/v1/instance/attributes/"
        "agent-worker-number; echo; curl -s -o /dev/null -w '%{http_code}' $PODYARD_URL/podyard/v1/projects",
    )  # fmt: skip
    addresses = ",".join(host["internalIp"] for host in _hosts(stack, "other"))
    assert (said.returncode, said.stdout.split("\n")) == (
        0,
        ["podyard", "0", "podyard", "other-w-0", "/home/podyard", "4", "1", addresses, "other-w-0", "0", "401"],
    ), said.stderr
    assert not Path("/etc/z").exists() and not Path("/usr/z").exists()
    assert {host["isolation"] for host in _hosts(stack, "other") if host["state"] == "RUNNING"} == {sentence("")}


def test_hosts_of_a_slice_reach_each_other_at_all_ports_and_each_has_its_own(stack: Stack) -> None:
    serve = "sudo python -m http.server $port >/dev/null 2>&1 &"
    done = _run(stack, "other", f"for port in 80 8476; do {serve} done; sleep 1.5; echo $TPU_WORKER_ID", "all")
    assert (done.returncode, done.stdout) == (0, "0\n1\n2\n3\n"), done.stderr
    ask = "curl --retry 9 --retry-connrefused --retry-delay 1 -so /dev/null -w '%{http_code} ' http://other-w-$n:$p/"
    assert _run(stack, "other", f"for n in 0 1 2 3; do for p in 80 8476; do {ask}; done; done").stdout == "200 " * 8
    greeting = "python -c 'import socket; print(socket.create_connection((\"other-w-3\", 22)).recv(4))'"
    assert _run(stack, "other", greeting).stdout == "b'SSH-'\n"


def test_what_launchers_do_to_a_host_leaves_the_machine_as_it_is(stack: Stack) -> None:
    """What SkyPilot runs on a host, and the effect of `ray stop`: the end of every process that it sees."""
    outside = subprocess.Popen(["sleep", "600"])
    tops = [Path(name) for name in ("/etc", "/home", "/usr")]
    before = [_digest(top) for top in tops]
    done = _run(
        stack, "one",
        "sudo rm -rf /etc/security/limits.d; echo x | sudo tee -a /etc/profile >/dev/null; sudo pkill -9 dpkg;"
        "sudo rm -f /usr/bin/wget /usr/bin/perl; sudo chmod 777 /etc /usr; ls /etc/security;"
        "sudo rm -rf /home/* /usr/share/doc /usr/lib/python3; setsid sudo sh -c 'kill -9 -1' & sleep 1; echo gone",
    )  # fmt: skip
    assert "limits.d" not in done.stdout
    assert [_digest(top) for top in tops] == before
    assert outside.poll() is None
    outside.kill()
    outside.wait()
    assert _run(stack, "one", "test ! -e /etc/security/limits.d && echo still").stdout == "still\n"


def _attempts(stack: Stack, port: int, pid: int) -> dict[str, str]:
    """What a program in a box may try: each prints the marker, or succeeds, only if it gets out."""
    data, other = stack.data, _hosts(stack, "other")[0]
    folder = data / "agents" / "local" / "hosts" / other["host"]
    api = stack.url.rsplit(":", 1)[1]
    own = "10.128.0.0"
    fails = f"&& echo {MARKER}"
    dial = "python -c 'import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)'"
    return {
        "the administrator's token": f"cat {data}/token {fails}",
        "the agent's token": f"cat {data}/agent-local.token {fails}",
        "the database": f"cat {data}/podyard.db {fails}",
        "the data folder's list": f"ls {data} {fails}",
        "the platform's log": f"cat {data}/podyard.log {fails}",
        "the ssh key of podyard tpu": f"cat {data}/ssh/podyard_ed25519 {fails}",
        "another host's home": f"ls {folder}/home {fails}",
        "another host's root": f"ls {folder}/box {fails}",
        "its own folder from outside": f"ls {data}/agents {fails}",
        "the machine's passwords": "grep -E '^root:[^*!]' /etc/shadow && echo " + MARKER,
        **{f"a file of the machine's {top}": f"cat {Path(top, _PLANTED)} {fails}" for top in _PLANTED_IN},
        "the machine's root, through init": f"cat /proc/1/root{data}/token {fails}",
        "the machine's root, through a file descriptor": f"cat /proc/self/fd/*/../..{data}/token {fails}",
        "the machine's root, by chroot": f"chroot /proc/1/root cat {data}/token {fails}",
        "the machine's root, by more ..": f"cat /../../../../../..{data}/token {fails}",
        "the machine's disk": f"for d in /dev/sd? /dev/vd? /dev/nvme*; do head -c1 $d >/dev/null {fails}; done",
        "the machine's disk, by mknod": f"mknod /tmp/disk b 254 0 && head -c1 /tmp/disk {fails}",
        "the machine's disk, mounted": f"mount -t devtmpfs none /mnt && ls /mnt/vda {fails}",
        "what lies under a mount": f"umount /usr {fails}",
        "what lies under /etc": f"umount -l /etc {fails}",
        "the namespaces of the machine": f"nsenter -t 1 -a cat {data}/token {fails}",
        "another process namespace": f"nsenter -t {pid} -m true {fails}",
        "processes of the machine": f"ps axww | grep -q '[p]odyard.main' {fails}",
        "the environment of the platform": f"cat /proc/*/environ | tr '\\0' '\\n' | grep -E '^PODYARD_TOKEN=' {fails}",
        "a signal to a process of the machine": f"kill -0 {pid} {fails}",
        "the memory of the machine": f"head -c1 /dev/mem /proc/kcore {fails}",
        "the machine's kernel log": f"dmesg {fails}",
        "the machine's settings": f"echo 1 > /proc/sys/kernel/sysrq {fails}",
        "a handler of the machine's crashes": f"echo '|/tmp/x' > /proc/sys/kernel/core_pattern {fails}",
        "the machine's reset": f"echo b > /proc/sysrq-trigger {fails}",
        "the machine's clock": f"date -s @1 {fails}",
        "the machine's name": f"echo x > /proc/sys/kernel/hostname && test $(cat /proc/1/sched | wc -l) = 0 {fails}",
        "a kernel module": f"modprobe dummy {fails}",
        "its own limits": (
            "mkdir -p /mnt/c && mount -t cgroup -o pids none /mnt/c && echo max > /mnt/c/pids.max && echo " + MARKER
        ),
        "the machine's loopback": f"{dial} 127.0.0.1 {port} {fails}",
        "the machine's own address": f"{dial} {_machine_address()} {port} {fails}",
        "the metadata server of another host": f"{dial} {other['metadataAddress'].replace(':', ' ')} {fails}",
        "the ssh port of another slice": f"{dial} {other['internalIp']} 22 {fails}",
        "a program of another slice": f"{dial} {other['internalIp']} 8476 {fails}",
        "the address of another host outside": f"{dial} {other['externalIp']} 8470 {fails}",
        "an address outside": f"{dial} 1.1.1.1 443 {fails}",
        "a name outside": f"getent hosts example.com {fails}",
        "a route outside": f"ip route add default via {own} && {dial} 1.1.1.1 443 {fails}",
        "another slice, by its address": (
            f"ip addr add {other['internalIp']}/32 dev eth0; arping -c1 {other['internalIp']} {fails}"
        ),
        "the API without a token": f"curl -sf http://127.0.0.1:{api}/podyard/v1/projects/demo/pods {fails}",
        "abstract sockets of the machine": (
            "python -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"\\0podyard-box-test\")' " + fails
        ),
        "shared memory of the machine": f"ls /dev/shm/.p* {fails}",
    }


def _machine_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.2"


def test_forty_ways_out_of_a_box_lead_nowhere(stack: Stack) -> None:
    """Tried as the box's user and as its root. What they look for is there, as the test itself sees."""
    _run(stack, "other", "true")
    _run(stack, "one", "true")
    files = [Path(top, _PLANTED) for top in (*_PLANTED_IN, "/dev/shm")]
    with contextlib.ExitStack() as cleared:
        for path in files:
            path.write_text(MARKER)
            cleared.callback(path.unlink)
        listener = cleared.enter_context(socket.create_server(("0.0.0.0", 0)))
        abstract = cleared.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind("\0podyard-box-test")
        abstract.listen()
        attempts = _attempts(stack, listener.getsockname()[1], os.getpid())
        assert len(attempts) >= 40
        for name in ("the administrator's token", "the data folder's list", "the platform's log"):
            assert MARKER in subprocess.run(["sh", "-c", attempts[name]], capture_output=True, text=True).stdout, name
        script = "".join(
            f"echo '== {who} {number}'; timeout 10 {sudo} sh -c {shlex.quote(command)} 2>/dev/null\n"
            for number, command in enumerate(attempts.values())
            for who, sudo in (("user", ""), ("root", "sudo"))
        )
        done = _run(stack, "one", script, seconds=400)
    assert done.stdout.count("== ") == 2 * len(attempts), done.stderr
    out = [part.split("\n")[0] for part in done.stdout.split("== ") if MARKER in part]
    names = list(attempts)
    print(f"{len(attempts)} ways, each as user and as root: {len(out)} lead out of the box")
    assert [f"{item.split()[0]}: {names[int(item.split()[1])]}" for item in out] == []


def test_a_fork_bomb_ends_in_its_box(stack: Stack) -> None:
    _run(stack, "one", "true")
    place = _box(stack, "one")
    before = len(psutil.pids())
    with subprocess.Popen(_argv(stack, "one", "bomb() { bomb | bomb & }; bomb"), env=_env(), **_QUIET) as process:
        time.sleep(5)
        most = len(psutil.pids()) - before
        began = time.monotonic()
        assert subprocess.run(["/bin/true"], timeout=20).returncode == 0
        stack.call("GET", "/podyard/v1/projects")
        answer_seconds = time.monotonic() - began
        assert place.is_alive()
        assert most < 4200
        process.kill()
    stack.delete_node("one", ZONE)
    until(lambda: not place.is_alive() or None, 30, "the end of the box")
    until(lambda: len(psutil.pids()) < before + 100 or None, 30, "the end of its processes")
    print(f"fork bomb: {most} processes at most, the API and a new process answered in {answer_seconds:.1f} s")
    stack.create_node("one", "v3-8", ZONE)


def test_a_memory_hog_ends_in_its_box(stack: Stack) -> None:
    _run(stack, "one", "true")
    place = _box(stack, "one")
    files = [path / name for path in place.cgroups for name in ("memory.max", "memory.limit_in_bytes")]
    path = Path(require(next((str(file) for file in files if file.exists()), None), "a memory cgroup"))
    usual = path.read_text()
    path.write_text(str(256 << 20))  # the same limit, smaller: the machine's memory is not for tests
    try:
        hog = "python -c 'b = []\nwhile True: b.append(bytes(1 << 20))'; echo $?"
        assert _run(stack, "one", hog).stdout == "137\n"
        assert _run(stack, "one", "echo fine").stdout == "fine\n"
    finally:
        path.write_text(usual)


def test_what_a_killed_yard_leaves_is_adopted_or_removed(stack: Stack, tmp_path: Path) -> None:
    """kill -9 for the whole stack, boxes gone on; then a start that finds one of them alive and the other dead."""
    with open_stack(tmp_path, {"PODYARD_BOXES": "on"}) as yard:
        for node in ("stays", "ends"):
            yard.create_node(node, "v3-8", ZONE)
            assert _run(yard, node, "setsid sleep 7777 >/dev/null 2>&1 & echo ok").stdout == "ok\n"
        stays, ends = _box(yard, "stays"), _box(yard, "ends")
        networks = {item.name for item in Path("/run/netns").glob("podyard-*")}
        for process in [item for item in yard.processes() if item.pid not in (stays.pid, ends.pid)]:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        ends.kill()
        yard.up()
        # Until another host server listens, hosts that the API takes for running answer nobody.
        until(lambda: _run(yard, "stays", "true").returncode == 0 or None, 20, "the hosts")
        assert _run(yard, "stays", "pgrep -c sleep").stdout == "2\n"  # with the box's first process
        assert stays.is_alive()
        assert _run(yard, "ends", "pgrep -c sleep").stdout == "1\n"
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
            serve = f"mkdir -p s && cd s && echo {word} > w && (python -m http.server 9000 >/dev/null 2>&1 &); sleep 1"
            assert _run(found, "one", serve).returncode == 0
        for found, word in ((yard, "second"), (stack, "first")):
            assert _run(found, "one", "curl -s http://one-w-0:9000/w").stdout == f"{word}\n"
        assert _box(yard, "one").network != _box(stack, "one").network


def test_a_way_out_is_a_setting(tmp_path: Path) -> None:
    require(None if why_not("on") else "boxes", f"what boxes need ({why_not('on')})")
    own = _machine_address()
    with open_stack(tmp_path, {"PODYARD_BOXES": "on", "PODYARD_BOX_NETWORK": "any"}) as yard:
        yard.create_node("one", "v3-8", ZONE)
        said = _run(yard, "one", f"curl -s http://{own}:1/; curl -s http://127.0.0.1.nip.invalid/; echo $https_proxy")
        assert "PODYARD_BOX_NETWORK=any" in said.stdout
        assert said.stdout.endswith("http://169.254.169.254:3128\n"), said.stderr


def test_the_cost_of_a_box(stack: Stack) -> None:
    """Printed for the documents; the bounds are wide, since this machine may be busy."""
    began = time.monotonic()
    stack.create_node("cost", "v3-8", ZONE)
    until(lambda: _hosts(stack, "cost") or None, 10, "the host")
    assert _run(stack, "cost", "true").returncode == 0
    first = psutil.Process(_box(stack, "cost").pid)
    memory = first.memory_full_info().uss
    print(f"first process {memory / 1024:.0f} KiB, node to first command {time.monotonic() - began:.2f} s")
    assert memory < 2 << 20
    stack.delete_node("cost", ZONE)


def test_without_boxes_up_and_the_host_say_what_is_shared(tmp_path: Path) -> None:
    with open_stack(tmp_path, {"PODYARD_BOXES": "off"}) as yard:
        yard.create_node("one", "v3-8", ZONE)
        assert _run(yard, "one", "true").returncode == 0
        said = sentence("PODYARD_BOXES is off")
        assert [host["isolation"] for host in _hosts(yard, "one")] == [said]
        yard.down()
        done = yard.podyard("up", "--detach", *yard.up_options())
        assert said in done.stdout + done.stderr
