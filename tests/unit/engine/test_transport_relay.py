"""The ring over TCP through a relay that delays every byte, and that resets connections in the
middle."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from podyard.base.errors import Code
from podyard.engine.collectives.ring import ring_sum, run_schedule
from podyard.engine.collectives.schedule import ring_all_reduce
from podyard.engine.collectives.transport_tcp import Listener, TcpTransport, split_address
from podyard.engine.collectives.wire import Membership
from tests.unit.engine.test_transport_tcp import KEY, RUN, code_of, each, vectors_of

DELAY_SECONDS = 0.01  # one way
RANKS = 4
PIECE_BYTES = 65536
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close sends RST

pytestmark = pytest.mark.slow


class Relay:
    """Stands before a listener. After `bytes_max` bytes it resets both sides."""

    def __init__(self, target: str, bytes_max: float = float("inf")) -> None:
        self._target = split_address(target)
        self._left = bytes_max
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._late: deque[tuple[float, socket.socket, bytes]] = deque()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join()
        for one in (self._server, *self._pairs):
            one.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            while not self._is_closed.is_set():
                for key, _ in selector.select(0.001):
                    self._take(key.fileobj, selector)  # type: ignore[arg-type]
                while self._late and self._late[0][0] <= time.monotonic():
                    _, to, data = self._late.popleft()
                    with contextlib.suppress(OSError):
                        to.sendall(data)

    def _take(self, ready: socket.socket, selector: selectors.BaseSelector) -> None:
        if ready is self._server:
            near, far = self._server.accept()[0], socket.create_connection(self._target)
            self._pairs |= {near: far, far: near}
            for one in (near, far):
                selector.register(one, selectors.EVENT_READ)
            return
        with contextlib.suppress(OSError):
            data = ready.recv(PIECE_BYTES)
            self._left -= len(data)
            if data and self._left > 0:
                self._late.append((time.monotonic() + DELAY_SECONDS, self._pairs[ready], data))
                return
        for one in (ready, self._pairs[ready]):
            with contextlib.suppress(OSError, KeyError, ValueError):
                selector.unregister(one)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                one.close()


@contextlib.contextmanager
def _ring(bytes_max: float) -> Iterator[list[TcpTransport]]:
    """A ring of `RANKS` ranks; the way to rank 0 ends after `bytes_max` bytes."""
    listeners = [Listener("127.0.0.1:0") for _ in range(RANKS)]
    relays = [
        Relay(listener.address, bytes_max if rank == 0 else float("inf"))
        for rank, listener in enumerate(listeners)
    ]
    addresses = {rank: relay.address for rank, relay in enumerate(relays)}

    def open_one(rank: int) -> TcpTransport:
        member, own = Membership(KEY, 1, RUN), frozenset([rank])
        return TcpTransport.open_ring(member, listeners[rank], addresses, own, silence_seconds=5.0)

    with ThreadPoolExecutor(RANKS) as pool:
        transports = list(pool.map(open_one, range(RANKS)))
    try:
        yield transports
    finally:
        for one in (*transports, *relays, *listeners):
            one.close()


def test_sums_are_right_through_a_relay_that_delays() -> None:
    vectors = vectors_of(RANKS, 100_000)
    expected = ring_sum(vectors).tobytes()
    with _ring(float("inf")) as transports:

        def run(rank: int) -> None:
            for sequence in range(1, 6):
                held = {rank: vectors[rank].copy()}
                run_schedule(ring_all_reduce(RANKS), transports[rank], held, sequence)
                assert held[rank].tobytes() == expected

        assert [outcome.exception() for outcome in each(run, RANKS)] == [None] * RANKS


@pytest.mark.parametrize("bytes_max", [500_000, 1_300_000, 2_000_001])
def test_a_reset_ends_the_ring_and_never_gives_a_wrong_sum(bytes_max: int) -> None:
    vectors = vectors_of(RANKS, 100_000)
    expected = ring_sum(vectors).tobytes()
    done: dict[int, int] = {}
    with _ring(bytes_max) as transports:

        def run(rank: int) -> None:
            try:
                for sequence in range(1, 50):
                    held = {rank: np.array(vectors[rank])}
                    run_schedule(ring_all_reduce(RANKS), transports[rank], held, sequence)
                    assert held[rank].tobytes() == expected
                    done[rank] = sequence
            finally:
                transports[rank].close()  # as a process that ends

        outcomes = each(run, RANKS)
    assert [code_of(outcome) for outcome in outcomes] == [Code.UNAVAILABLE] * RANKS
    assert (
        max(done.values(), default=0) - min(done.values(), default=0) <= 1
        and max(done.values(), default=0) < 49
    )
