"""Bytes on a link between two ranks: the handshake that keeps strangers out, and the frames that
follow it.

Handshake, C connects to A, both know the job's ring key:
  C -> A  hello: magic, version, epoch, from rank, to rank, agreement (32 bytes), nonce of C
  A -> C  challenge: nonce of A, proof of A over the hello and both nonces
  C -> A  proof of C over the same
  A -> C  verdict: welcome, another epoch, or another run
Each side proves that it has the key over a nonce of the other, so nothing recorded can be played
back. `agreement` is a digest of what all processes of a run must have in common. Frames carry the
epoch again.

On a link between machines each frame is followed by a seal: the tag of AES-256-GCM (NIST SP
800-38D) over header and payload, by a key of this link alone, with the number of the frame as
nonce. A frame that was changed, dropped, repeated or moved is refused. Vectors are not encrypted.
On one machine nobody else can write into a connection, and frames carry no seal.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives.transport import Tag

MAGIC = b"PYRG"
VERSION = 3
NONCE_BYTES = 32
PROOF_BYTES = 32
AGREEMENT_BYTES = 32
RING_KEY_BYTES_MIN = 16

# magic, version, epoch, from rank, to rank, agreement, nonce
_HELLO = struct.Struct("!4sHQII32s32s")
_FRAME = struct.Struct("!4sQQIIIQ")  # magic, epoch, sequence, step, chunk, block, payload bytes
SEAL_BYTES = 16
_NONCE_BYTES = 12
HELLO_BYTES = _HELLO.size
FRAME_BYTES = _FRAME.size


class Verdict(IntEnum):
    WELCOME = 0
    OTHER_EPOCH = 1
    OTHER_RUN = 2


class Stream(Protocol):
    """A connection with time-outs. `read_exactly` raises PodyardError UNAVAILABLE at its end."""

    def write_all(self, data: bytes | memoryview) -> None: ...
    def read_exactly(self, nbytes: int) -> bytes: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Membership:
    """The proof that a process must show: the ring key, the epoch it belongs to and the digest of
    its run."""

    key: bytes
    epoch: int
    agreement: bytes

    def __post_init__(self) -> None:
        if len(self.key) < RING_KEY_BYTES_MIN:
            raise PodyardError(
                Code.INVALID_ARGUMENT, f"a ring key has at least {RING_KEY_BYTES_MIN} bytes"
            )
        if len(self.agreement) != AGREEMENT_BYTES:
            raise AssertionError(f"an agreement is a digest of {AGREEMENT_BYTES} bytes")


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """One direction of the ring: messages go from `sender` to `receiver`."""

    sender: int
    receiver: int


def _proof(key: bytes, side: bytes, hello: bytes, nonce: bytes) -> bytes:
    return hmac.new(key, side + hello + nonce, hashlib.sha256).digest()


def _refusal(verdict: Verdict, link: Link) -> PodyardError:
    if verdict is Verdict.OTHER_EPOCH:
        reason = "belongs to another epoch: this gang has been replaced or is not complete"
    else:
        reason = "trains something else: recipe, seed, start or slice differ"
    return PodyardError(
        Code.ABORTED, f"the link from host {link.sender} to host {link.receiver} {reason}"
    )


class LinkSeal:
    """The seals of one link's frames, in their order. One object at each end."""

    def __init__(self, key: bytes) -> None:
        # Only links between machines pay for loading it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)
        self._frames = 0

    def next(self, header: bytes | bytearray, payload: memoryview) -> bytes:
        """The seal of the link's next frame."""
        nonce = self._frames.to_bytes(_NONCE_BYTES, "big")
        self._frames += 1
        return self._cipher.encrypt(nonce, bytes(header), payload)[-SEAL_BYTES:]

    def check(
        self, header: bytes | bytearray, payload: memoryview, seal: bytes | bytearray
    ) -> None:
        """Raises PodyardError DATA_LOSS unless `seal` is that of the link's next frame."""
        if not hmac.compare_digest(self.next(header, payload), bytes(seal)):
            raise PodyardError(Code.DATA_LOSS, "a message was changed on its way between machines")


def connect_handshake(stream: Stream, member: Membership, link: Link) -> bytes:
    """The connecting side; returns the key of the link's seals.

    Raises PodyardError UNAUTHENTICATED when the other side has another key, ABORTED when it belongs
    to another epoch or run, UNAVAILABLE when it hangs up, DATA_LOSS when its answer makes no sense.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    hello = _HELLO.pack(
        MAGIC, VERSION, member.epoch, link.sender, link.receiver, member.agreement, nonce
    )
    stream.write_all(hello)
    answer = stream.read_exactly(NONCE_BYTES + PROOF_BYTES)
    their_nonce, their_proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    if not hmac.compare_digest(their_proof, _proof(member.key, b"accept", hello, their_nonce)):
        raise PodyardError(
            Code.UNAUTHENTICATED, f"host {link.receiver} does not have this job's ring key"
        )
    stream.write_all(_proof(member.key, b"connect", hello, their_nonce))
    number = stream.read_exactly(1)[0]
    if number not in set(Verdict):
        raise PodyardError(
            Code.DATA_LOSS, f"host {link.receiver} answers the handshake with {number}: no verdict"
        )
    verdict = Verdict(number)
    if verdict is not Verdict.WELCOME:
        raise _refusal(verdict, link)
    return _proof(member.key, b"seals", hello, their_nonce)


def accept_handshake(
    stream: Stream, member: Membership, expects: Callable[[Link], bool]
) -> tuple[Link, bytes]:
    """The accepting side: the link that the other side brings, and the key of its seals.

    Raises PodyardError UNAUTHENTICATED for a stranger (which says nothing about this run), ABORTED
    for a member of another epoch or run.
    """
    hello = stream.read_exactly(HELLO_BYTES)
    magic, version, epoch, sender, receiver, agreement, _ = _HELLO.unpack(hello)
    if magic != MAGIC or version != VERSION:
        raise PodyardError(
            Code.UNAUTHENTICATED, "a stranger knocked: this is not the ring's protocol"
        )
    nonce = secrets.token_bytes(NONCE_BYTES)
    stream.write_all(nonce + _proof(member.key, b"accept", hello, nonce))
    if not hmac.compare_digest(
        stream.read_exactly(PROOF_BYTES), _proof(member.key, b"connect", hello, nonce)
    ):
        raise PodyardError(
            Code.UNAUTHENTICATED, "a stranger knocked: it does not have this job's ring key"
        )
    link = Link(sender, receiver)
    verdict = Verdict.WELCOME
    if epoch != member.epoch:
        verdict = Verdict.OTHER_EPOCH
    elif agreement != member.agreement or not expects(link):
        verdict = Verdict.OTHER_RUN
    stream.write_all(bytes([verdict]))
    if verdict is not Verdict.WELCOME:
        raise _refusal(verdict, link)
    return link, _proof(member.key, b"seals", hello, nonce)


def pack_frame(epoch: int, tag: Tag, payload_bytes: int) -> bytes:
    return _FRAME.pack(MAGIC, epoch, tag.sequence, tag.step, tag.chunk, tag.block, payload_bytes)


def check_frame(header: bytes | bytearray, epoch: int, tag: Tag, payload_bytes: int) -> None:
    """Raises PodyardError ABORTED when the frame is of another epoch, DATA_LOSS when it is not the
    one expected."""
    magic, sent_epoch, sequence, step, chunk, block, nbytes = _FRAME.unpack(header)
    if magic == MAGIC and sent_epoch != epoch:
        raise PodyardError(Code.ABORTED, f"a message of epoch {sent_epoch} reached epoch {epoch}")
    if magic != MAGIC or Tag(sequence, step, chunk, block) != tag or nbytes != payload_bytes:
        raise PodyardError(
            Code.DATA_LOSS,
            f"expected {payload_bytes} bytes of {tag}, got {nbytes} bytes of "
            f"{Tag(sequence, step, chunk, block)}",
        )
