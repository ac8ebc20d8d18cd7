"""The place where a job of the console's forms runs: on a node that is READY, or on one that is
made for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from starlette.requests import Request

from podyard.base.clock import PlatformTime
from podyard.base.errors import Code, PodyardError
from podyard.control.compute import node_list, nodes
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.listing import ListQuery
from podyard.domain.node import NodeBase, NodeSpec, NodeState
from podyard.domain.principal import Principal
from podyard.http import context
from podyard.pricing.sku import Price
from podyard.web.kit import forms

NEW_NODE = ""  # the form's choice of a node that is made for the job


@dataclasses.dataclass(frozen=True, slots=True)
class JobPlace:
    """`places`: the first READY nodes, by `zone/id`, and the chosen one; `more`: there are others.
    `creators`: of those that other users have created. `place`: the chosen one, and `node` what it
    is, or None for a new one. `fields`: those of the form, with the choices made.

    Where the form names none, the first node that the caller has created is chosen, never that of
    another user or of another job.
    """

    places: Mapping[str, NodeSpec]
    creators: Mapping[str, str]
    more: bool
    place: str
    node: NodeSpec | None
    choice: forms.NodeChoice
    price: Price | None
    no_price: str
    fields: Mapping[str, str]


def place_of(request: Request, project: str, fields: Mapping[str, str]) -> JobPlace:
    caller, fleet = context.principal(request), context.platform(request).fleet

    def body(uow: UnitOfWork) -> tuple[dict[str, NodeBase], str, bool, PlatformTime]:
        ready = node_list.list_page(uow, caller, project, ListQuery("name", state=NodeState.READY))
        records: dict[str, NodeBase] = {f"{one.zone}/{one.node_id}": one for one in ready.rows}
        own = (one for one in ready.rows if one.created_by == caller.email and not one.job_key)
        usual = next((f"{one.zone}/{one.node_id}" for one in own), NEW_NODE)
        records |= _chosen_node(uow, caller, project, fields.get("node", NEW_NODE))
        return records, usual, ready.after is not None, uow.now

    records, usual, more, now = context.read(request, body)
    places = {place: node.spec for place, node in records.items()}
    creators = {
        place: node.created_by or "unknown"
        for place, node in records.items()
        if node.created_by != caller.email
    }
    choice = forms.choose(fleet, fields, now, of_job=True)
    place = fields.get("node", usual)
    node = places.get(place)
    price, no_price = choice.price, choice.no_price
    if node is not None:
        price, no_price = forms.price_of(
            node.accelerator_type, place.partition("/")[0], str(node.usage_class), now
        )
    chosen = {
        "zone": choice.zone,
        "accelerator_type": choice.accelerator_type,
        "usage": choice.usage,
        "runtime_version": choice.runtime_version,
    }
    return JobPlace(
        places,
        creators,
        more,
        place if node else NEW_NODE,
        node,
        choice,
        price,
        no_price,
        {**fields, **chosen},
    )


def _chosen_node(
    uow: UnitOfWork, caller: Principal, project: str, place: str
) -> dict[str, NodeBase]:
    """The node that the form names, if it is READY: it may not be among the first ones."""
    zone, _, node_id = place.partition("/")
    try:
        node = nodes.get(uow, caller, project, zone, node_id) if node_id else None
    except PodyardError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return {}
    return {place: node} if node is not None and node.state is NodeState.READY else {}


def node_of(fields: Mapping[str, str]) -> tuple[str, str | NodeSpec]:
    """(zone, the node's id or the node to make): a node that exists is named `zone/id` in the
    form."""
    place = fields.get("node", NEW_NODE)
    if place == NEW_NODE:
        return fields.get("zone", ""), forms.node_spec({**fields, "labels": "", "description": ""})
    zone, _, node_id = place.partition("/")
    return zone, node_id
