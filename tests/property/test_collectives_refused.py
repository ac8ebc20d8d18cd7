"""Strangers, members of another gang and damaged messages: refused with a reason, and not in any
sum."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives import transport_tcp, windows
from podyard.engine.collectives.ring import run_schedule
from podyard.engine.collectives.schedule import ring_all_reduce
from podyard.engine.collectives.transport import Tag, Transport
from podyard.engine.collectives.transport_tcp import TcpTransport
from podyard.engine.collectives.windows import Members, WindowFile
from podyard.engine.collectives.wire import (
    FRAME_BYTES,
    HELLO_BYTES,
    Link,
    Membership,
    accept_handshake,
    connect_handshake,
    pack_frame,
)
from tests.property.collectives import (
    FLOATS,
    MEMBER,
    SILENCE_SECONDS,
    Array,
    block_bytes,
    block_sizes,
    edges,
    linked,
    needs_windows,
    together,
    vectors_of,
    window_folder,
)


class Side:
    """One side of a handshake. Of the bytes that it writes, the one at `flips` (bits) is changed,
    and from `ends` (bytes) on they are lost."""

    def __init__(
        self, sock: socket.socket, flips: int | None = None, ends: int | None = None
    ) -> None:
        sock.settimeout(SILENCE_SECONDS)
        self._socket = sock
        self._flips = flips
        self._ends = ends
        self._written = 0

    def write_all(self, data: bytes | memoryview) -> None:
        changed = bytearray(data)
        at = None if self._flips is None else self._flips // 8 - self._written
        if at is not None and 0 <= at < len(changed):
            changed[at] ^= 1 << (self._flips or 0) % 8
        self._written += len(changed)
        if self._ends is not None and self._written > self._ends:
            self._socket.sendall(changed[: max(0, len(changed) - (self._written - self._ends))])
            self._socket.shutdown(socket.SHUT_WR)
            raise PodyardError(Code.UNAVAILABLE, "the end")
        self._socket.sendall(changed)

    def read_exactly(self, nbytes: int) -> bytes:
        data = b""
        while len(data) < nbytes:
            more = self._socket.recv(nbytes - len(data))
            if not more:
                raise PodyardError(Code.UNAVAILABLE, "the end")
            data += more
        return data


def met(
    connecting: Membership,
    accepting: Membership,
    connector: Mapping[str, int],
    acceptor: Mapping[str, int],
) -> list[PodyardError | None]:
    """[the error of the connecting side, of the accepting side]; None where it takes the other one
    in."""
    ends = socket.socketpair()
    shakes = (
        lambda: connect_handshake(Side(ends[0], **connector), connecting, Link(3, 4)),
        lambda: accept_handshake(
            Side(ends[1], **acceptor), accepting, lambda link: link == Link(3, 4)
        ),
    )

    def outcome(side: int) -> PodyardError | None:
        try:
            shakes[side]()
        except PodyardError as error:
            return error
        else:
            return None
        finally:
            ends[side].close()

    return together(outcome, 2)


epochs = st.integers(0, 2**64 - 1)
keys = st.binary(min_size=16, max_size=64)
agreements = st.binary(min_size=32, max_size=32)
members = st.builds(Membership, key=keys, epoch=epochs, agreement=agreements)


@settings(max_examples=80)
@given(
    member=members, other=members, what=st.sampled_from(["key", "epoch", "agreement", "nothing"])
)
def test_only_a_member_of_the_gang_is_taken_in(
    member: Membership, other: Membership, what: str
) -> None:
    stranger = (
        member if what == "nothing" else dataclasses.replace(member, **{what: getattr(other, what)})
    )
    errors = met(member, stranger, {}, {})
    if stranger == member:
        assert errors == [None, None]
        return
    text = {
        "key": "ring key",
        "epoch": "belongs to another epoch",
        "agreement": "trains something else",
    }[what]
    assert errors[0] is not None and text in errors[0].message
    assert errors[0].code is (Code.UNAUTHENTICATED if what == "key" else Code.ABORTED)
    assert errors[1] is not None and errors[1].code in (errors[0].code, Code.UNAVAILABLE)


# Of the connecting side: its hello and its proof. Of the other one: its nonce and its proof.
_PROOF = 32
SAID = {"connector": HELLO_BYTES + _PROOF, "acceptor": 2 * _PROOF}


@pytest.mark.slow
@settings(max_examples=120)
@given(who=st.sampled_from(list(SAID)), how=st.sampled_from(["flips", "ends"]), data=st.data())
def test_a_handshake_of_which_a_bit_is_flipped_or_the_end_is_lost_lets_nobody_in(
    who: str, how: str, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, SAID[who] * (8 if how == "flips" else 1) - 1), "place")
    harm: dict[str, dict[str, int]] = {"connector": {}, "acceptor": {}} | {who: {how: place}}
    errors = met(MEMBER, MEMBER, harm["connector"], harm["acceptor"])
    assert all(error is not None for error in errors)
    assert {error.code for error in errors if error is not None} <= {
        Code.UNAUTHENTICATED,
        Code.UNAVAILABLE,
    }


@pytest.mark.parametrize("bit", range(8))
def test_a_verdict_that_was_changed_on_its_way_lets_nobody_in(bit: int) -> None:
    connector, _ = met(MEMBER, MEMBER, {}, {"flips": 8 * SAID["acceptor"] + bit})
    assert connector is not None and connector.code in (Code.ABORTED, Code.DATA_LOSS)


class Tampering:
    """A transport that writes `harmed(header)` instead of the header of its message `number`, and
    then no more."""

    def __init__(
        self, transport: TcpTransport, number: int, harmed: Callable[[bytes, Tag, int], bytes]
    ) -> None:
        self._transport = transport
        self._number = number
        self._harmed = harmed
        self._sent = 0

    def send(self, sender: int, receiver: int, tag: Tag, data: Array) -> None:
        if self._sent == self._number:
            header = self._harmed(pack_frame(MEMBER.epoch, tag, data.nbytes), tag, data.nbytes)
            outgoing = self._transport._outgoing[Link(sender, receiver)]
            outgoing.put(
                header,
                transport_tcp.bytes_of(data) if len(header) == FRAME_BYTES else memoryview(b""),
            )
            self._transport.flush()
            # Not closed: what has not been read yet would be lost.
            outgoing.stream._socket.shutdown(socket.SHUT_WR)
            raise PodyardError(Code.CANCELLED, "tampered")
        self._sent += 1
        self._transport.send(sender, receiver, tag, data)

    def receive(self, receiver: int, sender: int, tag: Tag, out: Array) -> None:
        self._transport.receive(receiver, sender, tag, out)

    def flush(self) -> None:
        self._transport.flush()


@pytest.mark.slow
@settings(max_examples=100)
@given(
    harm=st.sampled_from(["another epoch", "a flipped bit", "a lost end"]),
    length=st.integers(2, 700),
    size=block_sizes,
    data=st.data(),
)
def test_a_message_that_is_refused_leaves_no_trace_in_the_sum(
    harm: str, length: int, size: int, data: st.DataObject
) -> None:
    """Of two ranks, rank 1 gets a spoilt message from rank 0: it says so, and has what came before
    and no more."""
    count = max(1, -(-(-(-length // 2) * 4) // size))
    number = data.draw(st.integers(0, 2 * count - 1), "message")
    epoch = data.draw(epochs.filter(lambda epoch: epoch != MEMBER.epoch), "epoch")
    place = data.draw(st.integers(0, FRAME_BYTES * 8 - 1), "place")

    def harmed(header: bytes, tag: Tag, nbytes: int) -> bytes:
        if harm == "another epoch":
            return pack_frame(epoch, tag, nbytes)
        if harm == "a lost end":
            return header[: place // 8]
        flipped = bytearray(header)
        flipped[place // 8] ^= 1 << place % 8
        return bytes(flipped)

    schedule, groups = ring_all_reduce(2), [[0], [1]]
    vectors = vectors_of(2, length, FLOATS[0], length)
    held = {rank: vector.copy() for rank, vector in enumerate(vectors)}
    with block_bytes(size), linked(groups, schedule) as transports:
        sides: list[Transport] = [Tampering(transports[0], number, harmed), transports[1]]

        def run(rank: int) -> PodyardError | None:
            try:
                run_schedule(schedule, sides[rank], {rank: held[rank]}, 1)
            except PodyardError as error:
                return error
            return None

        _, error = together(run, 2)
    assert error is not None
    if harm == "another epoch":
        assert (error.code, error.message) == (
            Code.ABORTED,
            f"a message of epoch {epoch} reached epoch {MEMBER.epoch}",
        )
    elif harm == "a lost end":
        assert error.code is Code.UNAVAILABLE and "is gone" in error.message
    else:
        assert error.code in (Code.DATA_LOSS, Code.ABORTED)
        assert "expected" in error.message or "reached epoch" in error.message
    expected = vectors[1].copy()
    halves = edges(length, 2)
    for one in range(number):
        half, block = halves[one // count], one % count
        size_of_half = half.stop - half.start
        where = slice(
            half.start + block * size_of_half // count,
            half.start + (block + 1) * size_of_half // count,
        )
        expected[where] = vectors[0][where] + vectors[1][where]
    assert held[1].tobytes() == expected.tobytes()


@needs_windows
@settings(max_examples=80)
@given(
    before=epochs,
    now=epochs,
    how=st.sampled_from(["as it is", "under our name", "flipped", "shorter"]),
    data=st.data(),
)
def test_windows_of_another_epoch_or_that_were_changed_are_refused(
    before: int, now: int, how: str, data: st.DataObject
) -> None:
    if how in ("as it is", "under our name"):
        before += before == now
        before %= 2**64
    else:
        before = now
    old, member = (dataclasses.replace(MEMBER, epoch=epoch) for epoch in (before, now))
    with window_folder() as folder:
        stale, own = (
            WindowFile.make(folder, old, 0, 1, 64),
            WindowFile.make(folder, member, 1, 1, 64),
        )
        path, expected = windows._path(folder, member, 0), windows._path(folder, old, 0)
        if how == "under our name":
            expected.rename(path)
        proven = windows._HEADER.size + windows._PROOF_BYTES
        content = bytearray(b"" if how == "as it is" else path.read_bytes())
        if how == "flipped":
            place = data.draw(st.integers(0, proven * 8 - 1), "place")
            content[place // 8] ^= 1 << place % 8
        if how == "shorter":
            del content[data.draw(st.integers(0, len(content) - 1), "length") :]
        if how in ("flipped", "shorter"):
            path.write_bytes(content)
        with pytest.raises(PodyardError) as caught:
            Members.attach(own, {0: (0,), 1: (1,)}, silence_seconds=0.2, stopping=lambda: False)
        for file in (stale, own):
            file.close()
    is_proven = how == "under our name" or (how == "shorter" and len(content) >= proven)
    refused = (
        (Code.ABORTED, "belongs to another epoch")
        if is_proven
        else (Code.UNAUTHENTICATED, "are not of this gang")
    )
    code, text = (Code.UNAVAILABLE, "has no windows") if how == "as it is" else refused
    assert caught.value.code is code and text in caught.value.message
