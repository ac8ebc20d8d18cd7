"""What tests of boxes have in common, with root and without: commands on hosts, and the ways out
that they try."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Any

from podyard.base import boxes
from podyard.workers.box import box
from tests.stack import Stack

ZONE = "europe-west4-a"
_PLANTED = ".podyard-box-test"
AT_ONCE = 10
MARKER = "podyard-test-secret-6c1f"
# Each of its processes asks for another one all the time.
FORK_BOMB = "python3 -S -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'"


def run_on(
    stack: Stack, node: str, command: str, worker: str = "0", seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    where = ("--data", str(stack.data), "--zone", ZONE, "--worker", worker)
    return stack.command("tpu", "exec", node, *where, "--", command, seconds=seconds)


def hosts(stack: Stack, node: str) -> list[dict[str, Any]]:
    path = f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/{node}/hosts"
    found: list[dict[str, Any]] = stack.call("GET", path)["hosts"]
    return found


def box_of(stack: Stack, node: str) -> box.Box:
    """The box of the node's first host, which has run a command."""
    found = box.find(stack.data / "agents" / "local" / "hosts" / hosts(stack, node)[0]["host"])
    assert found is not None
    return found[0]


def digest(top: Path) -> dict[str, str]:
    """SHA-256 of everything below a folder: owners, rights, times of change, and of files below 64
    KiB the contents."""
    found = {}
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if name not in ("__pycache__", ".cache")]
        for name in (*names, *files):
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                seen = path.lstat()
                said = (
                    f"{seen.st_mode} {seen.st_uid} {seen.st_gid} {seen.st_size} {seen.st_ctime_ns}"
                )
                if path.is_symlink():
                    said += str(path.readlink())
                elif path.is_file() and seen.st_size < 64 << 10:
                    said += hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path)] = hashlib.sha256(said.encode()).hexdigest()
    return found


def _attempts(stack: Stack, port: int, pid: int) -> dict[str, str]:
    """Return what a program in a box may try: each prints the marker, or succeeds, only if it gets
    out."""
    data, other = stack.data, hosts(stack, "other")[0]
    folder = data / "agents" / "local" / "hosts" / other["host"]
    api = stack.url.rsplit(":", 1)[1]
    own = "10.128.0.0"
    code = Path(boxes.__file__).parent
    fails = f"&& echo {MARKER}"
    dial = (
        "python -c 'import socket,sys; socket.create_connection((sys.argv[1], "
        "int(sys.argv[2])), 2)'"
    )
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
        **{
            f"a file of the machine's {top}": f"cat {Path(top, _PLANTED)} {fails}"
            for top in _planted_in(stack)
        },
        "Podyard's own code": f"touch {code}/planted {fails}",
        "the machine's root, through init": f"cat /proc/1/root{data}/token {fails}",
        "the machine's root, through a file descriptor": (
            f"cat /proc/self/fd/*/../..{data}/token {fails}"
        ),
        "the machine's root, by chroot": f"chroot /proc/1/root cat {data}/token {fails}",
        "the machine's root, by more ..": f"cat /../../../../../..{data}/token {fails}",
        "the machine's disk": (
            f"for d in /dev/sd? /dev/vd? /dev/nvme*; do head -c1 $d >/dev/null {fails}; done"
        ),
        "the machine's disk, by mknod": f"mknod /tmp/disk b 254 0 && head -c1 /tmp/disk {fails}",
        "the machine's disk, mounted": f"mount -t devtmpfs none /mnt && ls /mnt/vda {fails}",
        "what lies under a mount": f"umount /usr {fails}",
        "what lies under /etc": f"umount -l /etc {fails}",
        "the namespaces of the machine": f"nsenter -t 1 -a cat {data}/token {fails}",
        "another process namespace": f"nsenter -t {pid} -m true {fails}",
        "what lies under /usr, with more rights": f"unshare -Urm umount -l /usr {fails}",
        "what is read-only, with more rights": (
            f"unshare -Urm mount -o remount,rw,bind {code} && echo {MARKER}"
        ),
        "processes of the machine": f"ps axww | grep -q '[p]odyard.main' {fails}",
        "the environment of the platform": (
            f"cat /proc/*/environ | tr '\\0' '\\n' | grep -E '^PODYARD_TOKEN=' {fails}"
        ),
        "a signal to a process of the machine": f"kill -0 {pid} {fails}",
        "the memory of the machine": f"head -c1 /dev/mem /proc/kcore {fails}",
        "the machine's kernel log": f"dmesg {fails}",
        "the machine's settings": f"echo 1 > /proc/sys/kernel/sysrq {fails}",
        "a handler of the machine's crashes": (
            f"echo '|/tmp/x' > /proc/sys/kernel/core_pattern {fails}"
        ),
        "the machine's reset": f"echo b > /proc/sysrq-trigger {fails}",
        "the machine's clock": f"date -s @1 {fails}",
        "the machine's name": (
            f"echo x > /proc/sys/kernel/hostname && test $(cat /proc/1/sched | wc -l) = 0 {fails}"
        ),
        "a kernel module": f"modprobe dummy {fails}",
        "its own limits": (
            "mkdir -p /mnt/c && mount -t cgroup -o pids none /mnt/c && echo max > "
            "/mnt/c/pids.max && echo " + MARKER
        ),
        "the machine's loopback": f"{dial} 127.0.0.1 {port} {fails}",
        "the machine's own address": f"{dial} {machine_address()} {port} {fails}",
        "the metadata server of another host": (
            f"{dial} {other['metadataAddress'].replace(':', ' ')} {fails}"
        ),
        "the ssh port of another slice": f"{dial} {other['internalIp']} 22 {fails}",
        "a program of another slice": f"{dial} {other['internalIp']} 8476 {fails}",
        "the address of another host outside": f"{dial} {other['externalIp']} 8470 {fails}",
        "an address outside": f"{dial} 1.1.1.1 443 {fails}",
        "a name outside": f"getent hosts example.com {fails}",
        "a route outside": f"ip route add default via {own} && {dial} 1.1.1.1 443 {fails}",
        "another slice, by its address": (
            f"ip addr add {other['internalIp']}/32 dev eth0; arping -c1 "
            f"{other['internalIp']} {fails}"
        ),
        "the API without a token": (
            f"curl -sf http://127.0.0.1:{api}/podyard/v1/projects/demo/pods {fails}"
        ),
        "abstract sockets of the machine": (
            "python -c 'import socket; s = socket.socket(socket.AF_UNIX); "
            's.connect("\\0podyard-box-test")\' ' + fails
        ),
        "shared memory of the machine": f"ls /dev/shm/.p* {fails}",
    }


def _planted_in(stack: Stack) -> tuple[str, ...]:
    return ("/root", "/home", "/tmp", "/var/tmp", str(stack.data.parent))


def machine_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.2"


def ways_out(stack: Stack) -> list[str]:
    """Those that lead out of a box of node `one`; another slice is that of node `other`. Each is
    tried as the box's
    user and as its root, and what it looks for is there, as the test itself sees."""
    run_on(stack, "other", "true")
    run_on(stack, "one", "true")
    files = [Path(top, _PLANTED) for top in (*_planted_in(stack), "/dev/shm")]
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
            assert (
                MARKER
                in subprocess.run(
                    ["sh", "-c", attempts[name]], capture_output=True, text=True
                ).stdout
            ), name
        tries = [
            (
                f"(echo '== {who} {number}'; timeout 10 {sudo} sh -c {shlex.quote(command)} "
                f"2>/dev/null) >~/{who}{number} &"
            )
            for number, command in enumerate(attempts.values())
            for who, sudo in (("user", ""), ("root", "sudo"))
        ]
        # Most of them wait for an answer that never comes.
        batches = (
            "\n".join(tries[first : first + AT_ONCE]) for first in range(0, len(tries), AT_ONCE)
        )
        done = run_on(stack, "one", "\nwait\n".join((*batches, "cat ~/user* ~/root*")), seconds=400)
    assert done.stdout.count("== ") == 2 * len(attempts), done.stderr
    out = [part.split("\n")[0] for part in done.stdout.split("== ") if MARKER in part]
    names = list(attempts)
    print(f"{len(attempts)} ways, each as user and as root: {len(out)} lead out of the box")
    return [f"{item.split()[0]}: {names[int(item.split()[1])]}" for item in out]
