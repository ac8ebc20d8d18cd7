"""Pages with forms for what only the command line could do: what is filled in is made, and a
refusal says why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest
from google.oauth2 import service_account

from podyard.http.guard import CSRF_FIELD, csrf_token
from podyard.web.front import pages
from tests.unit.cli.command_walk import parse
from tests.yard import ZONE, Yard, open_yard

V4_ZONE = "us-central2-b"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path, routers=(pages.router,)) as found:
        yield found


def _post(yard: Yard, path: str, **fields: str) -> httpx.Response:
    return yard.http.post(f"/console/demo/{path}", data=fields)


def _text(yard: Yard, path: str) -> str:
    answer = yard.call("GET", f"/console/demo/{path}")
    assert answer.status_code == 200, answer.text
    return unescape(answer.text)


def test_a_queued_resource_is_what_a_client_would_have_made(yard: Yard) -> None:
    node = {
        "zone": ZONE,
        "accelerator_type": "v2-8",
        "usage": "spot",
        "runtime_version": "tpu-ubuntu2204-base",
    }
    assert (
        _post(yard, "queue/resources/new", name="two", count="2", until="2h", **node).status_code
        == 303
    )
    found = yard.ok("GET", f"/v2/projects/demo/locations/{ZONE}/queuedResources/two")
    assert found["spot"] == {} and found["queueingPolicy"]["validUntilDuration"] == "7200s"
    assert found["tpu"]["nodeSpec"][0]["multisliceParams"] == {
        "nodeCount": 2,
        "nodeIdPrefix": "two",
    }
    yard.step(30)
    html = _text(yard, "queue/resources")
    assert "2 × v2-8" in html and ">two-1</a>" in html
    assert _post(yard, f"queue/resources/{ZONE}/two/delete").status_code == 303
    yard.step(30)
    assert ">two<" not in _text(yard, "queue/resources")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"count": "x"}, "must be a whole number"),
        ({"reservation": "r"}, "for usage class reserved"),
        ({"until": "soon"}, "soon"),
        ({"name": "Not A Name"}, "not a valid id"),
    ],
)
def test_a_refused_queued_resource_comes_back_with_its_values(
    yard: Yard, fields: dict[str, str], said: str
) -> None:
    node = {
        "zone": ZONE,
        "accelerator_type": "v2-8",
        "usage": "on-demand",
        "runtime_version": "tpu-ubuntu2204-base",
    }
    answer = _post(yard, "queue/resources/new", **{"name": "kept", **node, **fields})
    assert answer.status_code == 400 and said in unescape(answer.text)
    assert f'value="{fields.get("name", "kept")}"' in answer.text


def test_reservations_are_made_and_deleted(yard: Yard) -> None:
    asked = {"zone": V4_ZONE, "generation": "v4", "size": "8", "units": "CHIPS", "duration": "30d"}
    assert _post(yard, "queue/reservations", name="r-1", **asked).status_code == 303
    assert (
        yard.ok("GET", f"/podyard/v1/projects/demo/locations/{V4_ZONE}/reservations/r-1")["size"]
        == 8
    )
    assert "8 chips" in _text(yard, "queue/reservations")
    again = _post(yard, "queue/reservations", name="r-1", **asked)
    assert (
        again.status_code == 409 and "already exists" in again.text and 'value="r-1"' in again.text
    )
    assert _post(yard, f"queue/reservations/{V4_ZONE}/r-1/delete").status_code == 303
    assert "No reservations" in _text(yard, "queue/reservations")


@pytest.mark.slow
def test_a_token_is_shown_once_works_and_can_be_revoked(yard: Yard) -> None:
    made = _post(
        yard, "settings/access/token", email="viewer@example.com", role="tpu.viewer", ttl="12h"
    )
    secret = re.findall(r'<code id="secret">([^<]+)</code>', made.text)[0]
    as_viewer = {"Authorization": f"Bearer {secret}"}
    page = yard.bare.get("/console/demo/settings/access", headers=as_viewer)
    assert (
        page.status_code == 200 and "Create a token" not in page.text and "Invite" not in page.text
    )
    html = _text(yard, "settings/access")
    assert secret not in html
    token = re.findall(
        r'<th scope="row"[^>]*>([^<]+)</th><td data-label="Holder"[^>]*>viewer@example.com', html
    )[0]
    assert _post(yard, "settings/access/revoke-token", id=token).status_code == 303
    assert "REVOKED" in _text(yard, "settings/access")


def test_an_invitation_is_accepted_with_what_the_page_says(yard: Yard) -> None:
    made = _post(yard, "settings/access/invite", email="new@example.com", role="jobs.runner")
    words = unescape(re.findall(r'<code id="secret">([^<]+)</code>', made.text)[0]).split()
    assert words[0].startswith("PODYARD_URL=http") and parse(words[2:]) == "auth accept", (
        "as the command line takes it"
    )
    code = words[-1]
    answer = yard.bare.post("/podyard/v1/invitations:accept", json={"code": code})
    assert answer.status_code == 200, answer.text
    assert "ACCEPTED" in _text(yard, "settings/access")
    refused = _post(yard, "settings/access/invite", email="not an address", role="no.such")
    assert refused.status_code == 400


@pytest.mark.slow
def test_keys_are_made_shown_once_and_deleted(yard: Yard) -> None:
    made = _post(yard, "settings/keys/service-account-key", name="ci", role="tpu.viewer")
    assert made.status_code == 200, made.text
    key = json.loads(unescape(re.findall(r'<code id="secret">([^<]+)</code>', made.text)[0]))
    assert key["client_email"] == "ci@demo.iam.gserviceaccount.com"
    credentials = service_account.Credentials.from_service_account_info(key)
    assert credentials.signer.key_id == key["private_key_id"], "as Google's library reads it"
    assert key["private_key_id"] in _text(yard, "settings/keys")
    assert key["private_key"][:60] not in _text(yard, "settings/keys")
    assert (
        _post(
            yard, "settings/keys/delete-service-account-key", id=key["private_key_id"]
        ).status_code
        == 303
    )
    assert key["private_key_id"] not in _text(yard, "settings/keys")

    made = _post(
        yard, "settings/keys/api-key", email="robot@demo.iam.gserviceaccount.com", role="tpu.viewer"
    )
    secret = re.findall(r'<code id="secret">([^<]+)</code>', made.text)[0]
    assert yard.bare.get("/podyard/v1/whoami", params={"key": secret}).json()["roles"] == {
        "demo": ["tpu.viewer"]
    }
    [listed] = yard.ok("GET", "/podyard/v1/projects/demo/apiKeys")["keys"]
    assert _post(yard, "settings/keys/delete-api-key", id=listed["keyId"]).status_code == 303
    yard.clock.advance(2)
    assert yard.bare.get("/podyard/v1/whoami", params={"key": secret}).status_code == 400
    refused = _post(yard, "settings/keys/api-key", email="ci@other.iam.gserviceaccount.com")
    assert refused.status_code == 403 and "is not a service account of project demo" in unescape(
        refused.text
    )
    assert _post(yard, "settings/keys/delete-api-key", id=listed["keyId"]).status_code == 404


def test_a_quota_is_set_shown_and_removed(yard: Yard) -> None:
    yard.create("held")
    assert _post(yard, "settings/project", chips="6").status_code == 303
    assert "4 of 6" in _text(yard, "settings/project")
    body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    refused = yard.refused(429, "RESOURCE_EXHAUSTED", "POST", f"{yard.nodes()}?nodeId=more", body)
    assert "may hold 6 chips" in refused
    for text in ("-1", "many", "1.5", "9" * 10):
        answer = _post(yard, "settings/project", chips=text)
        assert answer.status_code == 400 and "is not a number of chips" in answer.text
    assert _post(yard, "settings/project", chips="").status_code == 303
    assert "quota" not in yard.ok("GET", "/podyard/v1/projects")["projects"][0]


def test_objects_are_uploaded_listed_by_folders_downloaded_and_deleted(yard: Yard) -> None:
    assert _post(yard, "settings/storage", name="objects-of-demo").status_code == 303
    url = "/console/demo/settings/storage/objects-of-demo"
    form = {CSRF_FIELD: csrf_token(yard.token), "prefix": "run/"}
    refused = yard.http.post(f"{url}/upload", data=form)
    assert refused.status_code == 400
    sent = yard.http.post(f"{url}/upload", data=form, files={"file": ("a <b>.txt", b"hello")})
    assert sent.status_code == 303, sent.text
    assert ">run/</a>" in _text(yard, "settings/storage/objects-of-demo")
    listed = _text(yard, "settings/storage/objects-of-demo?prefix=run/")
    assert "a <b>.txt" in listed and "5 B" in listed
    got = yard.call("GET", f"{url}/download?name=run/a%20%3Cb%3E.txt")
    assert got.content == b"hello" and got.headers["content-disposition"].startswith("attachment")
    assert got.headers["content-type"] == "application/octet-stream"
    other = yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    assert yard.call("GET", url.replace("/demo/", f"/{other['projectId']}/")).status_code == 404
    assert (
        yard.http.post(f"{url}/remove", data={**form, "name": "run/a <b>.txt"}).status_code == 303
    )
    assert "Nothing here" in _text(yard, "settings/storage/objects-of-demo")
    assert _post(yard, "settings/storage/objects-of-demo/delete").status_code == 303


def test_buckets_are_made_and_deleted_while_empty(yard: Yard) -> None:
    assert _post(yard, "settings/storage", name="my-data", labels="team=vision").status_code == 303
    assert "gs://my-data" in _text(yard, "settings/storage")
    assert _post(yard, "settings/storage", name="NO").status_code == 400
    assert _post(yard, "settings/storage/my-data/delete").status_code == 303
    assert "No buckets" in _text(yard, "settings/storage")


def test_budgets_commitments_and_credits_have_forms(yard: Yard) -> None:
    budget = {
        "name": "monthly",
        "amount": "100",
        "period": "month",
        "scope": "project",
        "thresholds": "0.5, 1",
    }
    hook = {"amount": "50", "actions": ["notify:http://127.0.0.1:9/x"]}
    yard.ok("PUT", "/podyard/v1/projects/demo/budgets/monthly", hook)
    assert (
        _post(yard, "billing/budgets/set", **budget, **{"refuse-new-nodes": "1"}).status_code == 303
    )
    found = yard.ok("GET", "/podyard/v1/projects/demo/budgets/monthly")
    assert found["thresholds"] == ["0.5", "1"]
    assert found["actions"] == ["notify:http://127.0.0.1:9/x", "refuse-new-nodes"], (
        "a webhook stays"
    )
    assert _post(yard, "billing/budgets/set", **{**budget, "amount": "much"}).status_code == 400
    assert _post(yard, "billing/budgets/remove", name="monthly").status_code == 303
    bought = _post(
        yard, "billing/commitments/buy", accelerator_type="v2-32", zone="us-central1-a", years="1"
    )
    assert bought.status_code == 303
    credit = _post(
        yard, "billing/commitments/credit", amount="25", until_month="2027-12", reason="trial"
    )
    assert credit.status_code == 303
    assert _post(yard, "billing/commitments/nothing").status_code == 400


def test_who_may_not_is_refused_by_the_form_too(yard: Yard) -> None:
    body = {"email": "viewer@example.com", "project": "demo", "roles": ["tpu.viewer"]}
    viewer = {"Authorization": f"Bearer {yard.ok('POST', '/podyard/v1/tokens', body)['token']}"}
    for path in ("queue/resources/new", "queue/reservations", "settings/storage",
        "billing/budgets/set",
                 "settings/access/token"):  # fmt: skip
        fields = {"name": "x", "zone": ZONE, "accelerator_type": "v2-8",
            "runtime_version": "tpu-vm-base", "size": "1",
                  "generation": "v4", "email": "viewer@example.com", "amount": "1"}  # fmt: skip
        answer = yard.bare.post(f"/console/demo/{path}", data=fields, headers=viewer)
        assert answer.status_code == 403, (path, answer.status_code)
