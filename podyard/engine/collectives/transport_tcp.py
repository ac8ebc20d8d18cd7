"""TCP between replica processes: one connection per ring link that crosses processes.

A process listens first, learns its peers' addresses, then connects for every link that leaves it and accepts one for
every link that enters it. Each outgoing link has a thread that writes, so `send` returns at once and large chunks
that all ranks send at the same moment cannot block each other.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Callable, Mapping

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives.transport import LocalTransport, Tag, Vector
from podyard.engine.collectives.wire import (
    FRAME_BYTES,
    Link,
    Membership,
    accept_handshake,
    check_frame,
    connect_handshake,
    pack_frame,
)

Stopping = Callable[[], bool]

# Waiting is cut into slices, so that a process that is told to stop does not sit out the whole time-out.
_SLICE_SECONDS = 0.25
_HANDSHAKE_SECONDS = 10.0
PEER_SILENCE_SECONDS = 60.0


def _never() -> bool:
    return False


def _unavailable(what: str) -> PodyardError:
    return PodyardError(Code.UNAVAILABLE, what)


class TcpStream:
    """A connected socket. Silence beyond `silence_seconds` and a closed connection are PodyardError UNAVAILABLE."""

    def __init__(self, sock: socket.socket, name: str, silence_seconds: float, stopping: Stopping = _never) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(_SLICE_SECONDS)
        self._socket = sock
        self._name = name
        self._slices = max(1, round(silence_seconds / _SLICE_SECONDS))
        self._stopping = stopping

    def write_all(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        idle = 0
        while view:
            try:
                view = view[self._socket.send(view) :]
                idle = 0
            except TimeoutError:
                idle = self._wait_longer(idle, "takes no data")
            except OSError as error:
                raise _unavailable(f"{self._name} is gone: {error.strerror or error}") from error

    def read_into(self, view: memoryview) -> None:
        idle = 0
        while view:
            try:
                count = self._socket.recv_into(view)
            except TimeoutError:
                idle = self._wait_longer(idle, "is silent")
                continue
            except OSError as error:
                raise _unavailable(f"{self._name} is gone: {error.strerror or error}") from error
            if count == 0:
                raise _unavailable(f"{self._name} is gone: it closed the connection")
            view = view[count:]
            idle = 0

    def read_exactly(self, nbytes: int) -> bytes:
        data = bytearray(nbytes)
        self.read_into(memoryview(data))
        return bytes(data)

    def use_silence(self, silence_seconds: float) -> None:
        """The handshake is quick or it is a stranger; a peer that computes may take longer."""
        self._slices = max(1, round(silence_seconds / _SLICE_SECONDS))

    def close(self) -> None:
        self._socket.close()

    def _wait_longer(self, idle: int, what: str) -> int:
        if self._stopping():
            raise PodyardError(Code.CANCELLED, "told to stop")
        if idle + 1 >= self._slices:
            raise _unavailable(f"{self._name} {what} for {self._slices * _SLICE_SECONDS:g} s")
        return idle + 1


class Listener:
    """A listening socket on `bind_address` ("host:port", port 0: any free one). `address` is what peers connect to."""

    def __init__(self, bind_address: str) -> None:
        host, port = split_address(bind_address)
        try:
            self._socket = socket.create_server((host, port), backlog=128)
        except OSError as error:
            raise _unavailable(f"cannot listen on {bind_address}: {error.strerror or error}") from error
        self._socket.settimeout(_SLICE_SECONDS)
        self.address = f"{host}:{self._socket.getsockname()[1]}"

    def accept(self) -> socket.socket | None:
        """The next connection, or None when none came within a slice of time."""
        try:
            return self._socket.accept()[0]
        except TimeoutError:
            return None

    def close(self) -> None:
        self._socket.close()


def split_address(address: str) -> tuple[str, int]:
    """("host", port) of "host:port"; raises PodyardError INVALID_ARGUMENT otherwise."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise PodyardError(Code.INVALID_ARGUMENT, f"{address!r} is not an address like 127.0.0.1:8800")
    return host, int(port)


class _Writer:
    """A thread that writes one link's frames in order. Its first error is raised by the next `put`."""

    def __init__(self, stream: TcpStream, link: Link) -> None:
        self.error: PodyardError | None = None
        self._stream = stream
        self._frames: queue.SimpleQueue[tuple[bytes, memoryview] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"ring-{link.sender}-{link.receiver}", daemon=True)
        self._thread.start()

    def put(self, header: bytes, payload: memoryview) -> None:
        if self.error is not None:
            raise self.error
        self._frames.put((header, payload))

    def close(self, timeout_seconds: float) -> None:
        """Waits for what is queued: the peer still needs the last chunks of the last step."""
        self._frames.put(None)
        self._thread.join(timeout_seconds)
        self._stream.close()

    def _run(self) -> None:
        while (frame := self._frames.get()) is not None:
            if self.error is not None:
                continue
            try:
                self._stream.write_all(frame[0])
                self._stream.write_all(frame[1])
            except PodyardError as error:
                self.error = error


class TcpTransport:
    """Messages between the ranks in `local_ranks` by queues, to and from all others by TCP."""

    def __init__(self, member: Membership, silence_seconds: float, stopping: Stopping) -> None:
        self._member = member
        self._silence_seconds = silence_seconds
        self._stopping = stopping
        self._local = LocalTransport()
        self._writers: dict[Link, _Writer] = {}
        self._readers: dict[Link, TcpStream] = {}

    @classmethod
    def open_ring(
        cls,
        member: Membership,
        listener: Listener,
        addresses: Mapping[int, str],
        local_ranks: frozenset[int],
        *,
        silence_seconds: float = PEER_SILENCE_SECONDS,
        stopping: Stopping = _never,
    ) -> TcpTransport:
        """Opens all links of the ring 0 -> 1 -> ... -> 0 that touch this process; blocks until they stand.

        `addresses`: rank -> "host:port" of the process that holds it. Raises PodyardError UNAVAILABLE when a peer does
        not come in time, UNAUTHENTICATED for a peer with another key, ABORTED for one of another epoch or run.
        """
        count = len(addresses)
        leaving = [Link(r, (r + 1) % count) for r in sorted(local_ranks) if (r + 1) % count not in local_ranks]
        entering = {Link((r - 1) % count, r) for r in local_ranks if (r - 1) % count not in local_ranks}
        transport = cls(member, silence_seconds, stopping)
        acceptor = _Acceptor(transport, listener, entering)
        try:
            for link in leaving:
                transport._connect(link, addresses[link.receiver])
            acceptor.finish()
        except BaseException:
            acceptor.give_up()
            transport.close()
            raise
        return transport

    def send(self, sender: int, receiver: int, tag: Tag, data: Vector) -> None:
        writer = self._writers.get(Link(sender, receiver))
        if writer is None:
            self._local.send(sender, receiver, tag, data)
            return
        # A copy: the runner goes on to overwrite the vector while the thread still writes.
        payload = memoryview(data.tobytes())
        writer.put(pack_frame(self._member.epoch, tag, payload.nbytes), payload)

    def receive(self, receiver: int, sender: int, tag: Tag, out: Vector) -> None:
        stream = self._readers.get(Link(sender, receiver))
        if stream is None:
            self._local.receive(receiver, sender, tag, out)
            return
        check_frame(stream.read_exactly(FRAME_BYTES), self._member.epoch, tag, out.nbytes)
        if out.nbytes:
            stream.read_into(out.data.cast("B"))

    def close(self, *, drain_seconds: float = 5.0) -> None:
        for writer in self._writers.values():
            writer.close(drain_seconds)
        for stream in self._readers.values():
            stream.close()

    def _connect(self, link: Link, address: str) -> None:
        name = f"host {link.receiver} at {address}"
        try:
            sock = socket.create_connection(split_address(address), timeout=_HANDSHAKE_SECONDS)
        except OSError as error:
            raise _unavailable(f"{name} cannot be reached: {error.strerror or error}") from error
        # The peer may still be loading its checkpoint before it accepts: the long time-out holds here as well.
        stream = TcpStream(sock, name, self._silence_seconds, self._stopping)
        try:
            connect_handshake(stream, self._member, link)
        except BaseException:
            stream.close()
            raise
        self._writers[link] = _Writer(stream, link)


class _Acceptor:
    """A thread that takes the entering links, so that connecting and accepting go on at the same time."""

    def __init__(self, transport: TcpTransport, listener: Listener, entering: set[Link]) -> None:
        self._transport = transport
        self._listener = listener
        self._missing = set(entering)
        self._error: PodyardError | None = None
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ring-accept", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    def give_up(self) -> None:
        self._given_up.set()
        self._thread.join()

    def _run(self) -> None:
        slices = max(1, round(self._transport._silence_seconds / _SLICE_SECONDS))
        try:
            while self._missing and not self._given_up.is_set():
                if self._transport._stopping():
                    raise PodyardError(Code.CANCELLED, "told to stop")
                sock = self._listener.accept()
                if sock is None:
                    slices -= 1
                    if slices <= 0:
                        waited = ", ".join(str(link.sender) for link in sorted(self._missing, key=lambda x: x.sender))
                        raise _unavailable(f"no connection from host {waited} in time")
                    continue
                self._take(sock)
        except PodyardError as error:
            self._error = error

    def _take(self, sock: socket.socket) -> None:
        stream = TcpStream(sock, "the connecting peer", _HANDSHAKE_SECONDS, self._transport._stopping)
        try:
            link = accept_handshake(stream, self._transport._member, lambda link: link in self._missing)
        except PodyardError:
            # Whoever it was, it is not the peer we wait for: the door stays open for that one, until the time is up.
            stream.close()
            return
        except (ValueError, struct.error):
            stream.close()
            return
        stream._name = f"host {link.sender}"
        stream.use_silence(self._transport._silence_seconds)
        self._missing.discard(link)
        self._transport._readers[link] = stream
