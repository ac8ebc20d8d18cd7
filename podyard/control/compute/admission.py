"""Checks of a node's request that depend on the project: who it acts as, and where it is."""

from __future__ import annotations

from podyard.base.errors import Code, PodyardError, invalid_field
from podyard.base.ids import bad_request
from podyard.control.access import identity
from podyard.control.compute.network import networks
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import region_of
from podyard.domain.host import default_service_account
from podyard.domain.node import NodeRecord, NodeSpec
from podyard.domain.principal import Principal
from podyard.domain.project import Project


def check_node(
    uow: UnitOfWork, principal: Principal, project: Project, zone: str, spec: NodeSpec
) -> None:
    """Raises PERMISSION_DENIED when the node's service account may do more than the caller, since
    the node acts as it, and INVALID_ARGUMENT when one of its networks is not there."""
    identity.require_no_more(
        uow, principal, spec.service_account.email or default_service_account(project.number)
    )
    _check_networks(uow, project.project, zone, spec)


def check_moved(uow: UnitOfWork, node: NodeRecord, spec: NodeSpec) -> None:
    """Raises INVALID_ARGUMENT for networks that a node cannot get. Older nodes may be in networks
    that nobody has made, and stay there."""
    if spec.has_both_networks:
        text = f"networkConfig cannot be set: node {node.node_id} uses networkConfigs"
        raise invalid_field(text, "network_config")
    if spec.networks != node.spec.networks:
        _check_networks(uow, node.project, node.zone, spec)


def _check_networks(uow: UnitOfWork, project: str, zone: str, spec: NodeSpec) -> None:
    """Raises INVALID_ARGUMENT when a network or subnetwork that the node names is not there."""
    region = region_of(zone)
    for network in spec.networks:
        try:
            networks.check_named(uow, project, network.name, network.subnetwork, region)
        except PodyardError as error:
            assert error.code is Code.NOT_FOUND, error
            raise bad_request(error.message, project) from None
