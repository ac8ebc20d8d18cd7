"""Places where boxes and their networks are made: as root on the machine itself, else in a user
namespace of the agent.

In that namespace the user who runs Podyard is root, over nothing but the boxes. Its first process,
a `sleep`, holds it: it outlives the host server, and the next one finds it by its record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from podyard.base import boxes
from podyard.workers.kit import process_group
from podyard.workers.kit.process_group import ProcessRecord

# a box takes a tenth of a second; a machine under a heavy load some seconds
MAKE_SECONDS_MAX = 30.0
_NOBODY = 0  # a holder that does not live
_FOLDER, _RECORD = "space", "holder"
# `ip netns` needs its own /run. Without a word from us, who have noted its pid, it ends: nobody
# would find it.
_HOLD = (
    "mount -t tmpfs -o mode=755 podyard /run && mkdir /run/netns && echo $$ && read -r go"
    " && exec sleep infinity </dev/null >/dev/null 2>&1"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """`networks`: where switches have their names; `lock`: one change of them at a time. `holder`:
    of the namespaces in which commands run; None: those of the machine."""

    networks: Path
    lock: Path
    holder: int | None = None

    def command(self, *words: str) -> list[str]:
        """Return what runs a command as root of boxes."""
        return [*self.enter("-m", "-n"), *words]

    def enter(self, *which: str) -> list[str]:
        """Return what begins such a command. `which`: options of `nsenter`, where it is needed."""
        if self.holder is None:
            return []
        return [
            tool("nsenter"),
            "-t",
            str(self.holder),
            "-U",
            *which,
            "--preserve-credentials",
            "--",
        ]

    @contextlib.contextmanager
    def lock_networks(self) -> Iterator[None]:
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def of(agent_folder: Path) -> Space:
    """That of an agent's boxes, as it is now."""
    if os.geteuid() == 0:
        return Space(Path("/run/netns"), Path("/run/podyard.lock"))
    folder = agent_folder / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    record = next(iter(process_group.records(folder)), None)
    group = None if record is None else process_group.adopt(record)
    pid = _NOBODY if group is None else group.pid
    return Space(Path("/proc", str(pid), "root", "run/netns"), folder / "lock", pid)


def begin(agent_folder: Path) -> Space:
    """The same, made where it is missing. Raises OSError."""
    space = of(agent_folder)
    if space.holder != _NOBODY:
        return space
    with space.lock_networks():
        space = of(agent_folder)
        return space if space.holder != _NOBODY else _begin(agent_folder)


def _begin(agent_folder: Path) -> Space:
    words = (tool("setsid"), "--fork", tool("unshare"), *boxes.NAMESPACES, "/bin/sh", "-c", _HOLD)
    env = {"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/", env=env) as process:
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        said = process.stdout.readline().decode().strip()
        started = process_group.start_of(int(said)) if said.isdigit() else None
        if started is None:
            raise OSError(
                "a user namespace for boxes: "
                f"{process.stderr.read().decode(errors='replace').strip()}"
            )
        process_group.write_record(
            agent_folder / _FOLDER, ProcessRecord(_RECORD, 0, int(said), started)
        )
        process.stdin.write(b"go\n")
    return of(agent_folder)


def end(agent_folder: Path) -> None:
    """The networks go with their holder; boxes have ended before."""
    folder = agent_folder / _FOLDER
    for record in process_group.records(folder) if folder.is_dir() else ():
        group = process_group.adopt(record)
        if group is not None:
            group.signal(signal.SIGKILL)
        process_group.remove_record(folder, record.replica)


def tool(name: str) -> str:
    found = boxes.tool(name)
    if found is None:
        raise OSError(f"{name} is missing")
    return found


def run(
    command: Sequence[str],
    text: str = "",
    what: str = "",
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
) -> str:
    """Raises OSError that begins with `what`, or else with the name of the program. `stdin`:
    instead of `text`."""
    what = what or Path(command[0]).name
    given = text.encode() if stdin is None else None
    try:
        done = subprocess.run(
            command, input=given, stdin=stdin, capture_output=True, timeout=MAKE_SECONDS_MAX,
            check=False, cwd="/",
            env=env,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise OSError(f"{what}: not done after {MAKE_SECONDS_MAX:.0f} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"{what}: {said or done.returncode}")
    return done.stdout.decode(errors="replace")
