"""Chance, from named streams only, so that a run can be repeated from its seed."""

from __future__ import annotations

import hashlib
import secrets
from random import Random

__all__ = ["Random", "Streams", "secret_token"]


class Streams:
    """Named streams of one seed. The same seed and name give the same numbers, whatever other streams do."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = secrets.randbits(63) if seed is None else seed
        self._streams: dict[str, Random] = {}

    def stream(self, name: str) -> Random:
        if name not in self._streams:
            digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
            self._streams[name] = Random(int.from_bytes(digest[:16], "big"))
        return self._streams[name]


def secret_token(nbytes: int = 32) -> str:
    """An unguessable token: never from a seed."""
    return secrets.token_urlsafe(nbytes)
