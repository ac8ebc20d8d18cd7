"""Meets the other processes of a gang, and finds the shortest way to sum with them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from podyard.base.errors import failed_precondition
from podyard.engine.collectives import futex
from podyard.engine.collectives.sums import (
    HostSum,
    SharedSum,
    SumInProcess,
    SumOverMachines,
    SumOverTransport,
)
from podyard.engine.collectives.transport_tcp import PEER_SILENCE_SECONDS, Listener, TcpTransport
from podyard.engine.collectives.windows import Members, WindowFile
from podyard.engine.collectives.wire import Membership
from podyard.engine.contract import Peer, Rendezvous, ReplicaSpec, agreement_digest

_FLOAT_BYTES = 4
_ALONE = "#alone"  # behind the address of a process that shares no memory


@contextlib.contextmanager
def join_gang(
    spec: ReplicaSpec,
    rendezvous: Rendezvous,
    start: str,
    length: int,
    bind_address: str,
    stopping: Callable[[], bool],
) -> Iterator[HostSum]:
    """The sum over the hosts of the slice, of float32 vectors of `length`, once all processes are
    there.

    In one process where there is one; in shared memory between processes of a machine; by TCP
    between machines, and where memory cannot be shared. `start` is what all must have in common
    besides the spec. Raises what `HostSum` does, and FAILED_PRECONDITION when the members does not
    hold all hosts.
    """
    with contextlib.ExitStack() as stack:
        listener = Listener(bind_address)
        stack.callback(listener.close)
        member = Membership(spec.ring_key, spec.epoch, agreement_digest(spec, start))
        windows = _windows(spec, member, length)
        if windows is not None:
            stack.callback(windows.take_name_away)
        # Who cannot share memory says so: else the others would let one of its machine speak for
        # it.
        address = listener.address if windows is not None else f"{listener.address}{_ALONE}"
        peers = [
            _take_peer(peer)
            for peer in sorted(rendezvous.join(address), key=lambda peer: peer.process_index)
        ]
        if spec.process_count == 1:
            yield SumInProcess(spec.host_count, length)
            return
        held = sorted(host for peer in peers for host in peer.host_indices)
        if held != list(range(spec.host_count)):
            raise failed_precondition(f"the gang holds hosts {held}, not all {spec.host_count}")
        machines = _machines(peers)
        mates = machines.get(_machine_of(peers, spec.rank), {})
        if windows is not None and len(mates) < 2:
            windows.discard()
        if windows is None or len(mates) < 2:
            ring = _ring(stack, spec, member, listener, peers, machines, stopping)
            yield SumOverTransport(spec.host_count, spec.host_indices, length, ring)
            return
        one_machine = len(mates) == spec.process_count
        members = Members.attach(
            windows,
            mates,
            silence_seconds=PEER_SILENCE_SECONDS,
            stopping=stopping,
            adders=None if one_machine else 1,
        )
        stack.callback(members.leave)
        if one_machine:
            yield SharedSum(members, length, np.dtype(np.float32))
            return
        leads = members.place == 0
        transport = (
            _ring(stack, spec, member, listener, peers, machines, stopping) if leads else None
        )
        yield SumOverMachines(spec.host_count, members, length, transport)


def _windows(spec: ReplicaSpec, member: Membership, length: int) -> WindowFile | None:
    if (
        spec.window_folder is None
        or spec.process_count == 1
        or not length
        or not futex.is_supported()
    ):
        return None
    hosts = len(spec.host_indices)
    return WindowFile.make(
        Path(spec.window_folder), member, spec.rank, hosts, length * _FLOAT_BYTES
    )


def _take_peer(peer: Peer) -> Peer:
    """A peer as the gang takes it: one that shares no memory is a machine by itself."""
    if not peer.address.endswith(_ALONE):
        return peer
    return dataclasses.replace(peer, address=peer.address.removesuffix(_ALONE), machine="")


def _machine_of(peers: Sequence[Peer], process: int) -> str:
    return next((peer.machine for peer in peers if peer.process_index == process), "")


def _machines(peers: Sequence[Peer]) -> dict[str, dict[int, tuple[int, ...]]]:
    """Of each machine, the hosts of each of its processes."""
    machines: dict[str, dict[int, tuple[int, ...]]] = {}
    for peer in peers:
        if peer.machine:
            machines.setdefault(peer.machine, {})[peer.process_index] = peer.host_indices
    return machines


def _ring(
    stack: contextlib.ExitStack,
    spec: ReplicaSpec,
    member: Membership,
    listener: Listener,
    peers: Sequence[Peer],
    machines: Mapping[str, Mapping[int, tuple[int, ...]]],
    stopping: Callable[[], bool],
) -> TcpTransport:
    """The links of the hosts that this process speaks for: all of its machine, where it shares
    memory with others."""
    speakers = {process: min(mates) for mates in machines.values() for process in mates}
    address_of = {peer.process_index: peer.address for peer in peers}
    spoken = {
        host: speakers.get(peer.process_index, peer.process_index)
        for peer in peers
        for host in peer.host_indices
    }
    addresses = {host: address_of[speaker] for host, speaker in spoken.items()}
    mine = frozenset(host for host, speaker in spoken.items() if speaker == spec.rank)
    transport = TcpTransport.open_ring(member, listener, addresses, mine, stopping=stopping)
    stack.callback(transport.close)
    return transport
