from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives.ring import ring_sum, run_schedule
from podyard.engine.collectives.schedule import ring_all_reduce
from podyard.engine.collectives.transport import Tag
from podyard.engine.collectives.transport_tcp import Listener, TcpTransport, split_address
from podyard.engine.collectives.wire import Membership

KEY = b"k" * 32
RUN = b"r" * 32
Vectors = list[NDArray[np.float32]]


def vectors_of(ranks: int, length: int) -> Vectors:
    rng = np.random.default_rng(ranks * 1000 + length)
    return [(rng.standard_normal(length) * 10.0**rank).astype(np.float32) for rank in range(ranks)]


def open_all(
    groups: Sequence[Sequence[int]],
    members: Sequence[Membership] | None = None,
    silence_seconds: float = 5.0,
) -> list[Future[TcpTransport]]:
    """One transport per group of ranks, each opened in a separate thread; done when all have an
    outcome."""
    listeners = [Listener("127.0.0.1:0") for _ in groups]
    addresses = {rank: listeners[i].address for i, ranks in enumerate(groups) for rank in ranks}
    members = members or [Membership(KEY, 1, RUN)] * len(groups)

    def open_one(i: int) -> TcpTransport:
        ranks = frozenset(groups[i])
        return TcpTransport.open_ring(
            members[i], listeners[i], addresses, ranks, silence_seconds=silence_seconds
        )

    with ThreadPoolExecutor(len(groups)) as pool:
        outcomes = [pool.submit(open_one, i) for i in range(len(groups))]
    for listener in listeners:
        listener.close()
    return outcomes


def each(work: Callable[[int], Any], count: int) -> list[Future[Any]]:
    with ThreadPoolExecutor(count) as pool:
        return [pool.submit(work, i) for i in range(count)]


def code_of(outcome: Future[Any]) -> Code | None:
    error = outcome.exception()
    if error is None:
        return None
    assert isinstance(error, PodyardError), error
    return error.code


GROUPS = [
    [[0], [1]],
    [[0], [1], [2]],
    [[0], [1], [2], [3], [4]],
    [[0, 1], [2, 3]],
    [[0, 2], [1, 3]],
    [[0, 3, 1], [2], [4]],
]


@pytest.mark.slow
@pytest.mark.parametrize("groups", GROUPS, ids=str)
# The last length makes chunks of megabytes: far more than the sockets' buffers take at once.
@pytest.mark.parametrize("length", [1, 3, 1000, 4_000_000])
def test_ring_over_tcp_gives_the_bits_of_ring_sum(groups: list[list[int]], length: int) -> None:
    ranks = sum(map(len, groups))
    vectors = vectors_of(ranks, length)
    expected = ring_sum(vectors).tobytes()
    transports = [outcome.result() for outcome in open_all(groups)]

    def run(i: int) -> None:
        for sequence in (1, 2):
            held = {rank: vectors[rank].copy() for rank in groups[i]}
            run_schedule(ring_all_reduce(ranks), transports[i], held, sequence)
            assert all(vector.tobytes() == expected for vector in held.values())

    outcomes = each(run, len(groups))
    for transport in transports:
        transport.close()
    assert [outcome.exception() for outcome in outcomes] == [None] * len(groups)


def test_another_key_gets_nobody_in() -> None:
    members = [Membership(KEY, 1, RUN), Membership(b"x" * 32, 1, RUN)]
    outcomes = open_all([[0], [1]], members, silence_seconds=0.5)
    assert {code_of(outcome) for outcome in outcomes} <= {Code.UNAUTHENTICATED, Code.UNAVAILABLE}
    assert Code.UNAUTHENTICATED in map(code_of, outcomes)


@pytest.mark.parametrize(
    "other",
    [Membership(KEY, 2, RUN), Membership(KEY, 1, b"s" * 32)],
    ids=["other epoch", "other run"],
)
def test_another_epoch_or_run_is_fenced(other: Membership) -> None:
    outcomes = open_all([[0], [1]], [Membership(KEY, 1, RUN), other], silence_seconds=0.5)
    assert [code_of(outcome) for outcome in outcomes] == [Code.ABORTED, Code.ABORTED]


def test_a_frame_of_another_epoch_is_fenced() -> None:
    left, right = (outcome.result() for outcome in open_all([[0], [1]]))
    left._member = Membership(KEY, 0, RUN)
    left.send(0, 1, Tag(1, 0, 0), np.zeros(4, np.float32))
    with pytest.raises(PodyardError, match="epoch 0 reached epoch 1") as caught:
        right.receive(1, 0, Tag(1, 0, 0), np.zeros(4, np.float32))
    assert caught.value.code is Code.ABORTED
    left.close()
    right.close()


def test_a_message_out_of_turn_is_data_loss() -> None:
    left, right = (outcome.result() for outcome in open_all([[0], [1]]))
    left.send(0, 1, Tag(2, 0, 0), np.zeros(4, np.float32))
    with pytest.raises(PodyardError, match="expected 16 bytes") as caught:
        right.receive(1, 0, Tag(1, 0, 0), np.zeros(4, np.float32))
    assert caught.value.code is Code.DATA_LOSS
    left.close()
    right.close()


def test_a_dead_peer_is_noticed_at_once_and_a_silent_one_in_time() -> None:
    transports = [outcome.result() for outcome in open_all([[0], [1], [2]], silence_seconds=0.5)]
    with pytest.raises(PodyardError, match=r"host 0 is silent for 0\.5 s") as silent:
        transports[1].receive(1, 0, Tag(1, 0, 0), np.zeros(1, np.float32))
    transports[0].close()
    with pytest.raises(PodyardError, match="host 0 is gone") as dead:
        transports[1].receive(1, 0, Tag(1, 0, 0), np.zeros(1, np.float32))
    assert silent.value.code is dead.value.code is Code.UNAVAILABLE
    with pytest.raises(PodyardError, match="is gone") as unsendable:
        for _ in range(1000):
            transports[2].send(2, 0, Tag(1, 0, 0), np.zeros(100_000, np.float32))
    assert unsendable.value.code is Code.UNAVAILABLE
    for transport in transports[1:]:
        transport.close()


def test_a_peer_that_never_comes_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listener = Listener("127.0.0.1:0")
        addresses = {0: listener.address, 1: f"127.0.0.1:{silent.getsockname()[1]}"}
        member = Membership(KEY, 1, RUN)
        with pytest.raises(PodyardError) as caught:
            TcpTransport.open_ring(member, listener, addresses, frozenset([0]), silence_seconds=0.5)
        listener.close()
    assert caught.value.code is Code.UNAVAILABLE


def test_told_to_stop_ends_the_wait() -> None:
    listener = Listener("127.0.0.1:0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        addresses = {0: listener.address, 1: f"127.0.0.1:{silent.getsockname()[1]}"}
        member = Membership(KEY, 1, RUN)
        with pytest.raises(PodyardError) as caught:
            TcpTransport.open_ring(
                member, listener, addresses, frozenset([0]), stopping=lambda: True
            )
    listener.close()
    assert caught.value.code is Code.CANCELLED


def test_a_stranger_at_the_door_does_not_stop_the_gang() -> None:
    listeners = [Listener("127.0.0.1:0") for _ in range(2)]
    addresses = {rank: listener.address for rank, listener in enumerate(listeners)}
    member = Membership(KEY, 1, RUN)
    strangers = []
    for noise in (b"GET / HTTP/1.1\r\n\r\n" * 20, b""):
        stranger = socket.create_connection(split_address(addresses[0]))
        stranger.sendall(noise)
        strangers.append(stranger)
    strangers[1].close()
    outcomes = each(
        lambda i: TcpTransport.open_ring(member, listeners[i], addresses, frozenset([i])), 2
    )
    for outcome in outcomes:
        outcome.result().close()
    strangers[0].close()
    for listener in listeners:
        listener.close()
    assert threading.active_count() < 50


def test_bad_addresses_and_keys_are_refused() -> None:
    for address in ("", "localhost", ":80", "127.0.0.1:99999", "127.0.0.1:x"):
        with pytest.raises(PodyardError, match="not an address"):
            split_address(address)
    with pytest.raises(PodyardError, match="at least 16 bytes"):
        Membership(b"short", 1, RUN)
    with pytest.raises(PodyardError, match="cannot listen"):
        Listener("192.0.2.1:1")
