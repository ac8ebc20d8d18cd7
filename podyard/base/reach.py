"""Check that another machine reaches an address of ours: it dials, and we answer with a number
that only we know."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from podyard.base.rng import secret_token

DIAL_SECONDS_MAX = 3.0  # twice a lost SYN on a slow link
_BYTES_MAX = 128
_PIECES_MAX = 3  # the number comes in one; a program that drips bytes must not hold us
_CALLS_MAX = 8  # of those that may dial while we wait: the API tries once


@contextlib.contextmanager
def answering(address: str) -> Iterator[tuple[int, str]]:
    """(port, number): who dials `address` on the port is sent the number. Raises OSError when the
    address is not
    this machine's."""
    number = secret_token(16)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, backlog=_CALLS_MAX) as listener:
        threading.Thread(target=_answer, args=(listener, number), name="reach", daemon=True).start()
        try:
            yield int(listener.getsockname()[1]), number
        finally:
            # Closing alone would leave the thread in accept.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def why_not(address: str, port: int, number: str) -> str:
    """Return what keeps us from the process that answers there; empty: nothing."""
    try:
        with socket.create_connection((address, port), DIAL_SECONDS_MAX) as connection:
            said = b""
            for _ in range(_PIECES_MAX):
                piece = connection.recv(_BYTES_MAX)
                said += piece
                if not piece:
                    break
    except OSError as error:
        return f"{address}:{port} does not answer ({error.strerror or 'timed out'})"
    return "" if said == number.encode() else f"another program answers at {address}:{port}"


def _answer(listener: socket.socket, number: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(number.encode())
