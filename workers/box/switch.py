"""The networks of boxes: the switch of a slice, its cables, and sockets that belong to one of
them."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from podyard.workers.box import init as box_init
from podyard.workers.box import plan as box_plan
from podyard.workers.box import sockets as box_socket
from podyard.workers.box.space import Space, run, tool

_TUNSETIFF, _TAP_WITHOUT_HEADER = 0x400454CA, 0x1002  # linux/if_tun.h


def number(space: Space, network: str) -> int:
    """Return which namespace has the name now; 0: none."""
    try:
        return (space.networks / network).stat().st_ino
    except OSError:
        return 0


def plug(space: Space, network: str, host_id: str, pid: int, address: str, inside: str) -> None:
    """Lays the cables of a box, whose first process is `pid`. `inside`: what is done at their other
    ends."""
    with space.lock_networks():
        if number(space, network) == 0:
            run(space.command(tool("ip"), "netns", "add", network))
            _configure(space, network, box_plan.switch_commands())
        else:
            # Left by a box that was killed a moment ago: Linux takes its time.
            _pull_plugs(space, network, host_id)
        _configure(space, network, box_plan.plug_commands(host_id, pid, address))
    run(space.command(tool("nsenter"), "-t", str(pid), "-n", tool("ip"), "-batch", "-"), inside)


def unplug(space: Space, network: str, host_id: str) -> None:
    """Takes a box off its switch; the last one takes the switch along."""
    with space.lock_networks():
        if number(space, network) != 0:
            _pull_plugs(space, network, host_id)
            _drop_if_empty(space, network)


def sweep(space: Space) -> None:
    """Removes switches without cables."""
    with space.lock_networks():
        for path in space.networks.glob("podyard-*"):
            _drop_if_empty(space, path.name)


def open_socket(space: Space, network: Path) -> socket.socket:
    """A TCP socket: it reaches what is in this network, and nothing else."""
    return socket.socket(fileno=_open_in(space, network, box_socket.TCP))


def open_tap(space: Space, network: str, name: str) -> int:
    """A new device in a switch: what is read from the descriptor are Ethernet frames that leave by
    it. It goes with the descriptor, which does not block. Raises OSError where there is no such
    switch."""
    found = _open_in(space, space.networks / network, box_socket.TUN)
    try:
        fcntl.ioctl(found, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER))
        _configure(space, network, box_plan.cable_commands(name))
    except OSError:
        os.close(found)
        raise
    return found


def _configure(space: Space, network: str, commands: str, *options: str) -> None:
    """Raises OSError."""
    run(space.command(*_in_switch(network), tool("ip"), *options, "-batch", "-"), commands, "ip")


def _in_switch(network: str) -> tuple[str, str]:
    """Return what runs a command in a switch. Not `ip -n`, which mounts /sys: some systems allow no
    user that."""
    return tool("nsenter"), f"--net=/run/netns/{network}"


def _pull_plugs(space: Space, network: str, host_id: str) -> None:
    commands = "".join(
        f"link del {name}\n" for name in (box_plan.port_name(host_id), box_plan.gate_name(host_id))
    )
    with contextlib.suppress(OSError):
        _configure(space, network, commands, "-force")


def _drop_if_empty(space: Space, network: str) -> None:
    listed = ""
    with contextlib.suppress(OSError):
        listed = run(
            space.command(*_in_switch(network), tool("ip"), "-o", "link", "show", "type", "veth")
        )
    if not listed.strip():
        with contextlib.suppress(OSError):
            run(space.command(tool("ip"), "netns", "del", network))


def _open_in(space: Space, network: Path, kind: str) -> int:
    """A descriptor of another network. Raises OSError."""
    if space.holder is None:
        with _in_network(network):
            return box_socket.open_descriptor(kind)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        script = (sys.executable, "-I", "-S", box_socket.__file__, kind)
        run(
            (*space.enter(f"--net={network}"), *script),
            what="a socket of the box",
            stdin=theirs.fileno(),
        )
        _, descriptors, *_ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
    return descriptors[0]


@contextlib.contextmanager
def _in_network(path: Path) -> Iterator[None]:
    """This thread in another network; nothing in between may wait."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        other = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.setns(other, box_init.NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "the box's network cannot be entered")
        finally:
            os.close(other)
        try:
            yield
        finally:
            if libc.setns(own, box_init.NEWNET) != 0:
                os._exit(70)  # in a box's network this process would be of no use, and a danger
    finally:
        os.close(own)
