"""Resource Manager: projects, and who may do what in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podyard.api.google_apis import policy_messages
from podyard.api.google_apis.call import ApiCall
from podyard.api.google_apis.terms import matches
from podyard.base.errors import Code, PodyardError, invalid, not_found
from podyard.control.access import identity, policies
from podyard.db.access import projects as project_rows
from podyard.domain.iam.policy import RoleGrant
from podyard.domain.project import Project
from podyard.http.guard import forget_principals
from podyard.http.texts import check_labels

GET = "resourcemanager.projects.get"
# As Google names the operation that creates a project; its number follows.
_OPERATION = "operations/cp."
_PROJECT_TYPE = "type.googleapis.com/google.cloudresourcemanager.v1.Project"
_NO_FOLDERS = "there are no folders and no organizations: leave parent out"


def get(call: ApiCall) -> dict[str, Any]:
    return _message(_of(call), call.method.api.version)


def list_projects(call: ApiCall) -> dict[str, Any]:
    return _list(call, call.value("filter"))


def search(call: ApiCall) -> dict[str, Any]:
    return _list(call, call.value("query"))


def create(call: ApiCall) -> dict[str, Any]:
    body = call.body
    if body.get("parent"):
        raise invalid(_NO_FOLDERS, "parent")
    project = body.get("projectId", "")
    labels = body.get("labels", {})
    check_labels(labels)
    project_row = call.write(lambda uow: identity.create_project(uow, call.caller, project, labels))
    return _operation(project_row)


def get_operation(call: ApiCall) -> dict[str, Any]:
    """An operation that has created a project; it is done before its name is known."""
    number = call.resource.removeprefix(_OPERATION)
    if number.isdecimal():
        row = call.read(lambda uow: project_rows.of_number(uow, int(number[:18])))
        if row is not None and call.caller.may(GET, row.project):
            return _operation(row)
    raise not_found(call.resource)


def get_policy(call: ApiCall) -> dict[str, Any]:
    grants = call.read(lambda uow: policies.of_project(uow, call.caller, call.project))
    return policy_messages.to_message(grants)


def set_policy(call: ApiCall) -> dict[str, Any]:
    if not policy_messages.changes_bindings(call.body):
        return get_policy(call)
    bindings, tag = policy_messages.read(call.body)
    grants: frozenset[RoleGrant] = call.write(
        lambda uow: policies.set_of_project(uow, call.caller, call.project, bindings, tag)
    )
    forget_principals(call.request)
    return policy_messages.to_message(grants)


def test_permissions(call: ApiCall) -> dict[str, Any]:
    """Google says of a project that is not there what it says of one that the caller may not see:
    none of the permissions."""
    names = call.body.get("permissions", ())
    is_there = call.read(lambda uow: project_rows.read(uow, call.project)) is not None

    def may(name: str) -> bool:
        return is_there and call.caller.may(name, call.project)

    permissions = policies.permissions_among(names, may)
    return {"permissions": permissions} if permissions else {}


def get_ancestry(call: ApiCall) -> dict[str, Any]:
    row = _of(call)
    return {"ancestor": [{"resourceId": {"type": "project", "id": row.project}}]}


def _of(call: ApiCall) -> Project:
    """Raises PERMISSION_DENIED in Google's words, also for a project that is not there."""
    row = call.read(lambda uow: project_rows.read(uow, call.project))
    if row is None or not call.caller.may(GET, row.project):
        raise PodyardError(Code.PERMISSION_DENIED, "The caller does not have permission")
    return row


def _list(call: ApiCall, text: str) -> dict[str, Any]:
    version = call.method.api.version
    visible = call.read(lambda uow: identity.list_projects(uow, call.caller))
    shown = [item for item in visible if matches(text, _fields(item))]
    page, token = call.page(shown, lambda item: item.project)
    answer: dict[str, Any] = {"projects": [_message(item, version) for item in page]}
    return answer | ({"nextPageToken": token} if token else {})


def _fields(item: Project) -> dict[str, str]:
    return {
        "id": item.project,
        "projectid": item.project,
        "name": item.project,
        "displayname": item.project,
        "projectnumber": str(item.number),
        "lifecyclestate": "ACTIVE",
        "state": "ACTIVE",
        **{f"labels.{key}": value for key, value in item.labels.items()},
    }


def _message(item: Project, version: str) -> dict[str, Any]:
    if version == "v1":
        return {
            "projectNumber": str(item.number),
            "projectId": item.project,
            "lifecycleState": "ACTIVE",
            "name": item.project,
            "labels": dict(item.labels),
            "createTime": item.created.rfc3339(),
        }
    return {
        "name": f"projects/{item.number}",
        "projectId": item.project,
        "state": "ACTIVE",
        "displayName": item.project,
        "labels": dict(item.labels),
        "createTime": item.created.rfc3339(),
    }


def _operation(made: Project) -> dict[str, Any]:
    return {
        "name": f"{_OPERATION}{made.number}",
        "done": True,
        "response": {"@type": _PROJECT_TYPE, **_message(made, "v1")},
    }


HANDLERS: dict[str, Callable[[ApiCall], dict[str, Any]]] = {
    "cloudresourcemanager.v1.projects.get": get,
    "cloudresourcemanager.v1.projects.list": list_projects,
    "cloudresourcemanager.v1.projects.create": create,
    "cloudresourcemanager.v1.projects.getIamPolicy": get_policy,
    "cloudresourcemanager.v1.projects.setIamPolicy": set_policy,
    "cloudresourcemanager.v1.projects.testIamPermissions": test_permissions,
    "cloudresourcemanager.v1.projects.getAncestry": get_ancestry,
    "cloudresourcemanager.v1.operations.get": get_operation,
    "cloudresourcemanager.v3.projects.get": get,
    "cloudresourcemanager.v3.projects.search": search,
    "cloudresourcemanager.v3.projects.getIamPolicy": get_policy,
    "cloudresourcemanager.v3.projects.setIamPolicy": set_policy,
    "cloudresourcemanager.v3.projects.testIamPermissions": test_permissions,
}
