"""Signing a client in, as `gcloud auth login` does: a page, a code, tokens."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.yard import Yard, open_yard

PAGE = "/o/oauth2/auth"
HERE = "http://localhost:8085/"
BY_HAND = "https://sdk.cloud.google.com/authcode.html"
VERIFIER = "a" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=")
QUERY = {
    "response_type": "code",
    "client_id": "gcloud",
    "redirect_uri": HERE,
    "state": "s1",
    "code_challenge": CHALLENGE.decode(),
    "code_challenge_method": "S256",
}


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with open_yard(tmp_path) as found:
        yield found


@pytest.fixture
def ann(yard: Yard) -> str:
    body = {"email": "ann@example.com", "project": "demo", "roles": ["tpu.viewer"]}
    return str(yard.ok("POST", "/podyard/v1/tokens", body)["token"])


def allow(yard: Yard, token: str, **changes: str) -> httpx.Response:
    form = {"use": "token", "token": token}
    return yard.bare.post(PAGE, params=QUERY | changes, data=form, follow_redirects=False)


def code_of(answer: httpx.Response) -> str:
    assert answer.status_code == 303, answer.text
    url = urlsplit(answer.headers["location"])
    assert f"{url.scheme}://{url.netloc}{url.path}" == HERE
    query = parse_qs(url.query)
    assert query["state"] == ["s1"]
    return query["code"][0]


def trade(yard: Yard, code: str, **changes: str) -> httpx.Response:
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": HERE,
        "code_verifier": VERIFIER,
        "client_id": "gcloud",
    }
    return yard.bare.post("/token", data=form | changes)


def whoami(yard: Yard, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return yard.bare.get("/podyard/v1/whoami", headers=headers)


def claims_of(id_token: str) -> dict[str, Any]:
    part = id_token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def test_a_person_lets_a_client_act_for_them(yard: Yard, ann: str) -> None:
    asked = yard.bare.get(PAGE, params=QUERY)
    assert asked.status_code == 200 and "Allow with this token" in asked.text
    assert "form-action 'self' http://localhost:8085" in asked.headers["content-security-policy"]
    answer = trade(yard, code_of(allow(yard, ann)))
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert whoami(yard, found["access_token"]).json()["email"] == "ann@example.com"
    assert found["access_token"] != ann, "it can be revoked by itself"
    claims = claims_of(found["id_token"])
    assert (claims["email"], claims["aud"]) == ("ann@example.com", "gcloud")
    form = {"grant_type": "refresh_token", "refresh_token": found["refresh_token"]}
    again = yard.bare.post("/token", data=form)
    assert whoami(yard, again.json()["access_token"]).json()["email"] == "ann@example.com"


def test_a_browser_that_is_signed_in_needs_no_token(yard: Yard, ann: str) -> None:
    yard.bare.cookies.set("podyard_session", ann)
    try:
        assert "Continue as ann@example.com" in yard.bare.get(PAGE, params=QUERY).text
        answer = yard.bare.post(PAGE, params=QUERY, data={"use": "session"}, follow_redirects=False)
    finally:
        yard.bare.cookies.clear()
    assert trade(yard, code_of(answer)).status_code == 200


def test_a_code_is_shown_where_the_client_has_no_address(yard: Yard, ann: str) -> None:
    page = allow(yard, ann, redirect_uri=BY_HAND)
    assert page.status_code == 200
    code = page.text.partition("readonly>")[2].partition("<")[0]
    assert trade(yard, code, redirect_uri=BY_HAND).status_code == 200


@pytest.mark.parametrize(
    "changes",
    [{"code_verifier": "b" * 64}, {"code_verifier": ""}, {"redirect_uri": "http://localhost:1/"}],
    ids=str,
)
def test_a_code_is_of_no_use_to_another_client(
    yard: Yard, ann: str, changes: dict[str, str]
) -> None:
    answer = trade(yard, code_of(allow(yard, ann)), **changes)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


def test_a_code_works_once_and_for_five_minutes(yard: Yard, ann: str) -> None:
    code, late = code_of(allow(yard, ann)), code_of(allow(yard, ann))
    assert trade(yard, code).status_code == 200
    assert trade(yard, code).json()["error"] == "invalid_grant"
    yard.clock.advance(301)
    assert trade(yard, late).json()["error"] == "invalid_grant"


@pytest.mark.parametrize(
    "address",
    [
        "https://example.com/",
        "http://10.0.0.1:8085/",
        "http://localhost.example.com/",
        "http://localhost@example.com/",
        "http://example.com@localhost:8085/",
        "http://localhost:80;script-src *",
        "http://localhost:8085/ x",
    ],
)
def test_no_code_leaves_the_machine(yard: Yard, ann: str, address: str) -> None:
    for answer in (
        yard.bare.get(PAGE, params=QUERY | {"redirect_uri": address}),
        allow(yard, ann, redirect_uri=address),
    ):
        assert answer.status_code == 400 and "must be an address of this machine" in answer.text
        assert "location" not in answer.headers


def test_other_sites_and_wrong_tokens_get_nothing(yard: Yard, ann: str) -> None:
    assert allow(yard, "pdy_wrong").status_code == 401
    other = yard.bare.post(
        PAGE,
        params=QUERY,
        data={"use": "token", "token": ann},
        headers={"Origin": "https://example.com"},
        follow_redirects=False,
    )
    assert other.status_code == 403 and "location" not in other.headers


def test_revoking_ends_the_refresh_token(yard: Yard, ann: str) -> None:
    found = trade(yard, code_of(allow(yard, ann))).json()
    assert yard.bare.post("/revoke", data={"token": found["refresh_token"]}).status_code == 200
    form = {"grant_type": "refresh_token", "refresh_token": found["refresh_token"]}
    assert yard.bare.post("/token", data=form).json()["error"] == "invalid_grant"
    assert yard.bare.post("/revoke", data={"token": "pdy_unknown"}).status_code == 200
    assert whoami(yard, ann).status_code == 200, "the person's own token stays"


def test_the_owners_token_stays_when_a_client_signs_out(yard: Yard) -> None:
    owner = yard.token
    found = trade(yard, code_of(allow(yard, owner))).json()
    assert yard.bare.post("/revoke", data={"token": found["refresh_token"]}).status_code == 200
    assert whoami(yard, owner).status_code == 200
