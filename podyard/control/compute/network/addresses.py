"""Reserved addresses."""

from __future__ import annotations

import dataclasses

from podyard.control.compute.network import networks, store
from podyard.db.compute import resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.address import (
    ADDRESSES_MAX,
    EXTERNAL,
    AddressSpec,
    address_spec,
    free_external,
    internal_in,
)
from podyard.domain.compute.network import DEFAULT_NETWORK, subnetwork_spec
from podyard.domain.compute.place import ComputePlace
from podyard.domain.compute.refusal import invalid_value
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.fleet import Fleet
from podyard.domain.lists.pages import RowQuery
from podyard.domain.machine import ResourceKind
from podyard.domain.principal import Principal

ADDRESSES = store.Quota("STATIC_ADDRESSES", ADDRESSES_MAX)


def insert(
    uow: UnitOfWork,
    principal: Principal,
    project: str,
    region: ComputePlace,
    name: str,
    spec: AddressSpec,
    fleet: Fleet,
) -> ComputeResource:
    """`spec.address` empty: any that is free."""
    principal.require("compute.addresses.create", project, f"projects/{project}")
    if spec.address_type == EXTERNAL:
        if spec.address:
            text = "An external address is chosen by Podyard: leave it out"
            raise invalid_value("address", spec.address, text)
        every = resources.everywhere(uow, ResourceKind.ADDRESS)
        address = free_external(address_spec(one).address for one in every)
        whole = dataclasses.replace(spec, address=address)
    else:
        whole = _internal(uow, project, region, spec, fleet)
    fields = dataclasses.asdict(whole)
    new = store.NewResource(ResourceKind.ADDRESS, region, name, fields)
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


def get(uow: UnitOfWork, project: str, region: ComputePlace, name: str) -> ComputeResource:
    """Raises `notFound`. The caller has checked the permission."""
    return store.find(uow, project, ResourceKind.ADDRESS, region, name)


def page(
    uow: UnitOfWork, query: RowQuery, project: str, region: str | None
) -> list[ComputeResource]:
    return resources.page(uow, project, ResourceKind.ADDRESS, region, query)


def delete(
    uow: UnitOfWork, principal: Principal, project: str, region: ComputePlace, name: str
) -> ComputeResource:
    principal.require("compute.addresses.delete", project, f"projects/{project}")
    address = get(uow, project, region, name)
    resources.remove(uow, address)
    return address
