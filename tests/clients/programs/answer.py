"""How a program says to its test what it found: the case is named on the command line, the answer
is the last line.

Connections that leave the machine are refused: a client that goes past the proxy would ask Google
itself.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from collections.abc import Callable
from typing import Any


def answer(*cases: Callable[..., Any]) -> None:
    """Runs the case that the first argument names, with the other arguments, and prints what it
    gives as JSON."""
    sys.addaudithook(_stay_on_this_machine)
    case = {function.__name__: function for function in cases}[sys.argv[1]]
    print(json.dumps(case(*sys.argv[2:])))


def error_of(call: Callable[[], object]) -> list[str]:
    """[class, text] of what the call raises."""
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    raise AssertionError("it did not fail")


def _stay_on_this_machine(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    if host not in (None, "localhost") and not _is_loopback(host):
        raise PermissionError(f"{event} {host}: not on this machine")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
