"""Credentials as Google's libraries use them: keys that sign for themselves, the token endpoint,
API keys."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from google.auth.transport.requests import Request
from google.oauth2 import service_account
from sqlalchemy import func, select

from podyard.base.clock import OsClock
from podyard.cli.kit.client import Client, Target
from podyard.cli.kit.commands import root
from podyard.cli.tools import keys as cli_keys
from podyard.control.access import keys
from podyard.db.tables.access import tokens
from podyard.http.guard import PRINCIPAL_CACHE_SECONDS
from tests.yard import ZONE, Yard, open_yard

KEYS = "/podyard/v1/projects/demo/serviceAccounts/robot@demo.iam.gserviceaccount.com/keys"
ROBOT = "robot@demo.iam.gserviceaccount.com"
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@pytest.fixture(scope="module")
def pair() -> keys.KeyPair:
    return keys.make_pair()


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: keys.KeyPair) -> Iterator[Yard]:
    monkeypatch.setattr(keys, "make_pair", lambda: pair)  # making one takes a tenth of a second
    with open_yard(tmp_path) as found:
        # google.auth reads the machine's clock, which no test can move: the yard's stands at the
        # same time.
        found.clock.advance(OsClock().now().seconds_since(found.clock.now()))
        yield found


@pytest.fixture
def key(yard: Yard) -> dict[str, Any]:
    return yard.ok("POST", KEYS, {"roles": ["tpu.viewer"]})


def _ask(
    yard: Yard, path: str = "/podyard/v1/whoami", method: str = "GET", **options: Any
) -> httpx.Response:
    return yard.bare.request(method, path, **options)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _refresh(credentials: service_account.Credentials) -> None:
    with requests.Session() as session:
        credentials.refresh(Request(session))


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _sign(key: dict[str, Any], *, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A JWT with the claims that google.auth would send, but for what is given (None: left out)."""
    from google.auth import crypt

    signer = crypt.RSASigner.from_service_account_info(key)
    now = int(time.time())
    found = {
        "iss": ROBOT,
        "sub": ROBOT,
        "aud": "https://tpu.googleapis.com/",
        "iat": now,
        "exp": now + 3600,
        **claims,
    }
    found = {name: value for name, value in found.items() if value is not None}
    head = {"alg": "RS256", "typ": "JWT", "kid": key["private_key_id"], **(header or {})}
    signed = f"{_part(json.dumps(head).encode())}.{_part(json.dumps(found).encode())}"
    return f"{signed}.{_part(signer.sign(signed))}"


def _trade(yard: Yard, assertion: str | None, **changes: Any) -> httpx.Response:
    form = {"grant_type": JWT_BEARER, "assertion": assertion, **changes}
    given = {name: value for name, value in form.items() if value is not None}
    return _ask(yard, "/token", "POST", data=given)


def test_a_key_file_is_google_s_and_its_private_key_is_not_kept(
    yard: Yard, key: dict[str, Any]
) -> None:
    assert key["type"] == "service_account"
    assert (key["project_id"], key["client_email"]) == ("demo", ROBOT)
    assert (key["token_uri"], key["universe_domain"]) == (f"{yard.url}/token", "googleapis.com")
    assert len(key["client_id"]) == 21
    assert key["private_key"].startswith("-----BEGIN PRIVATE KEY-----")
    stored = b"".join(path.read_bytes() for path in yard.data.iterdir() if path.is_file())
    assert key["private_key_id"].encode() in stored
    lines = key["private_key"].splitlines()
    assert all(line.encode() not in stored for line in lines[len(lines) // 2 : -1])


def test_google_auth_gets_an_access_token_for_a_key(yard: Yard, key: dict[str, Any]) -> None:
    credentials = service_account.Credentials.from_service_account_info(key, scopes=SCOPES)
    _refresh(credentials)
    assert _ask(yard, headers=_bearer(credentials.token)).json() == {
        "email": ROBOT,
        "roles": {"demo": ["tpu.viewer"]},
    }
    listed = _ask(yard, yard.nodes(), headers=_bearer(credentials.token))
    assert listed.status_code == 200
    created = _ask(
        yard, f"{yard.nodes()}?nodeId=a", "POST", json={}, headers=_bearer(credentials.token)
    )
    assert created.status_code == 403


@pytest.mark.parametrize("with_scopes", [False, True])
def test_google_auth_signs_for_itself(yard: Yard, key: dict[str, Any], with_scopes: bool) -> None:
    credentials = service_account.Credentials.from_service_account_info(
        key, scopes=SCOPES if with_scopes else None, always_use_jwt_access=True
    )
    credentials._create_self_signed_jwt("https://tpu.googleapis.com/")
    _refresh(credentials)
    assert credentials.token.count(".") == 2
    assert _ask(yard, headers=_bearer(credentials.token)).json()["email"] == ROBOT


@pytest.mark.slow
def test_what_a_jwt_must_say(yard: Yard, key: dict[str, Any]) -> None:
    def status(token: str) -> int:
        return _ask(yard, headers=_bearer(token)).status_code

    now = int(time.time())
    for audience in ("https://tpu.googleapis.com", yard.url, f"{yard.url}/", "http://localhost:1/"):
        assert status(_sign(key, aud=audience)) == 200, audience
    assert status(_sign(key, aud=None, scope=SCOPES[0])) == 200
    assert status(_sign(key, sub=None)) == 200
    assert status(_sign(key, iat=now + 290, exp=now + 3600)) == 200
    assert status(_sign(key, iat=now - 3800, exp=now - 200)) == 200
    wrong: list[dict[str, Any]] = [
        {"aud": None},
        {"aud": None, "scope": " "},
        {"aud": "https://storage.googleapis.com/"},
        {"aud": "https://127.0.0.1.example.com/"},
        {"aud": f"{yard.url}/token"},
        {"aud": ["https://tpu.googleapis.com/"]},
        {"iss": "owner@podyard.local"},
        {"sub": "owner@podyard.local"},
        {"iat": now + 320},
        {"iat": now - 4000, "exp": now - 301},
        {"iat": now, "exp": now + 3600 + 320},
        {"exp": now - 1},
        {"exp": None},
        {"iat": "0"},
        {"iat": True},
        {"exp": float("inf")},
        {"header": {"kid": "0" * 40}},
        {"header": {"kid": 7}},
        {"header": {"alg": "none"}},
        {"header": {"alg": "HS256"}},
    ]
    for changes in wrong:
        assert status(_sign(key, **changes)) == 401, changes


def test_a_jwt_that_was_changed_or_cut_is_refused(yard: Yard, key: dict[str, Any]) -> None:
    head, claims, signature = _sign(key).split(".")
    other = _part(json.dumps({"iss": "owner@podyard.local"}).encode())
    deep = _part(b"[" * 3000)
    broken = (
        f"{head}.{other}.{signature}", f"{head}.{claims}.", f"{head}.{claims}.{signature[:-8]}",
        f"{head}..{signature}",
        "..", "a.b.c", f"{head}.{_part(b'[]')}.{signature}", f"{deep}.{claims}.{signature}",
        f"{head}.{claims}.{'A' * 5000}",
    )  # fmt: skip
    for token in broken:
        response = _ask(yard, headers=_bearer(token))
        assert response.status_code == 401, token
        assert response.json()["error"]["details"][0]["reason"] == "ACCESS_TOKEN_TYPE_UNSUPPORTED"


def test_a_deleted_key_ends_its_jwts_and_its_access_tokens(yard: Yard, key: dict[str, Any]) -> None:
    signed = _sign(key)
    issued = _trade(yard, _sign(key, aud=key["token_uri"])).json()["access_token"]
    assert [_ask(yard, headers=_bearer(token)).status_code for token in (signed, issued)] == [
        200,
        200,
    ]
    (listed,) = yard.ok("GET", KEYS)["keys"]
    assert (listed["keyId"], listed["email"]) == (key["private_key_id"], ROBOT)
    yard.ok("DELETE", f"{KEYS}/{key['private_key_id']}")
    yard.clock.advance(PRINCIPAL_CACHE_SECONDS)
    assert [_ask(yard, headers=_bearer(token)).status_code for token in (signed, issued)] == [
        401,
        401,
    ]
    assert _trade(yard, _sign(key, aud=key["token_uri"])).json()["error"] == "invalid_grant"
    yard.refused(404, "NOT_FOUND", "DELETE", f"{KEYS}/{key['private_key_id']}")


def test_an_access_token_ends_after_its_hour(yard: Yard, key: dict[str, Any]) -> None:
    answer = _trade(yard, _sign(key, aud="https://oauth2.googleapis.com/token")).json()
    assert (answer["expires_in"], answer["token_type"]) == (3600, "Bearer")
    assert answer["access_token"].encode() not in (yard.data / "podyard.db").read_bytes()
    yard.clock.advance(3599)
    assert _ask(yard, headers=_bearer(answer["access_token"])).status_code == 200
    yard.clock.advance(PRINCIPAL_CACHE_SECONDS)
    ended = _ask(yard, headers=_bearer(answer["access_token"]))
    assert ended.json()["error"]["details"][0]["reason"] == "ACCESS_TOKEN_EXPIRED"
    assert ended.headers["www-authenticate"] == 'Bearer realm="podyard", error="invalid_token"'


def test_expired_tokens_are_forgotten_and_others_are_kept(yard: Yard, key: dict[str, Any]) -> None:
    def count() -> int:
        return yard.database.read(
            lambda uow: int(uow.execute(select(func.count()).select_from(tokens)).scalar() or 0)
        )

    before = count()
    first = [_trade(yard, _sign(key, aud=key["token_uri"])).status_code for _ in range(3)]
    yard.clock.advance(200)  # within what clocks may differ
    assert first == [200] * 3
    assert count() == before + 3
    yard.clock.advance(3400)
    now = int(time.time()) + 3600
    assert _trade(yard, _sign(key, aud=key["token_uri"], iat=now, exp=now + 60)).status_code == 200
    assert count() == before + 1
    assert yard.ok("GET", "/podyard/v1/whoami")["email"] == "owner@podyard.local"


def test_the_token_endpoint_refuses_in_oauth_s_form(yard: Yard, key: dict[str, Any]) -> None:
    good = _sign(key, aud=key["token_uri"])
    refused = {
        "invalid_grant": [
            _trade(yard, "x"),
            _trade(yard, good[:-4]),
            _trade(yard, _sign(key)),  # meant for the service, not for this endpoint
            _trade(yard, _sign(key, aud=key["token_uri"], exp=int(time.time()) - 400)),
        ],
        "invalid_request": [
            _trade(yard, None),
            _trade(yard, good, grant_type=None),
            _trade(yard, good, grant_type=[JWT_BEARER, JWT_BEARER]),
            _trade(yard, _sign(key, aud=key["token_uri"], target_audience="https://x")),
        ],
        "unsupported_grant_type": [_trade(yard, good, grant_type="password")],
    }
    for error, responses in refused.items():
        for response in responses:
            assert (response.status_code, response.json()["error"]) == (400, error), response.text
            assert response.json()["error_description"]
            assert response.headers["cache-control"] == "no-store"


def test_an_api_key_is_good_in_one_project_only(yard: Yard) -> None:
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    made = yard.ok("POST", "/podyard/v1/projects/demo/apiKeys", {"email": "owner@podyard.local"})
    for options in ({"params": {"key": made["key"]}}, {"headers": {"X-Goog-Api-Key": made["key"]}}):
        found = _ask(yard, **options)
        assert found.json() == {"email": "owner@podyard.local", "roles": {"demo": ["owner"]}}
        assert _ask(yard, yard.nodes().replace("demo", "other"), **options).status_code == 403
    assert _ask(yard, headers=_bearer(made["key"])).status_code == 401
    assert _ask(yard, params={"key": made["key"]}, headers=_bearer("wrong")).status_code == 401
    wrong = _ask(yard, params={"key": yard.token})
    assert (wrong.status_code, wrong.json()["error"]["details"][0]["reason"]) == (
        400,
        "API_KEY_INVALID",
    )
    assert "key" not in yard.ok("GET", "/podyard/v1/projects/demo/apiKeys")["keys"][0]
    yard.ok("DELETE", f"/podyard/v1/projects/demo/apiKeys/{made['keyId']}")
    yard.clock.advance(PRINCIPAL_CACHE_SECONDS)
    assert _ask(yard, params={"key": made["key"]}).status_code == 400


def test_a_token_may_come_in_the_query_or_the_path(yard: Yard) -> None:
    for name in ("access_token", "oauth_token"):
        assert _ask(yard, params={name: yard.token}).status_code == 200
        assert _ask(yard, params={name: "wrong"}).status_code == 401
        assert _ask(yard, params={name: [yard.token, yard.token]}).status_code == 401
    assert _ask(yard, f"/_t/{yard.token}/podyard/v1/whoami").status_code == 200
    assert _ask(yard, "/_t/wrong/podyard/v1/whoami").status_code == 401
    assert _ask(yard, "/_t//podyard/v1/whoami").status_code == 401
    assert _ask(yard, f"/_t/{yard.token}").status_code == 404
    assert _ask(yard, f"/_t/{yard.token}/%2e%2e/nothing").status_code == 404


def test_a_token_in_the_path_is_neither_answered_nor_logged(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [
        _ask(yard, f"/_t/{yard.token}/nothing/here"),
        _ask(yard, f"/_t/{yard.token}/podyard/v1/whoami", "PUT"),
        _ask(yard, f"/_t/{yard.token}x/podyard/v1/whoami"),
    ]
    assert [answer.status_code for answer in answers] == [404, 405, 401]
    assert "/nothing/here" in answers[0].text
    assert all(yard.token not in answer.text + str(answer.headers) for answer in answers)
    assert yard.token not in caplog.text


def test_who_has_no_credential_is_told_so_in_google_s_way(yard: Yard) -> None:
    missing, wrong = _ask(yard), _ask(yard, headers=_bearer("wrong"))
    assert missing.json()["error"]["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "CREDENTIALS_MISSING",
            "domain": "googleapis.com",
            "metadata": {"service": "tpu.googleapis.com"},
        }
    ]
    assert missing.json()["error"]["message"].startswith(
        "Request is missing required authentication credential."
    )
    assert missing.headers["www-authenticate"] == 'Bearer realm="podyard"'
    assert wrong.json()["error"]["details"][0]["reason"] == "ACCESS_TOKEN_TYPE_UNSUPPORTED"
    assert [r.json()["error"]["status"] for r in (missing, wrong)] == [
        "UNAUTHENTICATED",
        "UNAUTHENTICATED",
    ]
    for bad in ("Basic abc", "Bearer", f"Token {yard.token}"):
        assert _ask(yard, headers={"Authorization": bad}).status_code == 401, bad


def test_nobody_makes_a_node_that_acts_as_somebody_who_may_do_more(yard: Yard) -> None:
    robot = "robot@demo.iam.gserviceaccount.com"
    yard.ok("POST", "/podyard/v1/tokens", {"email": robot, "project": "demo", "roles": ["owner"]})
    admin = {"email": "ann@x.org", "project": "demo", "roles": ["tpu.admin"]}
    ann = _bearer(yard.ok("POST", "/podyard/v1/tokens", admin)["token"])
    node = {
        "acceleratorType": "v2-8",
        "runtimeVersion": "tpu-vm-base",
        "serviceAccount": {"email": robot},
    }
    queued = {"tpu": {"nodeSpec": [{"nodeId": "q", "node": node}]}}
    place = yard.nodes().removesuffix("nodes")
    for path, body in (("nodes?nodeId=a", node), ("queuedResources?queuedResourceId=q", queued)):
        refused = yard.call("POST", f"{place}{path}", body, headers=ann)
        assert refused.status_code == 403
        assert "iam.serviceAccounts.actAs" in refused.json()["error"]["message"]
    assert (
        yard.call(
            "POST", f"{place}nodes?nodeId=a", {**node, "serviceAccount": {}}, headers=ann
        ).status_code
        == 200
    )
    assert yard.call("POST", f"{place}nodes?nodeId=b", node).status_code == 200


def test_who_makes_credentials_must_own_all_that_they_open(yard: Yard) -> None:
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    local = {"email": "boss@x.org", "project": "other", "roles": ["owner"]}
    boss = _bearer(yard.ok("POST", "/podyard/v1/tokens", local)["token"])
    base = "/podyard/v1/projects/other"

    def made(path: str, body: dict[str, Any]) -> int:
        return _ask(yard, path, "POST", headers=boss, json=body).status_code

    # owner@podyard.local owns every project: a credential of theirs would open demo.
    assert made(f"{base}/serviceAccounts/owner@podyard.local/keys", {}) == 403
    assert made(f"{base}/apiKeys", {"email": "owner@podyard.local"}) == 403
    assert made("/podyard/v1/tokens", {**local, "email": "owner@podyard.local"}) == 403
    assert made(f"{base}/serviceAccounts/{ROBOT}/keys", {}) == 403  # of project demo, by its domain
    own = "robot@other.iam.gserviceaccount.com"
    assert made(f"{base}/serviceAccounts/{own}/keys", {}) == 200
    assert made("/podyard/v1/projects/demo/apiKeys", {"email": "boss@x.org"}) == 403
    guest = {"email": "guest@x.org", "project": "demo", "roles": ["tpu.viewer"]}
    yard.ok("POST", "/podyard/v1/tokens", guest)
    assert made(f"{base}/serviceAccounts/guest@x.org/keys", {}) == 403
    listed = _ask(yard, f"{base}/serviceAccounts/-/keys", headers=boss).json()["keys"]
    assert [item["email"] for item in listed] == [own]
    assert _ask(yard, f"{KEYS}/{listed[0]['keyId']}", "DELETE", headers=boss).status_code == 403
    yard.refused(404, "NOT_FOUND", "DELETE", f"{KEYS}/{listed[0]['keyId']}")  # it is not demo's


def test_bad_keys_are_refused_and_keys_are_counted(yard: Yard) -> None:
    for email in ("robot", "a@b@c", f"{'a' * 200}@b"):
        yard.refused(
            400,
            "INVALID_ARGUMENT",
            "POST",
            f"/podyard/v1/projects/demo/serviceAccounts/{email}/keys",
            {},
        )
    yard.refused(400, "INVALID_ARGUMENT", "POST", KEYS, {"roles": ["king"]})
    yard.refused(404, "NOT_FOUND", "POST", KEYS.replace("projects/demo", "projects/none"), {})
    made = [yard.call("POST", KEYS, {}).status_code for _ in range(keys.KEYS_PER_ACCOUNT_MAX + 1)]
    assert made == [200] * keys.KEYS_PER_ACCOUNT_MAX + [429]


def test_the_command_line_makes_lists_and_deletes_keys(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_clients: list[Client] = []

    def client_of(*_: object) -> Client:
        made_clients.append(Client(Target(yard.url, yard.token, "demo", ZONE)))
        return made_clients[-1]

    monkeypatch.setattr(cli_keys, "client_of", client_of)

    def podyard(*arguments: str) -> str:
        root.main(["auth", *arguments], standalone_mode=False)
        made_clients.pop().close()  # a process of its own would end here
        return capsys.readouterr().out

    path = yard.data / "robot.json"
    podyard("key", "create", "--service-account", "robot", "-o", str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    credentials = service_account.Credentials.from_service_account_file(str(path), scopes=SCOPES)
    _refresh(credentials)
    assert _ask(yard, headers=_bearer(credentials.token)).json() == {
        "email": ROBOT,
        "roles": {"demo": ["tpu.admin"]},
    }
    key_id = json.loads(path.read_text())["private_key_id"]
    assert key_id in podyard("key", "list")
    podyard("key", "delete", key_id)
    assert key_id not in podyard("key", "list", ROBOT)
    made = json.loads(podyard("api-key", "create", ROBOT, "-o", "json"))
    assert made["keyId"] in podyard("api-key", "list")
    podyard("api-key", "delete", made["keyId"])
    assert made["keyId"] not in podyard("api-key", "list")
    with pytest.raises(Exception, match="cannot make"):
        podyard("key", "create", ROBOT, "-o", str(path))
    assert key_id not in podyard("key", "list")
