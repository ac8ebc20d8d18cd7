"""An identity belongs to who proved it: credentials that one project makes are good for nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.yard import Yard, open_yard

NEWHIRE = "newhire@corp.example"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        found.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
        yield found


def _token(yard: Yard, email: str, project: str, role: str, by: str | None = None) -> str:
    body = {"email": email, "project": project, "roles": [role]}
    answer = _ask(yard, by or yard.token, "POST", "/podyard/v1/tokens", body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["token"])


def _ask(yard: Yard, token: str, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=yard.url, headers=headers, trust_env=False, verify=False) as client:
        return client.request(method, path, json=body)


def test_a_token_gets_nothing_that_another_project_grants_its_email_later(yard: Yard) -> None:
    other_owner = _token(yard, "owner@other.example", "other", "owner")
    squatted = _token(yard, NEWHIRE, "other", "tpu.viewer", by=other_owner)
    real = _token(yard, NEWHIRE, "demo", "owner")
    _token(yard, NEWHIRE, "*", "owner")
    assert _ask(yard, real, "GET", yard.nodes()).status_code == 200
    assert _ask(yard, squatted, "GET", yard.nodes().replace("demo", "other")).status_code == 200
    assert _ask(yard, squatted, "GET", yard.nodes()).status_code == 403
    assert _ask(yard, squatted, "GET", "/podyard/v1/whoami").json()["roles"] == {"other": ["tpu.viewer"]}
    assert _ask(yard, real, "GET", "/podyard/v1/whoami").json()["roles"] == {"demo": ["owner"]}


def test_credentials_of_a_service_account_are_made_in_its_own_project_only(yard: Yard) -> None:
    other_owner = _token(yard, "owner@other.example", "other", "owner")
    account = "bot@demo.iam.gserviceaccount.com"
    keys = f"/podyard/v1/projects/other/serviceAccounts/{account}/keys"
    asked: list[tuple[str, Any]] = [
        ("/podyard/v1/tokens", {"email": account, "project": "other", "roles": ["tpu.viewer"]}),
        (keys, {}),
        ("/podyard/v1/projects/other/apiKeys", {"email": account}),
    ]
    for path, body in asked:
        answer = _ask(yard, other_owner, "POST", path, body)
        assert answer.status_code == 403, (path, answer.text)
        assert "not a service account of project other" in answer.text
    own = keys.replace("/other/", "/demo/")
    assert _ask(yard, yard.token, "POST", own, {}).status_code == 200


def test_permission_is_checked_before_the_body(yard: Yard) -> None:
    viewer = _token(yard, "viewer@demo.example", "demo", "tpu.viewer")
    for path in ("projects", "tokens", "agents/local:register", "agents/local:sync", "agents/local:syncHosts"):
        answer = _ask(yard, viewer, "POST", f"/podyard/v1/{path}", {"nonsense": 1})
        assert answer.status_code == 403, (path, answer.text)
    for verb in ("join", "report"):
        assert _ask(yard, viewer, "POST", f"/podyard/v1/replicas/r:{verb}", {"nonsense": 1}).status_code == 403


@pytest.mark.parametrize("labels", [{"Team": "a"}, {"team": "A"}, {"team": "x" * 64}, {"1": "a"}])
def test_labels_of_jobs_and_projects_are_checked_as_those_of_nodes(yard: Yard, labels: dict[str, str]) -> None:
    yard.create("n1")
    yard.refused(400, "INVALID_ARGUMENT", "POST", "/podyard/v1/projects", {"projectId": "labelled", "labels": labels})
    job = {"recipe": "digits-cnn", "node": "n1", "labels": labels}
    yard.refused(400, "INVALID_ARGUMENT", "POST", f"{yard.jobs()}?jobId=j1", job)
