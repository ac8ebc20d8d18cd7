"""Which processes a data folder has, so that a later `podyard up` or `down` finds what an earlier one left behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podyard.base.clock import RealClock

PROCESSES_FILE = "processes.json"
ORPHAN_GRACE_SECONDS = 5.0  # an orphan that has not gone by then is killed
_POLL_SECONDS = 0.02
# Processes of one boot differ in their start time by more than this clock's resolution.
_SAME_START_SECONDS = 0.05


def started_at(pid: int) -> float | None:
    """When the process started (seconds since the epoch), None when there is none: a pid alone may be another's."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def is_alive(entry: Mapping[str, Any]) -> bool:
    pid = int(entry["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    started = started_at(pid)
    return started is not None and abs(started - float(entry["started"])) < _SAME_START_SECONDS


def write_json(path: Path, data: Any) -> None:
    """Writes beside and renames, so that no reader sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
    beside.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The file's object; empty when there is no file to read or it is not JSON."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def record(data: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    write_json(data / PROCESSES_FILE, entries)


def living(data: Path) -> dict[str, Mapping[str, Any]]:
    found = read_json(data / PROCESSES_FILE)
    return {name: entry for name, entry in found.items() if is_alive(entry)}


def stop_orphans(data: Path, clock: RealClock, order: tuple[str, ...]) -> list[str]:
    """Stops what a dead supervisor left running, in `order`; returns the names. Replicas are the agent's business:
    the next agent adopts them."""
    found = living(data)
    for name in sorted(found, key=lambda n: order.index(n) if n in order else len(order)):
        stop_process(found[name], clock)
    return sorted(found)


def stop_process(entry: Mapping[str, Any], clock: RealClock) -> None:
    """SIGTERM, a bounded wait, SIGKILL. For processes that are not our children."""
    for number, seconds in ((signal.SIGTERM, ORPHAN_GRACE_SECONDS), (signal.SIGKILL, ORPHAN_GRACE_SECONDS)):
        try:
            os.kill(int(entry["pid"]), number)
        except ProcessLookupError:
            return
        deadline = clock.monotonic_seconds() + seconds
        while clock.monotonic_seconds() < deadline:
            if not is_alive(entry):
                return
            clock.sleep(_POLL_SECONDS)
