"""The sum over the hosts of a slice, wherever they are: in one process, on one machine, or on
several.

All give the same bits: per chunk, in ring order. A step writes each host's vector to `vector(host)`
and takes the sum from `all_reduce()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from podyard.engine.collectives.ring import ring_sum, run_schedule
from podyard.engine.collectives.schedule import ring_all_reduce
from podyard.engine.collectives.shared_memory import SharedSum
from podyard.engine.collectives.transport import Transport, Vector
from podyard.engine.collectives.windows import Members


class HostSum(Protocol):
    """`vector`: where this process writes the vector of one of its hosts for the next sum.
    `all_reduce`: the sum over all hosts, valid until the next call. Raises PodyardError UNAVAILABLE
    when a peer is lost, ABORTED when this gang has been replaced, CANCELLED when told to stop.
    `how` is for the log."""

    how: ClassVar[str]

    def vector(self, host: int, /) -> Vector: ...
    def all_reduce(self) -> Vector: ...


class SumInProcess:
    """For a process that holds all hosts."""

    how: ClassVar[str] = "in this process"

    def __init__(self, host_count: int, length: int) -> None:
        self._vectors = [np.zeros(length, np.float32) for _ in range(host_count)]

    def vector(self, host: int, /) -> Vector:
        return self._vectors[host]

    def all_reduce(self) -> Vector:
        return ring_sum(self._vectors) if len(self._vectors) > 1 else self._vectors[0]


class SumOverTransport:
    """For a process that holds some of the hosts, the others being elsewhere."""

    how: ClassVar[str] = "by TCP"

    def __init__(
        self, host_count: int, hosts: Sequence[int], length: int, transport: Transport
    ) -> None:
        self._schedule = ring_all_reduce(host_count)
        self._transport = transport
        self._vectors = {host: np.zeros(length, np.float32) for host in hosts}
        self._sequence = 0

    def vector(self, host: int, /) -> Vector:
        return self._vectors[host]

    def all_reduce(self) -> Vector:
        self._sequence += 1
        run_schedule(self._schedule, self._transport, self._vectors, self._sequence)
        return next(iter(self._vectors.values()))


class SumOverMachines:
    """For processes that share a machine with some of the others: the first of them, which has
    `transport`, runs the ring for all hosts of the machine in their windows; the others wait for
    it. `members` has one adder."""

    how: ClassVar[str] = "in shared memory, by TCP between machines"

    def __init__(
        self, host_count: int, members: Members, length: int, transport: Transport | None
    ) -> None:
        self._members = members
        self._transport = transport
        self._schedule = ring_all_reduce(host_count)
        hosts = sorted(host for hosts in members.ranks_of.values() for host in hosts)
        dtype = np.dtype(np.float32)
        self._windows = [
            {host: members.window(host, turn, dtype, length) for host in hosts} for turn in (0, 1)
        ]
        self._turn = 0
        self._sequence = 0

    def vector(self, host: int, /) -> Vector:
        return self._windows[self._turn][host]

    def all_reduce(self) -> Vector:
        windows = self._windows[self._turn]
        self._turn = 1 - self._turn
        self._sequence += 1
        self._members.meet()
        if self._transport is not None:
            run_schedule(self._schedule, self._transport, windows, self._sequence)
        self._members.finish()
        return next(iter(windows.values()))


__all__ = ["HostSum", "SharedSum", "SumInProcess", "SumOverMachines", "SumOverTransport"]
