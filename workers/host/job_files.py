"""Files of the host server in the folder of a host that runs, for the replicas that run users'
programs there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from podyard.base.files import read_json, write_atomically

_FILE = "host.json"


@dataclasses.dataclass(frozen=True, slots=True)
class JobHost:
    """A host that runs in this life (`generation`). `environment`: of every program on it.
    `software`: the environment of its runtime version; "": it has the Python of Podyard. `is_told`:
    its programs have got SIGTERM, since its node is taken back. `ends`: how often all of them were
    ended, since they asked for more processes than they may have."""

    generation: int
    environment: Mapping[str, str]
    has_box: bool
    software: str
    is_told: bool
    ends: int = 0

    def write(self, folder: Path) -> None:
        write_atomically(folder / _FILE, json.dumps(dataclasses.asdict(self)).encode())

    @classmethod
    def read(cls, folder: Path) -> JobHost | None:
        """None: the host does not run."""
        found = read_json(folder / _FILE)
        return cls(**found) if found else None

    @staticmethod
    def remove(folder: Path) -> None:
        (folder / _FILE).unlink(missing_ok=True)
