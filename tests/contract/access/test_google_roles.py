"""Every method of the APIs that launchers ask first, with every role and of another project: 0
leaks. What each method needs is written down by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.api.google_apis.schema import ApiMethod, all_methods
from podyard.http import google
from tests.contract.access.google_calls import account, token_of
from tests.yard import Yard, open_yard

# By need: the methods. `open`: every credential gets an answer, which tells nothing of a project
# that the caller may not see.
NEEDS = {
    "open": "cloudresourcemanager.v1.projects.list cloudresourcemanager.v1.operations.get "
    "cloudresourcemanager.v1.projects.testIamPermissions "
    "cloudresourcemanager.v3.projects.search cloudresourcemanager.v3.projects.testIamPermissions "
    "iam.v1.roles.list iam.v1.roles.get iam.v1.roles.queryGrantableRoles "
    "iam.v1.projects.serviceAccounts.testIamPermissions serviceusage.v1.operations.get "
    "cloudbilling.v1.billingAccounts.list",
    # The body names the projects: who may read or write logs somewhere is refused after it is read.
    "logs": "logging.v2.entries.list",
    "write": "logging.v2.entries.write",
    "names": "logging.v2.projects.logs.list",
    "series": "monitoring.v3.projects.metricDescriptors.list "
    "monitoring.v3.projects.timeSeries.list",
    "project": "cloudresourcemanager.v1.projects.get cloudresourcemanager.v1.projects.getAncestry "
    "cloudresourcemanager.v3.projects.get",
    "platform": "cloudresourcemanager.v1.projects.create",
    "policy": "cloudresourcemanager.v1.projects.getIamPolicy "
    "cloudresourcemanager.v3.projects.getIamPolicy",
    "own": "cloudresourcemanager.v1.projects.setIamPolicy "
    "cloudresourcemanager.v3.projects.setIamPolicy "
    "iam.v1.projects.serviceAccounts.create iam.v1.projects.serviceAccounts.patch "
    "iam.v1.projects.serviceAccounts.delete iam.v1.projects.serviceAccounts.getIamPolicy "
    "iam.v1.projects.serviceAccounts.setIamPolicy iam.v1.projects.serviceAccounts.keys.create "
    "iam.v1.projects.serviceAccounts.keys.list iam.v1.projects.serviceAccounts.keys.get "
    "iam.v1.projects.serviceAccounts.keys.delete",
    "accounts": "iam.v1.projects.serviceAccounts.list iam.v1.projects.serviceAccounts.get",
    "roles": "iam.v1.projects.roles.list",
    "services": "serviceusage.v1.services.get serviceusage.v1.services.list "
    "serviceusage.v1.services.batchGet",
    "enable": "serviceusage.v1.services.enable serviceusage.v1.services.batchEnable "
    "serviceusage.v1.services.disable",
    "billing": "cloudbilling.v1.projects.getBillingInfo cloudbilling.v1.billingAccounts.get",
}
_VIEW = {"open", "project", "roles", "services", "logs", "names", "series"}
ROLES = {
    "tpu.viewer": _VIEW,
    "jobs.runner": _VIEW | {"write"},
    "tpu.admin": _VIEW | {"write"},
    "viewer": _VIEW | {"policy", "accounts"},
    "editor": _VIEW | {"accounts", "enable", "write"},
    "browser": {"open", "project", "policy"},
    "iam.serviceAccountUser": {"open", "project", "accounts"},
    "serviceusage.serviceUsageAdmin": {"open", "project", "services", "enable"},
    "billing.viewer": {"open", "billing"},
    "monitoring.viewer": {"open", "project", "series"},
    "logging.viewer": {"open", "project", "logs", "names"},
    "logging.logWriter": {"open", "write"},
    "owner": set(NEEDS) - {"platform"},
}
NEED_OF = {name: need for need, names in NEEDS.items() for name in names.split()}


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        yield found


def _path(method: ApiMethod, robot: str, billing: str) -> str:
    """The path of a method to what is there."""
    path = method.path
    for place, value in (
        ("{projectId}", "demo"),
        ("{resource}", "demo"),
        ("projects/*/serviceAccounts/*/keys/*", f"projects/demo/serviceAccounts/{robot}/keys/0"),
        ("projects/*/serviceAccounts/*", f"projects/demo/serviceAccounts/{robot}"),
        ("projects/*/services/*", "projects/demo/services/tpu.googleapis.com"),
        ("projects/*", "projects/demo"),
        ("operations/*", "operations/noop.DONE_OPERATION"),
        ("roles/*", "roles/viewer"),
        ("billingAccounts/*", billing),
    ):
        path = path.replace(place, value)
    for name in method.pattern.groupindex:
        path = path.replace(f"{{{name}=", "").replace("}", "")
    return f"{google.API_PREFIX}{method.api.host}/{path}"


def _ask(yard: Yard, method: ApiMethod, path: str, headers: dict[str, str]) -> int:
    """With a body that nothing takes: who may not ask is refused before it is read."""
    body = {"nonsense": 1} if method.request else None
    return yard.bare.request(method.verb, path, json=body, headers=headers).status_code


def test_every_method_is_in_the_table() -> None:
    assert set(NEED_OF) == {method.key for method in all_methods()}
    assert {method.api.name for method in all_methods()} == set(google.API_NAMES)


def test_roles_may_do_what_the_table_says_and_nothing_else(yard: Yard) -> None:
    robot = account(yard, "robot-1")
    billing = yard.ok("GET", "/google/cloudbilling.googleapis.com/v1/billingAccounts")
    name = billing["billingAccounts"][0]["name"]
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    callers = {role: token_of(yard, f"{role}@corp.example", role) for role in ROLES}
    stranger = token_of(yard, "thief@other.example", "owner", "other")
    wrong = []
    # what deletes comes last
    for method in sorted(all_methods(), key=lambda item: item.verb == "DELETE"):
        need, path = NEED_OF[method.key], _path(method, robot, name)
        statuses = {
            role: _ask(yard, method, path, headers)
            for role, headers in callers.items()
            if not (method.verb == "DELETE" and role == "owner")
        }
        wrong += [
            (method.key, role, status)
            for role, status in statuses.items()
            if (status != 403) != (need in ROLES[role])
        ]
        status = _ask(yard, method, path, stranger)
        if (status != 403) != (need in ("open", "logs", "write")):
            wrong.append((method.key, "stranger", status))
    assert wrong == []


def test_open_methods_tell_a_stranger_nothing(yard: Yard) -> None:
    robot = account(yard, "robot-1")
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    stranger = token_of(yard, "thief@other.example", "owner", "other")
    number = yard.ok("GET", "/google/cloudresourcemanager.googleapis.com/v1/projects/demo")[
        "projectNumber"
    ]
    manager = "/google/cloudresourcemanager.googleapis.com"
    asked = {"permissions": ["resourcemanager.projects.get", "iam.serviceAccounts.get"]}
    answers = [
        yard.call("GET", f"{manager}/v1/projects", headers=stranger).text,
        yard.call("GET", f"{manager}/v3/projects:search", headers=stranger).text,
        yard.call(
            "GET", "/google/cloudbilling.googleapis.com/v1/billingAccounts", headers=stranger
        ).text,
    ]
    assert all("demo" not in text and number not in text for text in answers)
    assert (
        yard.call("GET", f"{manager}/v1/operations/cp.{number}", headers=stranger).status_code
        == 404
    )
    for path in (
        f"{manager}/v1/projects/demo:testIamPermissions",
        f"{manager}/v1/projects/{number}:testIamPermissions",
        f"{manager}/v3/projects/demo:testIamPermissions",
        f"/google/iam.googleapis.com/v1/projects/-/serviceAccounts/{robot}:testIamPermissions",
    ):
        assert yard.ok("POST", path, asked, headers=stranger) == {}


def test_refusals_tell_no_name_that_was_not_asked(yard: Yard) -> None:
    """Numbers of projects and of accounts are looked up, and tell nothing of what they find."""
    iam = "/google/iam.googleapis.com/v1/projects"
    account(yard, "robot-1")
    unique_id = yard.ok("GET", f"{iam}/demo/serviceAccounts")["accounts"][1]["uniqueId"]
    number = yard.ok("GET", "/google/cloudresourcemanager.googleapis.com/v1/projects/demo")[
        "projectNumber"
    ]
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    stranger = token_of(yard, "thief@other.example", "owner", "other")
    for path in (
        f"{iam}/-/serviceAccounts/{unique_id}",
        f"{iam}/{number}/serviceAccounts",
        f"/google/serviceusage.googleapis.com/v1/projects/{number}/services",
        f"/google/logging.googleapis.com/v2/projects/{number}/logs",
    ):
        answer = yard.call("GET", path, headers=stranger)
        assert answer.status_code == 403
        assert "demo" not in answer.text
    assert yard.ok("GET", f"{iam}/{number}/serviceAccounts")["accounts"]


def test_without_a_credential_nothing_answers_but_the_documents(yard: Yard) -> None:
    for name in google.API_NAMES:
        host = f"{google.API_PREFIX}{name}.googleapis.com"
        assert yard.bare.get(f"{host}/$discovery/rest").status_code == 200
        assert yard.bare.get(f"{host}/v1/projects/demo").status_code == 401
