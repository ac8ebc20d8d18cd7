"""Firewall rules on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from podyard.api.compute.call import Answer, Change, ComputeCall, Handler, page
from podyard.api.compute.networks import network_link
from podyard.api.compute.resources import change, head, row_list, without_empty
from podyard.control.compute.network import firewalls
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.firewall import FirewallEntry, FirewallSpec, firewall_spec
from podyard.domain.compute.network import DEFAULT_NETWORK, name_in
from podyard.domain.compute.refusal import field_required
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.operation import OperationVerb
from podyard.http.texts import check_description

# The lists of texts of a rule, by their fields in the record.
_LISTS: Mapping[str, str] = {
    "source_ranges": "sourceRanges",
    "destination_ranges": "destinationRanges",
    "source_tags": "sourceTags",
    "target_tags": "targetTags",
    "source_accounts": "sourceServiceAccounts",
    "target_accounts": "targetServiceAccounts",
}


def _show(rule: ComputeResource) -> Answer:
    spec = firewall_spec(rule)
    return without_empty(
        {
            **head(rule),
            "description": spec.description,
            "network": network_link(rule.project, spec.network),
            "priority": spec.priority,
            "direction": spec.direction,
            "disabled": spec.disabled,
            "allowed": [_show_entry(entry) for entry in spec.allowed],
            "denied": [_show_entry(entry) for entry in spec.denied],
            "logConfig": {"enable": spec.logs},
            **{shown: list(getattr(spec, field)) for field, shown in _LISTS.items()},
        }
    )


def _show_entry(entry: FirewallEntry) -> Answer:
    return without_empty({"IPProtocol": entry.protocol, "ports": list(entry.ports)})


def _list(call: ComputeCall) -> Answer:
    return page(call, row_list(partial(firewalls.page, project=call.project), _show))


def _get(call: ComputeCall) -> Answer:
    return _show(call.read(lambda uow: firewalls.get(uow, call.project, call.id)))


def _of_network(call: ComputeCall) -> Answer:
    rules = call.read(lambda uow: firewalls.of_network(uow, call.project, call.id))
    return {"firewalls": [_show(rule) for rule in rules]}


def _insert(call: ComputeCall) -> Change:
    name = call.require("name")
    spec = _spec(call, FirewallSpec(DEFAULT_NETWORK))
    return change(
        call,
        OperationVerb.INSERT,
        lambda uow: firewalls.insert(uow, call.principal, call.project, name, spec),
    )


def _patch(call: ComputeCall) -> Change:
    def act(uow: UnitOfWork) -> ComputeResource:
        rule = firewalls.get(uow, call.project, call.id)
        return firewalls.update(uow, call.principal, rule, _spec(call, firewall_spec(rule)))

    return change(call, OperationVerb.PATCH, act)


def _update(call: ComputeCall) -> Change:
    spec = _spec(call, FirewallSpec(DEFAULT_NETWORK))

    def act(uow: UnitOfWork) -> ComputeResource:
        rule = firewalls.get(uow, call.project, call.id)
        return firewalls.update(uow, call.principal, rule, spec)

    return change(call, OperationVerb.UPDATE, act)


def _delete(call: ComputeCall) -> Change:
    return change(
        call,
        OperationVerb.DELETE,
        lambda uow: firewalls.delete(uow, call.principal, call.project, call.id),
    )


def _spec(call: ComputeCall, before: FirewallSpec) -> FirewallSpec:
    """The rule `before` with the fields that the body sets."""
    body = call.body
    check_description(body.get("description", ""))
    network = body.get("network")
    lists = {
        field: tuple(body.get(shown, getattr(before, field))) for field, shown in _LISTS.items()
    }
    return FirewallSpec(
        network=before.network if not network else name_in(network, "network", "networks"),
        description=body.get("description", before.description),
        priority=body.get("priority", before.priority),
        direction=body.get("direction", before.direction),
        disabled=body.get("disabled", before.disabled),
        allowed=_entries(call, "allowed", before.allowed),
        denied=_entries(call, "denied", before.denied),
        logs=body.get("logConfig", {}).get("enable", before.logs),
        **lists,
    )


def _entries(
    call: ComputeCall, field: str, before: tuple[FirewallEntry, ...]
) -> tuple[FirewallEntry, ...]:
    if field not in call.body:
        return before
    entries = []
    for at, entry in enumerate(call.body.get(field, ())):
        if not entry.get("IPProtocol"):
            raise field_required(f"resource.{field}[{at}].IPProtocol")
        entries.append(
            FirewallEntry(entry.get("IPProtocol").lower(), tuple(entry.get("ports", ())))
        )
    return tuple(entries)


HANDLERS: Mapping[str, Handler] = {
    "firewalls.list": _list,
    "firewalls.get": _get,
    "firewalls.insert": _insert,
    "firewalls.patch": _patch,
    "firewalls.update": _update,
    "firewalls.delete": _delete,
    "networks.getEffectiveFirewalls": _of_network,
}
