"""Policies of projects and accounts: who may grant what, and from when on it holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from googleapiclient.errors import HttpError

from tests.contract.access.google_calls import (
    IAM,
    PROJECTS,
    account,
    client,
    policy_of,
    token_of,
)
from tests.yard import ZONE, Yard, open_yard

ANN = "ann@corp.example"
SET = f"{PROJECTS}/demo:setIamPolicy"
NODES = f"/v2/projects/demo/locations/{ZONE}/nodes"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        yield found


def _bind(yard: Yard, role: str, member: str, **options: Any) -> dict[str, Any]:
    policy = policy_of(yard)
    policy["bindings"].append({"role": role, "members": [member]})
    return yard.ok("POST", SET, {"policy": policy}, **options)


def _refused(yard: Yard, status: int, bindings: list[dict[str, Any]], **options: Any) -> str:
    answer = yard.call("POST", SET, {"policy": {"bindings": bindings}}, **options)
    assert answer.status_code == status, answer.text
    return str(answer.json()["error"]["message"])


def test_a_grant_and_its_end_are_in_force_at_the_next_request(yard: Yard) -> None:
    headers = token_of(yard, ANN, "browser")
    assert yard.call("GET", NODES, headers=headers).status_code == 403
    granted = _bind(yard, "roles/tpu.viewer", f"user:{ANN}")
    assert yard.call("GET", NODES, headers=headers).status_code == 200
    kept = [item for item in granted["bindings"] if item["role"] != "roles/tpu.viewer"]
    yard.ok("POST", SET, {"policy": {"bindings": kept, "etag": granted["etag"]}})
    assert yard.call("GET", NODES, headers=headers).status_code == 403


def test_an_etag_is_taken_in_either_alphabet_of_base64(yard: Yard) -> None:
    """gcloud sends back `-` and `_` where the answer had `+` and `/`."""
    policy = policy_of(yard)
    for number in range(64):
        member = f"user:p{number}@corp.example"
        policy["bindings"] = [{"role": "roles/viewer", "members": [member]}]
        policy = yard.ok("POST", SET, {"policy": policy})
        if set(policy["etag"]) & set("+/"):
            break
    policy["etag"] = policy["etag"].translate(str.maketrans("+/", "-_"))
    assert set(policy["etag"]) & set("-_")
    assert yard.ok("POST", SET, {"policy": policy})["bindings"] == policy["bindings"]


def test_a_policy_that_was_read_before_another_change_is_refused(yard: Yard) -> None:
    old = policy_of(yard)
    _bind(yard, "roles/viewer", f"user:{ANN}")
    answer = yard.call("POST", SET, {"policy": old})
    assert (answer.status_code, answer.json()["error"]["status"]) == (409, "ABORTED")
    assert [item["role"] for item in policy_of(yard)["bindings"]] == ["roles/viewer"]


@pytest.mark.parametrize(
    "role, member, words",
    [
        ("roles/nothing", f"user:{ANN}", "Role roles/nothing is not supported"),
        ("viewer", f"user:{ANN}", "Role viewer is not supported"),
        ("roles/platform.owner", f"user:{ANN}", "Role roles/platform.owner is not supported"),
        ("roles/viewer", "allUsers", "'allUsers' is not supported"),
        ("roles/viewer", "allAuthenticatedUsers", "'allAuthenticatedUsers' is not supported"),
        ("roles/viewer", "group:all@corp.example", "is not supported"),
        ("roles/viewer", "user:ann", "Invalid argument: email 'ann'"),
        ("roles/viewer", "user:local@agents.podyard.local", "reserved for the platform"),
        (
            "roles/viewer",
            "serviceAccount:none@demo.iam.gserviceaccount.com",
            "Service account none@demo.iam.gserviceaccount.com does not exist.",
        ),
        ("roles/viewer", f"serviceAccount:{ANN}", f"use user:{ANN}"),
    ],
)
def test_what_cannot_be_granted_is_refused(yard: Yard, role: str, member: str, words: str) -> None:
    assert words in _refused(yard, 400, [{"role": role, "members": [member]}])
    assert policy_of(yard)["bindings"] == []


def test_conditions_are_refused(yard: Yard) -> None:
    binding = {"role": "roles/viewer", "members": [f"user:{ANN}"], "condition": {"title": "x"}}
    assert "conditions are not supported" in _refused(yard, 400, [binding])


def test_nobody_grants_more_than_they_have(yard: Yard) -> None:
    admin = token_of(yard, "iam@corp.example", "resourcemanager.projectIamAdmin")
    kept = policy_of(yard)["bindings"]
    wanted = {"role": "roles/tpu.admin", "members": ["user:iam@corp.example"]}
    words = _refused(yard, 403, [*kept, wanted], headers=admin)
    assert words.startswith("role 'roles/tpu.admin' holds 'compute.")
    wanted = {"role": "roles/browser", "members": [f"user:{ANN}"]}
    yard.ok("POST", SET, {"policy": {"bindings": [*kept, wanted]}}, headers=admin)


def test_the_last_owner_stays(yard: Yard) -> None:
    token_of(yard, ANN, "owner")
    assert "takes the last owner away" in _refused(yard, 400, [])
    two = [{"role": "roles/owner", "members": ["user:ben@corp.example"]}]
    yard.ok("POST", SET, {"policy": {"bindings": two}})


def test_a_mask_without_bindings_changes_nothing(yard: Yard) -> None:
    _bind(yard, "roles/viewer", f"user:{ANN}")
    before = policy_of(yard)
    body = {"policy": {"bindings": []}, "updateMask": "etag"}
    assert yard.ok("POST", SET, body) == before == policy_of(yard)


def test_a_strangers_service_account_is_granted_nothing(yard: Yard) -> None:
    """Else a stranger could make it hold more than its owners do, who could then make no
    credential of it."""
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    victim = account(yard, "worker")
    stranger = token_of(yard, "thief@other.example", "owner", "other")
    binding = {"role": "roles/viewer", "members": [f"serviceAccount:{victim}"]}
    policy = {"policy": {"bindings": [binding, *policy_of(yard, "other")["bindings"]]}}
    answer = yard.call("POST", f"{PROJECTS}/other:setIamPolicy", policy, headers=stranger)
    assert answer.status_code == 403
    assert "iam.serviceAccounts.actAs" in answer.json()["error"]["message"]


def test_permissions_are_tested_by_the_table_that_checks(yard: Yard) -> None:
    headers = token_of(yard, ANN, "tpu.viewer")
    asked = ["tpu.nodes.get", "tpu.nodes.create", "compute.instances.list", "nothing.at.all"]
    path = f"{PROJECTS}/demo:testIamPermissions"
    found = yard.ok("POST", path, {"permissions": asked}, headers=headers)
    assert found == {"permissions": ["tpu.nodes.get", "compute.instances.list"]}
    assert yard.call("POST", NODES, {}, headers=headers).status_code == 403
    missing = f"{PROJECTS}/nowhere:testIamPermissions"
    assert yard.ok("POST", missing, {"permissions": asked}) == {}
    answer = yard.call("POST", path, {"permissions": ["tpu.*"]})
    assert answer.status_code == 400


def test_act_as_on_one_account_lets_a_node_act_as_it(yard: Yard) -> None:
    """Without it a node may act as an account that has no more than its creator."""
    robot = account(yard, "robot-1")
    _bind(yard, "roles/owner", f"serviceAccount:{robot}")
    headers = token_of(yard, ANN, "tpu.admin")
    node = {
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
        "serviceAccount": {"email": robot},
    }
    answer = yard.call("POST", f"{NODES}?nodeId=n", node, headers=headers)
    assert answer.status_code == 403
    assert "iam.serviceAccounts.actAs" in answer.json()["error"]["message"]
    name = f"{IAM}/projects/demo/serviceAccounts/{robot}"
    binding = {"role": "roles/iam.serviceAccountUser", "members": [f"user:{ANN}"]}
    granted = yard.ok("POST", f"{name}:setIamPolicy", {"policy": {"bindings": [binding]}})
    assert yard.ok("POST", f"{name}:getIamPolicy") == granted
    asked = {"permissions": ["iam.serviceAccounts.actAs", "iam.serviceAccounts.delete"]}
    found = yard.ok("POST", f"{name}:testIamPermissions", asked, headers=headers)
    assert found == {"permissions": ["iam.serviceAccounts.actAs"]}
    yard.ok("POST", f"{NODES}?nodeId=n", node, headers=headers)
    # A role that is no account's is refused on one.
    binding = {"role": "roles/tpu.admin", "members": [f"user:{ANN}"]}
    answer = yard.call("POST", f"{name}:setIamPolicy", {"policy": {"bindings": [binding]}})
    assert answer.status_code == 400


def test_a_token_of_another_project_has_nothing_on_an_account(yard: Yard) -> None:
    """An email that somebody has taken in another project brings them no grant of this one."""
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    robot = account(yard, "robot-1")
    name = f"{IAM}/projects/demo/serviceAccounts/{robot}"
    binding = {"role": "roles/iam.serviceAccountUser", "members": [f"user:{ANN}"]}
    yard.ok("POST", f"{name}:setIamPolicy", {"policy": {"bindings": [binding]}})
    squatted = token_of(yard, ANN, "owner", "other")
    assert yard.call("GET", name, headers=squatted).status_code == 403
    own = token_of(yard, ANN, "browser")
    assert yard.call("GET", name, headers=own).status_code == 200


def test_a_deleted_account_leaves_nothing_to_its_successor(yard: Yard) -> None:
    robot = account(yard, "robot-1")
    _bind(yard, "roles/tpu.admin", f"serviceAccount:{robot}")
    made = yard.ok("POST", "/podyard/v1/tokens", {"email": robot, "project": "demo", "roles": []})
    headers = {"Authorization": f"Bearer {made['token']}"}
    assert yard.call("GET", NODES, headers=headers).status_code == 200
    name = f"{IAM}/projects/demo/serviceAccounts/{robot}"
    first = yard.ok("GET", name)["uniqueId"]
    yard.ok("DELETE", name)
    assert yard.call("GET", NODES, headers=headers).status_code == 401
    assert account(yard, "robot-1") == robot
    assert yard.ok("GET", name)["uniqueId"] != first
    assert policy_of(yard)["bindings"] == []
    assert yard.ok("GET", f"{name}/keys") == {"keys": []}


def test_ray_prepares_its_account_and_its_roles(yard: Yard) -> None:
    """The calls of ray's `_configure_project` and `_configure_iam_role`, in their order."""
    with (
        client(yard, "cloudresourcemanager", "v1") as manager,
        client(yard, "iam", "v1") as iam,
    ):
        _bootstrap(manager, iam)


def _bootstrap(manager: Any, iam: Any) -> None:
    with pytest.raises(HttpError) as refused:
        manager.projects().get(projectId="bootstrap").execute()
    assert refused.value.resp.status == 403
    body = {"projectId": "bootstrap", "name": "bootstrap"}
    operation = manager.projects().create(body=body).execute()
    assert manager.operations().get(name=operation["name"]).execute()["done"] is True
    project = manager.projects().get(projectId="bootstrap").execute()
    assert (project["lifecycleState"], project["projectId"]) == ("ACTIVE", "bootstrap")
    accounts = iam.projects().serviceAccounts()
    email = "ray-autoscaler-sa-v1@bootstrap.iam.gserviceaccount.com"
    name = f"projects/bootstrap/serviceAccounts/{email}"
    with pytest.raises(HttpError) as missing:
        accounts.get(name=name).execute()
    assert missing.value.resp.status == 404
    texts = {"displayName": "Ray Autoscaler Service Account (v1)"}
    body = {"accountId": "ray-autoscaler-sa-v1", "serviceAccount": texts}
    made = accounts.create(name="projects/bootstrap", body=body).execute()
    assert (made["email"], made["projectId"]) == (email, "bootstrap")
    options = {"options": {"requestedPolicyVersion": 3}}
    policy = manager.projects().getIamPolicy(resource="bootstrap", body=options).execute()
    for role in (
        "storage.objectAdmin", "compute.admin", "iam.serviceAccountUser", "iam.roleViewer",
        "tpu.admin",
    ):  # fmt: skip
        member = f"serviceAccount:{email}"
        policy["bindings"].append({"members": [member], "role": f"roles/{role}"})
    body = {"policy": policy}
    bound = manager.projects().setIamPolicy(resource="bootstrap", body=body).execute()
    assert len(bound["bindings"]) == 5


def test_a_key_signs_for_the_roles_of_its_account_and_gives_none(yard: Yard) -> None:
    robot = account(yard, "robot-1")
    with client(yard, "iam", "v1") as iam:
        _live_of_a_key(yard, iam.projects().serviceAccounts().keys(), robot)


def _live_of_a_key(yard: Yard, keys: Any, robot: str) -> None:
    name = f"projects/demo/serviceAccounts/{robot}"
    made = keys.create(name=name, body={}).execute()
    assert policy_of(yard)["bindings"] == []
    listed = keys.list(name=name, keyTypes="USER_MANAGED").execute()["keys"]
    assert [key["name"] for key in listed] == [made["name"]]
    shown = keys.get(name=made["name"], publicKeyType="TYPE_RAW_PUBLIC_KEY").execute()
    assert "privateKeyData" not in shown
    assert shown["publicKeyData"]
    keys.delete(name=made["name"]).execute()
    assert keys.list(name=name).execute() == {"keys": []}
