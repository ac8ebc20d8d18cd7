"""Where a job of the console's forms runs: on a node that is READY, or on one that is made for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from starlette.requests import Request

from podyard.base.clock import PlatformTime
from podyard.control.access import identity
from podyard.control.compute import nodes
from podyard.db.unit_of_work import UnitOfWork
from podyard.domain.node import Node, NodeSpec
from podyard.http import context
from podyard.pricing.sku import Price
from podyard.web import forms

NEW_NODE = ""  # the form's choice of a node that is made for the job


@dataclasses.dataclass(frozen=True, slots=True)
class JobPlace:
    """`places`: the nodes that are READY, by `zone/id`; `place`: the one that is chosen, and `node` what it is, or None
    for a new one. `fields`: the form's, with the choices made."""

    places: Mapping[str, Node]
    place: str
    node: Node | None
    choice: forms.NodeChoice
    price: Price | None
    no_price: str
    fields: Mapping[str, str]


def place_of(request: Request, project: str, fields: Mapping[str, str]) -> JobPlace:
    caller, fleet = context.principal(request), context.platform(request).fleet

    def body(uow: UnitOfWork) -> tuple[list[Node], PlatformTime]:
        identity.project_row(uow, project)
        found = nodes.list_nodes(uow, fleet, caller, project, None)
        return [node for node in found if node.state == "READY"], uow.now

    ready, now = context.read(request, body)
    choice = forms.choose(fleet, fields, now)
    places = {f"{node.zone}/{node.node_id}": node for node in ready}
    place = fields.get("node", next(iter(places), NEW_NODE))
    node = places.get(place)
    price, no_price = choice.price, choice.no_price
    if node is not None:
        price, no_price = forms.price_of(node.spec.accelerator_type, node.zone, str(node.spec.usage_class), now)
    chosen = {
        "zone": choice.zone,
        "accelerator_type": choice.accelerator_type,
        "usage": choice.usage,
        "runtime_version": choice.runtime_version,
    }
    return JobPlace(places, place if node else NEW_NODE, node, choice, price, no_price, {**fields, **chosen})


def node_of(fields: Mapping[str, str]) -> tuple[str, str | NodeSpec]:
    """(zone, the node's id or the node to make): a node that exists is named `zone/id` in the form."""
    place = fields.get("node", NEW_NODE)
    if place == NEW_NODE:
        return fields.get("zone", ""), forms.node_spec({**fields, "labels": "", "description": ""})
    zone, _, node_id = place.partition("/")
    return zone, node_id
