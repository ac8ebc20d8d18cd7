"""Chance, from named streams only, so that a run can be repeated from its seed.

Numbers that nobody may guess are the kernel's. `hashlib` is imported with the first stream: it
loads OpenSSL, 4 MB that the supervisor would keep for its one password.
"""

from __future__ import annotations

import base64
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random, SystemRandom

__all__ = ["Random", "Streams", "keep_users_chance", "secret_token"]


class Streams:
    """Named streams of one seed. The same seed and name give the same numbers, whatever other
    streams do."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = SystemRandom().getrandbits(63) if seed is None else seed
        self._streams: dict[str, Random] = {}

    def stream(self, name: str) -> Random:
        if name not in self._streams:
            import hashlib

            digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
            self._streams[name] = Random(int.from_bytes(digest[:16], "big"))
        return self._streams[name]


def secret_token(nbytes: int = 32) -> str:
    """An unguessable token: never from a seed."""
    return base64.urlsafe_b64encode(os.urandom(nbytes)).rstrip(b"=").decode("ascii")


@contextmanager
def keep_users_chance() -> Iterator[None]:
    """Whatever the context draws from the global generators of Python and NumPy, a user's program
    draws the same."""
    numpy = sys.modules.get("numpy")
    drawn, drawn_by_numpy = random.getstate(), None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(drawn)
        if numpy is not None:
            numpy.random.set_state(drawn_by_numpy)
