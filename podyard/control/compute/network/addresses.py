"""Reserved addresses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from podyard.control.compute.network import networks, store
from podyard.db.compute import resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.address import (
    ADDRESSES_MAX,
    EXTERNAL,
    TYPE_FIELD,
    AddressSpec,
    address_spec,
    free_external,
    internal_in,
    permission,
)
from podyard.domain.compute.network import DEFAULT_NETWORK, subnetwork_spec
from podyard.domain.compute.place import WHOLE_PROJECT, ComputePlace
from podyard.domain.compute.refusal import invalid_value, require_fingerprint
from podyard.domain.compute.resource import ComputeResource, fingerprint_of
from podyard.domain.fleet import Fleet
from podyard.domain.lists.pages import RowQuery
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import OperationVerb
from podyard.domain.principal import Principal

ADDRESSES = store.Quota("STATIC_ADDRESSES", ADDRESSES_MAX)


def insert(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    place: ComputePlace,
    name: str,
    spec: AddressSpec,
    fleet: Fleet,
) -> ComputeResource:
    """`place`: a region, or the whole project. `spec.address` empty: any that is free."""
    principal.require(permission(place, "create"), project, f"projects/{project}")
    if spec.address_type == EXTERNAL:
        if spec.address:
            text = "An external address is chosen by Podyard: leave it out"
            raise invalid_value("address", spec.address, text)
        every = resources.everywhere(uow, ResourceKind.ADDRESS)
        address = free_external(address_spec(one).address for one in every)
        whole = dataclasses.replace(spec, address=address)
    elif place == WHOLE_PROJECT:
        text = "Internal addresses are those of a subnetwork, and so of a region"
        raise invalid_value(TYPE_FIELD, spec.address_type, text)
    else:
        whole = _internal(uow, project, place, spec, fleet)
    fields = dataclasses.asdict(whole)
    new = store.NewResource(ResourceKind.ADDRESS, place, name, fields)
    return store.insert(uow, principal, project, new, ADDRESSES)


def _internal(
    uow: UnitOfWork, project: str, region: ComputePlace, spec: AddressSpec, fleet: Fleet
) -> AddressSpec:
    name = spec.subnetwork or DEFAULT_NETWORK
    subnetwork = networks.get_subnetwork(uow, project, region.name, name, fleet)
    there = (
        address_spec(one)
        for one in resources.of_kind(uow, project, ResourceKind.ADDRESS)
        if one.place == region.name
    )
    others = [one.address for one in there if one.subnetwork == name]
    address = internal_in(subnetwork_spec(subnetwork), spec.address, others)
    return dataclasses.replace(spec, address=address, subnetwork=name)


def get(uow: UnitOfWork, project: str, place: ComputePlace, name: str) -> ComputeResource:
    """Raises `notFound`. The caller has checked the permission."""
    return store.find(uow, project, ResourceKind.ADDRESS, place, name)


def page(
    uow: UnitOfWork, query: RowQuery, project: str, place: str | None
) -> list[ComputeResource]:
    """Those of a region or of the whole project, or (None) of all places."""
    return resources.page(uow, project, ResourceKind.ADDRESS, place, query)


def set_labels(
    uow: UnitOfWork,
    principal: Principal,
    address: ComputeResource,
    labels: Mapping[str, str],
    fingerprint: str,
) -> ComputeResource:
    project = address.project
    principal.require(
        permission(address.where, OperationVerb.SET_LABELS), project, f"projects/{project}"
    )
    spec = address_spec(address)
    require_fingerprint("labels", fingerprint, fingerprint_of(spec.labels))
    changed = dataclasses.replace(spec, labels=dict(labels))
    return resources.update(uow, address, dataclasses.asdict(changed))


def delete(
    uow: UnitOfWork, principal: Principal, project: str, place: ComputePlace, name: str
) -> ComputeResource:
    principal.require(permission(place, "delete"), project, f"projects/{project}")
    address = get(uow, project, place, name)
    resources.remove(uow, address)
    return address
