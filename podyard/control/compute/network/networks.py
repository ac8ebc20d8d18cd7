"""Networks and their subnetworks. Those of auto mode follow from the fleet's regions, and are
nowhere stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podyard.control.compute.network import store
from podyard.db.compute import nodes as node_rows
from podyard.db.compute import resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.address import address_spec
from podyard.domain.compute.firewall import firewall_spec
from podyard.domain.compute.network import (
    DEFAULT_NETWORK,
    NETWORKS_MAX,
    SUBNETWORKS_MAX,
    NetworkSpec,
    SubnetworkSpec,
    auto_subnetworks,
    check_apart,
    check_larger,
    network_spec,
    subnetwork_spec,
)
from podyard.domain.compute.place import WHOLE_PROJECT, ComputePlace, PlaceLevel
from podyard.domain.compute.refusal import (
    ComputeRefusal,
    Reason,
    already_exists,
    in_use,
    resource_not_found,
)
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.compute.route import NetworkRoute, routes_of
from podyard.domain.fleet import Fleet, region_of
from podyard.domain.lists.pages import RowQuery
from podyard.domain.machine import ResourceKind
from podyard.domain.principal import Principal

NETWORKS = store.Quota("NETWORKS", NETWORKS_MAX)
SUBNETWORKS = store.Quota("SUBNETWORKS", SUBNETWORKS_MAX)


def insert(
    uow: UnitOfWork, principal: Principal, project: str, name: str, spec: NetworkSpec
) -> ComputeResource:
    principal.require("compute.networks.create", project, f"projects/{project}")
    fields = dataclasses.asdict(spec)
    new = store.NewResource(ResourceKind.NETWORK, WHOLE_PROJECT, name, fields)
    return store.insert(uow, principal, project, new, NETWORKS)


def get(uow: UnitOfWork, project: str, name: str) -> ComputeResource:
    """Raises `notFound`. The caller has checked the permission."""
    return store.find(uow, project, ResourceKind.NETWORK, WHOLE_PROJECT, name)


def page(uow: UnitOfWork, query: RowQuery, project: str) -> list[ComputeResource]:
    return resources.page(uow, project, ResourceKind.NETWORK, None, query)


def patch(
    uow: UnitOfWork, principal: Principal, project: str, name: str, spec: NetworkSpec
) -> ComputeResource:
    principal.require("compute.networks.update", project, f"projects/{project}")
    return resources.update(uow, get(uow, project, name), dataclasses.asdict(spec))


def delete(uow: UnitOfWork, principal: Principal, project: str, name: str) -> ComputeResource:
    """Raises `resourceInUseByAnotherResource` while something is in it."""
    principal.require("compute.networks.delete", project, f"projects/{project}")
    network = get(uow, project, name)
    user = next(iter(_users(uow, network)), "")
    if user:
        raise in_use("network", network.path, user)
    resources.remove(uow, network)
    return network


def _users(uow: UnitOfWork, network: ComputeResource) -> list[str]:
    """The paths of what is in a network, but for its subnetworks of auto mode."""
    project, name = network.project, network.name
    paths = [
        rule.path
        for rule in resources.of_kind(uow, project, ResourceKind.FIREWALL)
        if firewall_spec(rule).network == name
    ]
    paths += [one.path for one in _own_subnetworks(uow, project, name)]
    for node in node_rows.live(uow, project):
        named = (one.name or DEFAULT_NETWORK for one in node.spec.networks)
        if any(text.rpartition("/")[2] == name for text in named):
            paths.append(node.name)
    return paths


def insert_subnetwork(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    region: str,
    name: str,
    spec: SubnetworkSpec,
    fleet: Fleet,
) -> ComputeResource:
    """Raises `invalid` for a range that is not free in the network, too."""
    principal.require("compute.subnetworks.create", project, f"projects/{project}")
    network = get(uow, project, spec.network)
    place = ComputePlace(PlaceLevel.REGION, region)
    there = subnetworks_of(uow, network, fleet)
    if any((one.place, one.name) == (region, name) for one in all_subnetworks(uow, project, fleet)):
        raise already_exists(store.path_to(project, ResourceKind.SUBNETWORK, place, name))
    check_apart(spec, there)
    fields = dataclasses.asdict(spec)
    new = store.NewResource(ResourceKind.SUBNETWORK, place, name, fields)
    return store.insert(uow, principal, project, new, SUBNETWORKS)


def all_subnetworks(uow: UnitOfWork, project: str, fleet: Fleet) -> list[ComputeResource]:
    """Those that are stored, and those that networks of auto mode have."""
    regions = regions_of(fleet)
    derived = [
        subnetwork
        for network in resources.of_kind(uow, project, ResourceKind.NETWORK)
        for subnetwork in auto_subnetworks(network, regions)
    ]
    return [*resources.of_kind(uow, project, ResourceKind.SUBNETWORK), *derived]


def subnetworks_of(
    uow: UnitOfWork, network: ComputeResource, fleet: Fleet
) -> list[ComputeResource]:
    derived = auto_subnetworks(network, regions_of(fleet))
    return [*_own_subnetworks(uow, network.project, network.name), *derived]


def _own_subnetworks(uow: UnitOfWork, project: str, network: str) -> list[ComputeResource]:
    return own_subnetworks(uow, project).get(network, [])


def own_subnetworks(uow: UnitOfWork, project: str) -> dict[str, list[ComputeResource]]:
    """Those that are stored, by the names of their networks."""
    by_network: dict[str, list[ComputeResource]] = {}
    for one in resources.of_kind(uow, project, ResourceKind.SUBNETWORK):
        by_network.setdefault(subnetwork_spec(one).network, []).append(one)
    return by_network


def routes(uow: UnitOfWork, project: str, fleet: Fleet) -> list[NetworkRoute]:
    """Those of all networks of a project."""
    own = own_subnetworks(uow, project)
    regions = regions_of(fleet)
    return [
        route
        for network in resources.of_kind(uow, project, ResourceKind.NETWORK)
        for route in routes_of(
            network, [*own.get(network.name, ()), *auto_subnetworks(network, regions)]
        )
    ]


def get_subnetwork(
    uow: UnitOfWork, project: str, region: str, name: str, fleet: Fleet
) -> ComputeResource:
    for one in all_subnetworks(uow, project, fleet):
        if (one.place, one.name) == (region, name):
            return one
    place = ComputePlace(PlaceLevel.REGION, region)
    raise resource_not_found(store.path_to(project, ResourceKind.SUBNETWORK, place, name))


def patch_subnetwork(
    uow: UnitOfWork,
    principal: Principal,
    subnetwork: ComputeResource,
    spec: SubnetworkSpec,
    permission: str = "compute.subnetworks.update",
) -> ComputeResource:
    project = subnetwork.project
    principal.require(permission, project, f"projects/{project}")
    _check_stored(uow, subnetwork, "change")
    return resources.update(uow, subnetwork, dataclasses.asdict(spec))


def delete_subnetwork(
    uow: UnitOfWork, principal: Principal, project: str, region: str, name: str, fleet: Fleet
) -> ComputeResource:
    principal.require("compute.subnetworks.delete", project, f"projects/{project}")
    subnetwork = get_subnetwork(uow, project, region, name, fleet)
    _check_stored(uow, subnetwork, "delete")
    for address in resources.of_kind(uow, project, ResourceKind.ADDRESS):
        if (address.place, address_spec(address).subnetwork) == (region, name):
            raise in_use("subnetwork", subnetwork.path, address.path)
    resources.remove(uow, subnetwork)
    return subnetwork


def expand_subnetwork(
    uow: UnitOfWork, principal: Principal, subnetwork: ComputeResource, ip_range: str, fleet: Fleet
) -> ComputeResource:
    """Raises `invalid` unless the range has all addresses of the one before, and is free."""
    project = subnetwork.project
    principal.require("compute.subnetworks.expandIpCidrRange", project, f"projects/{project}")
    _check_stored(uow, subnetwork, "expand")
    spec = dataclasses.replace(subnetwork_spec(subnetwork), ip_range=ip_range)
    check_larger(subnetwork_spec(subnetwork).ip_range, ip_range)
    network = get(uow, project, spec.network)
    others = [one for one in subnetworks_of(uow, network, fleet) if one.path != subnetwork.path]
    check_apart(spec, others)
    return resources.update(uow, subnetwork, dataclasses.asdict(spec))


def switch_to_custom_mode(
    uow: UnitOfWork, principal: Principal, project: str, name: str, fleet: Fleet
) -> ComputeResource:
    """Its subnetworks of auto mode become ones that are stored."""
    principal.require("compute.networks.switchToCustomMode", project, f"projects/{project}")
    network = get(uow, project, name)
    spec = network_spec(network)
    if not spec.auto_subnetworks:
        text = f"The network '{network.path}' is not in auto subnet mode."
        raise ComputeRefusal(Reason.INVALID, text)
    for one in auto_subnetworks(network, regions_of(fleet)):
        resources.insert(uow, one)
    custom = dataclasses.replace(spec, auto_subnetworks=False)
    return resources.update(uow, network, dataclasses.asdict(custom))


def _check_stored(uow: UnitOfWork, subnetwork: ComputeResource, verb: str) -> None:
    """Google's words."""
    stored = resources.find(
        uow, subnetwork.project, ResourceKind.SUBNETWORK, subnetwork.place, subnetwork.name
    )
    if stored is None:
        text = f"Cannot {verb} auto subnetwork from an auto subnet mode network."
        raise ComputeRefusal(Reason.INVALID, text)


def check_named(uow: UnitOfWork, project: str, name: str, subnetwork: str, region: str) -> None:
    """Raise `notFound` unless the project has the network, and in it the subnetwork, that a request
    names; each by name, path or URL, empty for the default. The subnetworks of auto mode are in
    every region."""
    network = get(uow, project, (name or DEFAULT_NETWORK).rpartition("/")[2])
    short = subnetwork.rpartition("/")[2]
    if not short or (short == network.name and network_spec(network).auto_subnetworks):
        return
    own = _own_subnetworks(uow, project, network.name)
    if any((one.place, one.name) == (region, short) for one in own):
        return
    place = ComputePlace(PlaceLevel.REGION, region)
    raise resource_not_found(store.path_to(project, ResourceKind.SUBNETWORK, place, short))


def regions_of(fleet: Fleet) -> Sequence[str]:
    return sorted({region_of(zone) for zone in fleet.zones})
