"""Projects of Compute Engine, with the metadata that all hosts of a project have: gcloud looks
there for ssh keys and OS Login before it goes to a node's."""

from __future__ import annotations

from collections.abc import Mapping

from podyard.api.compute.call import Answer, Change, ComputeCall, Handler
from podyard.api.compute.resources import show_quota
from podyard.control.compute import compute_projects
from podyard.control.compute.compute_projects import ComputeProject
from podyard.control.compute.network import quotas
from podyard.control.compute.network.quotas import QuotaUse
from podyard.control.platform import operations
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.compute.place import GLOBAL, link
from podyard.domain.host import default_service_account
from podyard.domain.machine import ResourceKind
from podyard.domain.operation import Operation, OperationTarget, OperationVerb
from podyard.http.texts import check_metadata


def _get(call: ComputeCall) -> Answer:
    def work(uow: UnitOfWork) -> tuple[ComputeProject, list[QuotaUse]]:
        project = compute_projects.get(uow, call.principal, call.project)
        return project, quotas.quotas(uow, call.project)

    project, uses = call.read(work)
    items = [{"key": key, "value": value} for key, value in sorted(project.metadata.items())]
    return {
        "kind": "compute#project",
        "id": str(project.number),
        "name": call.project,
        "creationTimestamp": project.created.rfc3339(),
        "defaultServiceAccount": default_service_account(project.number),
        "commonInstanceMetadata": {
            "kind": "compute#metadata",
            "fingerprint": project.fingerprint,
            "items": items,
        },
        "quotas": [show_quota(use) for use in uses],
        "selfLink": link(f"projects/{call.project}"),
    }


def _set_metadata(call: ComputeCall) -> Change:
    items = {
        str(item.get("key", "")): str(item.get("value", "")) for item in call.body.get("items", ())
    }
    check_metadata(items)
    fingerprint = call.body.get("fingerprint")

    def work(uow: UnitOfWork) -> Operation:
        project = compute_projects.set_metadata(
            uow, call.principal, call.project, items, fingerprint
        )
        name = f"projects/{call.project}"
        target = OperationTarget(
            ResourceKind.PROJECT, call.project, call.project, GLOBAL, name, project.number
        )
        return operations.complete(uow, target, OperationVerb.SET_COMMON_METADATA)

    return call.begin(work)


HANDLERS: Mapping[str, Handler] = {
    "projects.get": _get,
    "projects.setCommonInstanceMetadata": _set_metadata,
}
