"""What the control plane needs from outside, as Protocols that the edges implement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ObjectStore(Protocol):
    """Artefacts by name (checkpoints, predictions, logs). Raises PodyardError NOT_FOUND for an unknown name."""

    def put(self, name: str, data: bytes) -> None: ...
    def get(self, name: str) -> bytes: ...
    def list(self, prefix: str) -> list[str]: ...
    def delete(self, name: str) -> None: ...


class Send(Protocol):
    """Sends one message. Raises PodyardError UNAVAILABLE while the broker is away: the outbox row then stays."""

    def __call__(self, queue: str, task: str, args: Sequence[str]) -> None: ...
