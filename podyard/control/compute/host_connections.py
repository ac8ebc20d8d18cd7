"""Connections to hosts that may not run yet: where their ssh listeners are, and what the first
connection does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.base.errors import failed_precondition, invalid, not_found
from podyard.control.compute import hosts as host_control
from podyard.control.platform.agents import require_agent
from podyard.db.compute import hosts
from podyard.db.compute import nodes as node_rows
from podyard.db.store import yard
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host import ADDRESSES, HAS_HOST_ADDRESSES, address_number, external_address
from podyard.domain.host_record import HostRecord
from podyard.domain.node import NodeState
from podyard.domain.principal import Principal

# of one machine: 32 nodes v4-4096; each is one socket, and a process has 65,536
LISTENERS_MAX = 16_384
TAKEN_PREFIX = "ssh: "  # of a host's problem, when nobody can connect to it


@dataclasses.dataclass(frozen=True, slots=True)
class NodeListeners:
    """The ports and addresses at which the hosts of a READY node listen: at the addresses number
    `first` up to `first + count
    - 1`."""

    node_key: str
    first: int
    count: int


def listeners(uow: UnitOfWork) -> tuple[int, list[NodeListeners]]:
    """(where the yard's addresses begin, what listens there). Beyond `LISTENERS_MAX` the newest
    nodes have none."""
    found: list[NodeListeners] = []
    room = LISTENERS_MAX
    for key, _, first, hosts_of_node in (
        node_rows.addresses(uow, LISTENERS_MAX) if HAS_HOST_ADDRESSES else ()
    ):
        count = min(room, hosts_of_node)
        room -= count
        if count > 0:
            found.append(NodeListeners(key, first, count))
    return yard.read(uow).address_base if found else 0, found


def has_listeners(uow: UnitOfWork) -> bool:
    return HAS_HOST_ADDRESSES and bool(node_rows.addresses(uow, 1))


def reachable(uow: UnitOfWork, principal: Principal) -> list[tuple[str, int]]:
    """(address of the first host, number of hosts) of the READY nodes whose hosts the caller may
    use."""
    if not HAS_HOST_ADDRESSES:
        return []
    found = node_rows.addresses(uow, LISTENERS_MAX)
    base = yard.read(uow).address_base if found else 0
    return [
        (external_address(base, first), count)
        for _, project, first, count in found
        if principal.may(host_control.USE, project)
    ]


def open_by_address(uow: UnitOfWork, principal: Principal, address: str) -> HostRecord:
    """Materialises the host that clients dial at this address. It is RUNNING once its agent says
    so.

    Raises NOT_FOUND where there is none that the caller may use, RESOURCE_EXHAUSTED when there is
    no room.
    """
    try:
        number = address_number(address)
    except ValueError:
        raise invalid(
            f"address {address!r} must be one of a host, such as 127.128.0.1", "address"
        ) from None
    found = node_rows.addresses(uow, LISTENERS_MAX) if HAS_HOST_ADDRESSES else []
    base = yard.read(uow).address_base if found else 0
    for key, project, first, count in found:
        # the row of a node's addresses may go round the end of the range
        index = (number - base - first) % ADDRESSES
        if index < count and principal.may(host_control.USE, project):
            chosen = [host for host in hosts.of_node(uow, key) if host.host_index == index]
            return host_control.materialise(uow, node_rows.get_by_key(uow, key), chosen)[0]
    raise not_found(f"hosts/{address}")


def connect(uow: UnitOfWork, principal: Principal, agent_id: str, host_id: str) -> HostRecord:
    """Materialises the host for its first connection and returns it. It is RUNNING once its agent
    says so.

    Raises FAILED_PRECONDITION unless its node is READY, RESOURCE_EXHAUSTED when there is no room.
    """
    require_agent(principal, agent_id)
    host = hosts.find(uow, host_id)
    if host is None:
        raise not_found(f"hosts/{host_id}")
    node = node_rows.get_by_key(uow, host.node_key)
    if node.state is not NodeState.READY:
        raise failed_precondition(
            f"node {node.node_id} is {node.state}: its hosts run only while it is READY"
        )
    (connected,) = host_control.materialise(uow, node, [host])
    return connected


def note_taken(uow: UnitOfWork, taken: Mapping[str, str]) -> None:
    """Note by host why it cannot be connected to; hosts that are not named have no such problem any
    more."""
    hosts.set_taken(uow, TAKEN_PREFIX, taken)
