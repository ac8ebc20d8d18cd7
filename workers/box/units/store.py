"""Units and their states in a box: unit files, links of those that are enabled, and a
record for each service that was started."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path

from podyard.base.files import write_atomically
from podyard.workers.box.units.unit_file import LoadError, Unit, file_name, read_unit

_OWN = Path("/etc/systemd/system")
_FOLDERS = (
    _OWN, Path("/run/systemd/system"), Path("/usr/local/lib/systemd/system"),
    Path("/usr/lib/systemd/system"), Path("/lib/systemd/system"),
)  # fmt: skip
_STATES = Path("/run/podyard/units")  # a file system that ends with the box
BOOTED = _STATES / ".booted"


class NotFoundError(LoadError):
    """There is no unit of this name."""


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """A service as its supervisor has last written it. `active` and `sub`: systemd's ActiveState
    and SubState. `code`, `signal`: how the main process ended. `since`: nanoseconds of the
    clock."""

    name: str
    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    main_pid: int = 0
    code: int = 0
    signal: int = 0
    restarts: int = 0
    since: int = 0
    supervisor: int = 0
    supervisor_started: str = ""


def find(name: str) -> Path | None:
    """The file of a unit."""
    for own in (name, file_name(name)):
        for folder in _FOLDERS:
            if (path := folder / own).exists():
                return path
    return None


def load(name: str) -> Unit:
    """Raises LoadError."""
    path = find(name)
    if path is None:
        raise NotFoundError(f"Unit {name} not found.")
    if path.resolve() == Path("/dev/null"):
        raise LoadError(f"Unit {name} is masked.")
    drop_ins = {
        part.name: part
        for folder in reversed(_FOLDERS)
        for own in (file_name(name), name)
        for part in (folder / f"{own}.d").glob("*.conf")
    }
    paths = [path, *(drop_ins[one] for one in sorted(drop_ins))]
    try:
        texts = [one.read_text(encoding="utf-8", errors="replace") for one in paths]
    except OSError as error:
        raise LoadError(f"Unit {name} cannot be read: {error}") from error
    unit = read_unit(name, texts, socket.gethostname())
    if unit.user and home_of(unit.user) is None:
        raise LoadError(f"{name}: there is no user {unit.user!r}")
    return unit


def home_of(user: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        return None


def enable(unit: Unit) -> Iterator[str]:
    """Link a unit to the targets that want it. Returns what is said of each link."""
    path = find(unit.name)
    for link in _links(unit):
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(str(path))
            yield f"Created symlink {link} → {path}."


def disable(name: str) -> Iterator[str]:
    for link in _enabled_links():
        if link.name == name:
            link.unlink()
            yield f"Removed {link}."


def file_state(name: str) -> str:
    """`UnitFileState`: enabled, disabled, or static for one that nobody can enable."""
    if any(link.name == name for link in _enabled_links()):
        return "enabled"
    try:
        return "disabled" if _links(load(name)) else "static"
    except LoadError:
        return "bad"


def list_enabled() -> list[str]:
    return sorted({link.name for link in _enabled_links()})


def _links(unit: Unit) -> list[Path]:
    wanted = [_OWN / f"{target}.wants" / unit.name for target in unit.wanted_by]
    return wanted + [_OWN / f"{target}.requires" / unit.name for target in unit.required_by]


def _enabled_links() -> list[Path]:
    return [*_OWN.glob("*.wants/*.service"), *_OWN.glob("*.requires/*.service")]


def write(state: State) -> None:
    _STATES.mkdir(parents=True, exist_ok=True)
    write_atomically(_STATES / state.name, json.dumps(dataclasses.asdict(state)).encode(), 0o644)


def read(name: str) -> State:
    """The state of a service. One whose supervisor was killed has failed."""
    try:
        state = State(**json.loads((_STATES / name).read_text()))
    except (OSError, ValueError, TypeError):
        return State(name)
    if state.active in ("inactive", "failed") or is_supervised(state):
        return state
    return dataclasses.replace(state, active="failed", sub="failed", result="signal", main_pid=0)


def all_states() -> list[State]:
    names = sorted(path.name for path in _STATES.glob("*.service"))
    return [read(name) for name in names]


def forget(name: str) -> None:
    (_STATES / name).unlink(missing_ok=True)


def is_supervised(state: State) -> bool:
    """Return whether its supervisor lives."""
    return state.supervisor != 0 and start_time(state.supervisor) == state.supervisor_started


def start_time(pid: int) -> str:
    """When a process has started, as Linux counts it; empty for one that is gone."""
    fields = stat_of(pid)
    return "" if not fields or fields[0] == "Z" else fields[19]


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Every living process that `pid` has started, and what those have."""
    parents = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (fields := stat_of(int(entry.name))) and fields[0] != "Z":
            parents[int(entry.name)] = int(fields[1])
    family, last = [], [pid]
    while last:
        last = [child for child, parent in parents.items() if parent in last]
        family += last
    return family
