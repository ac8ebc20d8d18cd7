"""Managed instance groups, instance templates and resource policies of Compute Engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from podyard.api.compute.call import Answer, Change, ComputeCall, Handler, page
from podyard.api.compute.errors import operation_code
from podyard.api.compute.resources import head, mark_of
from podyard.api.wire.row_lists import RowList
from podyard.control.compute.instances import groups, templates
from podyard.domain.compute.place import link, place_named, whole_path
from podyard.domain.compute.refusal import field_required
from podyard.domain.compute.resource import ComputeResource
from podyard.domain.instances.group import (
    FailureAction,
    GroupRequest,
    GroupRow,
    GroupSpec,
    ManagedGroup,
    TargetSizeMode,
)
from podyard.domain.instances.instance import Instance, InstanceStatus
from podyard.domain.lists.filters import CREATED
from podyard.domain.lists.pages import Order, RowMark, time_mark
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import Operation

_ACTIONS = {
    InstanceStatus.PENDING: "CREATING",
    InstanceStatus.PROVISIONING: "CREATING",
    InstanceStatus.STAGING: "CREATING",
    InstanceStatus.REPAIRING: "RECREATING",
    InstanceStatus.STOPPING: "DELETING",
}


def _resource_handlers(
    prefix: str, kind: ResourceKind, *, is_everywhere: bool = True
) -> Mapping[str, Handler]:
    """Of templates, or of policies: they are shown as they were described."""

    def one(call: ComputeCall, verb: str = "get") -> Callable[..., ComputeResource]:
        return partial(
            templates.get,
            principal=call.principal,
            project=call.project,
            place=call.place.name,
            kind=kind,
            name=call.id,
            verb=verb,
        )

    def get(call: ComputeCall) -> Answer:
        return to_api_resource(call.read(one(call)))

    def list_all(call: ComputeCall) -> Answer:
        place = None if call.is_aggregated else call.place.name
        return page(
            call,
            RowList(
                rows=lambda uow, query: templates.list_page(
                    uow, call.principal, call.project, place, kind, query
                ),
                mark=mark_of,
                show=to_api_resource,
                place=lambda shown: shown.where,
                fields={"name": "name", "creationTimestamp": CREATED},
            ),
        )

    def insert(call: ComputeCall) -> Change:
        call.require("name")
        return call.begin(
            lambda uow: templates.insert(
                uow, call.fleet, call.principal, call.project, call.place.name, kind, call.body
            )
        )

    def delete(call: ComputeCall) -> Change:
        return call.begin(
            lambda uow: templates.delete(
                uow, call.principal, call.project, call.place.name, kind, call.id
            )
        )

    everywhere: dict[str, Handler] = {f"{prefix}.aggregatedList": list_all} if is_everywhere else {}
    return everywhere | {
        f"{prefix}.list": list_all,
        f"{prefix}.get": get,
        f"{prefix}.insert": insert,
        f"{prefix}.delete": delete,
    }


def to_api_resource(shown: ComputeResource) -> Answer:
    answer: Answer = {**shown.spec, **head(shown)}
    if shown.kind is ResourceKind.RESOURCE_POLICY:
        answer |= {"status": "READY"}
    return answer


def to_api_group(shown: ManagedGroup) -> Answer:
    row, spec = shown.row, shown.row.spec
    place = place_named(row.place)
    here = link(f"projects/{row.project}/{place.path}")
    status: Answer = {"isStable": shown.is_stable, "versionTarget": {"isReached": True}}
    if spec.topology:
        applied = {"acceleratorTopology": spec.topology, "state": shown.topology_state}
        status |= {"appliedAcceleratorTopologies": [applied]}
    answer: Answer = {
        "kind": "compute#instanceGroupManager",
        "id": str(row.number),
        "creationTimestamp": row.created.rfc3339(),
        "name": row.name,
        "description": spec.description,
        place.level.removesuffix("s"): here,
        "selfLink": link(row.path),
        "instanceGroup": f"{here}/instanceGroups/{row.name}",
        "instanceTemplate": link(spec.template),
        "versions": [{"instanceTemplate": link(spec.template)}],
        "baseInstanceName": spec.base_name,
        "targetSize": row.target_size,
        "targetSizePolicy": {"mode": spec.mode.value},
        "instanceLifecyclePolicy": {"defaultActionOnFailure": spec.on_failure.value},
        "fingerprint": row.fingerprint,
        "currentActions": _current_actions(shown),
        "status": status,
    }
    answer |= spec.extras
    if spec.workload_policy:
        answer |= {"resourcePolicies": {"workloadPolicy": link(spec.workload_policy)}}
    return answer


def _current_actions(shown: ManagedGroup) -> Answer:
    counts = {"none": 0, "creating": 0, "recreating": 0, "deleting": 0}
    for one in shown.instances:
        counts[_ACTIONS.get(one.status, "NONE").lower()] += 1
    return counts


def _group_mark(shown: ManagedGroup, order: Order) -> RowMark:
    row = shown.row
    if order is Order.NEWEST:
        return time_mark(row.created, row.group_key)
    return (
        RowMark(row.place, row.name) if order is Order.PLACE else RowMark(row.name, row.group_key)
    )


def _list(call: ComputeCall) -> Answer:
    place = None if call.is_aggregated else call.place.name
    return page(
        call,
        RowList(
            rows=lambda uow, query: groups.list_page(
                uow, call.principal, call.project, place, query
            ),
            mark=_group_mark,
            show=to_api_group,
            place=lambda shown: place_named(shown.row.place),
            fields={"name": "name", "creationTimestamp": CREATED},
        ),
    )


def _of(call: ComputeCall) -> tuple[Any, str, str, str]:
    """(caller, project, zone or region, name) of a call for one group."""
    name = next(name for key, name in call.names.items() if key == "instanceGroupManager")
    return call.principal, call.project, call.place.name, name


def _get(call: ComputeCall) -> Answer:
    return to_api_group(call.read(lambda uow: groups.get(uow, *_of(call))))


def _template_url(body: Mapping[str, Any]) -> str:
    versions = body.get("versions") or [{}]
    return str(body.get("instanceTemplate") or versions[0].get("instanceTemplate") or "")


def _insert(call: ComputeCall) -> Change:
    body = call.body
    name = call.require("name")
    url = _template_url(body)
    if not url:
        call.require("instanceTemplate")
    spec = _merge(call, GroupSpec("", body.get("baseInstanceName", "")))
    request = GroupRequest(name, spec, int(body.get("targetSize", 0)))
    return call.begin(
        lambda uow: groups.insert(
            uow, call.fleet, call.principal, call.project, call.place.name, request
        )
    )


# Fields that a group keeps as they were said: its instances do not change by themselves.
_EXTRA_FIELDS = (
    "allInstancesConfig", "autoHealingPolicies", "distributionPolicy",
    "listManagedInstancesResults", "namedPorts", "standbyPolicy", "updatePolicy",
)  # fmt: skip


def _merge(call: ComputeCall, spec: GroupSpec) -> GroupSpec:
    """The group with what the body says of it."""
    body = call.body
    policies, size_policy = body.get("resourcePolicies"), body.get("targetSizePolicy")
    lifecycle = body.get("instanceLifecyclePolicy", {})
    url = _template_url(body)
    return GroupSpec(
        template=whole_path(url, call.project) if url else spec.template,
        base_name=spec.base_name,
        mode=spec.mode
        if size_policy is None
        else TargetSizeMode(size_policy.get("mode", spec.mode)),
        workload_policy=spec.workload_policy
        if policies is None
        else whole_path(policies.get("workloadPolicy", ""), call.project),
        topology=spec.topology,
        description=body.get("description", spec.description),
        on_failure=FailureAction(lifecycle.get("defaultActionOnFailure", spec.on_failure)),
        extras={**spec.extras, **{name: body[name] for name in _EXTRA_FIELDS if name in body}},
    )


def _patch(call: ComputeCall) -> Change:
    body = call.body
    size = body.get("targetSize")

    def work(uow: Any) -> Operation:
        row: GroupRow = groups.look_up_group(uow, call.principal, "update", *_of(call)[1:])
        request = GroupRequest(row.name, _merge(call, row.spec), size)
        return groups.patch(uow, call.fleet, call.principal, call.project, call.place.name, request)

    return call.begin(work)


def _delete(call: ComputeCall) -> Change:
    return call.begin(lambda uow: groups.delete(uow, call.fleet, *_of(call)))


def _resize(call: ComputeCall) -> Change:
    size = call.query.get("size")
    if size is None:
        raise field_required("size")
    return call.begin(lambda uow: groups.resize(uow, call.fleet, *_of(call), size))


def _delete_instances(call: ComputeCall) -> Change:
    whole = [whole_path(url, call.project) for url in call.require("instances")]
    return call.begin(lambda uow: groups.delete_instances(uow, call.fleet, *_of(call), whole))


def _managed_instances(call: ComputeCall) -> Answer:
    group = call.read(lambda uow: groups.get(uow, *_of(call)))
    return {"managedInstances": [_managed_instance(group.row, one) for one in group.instances]}


def _managed_instance(row: GroupRow, one: Instance) -> Answer:
    return {
        "instance": link(one.row.path),
        "id": str(one.row.number),
        "name": one.row.name,
        "instanceStatus": one.status.value,
        "currentAction": _ACTIONS.get(one.status, "NONE"),
        "version": {"instanceTemplate": link(row.spec.template)},
    }


def _list_errors(call: ComputeCall) -> Answer:
    failures = call.read(lambda uow: groups.list_errors(uow, *_of(call)))
    return {"items": [_failure(one) for one in failures]} if failures else {}


def _failure(one: Operation) -> Answer:
    code = operation_code(one.error_code or 0, one.error_details)
    return {
        "timestamp": (one.ended or one.created).rfc3339(),
        "error": {"code": code, "message": one.error_message or ""},
        "instanceActionDetails": {
            "instance": link(one.target_name),
            "action": "CREATING",
        },
    }


_OF_GROUPS: Mapping[str, Handler] = {
    "list": _list,
    "get": _get,
    "insert": _insert,
    "patch": _patch,
    "delete": _delete,
    "resize": _resize,
    "listManagedInstances": _managed_instances,
    "listErrors": _list_errors,
    "deleteInstances": _delete_instances,
}
HANDLERS: Mapping[str, Handler] = {
    **_resource_handlers("instanceTemplates", ResourceKind.INSTANCE_TEMPLATE),
    **_resource_handlers(
        "regionInstanceTemplates", ResourceKind.INSTANCE_TEMPLATE, is_everywhere=False
    ),
    **_resource_handlers("resourcePolicies", ResourceKind.RESOURCE_POLICY),
    "instanceGroupManagers.aggregatedList": _list,
    **{
        f"{prefix}.{name}": handler
        for prefix in ("instanceGroupManagers", "regionInstanceGroupManagers")
        for name, handler in _OF_GROUPS.items()
    },
}
