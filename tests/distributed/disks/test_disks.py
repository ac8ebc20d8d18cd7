"""Data disks in boxes, as people use them: mkfs, mount, a second life, another node."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from podyard.base.boxes import why_not
from tests.conftest import require
from tests.distributed.boxes import ZONE, hosts, run_on
from tests.ordinary_user import UserStack, make_user
from tests.stack import Stack, open_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
# The host server is asked for what the commands would not ask.
HOSTILE = (
    "exec 3<>/dev/tcp/169.254.169.254/3130; "
    """echo '{"action": "umount", "target": "/etc"}' >&3; cat <&3"""
)
MISSING = "ls: cannot access '/dev/sdb': No such file or directory"
DISKS = f"/compute/v1/projects/demo/zones/{ZONE}/disks"
PREPARE = (
    "sudo mkfs.ext4 -q -m 0 -E lazy_itable_init=0,discard /dev/disk/by-id/google-data && "
    "sudo mkdir -p /mnt/disks/data && sudo mount -o discard /dev/sdb /mnt/disks/data && "
    "sudo chmod 777 /mnt/disks/data && echo kept > /mnt/disks/data/file && "
    "echo UUID=$(sudo blkid -s UUID -o value /dev/sdb) /mnt/disks/data ext4 nofail 0 2 "
    "| sudo tee -a /etc/fstab > /dev/null"
)


@pytest.fixture(scope="module", params=["root", "user"])
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    require(shutil.which("fuse2fs"), "fuse2fs")
    if why := _why_no_fuse(tmp_path_factory.mktemp("fuse")):
        pytest.skip(f"file systems of programs are not allowed here: {why}")
    if request.param == "user":
        with make_user() as (name, home):
            yard = UserStack(home / "data", name, {"PODYARD_BOXES": "on"})
            try:
                yard.up()
                yield yard
            finally:
                yard.down()
                yard.http.close()
        return
    needs = why_not("on") if os.geteuid() == 0 else "root"
    require(None if needs else "boxes", f"root, and what boxes need ({needs})")
    with open_stack(tmp_path_factory.mktemp("disks"), {"PODYARD_BOXES": "on"}) as yard:
        yield yard


def test_a_disk_that_is_taken_away_is_written_and_can_be_read_elsewhere(stack: Stack) -> None:
    _make_disk(stack, "moved")
    _node(stack, "from", "moved")
    write = "sudo mkfs.ext4 -q /dev/sdb && sudo mount /dev/sdb /mnt && echo here | sudo tee /mnt/a"
    assert _lines(stack, "from", write) == ["here"]
    _attach(stack, "from", [])
    until(lambda: _lines(stack, "from", "ls /dev/sdb") == [MISSING] or None, 30, "the detachment")
    assert _lines(stack, "from", "cat /mnt/a; lsblk | tail -n +3; mount | grep fuse") == [
        "cat: /mnt/a: No such file or directory"
    ]
    # a host that runs, and only reads
    stack.create_node("to", "v3-8", ZONE)
    assert _lines(stack, "to", "ls /dev/sdb") == [MISSING]
    _attach(stack, "to", [("moved", "READ_ONLY")])
    until(lambda: _lines(stack, "to", "ls /dev/sdb") == ["/dev/sdb"] or None, 30, "the attachment")
    told = _lines(stack, "to", "sudo mount /dev/sdb /mnt; cat /mnt/a; echo x | sudo tee /dev/sdb")
    assert told == ["here", "x", "tee: /dev/sdb: Read-only file system"]
    for node in ("from", "to"):
        stack.delete_node(node, ZONE)
    stack.call("DELETE", f"{DISKS}/moved")


def _attach(stack: Stack, node: str, disks: list[tuple[str, str]]) -> None:
    place = f"projects/demo/zones/{ZONE}/disks"
    body = {"dataDisks": [{"sourceDisk": f"{place}/{name}", "mode": mode} for name, mode in disks]}
    path = f"/v2/projects/demo/locations/{ZONE}/nodes/{node}?updateMask=dataDisks"
    stack.call("PATCH", path, body)


def _why_no_fuse(folder: Path) -> str:
    """Containers often have no /dev/fuse, or may not use it. Empty where they may."""
    text = f"cd {folder} && truncate -s 8M image && mkfs.ext4 -q image && mkdir place && "
    text += "fuse2fs image place -o fakeroot && umount place"
    command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", text)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or str(done.returncode)


def _make_disk(stack: Stack, name: str) -> None:
    stack.call("POST", DISKS, {"name": name, "sizeGb": "10"})


def _node(stack: Stack, name: str, disk: str, mode: str = "READ_WRITE") -> None:
    disks = [{"sourceDisk": f"projects/demo/zones/{ZONE}/disks/{disk}", "mode": mode}]
    stack.create_node(name, "v3-8", ZONE, dataDisks=disks)


def _lines(stack: Stack, node: str, command: str) -> list[str]:
    done = run_on(stack, node, command)
    return (done.stdout + done.stderr).splitlines()


def test_a_disk_keeps_its_files_through_stop_kill_and_another_node(stack: Stack) -> None:
    _make_disk(stack, "data")
    _node(stack, "first", "data")
    done = run_on(stack, "first", PREPARE)
    assert done.returncode == 0, done.stderr
    assert _lines(
        stack,
        "first",
        "lsblk | tail -1; df -BG /mnt/disks/data | tail -1 | tr -s ' ' | cut -d' ' -f1,2",
    ) == [
        "sdb       10G  0 disk /mnt/disks/data",
        "/dev/sdb 10G",
    ]
    node = f"/v2/projects/demo/locations/{ZONE}/nodes/first"
    for verb, state in (("stop", "STOPPED"), ("start", "READY")):
        stack.call("POST", f"{node}:{verb}", {})
        until(lambda state=state: stack.call("GET", node)["state"] == state or None, 30, state)
    # what /etc/fstab lists is there again
    assert _lines(stack, "first", "cat /mnt/disks/data/file") == ["kept"]
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "podyard.workers.host.server" in words and words[-1].startswith(str(stack.data)):
            process.kill()
    # the next host server finds what is mounted, and unmounts it
    end = "cat /mnt/disks/data/file && sudo umount /dev/sdb && ls /mnt/disks/data"
    until(lambda: _lines(stack, "first", end) == ["kept"] or None, 60, "the next server")
    stack.delete_node("first", ZONE)
    _node(stack, "second", "data")
    mounts = "sudo mount -o ro /dev/sdb /mnt && cat /mnt/file; touch /mnt/other"
    assert _lines(stack, "second", mounts) == [
        "kept",
        "touch: cannot touch '/mnt/other': Read-only file system",
    ]
    stack.delete_node("second", ZONE)
    folder = stack.data / "agents" / "local" / "disks"
    assert _is_there(folder)
    stack.call("DELETE", f"{DISKS}/data")
    until(lambda: True if not _is_there(folder) else None, 30, "the end of the contents")


def _is_there(folder: Path) -> bool:
    return any(folder.glob("*/image"))


def test_what_cannot_be_mounted_is_refused_in_a_sentence(stack: Stack) -> None:
    _make_disk(stack, "blank")
    _node(stack, "third", "blank")
    told = _lines(
        stack, "third",
        "sudo mount /dev/sdb /mnt; sudo mount /dev/sdc /mnt; sudo mount /dev/sdb /nowhere; "
        "sudo mount -t tmpfs x /mnt; sudo umount /mnt; sudo mkfs.ext4 -q /dev/sdb; "
        "sudo mount /dev/sdb /mnt; sudo mount /dev/sdb /srv 2>&1 | cut -d, -f1; cd /mnt; "
        "sudo umount /mnt; cd /; sudo umount /dev/sdb; " + HOSTILE,
    )  # fmt: skip
    assert told == [
        # what went to stdout
        "mount: /dev/sdb is mounted already (fuse2fs",
        '{"error": "/etc: no disk is mounted there"}',
        "mount: /mnt: wrong fs type, bad superblock on /dev/sdb: make one with mkfs.ext4",
        "mount: /dev/sdc is not a disk of this host: a box mounts its disks only",
        "mount: /nowhere: mount point does not exist.",
        "mount: x is not a disk of this host: a box mounts its disks only",
        "umount: /mnt: not mounted.",
        "umount: /mnt: unmount: Device or resource busy",
    ]
    stack.delete_node("third", ZONE)
    stack.call("DELETE", f"{DISKS}/blank")


def test_a_tenants_image_meets_a_program_without_network_or_the_machines_files(
    stack: Stack,
) -> None:
    _make_disk(stack, "hostile")
    _node(stack, "fourth", "hostile")
    done = run_on(stack, "fourth", "sudo mkfs.ext4 -q /dev/sdb && sudo mount /dev/sdb /mnt")
    assert done.returncode == 0, done.stderr
    host = hosts(stack, "fourth")[0]["host"]
    folder = stack.data / "agents" / "local" / "hosts" / host / "box" / "disks"
    (record,) = folder.glob("*.json")
    pid = json.loads(record.read_text())["pid"]
    root = f"/proc/{pid}/root"
    names = {path.name for path in Path(root).iterdir()}
    assert {"usr", "dev", "mnt"} <= names <= {*SYSTEM, "dev", "etc", "mnt", "proc"}
    assert Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].split()[:2] == [str(pid), "1"]
    links = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in links] == ["lo"]
    if os.geteuid() == 0:
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Seccomp:\t2" in status or isinstance(stack, UserStack)
    # An image that is broken on purpose is refused, and nothing is left behind.
    told = _lines(
        stack, "fourth",
        "sudo umount /mnt; sudo dd if=/dev/urandom of=/dev/sdb bs=1k seek=1 count=1 conv=notrunc "
        "status=none; printf '\\123\\357' | sudo dd of=/dev/sdb bs=1 seek=1080 conv=notrunc "
        "status=none; sudo mount /dev/sdb /mnt; sudo umount /mnt",
    )  # fmt: skip
    assert len(told) == 2 and told[0].startswith("mount: /mnt: "), told
    assert told[1] == "umount: /mnt: not mounted."
    until(lambda: True if not list(_fuse2fs(folder)) else None, 10, "the end of fuse2fs")
    stack.delete_node("fourth", ZONE)
    stack.call("DELETE", f"{DISKS}/hostile")


def _fuse2fs(folder: Path) -> Iterator[int]:
    for record in folder.glob("*.json"):
        pid = json.loads(record.read_text())["pid"]
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                yield pid
