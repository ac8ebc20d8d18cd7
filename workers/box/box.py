"""Boxes: hosts with file systems, processes, addresses and limits of their own. Linux; without root
with fewer limits.

A box is held by its first process (`box/init.py`), which outlives the host server: the next one
finds it by its record. That process killed, Linux ends all others of the box and drops its
namespaces, mounts and addresses. What is left, by name, are a cgroup and the network that the slice
shares; `sweep` removes them when nothing lives in them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import logging
import os
import resource
import shutil
import socket
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.domain.host import NodeFacts
from podyard.workers.box import calls as box_calls
from podyard.workers.box import init as box_init
from podyard.workers.box import login as box_login
from podyard.workers.box import plan as box_plan
from podyard.workers.box import space as box_space
from podyard.workers.box import switch as box_switch
from podyard.workers.box.devices import with_disk_commands
from podyard.workers.box.plan import USER_ID, Shown
from podyard.workers.box.space import Space, run, tool
from podyard.workers.box.unit_commands import with_unit_commands
from podyard.workers.kit import process_group
from podyard.workers.kit.process_group import Group, ProcessRecord

logger = logging.getLogger(__name__)

ETC_SECONDS = 10.0  # how old a look at the machine's /etc may be: the 64 boxes of a slice share one
COPIED_BYTES_MAX = 4 << 20  # of one file of /etc: databases of hardware and the like are not needed
_SERVICES = Path("/etc/systemd/system")  # that are enabled on the machine: a box has its own
_RECORD, _NETWORK = "box", "box/network"
# TIOCSPTLCK, TIOCGPTPEER, TIOCGPTN
_UNLOCK_PTY, _OPEN_PEER, _NUMBER_OF = 0x40045431, 0x5441, 0x80045430
_IN_CGROUPS = 'for group in $0; do echo 0 > "$group/cgroup.procs" || exit 255; done; exec "$@"'
_AT_HOME = 'cd "$HOME" || cd /; exec "$@"'
_ON_TERMINAL = 'cd "$HOME" || cd /; exec 0<>"$0" 1>&0 2>&0; exec "$@"'


@dataclasses.dataclass(frozen=True, slots=True)
class BoxSettings:
    """Settings that the boxes of a host server share. `folder` is the agent's; `url` that of the
    API."""

    folder: Path
    url: str


class Box:
    """One box whose first process runs."""

    def __init__(
        self, group: Group, space: Space, cgroups: Sequence[Path], network: str, host_id: str
    ) -> None:
        self.pid = group.pid
        self._group = group
        self.space = space
        self.cgroups = tuple(cgroups)
        self.network = network
        self._host_id = host_id
        # how often all its programs were ended, since they asked for more than they may have
        self.ends = 0

    def enter(
        self,
        command: Sequence[str],
        *,
        as_root: bool = False,
        terminal: str | None = None,
        cgroup: Path | None = None,
    ) -> list[str]:
        """Return what runs `command` inside, in a new session that begins at home. `terminal`: of
        `open_terminal`. `cgroup`: one below the box's, by which the processes are found."""
        cgroups = [
            cgroup if cgroup is not None and cgroup.parent == path else path
            for path in self.cgroups
        ]
        inside = (
            ("/bin/sh", "-c", _AT_HOME, "sh")
            if terminal is None
            else ("/bin/sh", "-c", _ON_TERMINAL, terminal)
        )
        groups, calls = " ".join(map(str, cgroups)), box_calls.profile_of_boxes()
        joining = (
            ("/bin/sh", "-c", _IN_CGROUPS, groups)
            if calls is None
            else (sys.executable, "-I", "-S", box_init.__file__, "enter", *map(str, calls), groups)
        )
        return [
            *joining,
            tool("nsenter"), "-t", str(self.pid), "-U", "-m", "-u", "-i", "-n", "-p", "-C",
            *self._become(as_root=as_root), "setsid", *inside, *command,
        ]  # fmt: skip

    def enter_as(
        self, name: str, command: Sequence[str], *, terminal: str | None = None
    ) -> list[str]:
        """Return what runs `command` inside as the user who logs in with `name`."""
        if name == box_plan.USER:
            return self.enter(command, terminal=terminal)
        login = (sys.executable, "-I", "-S", box_login.__file__, "enter", name, *command)
        return self.enter(login, as_root=True, terminal=terminal)

    @property
    def processes_max(self) -> int:
        most = box_plan.processes_max(os.cpu_count() or 1)
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        return (
            most if self.space.holder is None or hard == resource.RLIM_INFINITY else min(hard, most)
        )

    def _become(self, *, as_root: bool) -> tuple[str, ...]:
        """The rest of nsenter's options, and what else makes a process one of the box's user or
        root."""
        if self.space.holder is None:
            number = "0" if as_root else str(USER_ID)
            return ("-S", number, "-G", number, "--")
        most = f"--nproc={self.processes_max}:{self.processes_max}"
        limit = ("--preserve-credentials", "--", "prlimit", most, "--")
        return (*limit, *box_plan.AS_ROOT) if as_root else limit

    def open_terminal(self) -> tuple[int, int, str]:
        """A new terminal of the box: (our end, theirs, its name inside)."""
        multiplexer = Path("/proc", str(self.pid), "root", "dev/pts/ptmx")
        ours = os.open(multiplexer, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(ours, _UNLOCK_PTY, b"\0\0\0\0")
            theirs = fcntl.ioctl(ours, _OPEN_PEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            os.fchown(theirs, self.outside(USER_ID), self.outside(USER_ID, "gid_map"))
            number = int.from_bytes(fcntl.ioctl(ours, _NUMBER_OF, b"\0\0\0\0"), sys.byteorder)
        except OSError:
            os.close(ours)
            raise
        return ours, theirs, f"/dev/pts/{number}"

    def outside(self, number: int, maps: str = "uid_map") -> int:
        """Return what a user of the box, or a group of it, is on the machine."""
        for line in Path(f"/proc/{self.pid}/{maps}").read_text().splitlines():
            inside, outside, count = map(int, line.split())
            if inside <= number < inside + count:
                return outside + number - inside
        raise OSError(f"the box has no user {number}")

    def place(self, name: str, text: str) -> str:
        """Writes a program, as the box's root: its folders may have become anything. Returns where
        it is inside."""
        path = f"/run/podyard/{name}"
        command = self.enter(("/bin/sh", "-c", 'cat > "$0" && chmod 755 "$0"', path), as_root=True)
        run(command, text, "a program of the box", {"PATH": box_plan.PATH, "HOME": "/root"})
        return path

    def make_socket(self) -> socket.socket:
        """A TCP socket of the box: it reaches what programs there reach, and nothing else."""
        return box_switch.open_socket(self.space, Path("/proc", str(self.pid), "ns/net"))

    def listen(self, address: str, port: int, backlog: int) -> socket.socket:
        return _listening(self.make_socket(), address, port, backlog)

    def listen_at_gate(self, port: int, backlog: int) -> socket.socket:
        """Return where only this box asks for the metadata server."""
        found = box_switch.open_socket(self.space, self.space.networks / self.network)
        gate = box_plan.gate_name(self._host_id).encode()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, gate)
        return _listening(found, box_plan.METADATA_ADDRESS, port, backlog)

    def is_alive(self) -> bool:
        return not self._group.exit_code()[0]

    def kill(self) -> None:
        """Linux ends every process of a box whose first one ends."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)

    def end(self, clock: RealClock) -> bool:
        """Kills what runs in it and removes what is left of it; False if processes do not end."""
        self.kill()
        deadline = clock.monotonic_seconds() + process_group.KILL_SECONDS_MAX
        while self.is_alive():
            if clock.monotonic_seconds() > deadline:
                return False
            clock.sleep(0.01)
        box_switch.unplug(self.space, self.network, self._host_id)
        for path in self.cgroups:
            _remove_cgroup(path, clock)
            # Of all boxes of the agent, unless others live.
            with contextlib.suppress(OSError), self.space.lock_networks():
                path.parent.rmdir()
        return True


class Boxes:
    """The boxes of one host server."""

    def __init__(self, settings: BoxSettings, clock: RealClock) -> None:
        self._settings = settings
        self._clock = clock
        self._cgroups = cgroup_folders()
        self._etc_lock = threading.Lock()
        self._etc_until = float("-inf")
        self._etc_base = Path()

    def make(
        self, host_id: str, generation: int, facts: NodeFacts, index: int, shown: Shown
    ) -> Box:
        """The box of a host in this life: the one that still runs, or a new one. Raises OSError
        that says why not."""
        box = self._make(host_id, generation, facts, index, shown)
        try:
            # only now: where boxes fail, hosts go on without them, and have sudo
            box_calls.refuse_calls()
        except OSError:
            box.end(self._clock)
            raise
        return box

    def _make(
        self, host_id: str, generation: int, facts: NodeFacts, index: int, shown: Shown
    ) -> Box:
        folder = self._settings.folder / "hosts" / host_id
        (folder / "box").mkdir(exist_ok=True, mode=0o700)
        network = self.switch_name(facts)
        cgroups = _cgroups_of(folder)
        space = box_space.begin(self._settings.folder)
        found = find(folder)
        if found is not None:
            box, of_generation = found
            if of_generation == generation and box_switch.number(space, network) != 0:
                return box
            box.end(self._clock)
        is_root = space.holder is None
        if is_root:
            with space.lock_networks():
                self._limit(host_id)
        for name, mode in (("tmp", 0o1777), ("programs", 0o1777), ("home", 0o755)):
            (folder / name).chmod(mode)  # several users of the box share them
        plan = box_plan.plan(
            facts, index, folder, self._base(), shown, box_plan.system_folders(), map(str, cgroups),
            self._settings.url, is_root=is_root,
        )  # fmt: skip
        plan = with_unit_commands(with_disk_commands(plan))
        plan = dataclasses.replace(plan, calls=box_calls.profile_of_boxes())
        command = space.command(sys.executable, "-I", "-S", box_init.__file__)
        pid = int(run(command, json.dumps(dataclasses.asdict(plan)), "the box"))
        started = process_group.start_of(pid)
        if started is None:
            raise OSError("the first process of the box has ended")
        (folder / _NETWORK).write_text(network)
        process_group.write_record(folder / "box", ProcessRecord(_RECORD, generation, pid, started))
        box = Box(Group(pid, started, None), space, cgroups, network, host_id)
        inside = box_plan.inside_commands(facts, index, self._settings.url)
        try:
            box_switch.plug(space, network, host_id, pid, facts.internal_ips[index], inside)
        except OSError:
            box.end(self._clock)
            raise
        return box

    def switch_name(self, facts: NodeFacts) -> str:
        return box_plan.switch_name(facts, self._settings.folder)

    def _limit(self, host_id: str) -> None:
        """The cgroups of all boxes and of this one."""
        if set(self._cgroups) not in ({"all"}, {"cpu", "memory", "pids"}):
            raise OSError("no cgroups for CPU, memory and processes are mounted")
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
        for controller, folder in self._cgroups.items():
            version = 2 if controller == "all" else 1
            together, each = box_plan.limits(
                memory_bytes, os.cpu_count() or 1, pid_max, version=version
            )
            yard = folder / _group_name(self._settings.folder)
            chosen = tuple(together) if version == 2 else (controller,)
            for path, values in ((yard, together), (yard / host_id, each)):
                if path == yard and version == 2:
                    yard.mkdir(exist_ok=True)
                    (folder / "cgroup.subtree_control").write_text("+cpu +memory +pids")
                    (yard / "cgroup.subtree_control").write_text("+cpu +memory +pids")
                path.mkdir(exist_ok=True)
                for name in chosen:
                    for file, value in values[name].items():
                        (path / file).write_text(str(value))

    def _base(self) -> Path:
        with self._etc_lock:  # boxes of a slice are made in several threads at once
            if self._clock.monotonic_seconds() > self._etc_until:
                self._etc_base = self._etc()
                self._etc_until = self._clock.monotonic_seconds() + ETC_SECONDS
            return self._etc_base

    def _etc(self) -> Path:
        """The read-only base of /etc: what everybody on the machine may read, with the users of a
        box. It is made once for each state of the machine's /etc."""
        listing = sorted(
            item for item in _readable(Path("/etc")) if not item[0].is_relative_to(_SERVICES)
        )
        seen = hashlib.sha256(
            repr([(str(p), f.st_mtime_ns, f.st_size) for p, f in listing]).encode()
        ).hexdigest()[:12]
        base = self._settings.folder / "base"
        target = base / f"etc-{seen}"
        if target.is_dir():
            return target
        base.mkdir(exist_ok=True, mode=0o700)
        made = base / f".etc-{seen}-{os.getpid()}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(mode=0o755)
        for path, found in listing:
            copy = made / path.relative_to("/etc")
            if stat.S_ISDIR(found.st_mode):
                copy.mkdir(exist_ok=True)
            elif stat.S_ISLNK(found.st_mode):
                copy.symlink_to(path.readlink())
            else:
                with contextlib.suppress(OSError):
                    shutil.copyfile(path, copy)
            if not copy.is_symlink():
                copy.chmod(stat.S_IMODE(found.st_mode) & 0o755)
        texts = [Path("/etc", name).read_text(errors="replace") for name in ("passwd", "group")]
        for name, (mode, text) in box_plan.etc_files(*texts).items():
            (made / name).unlink(missing_ok=True)
            (made / name).write_text(text)
            (made / name).chmod(mode)
        with contextlib.suppress(OSError):
            made.rename(target)  # another one may have been faster
        shutil.rmtree(made, ignore_errors=True)
        return target


def find(folder: Path) -> tuple[Box, int] | None:
    """The box that runs for a host's folder, and in which life of the host it was made."""
    record = next(iter(process_group.records(folder / "box")), None)
    group = None if record is None else process_group.adopt(record)
    if group is None or record is None:
        return None
    space = box_space.of(folder.parent.parent)
    return Box(
        group, space, _cgroups_of(folder), (folder / _NETWORK).read_text(), folder.name
    ), record.fence


def _group_name(agent_folder: Path) -> str:
    """Of the cgroup of all boxes of an agent."""
    return f"podyard-{hashlib.sha256(str(agent_folder.resolve()).encode()).hexdigest()[:12]}"


def _cgroups_of(folder: Path) -> list[Path]:
    return [
        path / _group_name(folder.parent.parent) / folder.name for path in cgroup_folders().values()
    ]


def program_cgroups(agent_folder: Path) -> Path | None:
    """Return where the boxes of an agent have the control groups by which programs are found; None:
    nowhere."""
    folders = cgroup_folders()
    # That of processes: what it limits has always held for all below it.
    folder = folders.get("pids", folders.get("all"))
    return None if folder is None else folder / _group_name(agent_folder)


def cgroup_folders() -> dict[str, Path]:
    """Return where limits are set: controller -> folder (version 1), or `all` -> folder (version
    2). Only root may."""
    if os.geteuid() != 0:
        return {}
    found: dict[str, Path] = {}
    unified: Path | None = None
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            unified = Path(where)
        elif kind == "cgroup":
            found |= {
                name: Path(where)
                for name in ("cpu", "memory", "pids")
                if name in options.split(",")
            }
    return {"all": unified} if not found and unified is not None else found


def _readable(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below a folder that every user of the machine may read."""
    with os.scandir(folder) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                yield Path(entry.path), found
            elif stat.S_ISDIR(found.st_mode) and found.st_mode & 0o005 == 0o005:
                yield Path(entry.path), found
                yield from _readable(Path(entry.path))
            elif (
                stat.S_ISREG(found.st_mode)
                and found.st_mode & 0o004
                and found.st_size <= COPIED_BYTES_MAX
            ):
                yield Path(entry.path), found


def _listening(found: socket.socket, address: str, port: int, backlog: int) -> socket.socket:
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address, port))
        found.listen(backlog)
        found.setblocking(False)
        return found
    except OSError:
        found.close()
        raise


def _remove_cgroup(path: Path, clock: RealClock) -> None:
    """A cgroup can be removed a moment after its last process, and after those below it."""
    for _ in range(100):
        try:
            for child in path.iterdir():
                if child.is_dir():
                    child.rmdir()
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            clock.sleep(0.01)
            continue
        return
    logger.error("%s cannot be removed", path)


def end(folder: Path, clock: RealClock) -> bool:
    """Ends the box of a host's folder, if one runs; for those whose host server is gone."""
    found = find(folder)
    return found is None or found[0].end(clock)


def sweep(agent_folder: Path, clock: RealClock) -> None:
    """Removes what boxes that are gone have left by name: cgroups of this agent, and networks of
    nobody."""
    hosts = agent_folder / "hosts"
    living = (
        {folder.name for folder in hosts.iterdir() if find(folder) is not None}
        if hosts.is_dir()
        else set()
    )
    for parent in (path / _group_name(agent_folder) for path in cgroup_folders().values()):
        for path in parent.iterdir() if parent.is_dir() else ():
            if path.is_dir() and path.name not in living:
                for pid in map(int, (path / "cgroup.procs").read_text().split()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, 9)
                _remove_cgroup(path, clock)
        with contextlib.suppress(OSError):
            parent.rmdir()
    box_switch.sweep(box_space.of(agent_folder))
    if not living:
        box_space.end(agent_folder)
