"""Open one descriptor in the network of a box or a switch:
`nsenter ... python -I -S box/sockets.py KIND`.

It is handed over on standard input, a Unix socket: a process that is not root cannot go to another
network and come back. Standard library only: this is most of what such a descriptor costs.
"""

import os
import socket
import sys

TCP, TUN = "tcp", "tun"


def open_descriptor(kind: str) -> int:
    """TCP: a new socket; TUN: what devices of the network are made by. It does not block."""
    if kind == TUN:
        return os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP).detach()


if __name__ == "__main__":
    with socket.socket(fileno=0) as asked:
        socket.send_fds(asked, [b"1"], [open_descriptor(sys.argv[1])])
