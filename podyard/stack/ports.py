"""The sockets on which a stack listens, and whether its API answers there."""

from __future__ import annotations

import errno
import socket

from podyard.stack import processes
from podyard.stack.errors import SetupError

HTTP_BACKLOG = 512  # requests that wait while the API restarts
PROBE_SECONDS_MAX = 2.0


def listen(variable: str, bind_address: str, port: int) -> socket.socket:
    """Return a listening socket that children inherit. `variable` is the setting that says which
    port. Raises SetupError when the port cannot be had."""
    address = (bind_address, port)
    option = variable.removeprefix("PODYARD").lower().replace("_", "-")
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    # Named as TCP, so that asyncio switches Nagle off: without it answers may wait 40 ms for an
    # ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        text = f"cannot listen on {address[0]}:{address[1]}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            other = f"use -{option} to choose another, or -{option} 0"
            text = f"{_conflict(variable, port)}; {other}"
        raise SetupError(text) from None
    listener.listen(HTTP_BACKLOG)
    listener.set_inheritable(True)
    return listener


def free_grpc_port(bind_address: str, wanted: int) -> int:
    """Return the port on which the API serves gRPC. Of a free one it is only known that it is
    free now: gRPC takes no socket that is open already."""
    family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind_address, wanted))
        except OSError as error:
            what = f"cannot listen on port {wanted}: {error.strerror}"
            if error.errno == errno.EADDRINUSE:
                what = _conflict("PODYARD_GRPC_PORT", wanted)
            raise SetupError(f"gRPC: {what}; choose another with --grpc-port") from None
        return int(probe.getsockname()[1])


def in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def own_address(bind_address: str) -> str:
    """Return the address at which other machines reach a bound one. Of all addresses it is that
    from which packets leave by default."""
    if bind_address not in ("0.0.0.0", "::"):
        return bind_address
    family, anywhere = (
        (socket.AF_INET6, "2001:db8::1") if bind_address == "::" else (socket.AF_INET, "192.0.2.1")
    )
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((anywhere, 9))  # sends nothing: the kernel only chooses the way
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def answers(url: str, path: str) -> bool:
    """Tell whether the API answers with 200, over a socket: http.client would load OpenSSL, and
    this process keep it."""
    place = url.removeprefix("http://")
    host, _, port = place.rpartition(":")
    request = f"GET {path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection(
            (host.strip("[]"), int(port)), PROBE_SECONDS_MAX
        ) as connection:
            connection.sendall(request.encode())
            with connection.makefile("rb") as answer:
                return answer.readline().startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def _conflict(variable: str, port: int) -> str:
    folder = processes.folder_with(variable, str(port))
    return (
        f"port {port} is taken by "
        f"{'another program' if folder is None else f'the Podyard on {folder}'}"
    )
