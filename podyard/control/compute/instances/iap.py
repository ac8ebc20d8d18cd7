"""Tunnels of Identity-Aware Proxy: which port of which host a caller may reach through one
(cloud.google.com/iap/docs/using-tcp-forwarding)."""

from __future__ import annotations

import dataclasses
import ipaddress
import re

from podyard.base.errors import failed_precondition
from podyard.control.access import identity
from podyard.control.compute import hosts as host_control
from podyard.control.compute.network import firewalls
from podyard.db.compute import hosts, instances
from podyard.db.compute import nodes as node_rows
from podyard.db.store import yard
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.firewall import firewall_spec
from podyard.domain.compute.firewall_flow import Flow, is_allowed
from podyard.domain.compute.network import DEFAULT_NETWORK
from podyard.domain.compute.refusal import resource_not_found
from podyard.domain.host import default_service_account
from podyard.domain.host_key import key_seed
from podyard.domain.host_record import HostRecord
from podyard.domain.node import NodeRecord, NodeState, instance_name
from podyard.domain.permissions.google_roles import TUNNEL
from podyard.domain.principal import Principal

# The addresses that Identity-Aware Proxy connects from.
SOURCE = ipaddress.IPv4Network("35.235.240.0/20")
INTERFACE = "nic0"
_HOST = re.compile(r"(.+)-w-(\d{1,5})")


@dataclasses.dataclass(frozen=True, slots=True)
class TunnelRequest:
    """`instance`: an instance's name, or the name of a host of a Cloud TPU node."""

    project: str
    zone: str
    instance: str
    interface: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True)
class TunnelTarget:
    """The host, and the seed of its keys."""

    host: HostRecord
    seed: bytes


def open_tunnel(uow: UnitOfWork, principal: Principal, asked: TunnelRequest) -> TunnelTarget:
    """Materialise the host. It is RUNNING once its agent says so.

    Raises PERMISSION_DENIED, NOT_FOUND, and FAILED_PRECONDITION for an instance that does not run
    and where no firewall rule lets the connection in.
    """
    path = instance_name(asked.project, asked.zone, asked.instance)
    principal.require(TUNNEL, asked.project, path)
    node, index = _find(uow, asked)
    if node is None or asked.interface != INTERFACE or index >= node.host_count:
        raise resource_not_found(path)
    if node.state is not NodeState.READY:
        raise failed_precondition(f"{path} is {node.state}: only what is READY can be reached")
    _require_rule(uow, node, asked)
    chosen = [host for host in hosts.of_node(uow, node.node_key) if host.host_index == index]
    (host,) = host_control.materialise(uow, node, chosen)
    return TunnelTarget(host, key_seed(yard.read(uow).secret, host.host_id))


def _find(uow: UnitOfWork, asked: TunnelRequest) -> tuple[NodeRecord | None, int]:
    """The live row and which of its hosts it is."""
    instance = instances.find(uow, asked.project, asked.zone, asked.instance)
    if instance is not None:
        return instance.node, instance.row.host_index
    match = _HOST.fullmatch(asked.instance)
    if match is None:
        return None, 0
    return node_rows.find(uow, asked.project, asked.zone, match[1]), int(match[2])


def _require_rule(uow: UnitOfWork, node: NodeRecord, asked: TunnelRequest) -> None:
    network = next((network.name for network in node.spec.networks), "") or DEFAULT_NETWORK
    name = network.rpartition("/")[2]
    account = node.spec.service_account.email or default_service_account(
        identity.project_row(uow, asked.project).number
    )
    flow = Flow(SOURCE, "tcp", asked.port, tuple(node.spec.tags), account)
    rules = firewalls.of_network(uow, asked.project, name)
    if not is_allowed(map(firewall_spec, rules), flow):
        raise failed_precondition(
            f"no firewall rule of network {name} lets {SOURCE} reach port {asked.port} of "
            f"{asked.instance}"
        )
