"""TCP between replica processes: one connection per ring link that crosses processes.

A process listens first, learns its peers' addresses, then connects for every link that leaves it
and accepts one for every link that enters it. One thread does everything on sockets that do not
block: while it waits for a message it goes on writing its own, so large chunks that all ranks send
at the same moment cannot block each other. (Writer threads were slower: each message changed
threads twice.)
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from podyard.base.errors import Code, PodyardError
from podyard.engine.collectives.combine import Array
from podyard.engine.collectives.transport import LocalTransport, Tag
from podyard.engine.collectives.wire import (
    FRAME_BYTES,
    SEAL_BYTES,
    Link,
    LinkSeal,
    Membership,
    accept_handshake,
    check_frame,
    connect_handshake,
    pack_frame,
)

Stopping = Callable[[], bool]

# Waiting is cut into slices, so that a process that is told to stop does not sit out the whole
# time-out.
_SLICE_SECONDS = 0.25
_BUFFER_BYTES = 4 << 20
_HANDSHAKE_SECONDS = 10.0
PEER_SILENCE_SECONDS = 60.0


def _never() -> bool:
    return False


def _slices(seconds: float) -> int:
    return max(1, round(seconds / _SLICE_SECONDS))


def _unavailable(what: str) -> PodyardError:
    return PodyardError(Code.UNAVAILABLE, what)


class TcpStream:
    """A connected socket. Silence beyond `silence_seconds` and a closed connection are PodyardError
    UNAVAILABLE."""

    def __init__(
        self, sock: socket.socket, name: str, silence_seconds: float, stopping: Stopping = _never
    ) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Room for several blocks, so that most sends end at once (the system may give less).
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        sock.settimeout(_SLICE_SECONDS)
        self._socket = sock
        self._name = name
        self._slices = _slices(silence_seconds)
        self._stopping = stopping

    def write_all(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        idle = 0
        while view:
            try:
                view = view[self._socket.send(view) :]
                idle = 0
            except TimeoutError:
                idle = self.wait_longer(idle, "takes no data")
            except OSError as error:
                raise self._peer_error(error.strerror or str(error)) from error

    def read_into(self, view: memoryview) -> None:
        idle = 0
        while view:
            try:
                count = self._socket.recv_into(view)
            except TimeoutError:
                idle = self.wait_longer(idle, "is silent")
                continue
            except OSError as error:
                raise self._peer_error(error.strerror or str(error)) from error
            if count == 0:
                raise self._peer_error("it closed the connection")
            view = view[count:]
            idle = 0

    def read_exactly(self, nbytes: int) -> bytes:
        data = bytearray(nbytes)
        self.read_into(memoryview(data))
        return bytes(data)

    def become(self, name: str, silence_seconds: float) -> None:
        """A handshake is quick or it is a stranger's; a peer that computes may take longer."""
        self._name = name
        self._slices = _slices(silence_seconds)

    def stop_blocking(self) -> None:
        self._socket.settimeout(0)

    def write_now(self, view: memoryview) -> int:
        """Bytes that the socket took, 0 when it takes none now."""
        try:
            return self._socket.send(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._peer_error(error.strerror or str(error)) from error

    def write_both_now(self, header: bytes, payload: memoryview) -> int:
        """Bytes of both, one behind the other, that the socket took; 0 when it takes none now."""
        try:
            return self._socket.sendmsg((header, payload))
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._peer_error(error.strerror or str(error)) from error

    def read_now(self, view: memoryview) -> int:
        """Bytes read into `view`, 0 when there are none now."""
        try:
            count = self._socket.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._peer_error(error.strerror or str(error)) from error
        if count == 0:
            raise self._peer_error("it closed the connection")
        return count

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _peer_error(self, why: str) -> PodyardError:
        return _unavailable(f"{self._name} is gone: {why}")

    def wait_longer(self, idle: int, what: str) -> int:
        """idle + 1 slices without a byte; raises CANCELLED when told to stop, UNAVAILABLE when that
        is too long."""
        if self._stopping():
            raise PodyardError(Code.CANCELLED, "told to stop")
        if idle + 1 >= self._slices:
            raise _unavailable(f"{self._name} {what} for {self._slices * _SLICE_SECONDS:g} s")
        return idle + 1


class Listener:
    """A listening socket on `bind_address` ("host:port", port 0: any free one). `address` is what
    peers connect to."""

    def __init__(self, bind_address: str) -> None:
        host, port = split_address(bind_address)
        try:
            self._socket = socket.create_server((host, port), backlog=128)
        except OSError as error:
            raise _unavailable(
                f"cannot listen on {bind_address}: {error.strerror or error}"
            ) from error
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
        raise PodyardError(
            Code.INVALID_ARGUMENT, f"{address!r} is not an address like 127.0.0.1:8800"
        )
    return host, int(port)


def _is_of_one_machine(address: str) -> bool:
    host = split_address(address)[0].strip("[]")
    return host == "localhost" or host == "::1" or host.startswith("127.")


def bytes_of(array: Array) -> memoryview:
    """The memory of a contiguous array, of element types that memoryview does not know, too."""
    return array.view(np.uint8).data if array.size else memoryview(b"")


class _Outgoing:
    """The bytes that one leaving link still has to write. Used by one thread, on a socket that
    never blocks."""

    def __init__(self, stream: TcpStream) -> None:
        self.stream = stream
        self._views: deque[memoryview] = deque()

    def put(self, header: bytes, payload: memoryview) -> None:
        """Write, and copy what the socket does not take at once: the sender goes on to overwrite
        it."""
        taken = self.stream.write_both_now(header, payload) if self.write_some() else 0
        if taken < len(header):
            self._views.append(memoryview(header[taken:]))
        rest = payload[max(0, taken - len(header)) :]
        if rest:
            self._views.append(memoryview(bytes(rest)))

    def write_some(self) -> bool:
        """Writes what the socket takes; True when nothing is left."""
        while self._views:
            count = self.stream.write_now(self._views[0])
            if count == len(self._views[0]):
                self._views.popleft()
            elif count == 0:
                return False
            else:
                self._views[0] = self._views[0][count:]
        return True


class TcpTransport:
    """Messages between the ranks in `local_ranks` by queues, to and from all others by TCP."""

    def __init__(self, member: Membership, silence_seconds: float, stopping: Stopping) -> None:
        self._member = member
        self._silence_seconds = silence_seconds
        self._stopping = stopping
        self._local = LocalTransport()
        self._outgoing: dict[Link, _Outgoing] = {}
        self._readers: dict[Link, TcpStream] = {}
        self._seals: dict[Link, LinkSeal] = {}  # of links between machines

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
        """Opens all links of the ring 0 -> 1 -> ... -> 0 that touch this process; blocks until they
        stand.

        `addresses`: rank -> "host:port" of the process that holds it. Raises PodyardError
        UNAVAILABLE when a peer does not come in time, UNAUTHENTICATED for a peer with another key,
        ABORTED for one of another epoch or run.
        """
        count = len(addresses)
        leaving = [
            Link(r, (r + 1) % count)
            for r in sorted(local_ranks)
            if (r + 1) % count not in local_ranks
        ]
        entering = {
            Link((r - 1) % count, r) for r in local_ranks if (r - 1) % count not in local_ranks
        }
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

    def _seal(self, link: Link, key: bytes, address: str) -> None:
        """`address`: where the link's receiver listens. Both ends know it, so no word on the wire
        decides."""
        if not _is_of_one_machine(address):
            self._seals[link] = LinkSeal(key)

    def send(self, sender: int, receiver: int, tag: Tag, data: Array) -> None:
        outgoing = self._outgoing.get(Link(sender, receiver))
        if outgoing is None:
            self._local.send(sender, receiver, tag, data)
            return
        header, payload = pack_frame(self._member.epoch, tag, data.nbytes), bytes_of(data)
        seal = self._seals.get(Link(sender, receiver))
        outgoing.put(header if seal is None else header + seal.next(header, payload), payload)

    def receive(self, receiver: int, sender: int, tag: Tag, out: Array) -> None:
        stream = self._readers.get(Link(sender, receiver))
        if stream is None:
            self._local.receive(receiver, sender, tag, out)
            return
        seal = self._seals.get(Link(sender, receiver))
        head = bytearray(FRAME_BYTES + (0 if seal is None else SEAL_BYTES))
        self._read(stream, memoryview(head))
        header, payload = head[:FRAME_BYTES], bytes_of(out)
        check_frame(header, self._member.epoch, tag, out.nbytes)
        if out.nbytes:
            self._read(stream, payload)
        if seal is not None:
            seal.check(header, payload, head[FRAME_BYTES:])

    def flush(self) -> None:
        idle = 0
        while waiting := [
            outgoing for outgoing in self._outgoing.values() if not outgoing.write_some()
        ]:
            _, writable, _ = select.select(
                [], [outgoing.stream for outgoing in waiting], [], _SLICE_SECONDS
            )
            idle = 0 if writable else waiting[0].stream.wait_longer(idle, "takes no data")

    def close(self) -> None:
        for outgoing in self._outgoing.values():
            outgoing.stream.close()
        for stream in self._readers.values():
            stream.close()

    def _read(self, stream: TcpStream, view: memoryview) -> None:
        """Fills `view`, and meanwhile writes what is waiting to be written."""
        idle = 0
        while view:
            count = stream.read_now(view)
            if count:
                view = view[count:]
                idle = 0
                continue
            waiting = [
                outgoing for outgoing in self._outgoing.values() if not outgoing.write_some()
            ]
            ready = select.select(
                [stream], [outgoing.stream for outgoing in waiting], [], _SLICE_SECONDS
            )
            if not any(ready):
                idle = stream.wait_longer(idle, "is silent")

    def _connect(self, link: Link, address: str) -> None:
        name = f"host {link.receiver} at {address}"
        try:
            sock = socket.create_connection(split_address(address), timeout=_HANDSHAKE_SECONDS)
        except OSError as error:
            raise _unavailable(f"{name} cannot be reached: {error.strerror or error}") from error
        # The peer may still be loading its checkpoint before it accepts: the long time-out holds
        # here as well.
        stream = TcpStream(sock, name, self._silence_seconds, self._stopping)
        try:
            key = connect_handshake(stream, self._member, link)
        except BaseException:
            stream.close()
            raise
        stream.stop_blocking()
        self._seal(link, key, address)
        self._outgoing[link] = _Outgoing(stream)


class _Acceptor:
    """A thread that takes the entering links, so that connecting and accepting go on at the same
    time."""

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
        slices = _slices(self._transport._silence_seconds)
        try:
            while self._missing and not self._given_up.is_set():
                if self._transport._stopping():
                    raise PodyardError(Code.CANCELLED, "told to stop")
                sock = self._listener.accept()
                if sock is None:
                    slices -= 1
                    if slices <= 0:
                        waited = ", ".join(
                            str(link.sender)
                            for link in sorted(self._missing, key=lambda x: x.sender)
                        )
                        raise _unavailable(f"no connection from host {waited} in time")
                    continue
                self._take(sock)
        except PodyardError as error:
            self._error = error

    def _take(self, sock: socket.socket) -> None:
        stream = TcpStream(
            sock, "the connecting peer", _HANDSHAKE_SECONDS, self._transport._stopping
        )
        try:
            link, key = accept_handshake(
                stream, self._transport._member, lambda link: link in self._missing
            )
        except PodyardError:
            # It is not the peer that we wait for: keep listening until the time is up.
            stream.close()
            return
        except (ValueError, struct.error):
            stream.close()
            return
        stream.become(f"host {link.sender}", self._transport._silence_seconds)
        stream.stop_blocking()
        self._missing.discard(link)
        self._transport._seal(link, key, self._listener.address)
        self._transport._readers[link] = stream
