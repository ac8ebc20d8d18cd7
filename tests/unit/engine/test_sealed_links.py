"""Links between machines: every frame is sealed, and one that was changed, repeated or swapped is
refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives import transport_tcp
from podyard.engine.collectives.ring import ring_sum, run_schedule
from podyard.engine.collectives.schedule import ring_all_reduce
from podyard.engine.collectives.transport import Tag
from podyard.engine.collectives.transport_tcp import TcpTransport
from podyard.engine.collectives.wire import FRAME_BYTES, SEAL_BYTES, Link, LinkSeal, pack_frame
from tests.unit.engine.test_transport_tcp import each, open_all, vectors_of

TAG = Tag(1, 0, 0)
DATA = np.arange(1000, dtype=np.float32)
PAIR = [[0], [1]]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every process is a machine of its own."""
    monkeypatch.setattr(transport_tcp, "_is_of_one_machine", lambda _address: False)
    yield


@pytest.fixture
def pair(machines: None) -> Iterator[tuple[TcpTransport, TcpTransport]]:
    left, right = (outcome.result() for outcome in open_all(PAIR))
    yield left, right
    left.close()
    right.close()


@pytest.mark.usefixtures("machines")
@pytest.mark.parametrize("groups", [PAIR, [[0], [1], [2]], [[0, 1], [2, 3]]], ids=str)
@pytest.mark.parametrize("length", [1, 1000, 1_000_000])
def test_sums_have_the_same_bits_over_sealed_links(groups: list[list[int]], length: int) -> None:
    ranks = sum(map(len, groups))
    vectors = vectors_of(ranks, length)
    transports = [outcome.result() for outcome in open_all(groups)]

    def run(i: int) -> bytes:
        held = {rank: vectors[rank].copy() for rank in groups[i]}
        run_schedule(ring_all_reduce(ranks), transports[i], held, 1)
        return next(iter(held.values())).tobytes()

    outcomes = each(run, len(groups))
    for transport in transports:
        transport.close()
    assert {outcome.result() for outcome in outcomes} == {ring_sum(vectors).tobytes()}


def test_a_link_within_one_machine_has_no_seals() -> None:
    left, right = (outcome.result() for outcome in open_all(PAIR))
    assert not left._seals and not right._seals
    left.close()
    right.close()


@pytest.mark.parametrize(
    "address", ["10.1.2.3:80", "192.168.0.7:9000", "machine.lan:9000", "[2001:db8::1]:80"]
)
def test_addresses_that_others_reach_are_sealed(address: str) -> None:
    assert not transport_tcp._is_of_one_machine(address)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:80", "127.9.0.1:80", "localhost:80", "::1:80", "[::1]:80"]
)
def test_addresses_of_the_machine_itself_are_not(address: str) -> None:
    assert transport_tcp._is_of_one_machine(address)


@pytest.mark.parametrize(
    "place", [FRAME_BYTES, FRAME_BYTES + SEAL_BYTES - 1, FRAME_BYTES + SEAL_BYTES, -1]
)
def test_one_flipped_bit_of_seal_or_payload_is_refused(
    pair: tuple[TcpTransport, TcpTransport], place: int
) -> None:
    frame = bytearray(_sealed(pair[0], TAG))
    frame[place] ^= 1
    pair[0]._outgoing[Link(0, 1)].stream.write_all(bytes(frame))
    _refused(pair[1], TAG)


def test_a_frame_that_comes_twice_is_refused(pair: tuple[TcpTransport, TcpTransport]) -> None:
    frame = _sealed(pair[0], TAG)
    pair[0]._outgoing[Link(0, 1)].stream.write_all(frame + frame)
    received = np.zeros_like(DATA)
    pair[1].receive(1, 0, TAG, received)
    assert received.tobytes() == DATA.tobytes()
    _refused(pair[1], TAG)


def test_a_frame_of_another_link_is_refused(pair: tuple[TcpTransport, TcpTransport]) -> None:
    """What rank 1 has sealed for rank 0, sent back to it."""
    frame = _sealed(pair[1], TAG, Link(1, 0))
    pair[0]._outgoing[Link(0, 1)].stream.write_all(frame)
    _refused(pair[1], TAG)


def test_every_bit_of_a_header_is_under_the_seal() -> None:
    header = pack_frame(1, TAG, DATA.nbytes)
    seal = LinkSeal(b"k" * 32).next(header, transport_tcp.bytes_of(DATA))
    for bit in range(8 * FRAME_BYTES):
        changed = bytearray(header)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PodyardError, match="changed on its way"):
            LinkSeal(b"k" * 32).check(changed, transport_tcp.bytes_of(DATA), seal)


def _sealed(transport: TcpTransport, tag: Tag, link: Link = Link(0, 1)) -> bytes:
    header, payload = pack_frame(1, tag, DATA.nbytes), transport_tcp.bytes_of(DATA)
    return header + transport._seals[link].next(header, payload) + bytes(payload)


def _refused(transport: TcpTransport, tag: Tag) -> None:
    with pytest.raises(PodyardError, match="changed on its way between machines") as caught:
        transport.receive(1, 0, tag, np.zeros_like(DATA))
    assert caught.value.code is Code.DATA_LOSS
