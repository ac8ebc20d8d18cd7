"""Networks and subnetworks on the wire."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import partial

from podyard.api.compute.call import Answer, Change, ComputeCall, Handler, page
from podyard.api.compute.resources import change, head, row_list, whole_list, without_empty
from podyard.control.compute.network import networks
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.network import (
    NetworkSpec,
    SubnetworkSpec,
    auto_subnetworks,
    check_mtu,
    name_in,
    network_spec,
    range_of,
    subnetwork_spec,
)
from podyard.domain.compute.place import link
from podyard.domain.compute.refusal import invalid_value, require_fingerprint
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.operation import OperationVerb
from podyard.http.texts import check_description

_NETWORK_EXTRAS = ("networkFirewallPolicyEnforcementOrder",)
_SUBNETWORK_EXTRAS = (
    "enableFlowLogs", "logConfig", "privateIpv6GoogleAccess", "role", "secondaryIpRanges",
)  # fmt: skip


def network_link(project: str, name: str) -> str:
    return link(f"projects/{project}/global/networks/{name}")


def _show_network(
    call: ComputeCall, network: ComputeResource, own: list[ComputeResource]
) -> Answer:
    spec = network_spec(network)
    there = [*own, *auto_subnetworks(network, networks.regions_of(call.fleet))]
    return without_empty(
        {
            **head(network),
            "description": spec.description,
            "autoCreateSubnetworks": spec.auto_subnetworks,
            "mtu": spec.mtu,
            "routingConfig": {"routingMode": spec.routing_mode},
            "subnetworks": [link(one.path) for one in there],
            "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
            "selfLinkWithId": network_link(network.project, str(network.number)),
            **spec.extras,
        }
    )


def _list(call: ComputeCall) -> Answer:
    own = call.read(lambda uow: networks.own_subnetworks(uow, call.project))
    return page(
        call,
        row_list(
            partial(networks.page, project=call.project),
            lambda network: _show_network(call, network, own.get(network.name, [])),
        ),
    )


def _get(call: ComputeCall) -> Answer:
    def work(uow: UnitOfWork) -> Answer:
        network = networks.get(uow, call.project, call.id)
        own = networks.own_subnetworks(uow, call.project)
        return _show_network(call, network, own.get(network.name, []))

    return call.read(work)


def _insert(call: ComputeCall) -> Change:
    body = call.body
    name = call.require("name")
    if "autoCreateSubnetworks" not in body or body.get("IPv4Range"):
        text = "Legacy networks are no longer supported: set autoCreateSubnetworks"
        raise invalid_value("IPv4Range", body.get("IPv4Range", ""), text)
    spec = _network(call, NetworkSpec(body.get("autoCreateSubnetworks", False)))
    return change(
        call,
        OperationVerb.INSERT,
        lambda uow: networks.insert(uow, call.principal, call.project, name, spec),
    )


def _network(call: ComputeCall, before: NetworkSpec) -> NetworkSpec:
    """The network `before` with the fields that the body sets."""
    body = call.body
    check_description(body.get("description", ""))
    routing = body.get("routingConfig", {})
    return NetworkSpec(
        auto_subnetworks=before.auto_subnetworks,
        description=body.get("description", before.description),
        mtu=check_mtu(body.get("mtu") or before.mtu),
        routing_mode=routing.get("routingMode", before.routing_mode),
        extras={**before.extras, **{key: body[key] for key in _NETWORK_EXTRAS if key in body}},
    )


def _patch(call: ComputeCall) -> Change:
    def act(uow: UnitOfWork) -> ComputeResource:
        before = network_spec(networks.get(uow, call.project, call.id))
        mode = call.body.get("autoCreateSubnetworks", before.auto_subnetworks)
        if mode != before.auto_subnetworks:
            text = "The mode of a network cannot be changed"
            raise invalid_value("autoCreateSubnetworks", mode, text)
        spec = _network(call, before)
        return networks.patch(uow, call.principal, call.project, call.id, spec)

    return change(call, OperationVerb.PATCH, act)


def _delete(call: ComputeCall) -> Change:
    return change(
        call,
        OperationVerb.DELETE,
        lambda uow: networks.delete(uow, call.principal, call.project, call.id),
    )


def _show_subnetwork(subnetwork: ComputeResource) -> Answer:
    spec = subnetwork_spec(subnetwork)
    return without_empty(
        {
            **head(subnetwork),
            "description": spec.description,
            "network": network_link(subnetwork.project, spec.network),
            "ipCidrRange": spec.ip_range,
            "gatewayAddress": str(ipaddress.IPv4Network(spec.ip_range)[1]),
            "privateIpGoogleAccess": spec.private_google_access,
            "purpose": spec.purpose,
            "stackType": spec.stack_type,
            "fingerprint": subnetwork.fingerprint,
            **spec.extras,
        }
    )


def _list_subnetworks(call: ComputeCall) -> Answer:
    def rows(uow: UnitOfWork) -> list[ComputeResource]:
        every = networks.all_subnetworks(uow, call.project, call.fleet)
        return [one for one in every if call.is_aggregated or one.place == call.place.name]

    return page(call, whole_list(rows, _show_subnetwork))


def _get_subnetwork(call: ComputeCall) -> Answer:
    return _show_subnetwork(call.read(lambda uow: _find_subnetwork(call, uow)))


def _find_subnetwork(call: ComputeCall, uow: UnitOfWork) -> ComputeResource:
    return networks.get_subnetwork(uow, call.project, call.place.name, call.id, call.fleet)


def _insert_subnetwork(call: ComputeCall) -> Change:
    name = call.require("name")
    network = name_in(call.require("network"), "network", "networks")
    ip_range = str(range_of(call.require("ipCidrRange"), "ipCidrRange"))
    region = call.body.get("region", "")
    if region and name_in(region, "region", "regions") != call.place.name:
        raise invalid_value("region", region, "It is not the region of the request")
    spec = _subnetwork(call, SubnetworkSpec(network, ip_range))
    return change(
        call,
        OperationVerb.INSERT,
        lambda uow: networks.insert_subnetwork(
            uow, call.principal, call.project, call.place.name, name, spec, call.fleet
        ),
    )


def _subnetwork(call: ComputeCall, before: SubnetworkSpec) -> SubnetworkSpec:
    body = call.body
    check_description(body.get("description", ""))
    return SubnetworkSpec(
        network=before.network,
        ip_range=before.ip_range,
        description=body.get("description", before.description),
        private_google_access=body.get("privateIpGoogleAccess", before.private_google_access),
        purpose=body.get("purpose", before.purpose),
        stack_type=body.get("stackType", before.stack_type),
        extras={**before.extras, **{key: body[key] for key in _SUBNETWORK_EXTRAS if key in body}},
    )


def _patch_subnetwork(call: ComputeCall) -> Change:
    def act(uow: UnitOfWork) -> ComputeResource:
        subnetwork = _find_subnetwork(call, uow)
        before = subnetwork_spec(subnetwork)
        require_fingerprint("metadata", call.body.get("fingerprint", ""), subnetwork.fingerprint)
        if call.body.get("ipCidrRange", before.ip_range) != before.ip_range:
            text = "The range of a subnetwork cannot be changed by patch"
            raise invalid_value("ipCidrRange", call.body.get("ipCidrRange"), text)
        return networks.patch_subnetwork(uow, call.principal, subnetwork, _subnetwork(call, before))

    return change(call, OperationVerb.PATCH, act)


def _delete_subnetwork(call: ComputeCall) -> Change:
    return change(
        call,
        OperationVerb.DELETE,
        lambda uow: networks.delete_subnetwork(
            uow, call.principal, call.project, call.place.name, call.id, call.fleet
        ),
    )


def _switch(call: ComputeCall) -> Change:
    return change(
        call,
        OperationVerb.SWITCH_TO_CUSTOM_MODE,
        lambda uow: networks.switch_to_custom_mode(
            uow, call.principal, call.project, call.id, call.fleet
        ),
    )


def _expand(call: ComputeCall) -> Change:
    ip_range = str(range_of(call.require("ipCidrRange"), "ipCidrRange"))
    return change(
        call,
        OperationVerb.EXPAND_RANGE,
        lambda uow: networks.expand_subnetwork(
            uow, call.principal, _find_subnetwork(call, uow), ip_range, call.fleet
        ),
    )


def _set_private_access(call: ComputeCall) -> Change:
    def act(uow: UnitOfWork) -> ComputeResource:
        subnetwork = _find_subnetwork(call, uow)
        spec = _subnetwork(call, subnetwork_spec(subnetwork))
        permission = "compute.subnetworks.setPrivateIpGoogleAccess"
        return networks.patch_subnetwork(uow, call.principal, subnetwork, spec, permission)

    return change(call, OperationVerb.SET_PRIVATE_ACCESS, act)


def _show_usable(subnetwork: ComputeResource) -> Answer:
    spec = subnetwork_spec(subnetwork)
    return {
        "network": network_link(subnetwork.project, spec.network),
        "subnetwork": link(subnetwork.path),
        "ipCidrRange": spec.ip_range,
        "purpose": spec.purpose,
        "stackType": spec.stack_type,
    }


def _list_usable(call: ComputeCall) -> Answer:
    def rows(uow: UnitOfWork) -> list[ComputeResource]:
        return networks.all_subnetworks(uow, call.project, call.fleet)

    return page(call, whole_list(rows, _show_usable))


HANDLERS: Mapping[str, Handler] = {
    "networks.list": _list,
    "networks.get": _get,
    "networks.insert": _insert,
    "networks.patch": _patch,
    "networks.delete": _delete,
    "networks.switchToCustomMode": _switch,
    "subnetworks.list": _list_subnetworks,
    "subnetworks.listUsable": _list_usable,
    "subnetworks.expandIpCidrRange": _expand,
    "subnetworks.setPrivateIpGoogleAccess": _set_private_access,
    "subnetworks.aggregatedList": _list_subnetworks,
    "subnetworks.get": _get_subnetwork,
    "subnetworks.insert": _insert_subnetwork,
    "subnetworks.patch": _patch_subnetwork,
    "subnetworks.delete": _delete_subnetwork,
}
