"""Transports for schedules: messages between ranks.

A process holds one rank or several. A transport carries what its ranks send, to ranks of the same
process or of others; the runner does not know which.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from podyard.engine.collectives.combine import Array

Vector = NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True)
class Tag:
    """The tag of a message: block `block` of chunks `chunk` and following (the receiver's), of step
    `step` of the `sequence`-th collective."""

    sequence: int
    step: int
    chunk: int
    block: int = 0


class Transport(Protocol):
    """`send` never blocks for the receiver and keeps no reference to `data` that a later write
    could be seen through. `data` and `out` are contiguous, of any element type. `flush` returns
    when everything sent is on its way, so that a peer does not wait while this process computes.

    All raise PodyardError: UNAVAILABLE when the peer is gone or silent for too long, ABORTED when
    it belongs to another epoch, CANCELLED when this process is told to stop.
    """

    def send(self, sender: int, receiver: int, tag: Tag, data: Array) -> None: ...
    def receive(self, receiver: int, sender: int, tag: Tag, out: Array) -> None: ...
    def flush(self) -> None: ...


class LocalTransport:
    """Queues between ranks of one process."""

    def __init__(self) -> None:
        self._queues: dict[tuple[int, int], deque[tuple[Tag, Array]]] = {}

    def send(self, sender: int, receiver: int, tag: Tag, data: Array) -> None:
        self._queues.setdefault((sender, receiver), deque()).append((tag, data.copy()))

    def receive(self, receiver: int, sender: int, tag: Tag, out: Array) -> None:
        sent_tag, data = self._queues[sender, receiver].popleft()
        if sent_tag != tag:
            raise AssertionError(f"rank {receiver} expected {tag} and was sent {sent_tag}")
        out[...] = data

    def flush(self) -> None:
        """Nothing is ever under way."""
