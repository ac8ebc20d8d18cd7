"""Calls of Google's APIs as launchers make them, of a yard."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httplib2
from google.oauth2.credentials import Credentials
from google_auth_httplib2 import AuthorizedHttp
from googleapiclient.discovery import build_from_document

from tests.yard import Yard

PROJECTS = "/google/cloudresourcemanager.googleapis.com/v1/projects"
IAM = "/google/iam.googleapis.com/v1"
SERVICES = "/google/serviceusage.googleapis.com/v1/projects/demo/services"
BILLING = "/google/cloudbilling.googleapis.com/v1"


@contextlib.contextmanager
def client(yard: Yard, name: str, version: str, token: str | None = None) -> Iterator[Any]:
    """googleapiclient on the document that the yard serves, as Ray and SkyPilot build theirs."""
    document = yard.bare.get(f"/discovery/v1/apis/{name}/{version}/rest")
    assert document.status_code == 200, document.text
    http = AuthorizedHttp(Credentials(token or yard.token), http=httplib2.Http())
    with contextlib.closing(build_from_document(document.text, http=http)) as service:
        yield service


def token_of(yard: Yard, email: str, role: str, project: str = "demo") -> dict[str, str]:
    """Headers of a new token with a role."""
    body = {"email": email, "project": project, "roles": [role]}
    made = yard.ok("POST", "/podyard/v1/tokens", body)
    return {"Authorization": f"Bearer {made['token']}"}


def policy_of(yard: Yard, project: str = "demo") -> dict[str, Any]:
    return yard.ok("POST", f"{PROJECTS}/{project}:getIamPolicy", {})


def account(yard: Yard, name: str, project: str = "demo") -> str:
    """The email of a new service account."""
    path = f"{IAM}/projects/{project}/serviceAccounts"
    return str(yard.ok("POST", path, {"accountId": name})["email"])
