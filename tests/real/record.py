"""The record of the files of the real tier: when each last ran whole and passed, at which commit,
how long it took."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

from podyard.base.clock import RealTime


@dataclasses.dataclass(frozen=True)
class Entry:
    """`seconds` of one worker, on a machine as fast as the reference."""

    commit: str
    at: RealTime
    seconds: float


def default_path() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "podyard" / "real.json"


def read(path: Path) -> dict[str, Entry]:
    """Return file -> entry; empty without a file, or with one that cannot be read: the record only
    orders the files."""
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {
            name: Entry(
                str(fields["commit"]), RealTime.from_rfc3339(fields["at"]), float(fields["seconds"])
            )
            for name, fields in files.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write(path: Path, entries: Mapping[str, Entry]) -> None:
    files = {
        name: {"commit": entry.commit, "at": entry.at.rfc3339(), "seconds": round(entry.seconds, 1)}
        for name, entry in sorted(entries.items())
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"files": files}, indent=1) + "\n", encoding="utf-8")
    new.replace(path)
