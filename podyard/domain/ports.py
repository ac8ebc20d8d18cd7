"""Ports of the control plane, as Protocols that the edges implement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class ObjectReader(Protocol):
    """The artefacts that replicas have written, by name (parts joined by "/"). Read only."""

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Name -> bytes of all whose name begins with `prefix`, which ends at a folder or within a
        name."""
        ...

    def get(self, name: str) -> bytes:
        """Raises PodyardError NOT_FOUND for an unknown name."""
        ...


class Send(Protocol):
    """Sends one message. Raises PodyardError UNAVAILABLE while the broker is away: the outbox row
    then stays."""

    def __call__(self, queue: str, task: str, args: Sequence[str]) -> None: ...
