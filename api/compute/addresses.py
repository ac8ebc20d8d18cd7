"""Reserved addresses on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from podyard.api.compute.call import Answer, Change, ComputeCall, Handler, page
from podyard.api.compute.resources import change, head, row_list, without_empty
from podyard.control.compute.network import addresses
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.address import EXTERNAL, INTERNAL, AddressSpec, address_spec
from podyard.domain.compute.network import name_in
from podyard.domain.compute.place import link
from podyard.domain.compute.refusal import invalid_value
from podyard.domain.compute.resource import ComputeResource, fingerprint_of
from podyard.domain.operation import OperationVerb
from podyard.http.texts import check_description, check_labels


def _show(address: ComputeResource) -> Answer:
    spec = address_spec(address)
    subnetwork = f"projects/{address.project}/{address.where.path}/subnetworks/{spec.subnetwork}"
    internal = {"subnetwork": link(subnetwork), "purpose": spec.purpose or "GCE_ENDPOINT"}
    external = {"networkTier": spec.network_tier}
    return without_empty(
        {
            **head(address),
            "description": spec.description,
            "address": spec.address,
            "addressType": spec.address_type,
            "status": "RESERVED",
            "labels": spec.labels or None,
            "labelFingerprint": fingerprint_of(spec.labels),
            **(external if spec.address_type == EXTERNAL else internal),
        }
    )


def _list(call: ComputeCall) -> Answer:
    place = None if call.is_aggregated else call.place.name
    return page(call, row_list(partial(addresses.page, project=call.project, place=place), _show))


def _get(call: ComputeCall) -> Answer:
    return _show(call.read(lambda uow: addresses.get(uow, call.project, call.place, call.id)))


def _insert(call: ComputeCall) -> Change:
    body = call.body
    name = call.require("name")
    check_description(body.get("description", ""))
    labels = body.get("labels", {})
    check_labels(labels)
    if body.get("ipVersion") == "IPV6":
        raise invalid_value("ipVersion", "IPV6", "Podyard's networks have IPv4 only")
    subnetwork = body.get("subnetwork", "")
    kind = body.get("addressType", "")
    if kind not in (EXTERNAL, INTERNAL):
        kind = INTERNAL if subnetwork else EXTERNAL
    spec = AddressSpec(
        address=body.get("address", ""),
        address_type=kind,
        description=body.get("description", ""),
        network_tier=body.get("networkTier", "PREMIUM"),
        purpose=body.get("purpose", ""),
        subnetwork=name_in(subnetwork, "subnetwork", "subnetworks") if subnetwork else "",
        labels=labels,
    )
    return change(
        call,
        OperationVerb.INSERT,
        lambda uow: addresses.insert(
            uow, call.principal, call.project, call.place, name, spec, call.fleet
        ),
    )


def _delete(call: ComputeCall) -> Change:
    return change(
        call,
        OperationVerb.DELETE,
        lambda uow: addresses.delete(uow, call.principal, call.project, call.place, call.id),
    )


def _set_labels(call: ComputeCall) -> Change:
    labels, fingerprint = call.body.get("labels", {}), call.body.get("labelFingerprint", "")
    check_labels(labels)

    def act(uow: UnitOfWork) -> ComputeResource:
        address = addresses.get(uow, call.project, call.place, call.id)
        return addresses.set_labels(uow, call.principal, address, labels, fingerprint)

    return change(call, OperationVerb.SET_LABELS, act)


HANDLERS: Mapping[str, Handler] = {
    "addresses.aggregatedList": _list,
    **{
        f"{collection}.{name}": handler
        for collection in ("addresses", "globalAddresses")
        for name, handler in (
            ("list", _list),
            ("get", _get),
            ("insert", _insert),
            ("delete", _delete),
            ("setLabels", _set_labels),
        )
    },
}
