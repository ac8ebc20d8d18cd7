"""Firewall rules."""

from __future__ import annotations

import dataclasses

from podyard.control.compute.network import networks, store
from podyard.db.compute import resources
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.firewall import FIREWALLS_MAX, FirewallSpec, complete, firewall_spec
from podyard.domain.compute.place import WHOLE_PROJECT
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.lists.pages import RowQuery
from podyard.domain.machine import ResourceKind
from podyard.domain.principal import Principal

FIREWALLS = store.Quota("FIREWALLS", FIREWALLS_MAX)


def insert(
    uow: UnitOfWork, principal: Principal, project: str, name: str, spec: FirewallSpec
) -> ComputeResource:
    principal.require("compute.firewalls.create", project, f"projects/{project}")
    networks.get(uow, project, spec.network)
    fields = dataclasses.asdict(complete(spec))
    new = store.NewResource(ResourceKind.FIREWALL, WHOLE_PROJECT, name, fields)
    return store.insert(uow, principal, project, new, FIREWALLS)


def get(uow: UnitOfWork, project: str, name: str) -> ComputeResource:
    """Raises `notFound`. The caller has checked the permission."""
    return store.find(uow, project, ResourceKind.FIREWALL, WHOLE_PROJECT, name)


def page(uow: UnitOfWork, query: RowQuery, project: str) -> list[ComputeResource]:
    return resources.page(uow, project, ResourceKind.FIREWALL, None, query)


def update(
    uow: UnitOfWork, principal: Principal, rule: ComputeResource, spec: FirewallSpec
) -> ComputeResource:
    project = rule.project
    principal.require("compute.firewalls.update", project, f"projects/{project}")
    networks.get(uow, project, spec.network)
    return resources.update(uow, rule, dataclasses.asdict(complete(spec)))


def delete(uow: UnitOfWork, principal: Principal, project: str, name: str) -> ComputeResource:
    principal.require("compute.firewalls.delete", project, f"projects/{project}")
    rule = get(uow, project, name)
    resources.remove(uow, rule)
    return rule


def of_network(uow: UnitOfWork, project: str, network: str) -> list[ComputeResource]:
    """The rules of a network that are in force, by priority and name."""
    networks.get(uow, project, network)
    rules = [
        (firewall_spec(rule), rule)
        for rule in resources.of_kind(uow, project, ResourceKind.FIREWALL)
    ]
    of_it = [(spec.priority, rule.name, rule) for spec, rule in rules if spec.network == network]
    return [rule for _, _, rule in sorted(of_it, key=lambda entry: entry[:2])]
