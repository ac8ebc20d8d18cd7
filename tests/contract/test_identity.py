"""An identity belongs to who proved it: credentials that one project makes are good for nothing
elsewhere."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner

from podyard.api.app import prepare
from podyard.cli.kit.commands import root
from podyard.domain.credential import (
    INVITATION_DAYS,
    INVITATIONS_PER_PROJECT_MAX,
    KEPT_DAYS,
    SECONDS_PER_DAY,
)
from podyard.http.guard import PRINCIPAL_CACHE_SECONDS
from podyard.settings import from_environment
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
    return yard.bare.request(method, path, json=body, headers=headers)


def _accept(yard: Yard, code: str) -> httpx.Response:
    return yard.bare.post("/podyard/v1/invitations:accept", json={"code": code})


def _invite(
    yard: Yard, email: str, project: str, role: str, by: str | None = None
) -> dict[str, Any]:
    body = {"email": email, "roles": [role]}
    answer = _ask(
        yard, by or yard.token, "POST", f"/podyard/v1/projects/{project}/invitations", body
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_token_gets_nothing_that_another_project_grants_its_email_later(yard: Yard) -> None:
    other_owner = _token(yard, "owner@other.example", "other", "owner")
    squatted = _accept(
        yard, _invite(yard, NEWHIRE, "other", "tpu.viewer", by=other_owner)["code"]
    ).json()["token"]
    real = _token(yard, NEWHIRE, "demo", "owner")
    _token(yard, NEWHIRE, "*", "owner")
    assert _ask(yard, real, "GET", yard.nodes()).status_code == 200
    assert _ask(yard, squatted, "GET", yard.nodes().replace("demo", "other")).status_code == 200
    assert _ask(yard, squatted, "GET", yard.nodes()).status_code == 403
    assert _ask(yard, squatted, "GET", "/podyard/v1/whoami").json()["roles"] == {
        "other": ["tpu.viewer"]
    }
    assert _ask(yard, real, "GET", "/podyard/v1/whoami").json()["roles"] == {"demo": ["owner"]}


def test_people_are_made_by_the_platform_s_owner_or_by_an_invitation(yard: Yard) -> None:
    owner = _token(yard, "owner@demo.example", "demo", "owner")
    asked = {"email": NEWHIRE, "project": "demo", "roles": ["tpu.viewer"]}
    refused = _ask(yard, owner, "POST", "/podyard/v1/tokens", asked)
    assert refused.status_code == 403
    assert f"podyard auth invitation create {NEWHIRE} --project demo --role ROLE" in refused.text
    made = _invite(yard, NEWHIRE, "demo", "tpu.viewer", by=owner)
    assert "code" not in yard.ok("GET", "/podyard/v1/projects/demo/invitations")["invitations"][0]
    stored = b"".join(path.read_bytes() for path in yard.data.iterdir() if path.is_file())
    assert made["code"].encode() not in stored
    accepted = _accept(yard, made["code"])
    assert (accepted.status_code, accepted.json()["mintedBy"]) == (200, "owner@demo.example")
    assert _ask(yard, accepted.json()["token"], "GET", "/podyard/v1/whoami").json() == {
        "email": NEWHIRE,
        "roles": {"demo": ["tpu.viewer"]},
    }
    again = _accept(yard, made["code"])
    assert (again.status_code, "accepted already" in again.text) == (400, True)
    path = f"/podyard/v1/projects/demo/invitations/{made['invitationId']}:revoke"
    assert "has accepted this invitation" in yard.refused(400, "FAILED_PRECONDITION", "POST", path)


def test_an_invitation_ends(yard: Yard) -> None:
    old, revoked = (_invite(yard, NEWHIRE, "demo", "tpu.viewer") for _ in range(2))
    yard.ok("POST", f"/podyard/v1/projects/demo/invitations/{revoked['invitationId']}:revoke")
    assert "was revoked" in _accept(yard, revoked["code"]).text
    yard.clock.advance(INVITATION_DAYS * SECONDS_PER_DAY)
    assert "expired after 7 days" in _accept(yard, old["code"]).text
    assert _accept(yard, "pdyinv_nothing").status_code == 404
    listed = yard.ok("GET", "/podyard/v1/projects/demo/invitations")["invitations"]
    assert {item["invitationId"]: item["state"] for item in listed} == {
        old["invitationId"]: "EXPIRED",
        revoked["invitationId"]: "REVOKED",
    }
    yard.clock.advance((KEPT_DAYS + 1) * SECONDS_PER_DAY)
    _invite(yard, NEWHIRE, "demo", "tpu.viewer")
    assert len(yard.ok("GET", "/podyard/v1/projects/demo/invitations")["invitations"]) == 1


def test_an_invitation_that_cannot_be_is_refused(yard: Yard) -> None:
    path = "/podyard/v1/projects/demo/invitations"
    for email in (
        "bot@demo.iam.gserviceaccount.com",
        "owner@podyard.local",
        "local@agents.podyard.local",
        "nobody",
    ):
        yard.refused(
            400, "INVALID_ARGUMENT", "POST", path, {"email": email, "roles": ["tpu.viewer"]}
        )
    for roles in ([], ["king"], ["platform.owner"]):
        yard.refused(400, "INVALID_ARGUMENT", "POST", path, {"email": NEWHIRE, "roles": roles})
    for _ in range(INVITATIONS_PER_PROJECT_MAX):
        _invite(yard, NEWHIRE, "demo", "tpu.viewer")
    yard.refused(
        429, "RESOURCE_EXHAUSTED", "POST", path, {"email": NEWHIRE, "roles": ["tpu.viewer"]}
    )


def test_the_platform_s_owner_is_one_role_of_its_own(yard: Yard) -> None:
    assert yard.ok("GET", "/podyard/v1/whoami")["roles"] == {"*": ["platform.owner"]}
    body = {"email": "eve@x.org", "project": "demo", "roles": ["platform.owner"]}
    assert "on the whole platform" in yard.refused(
        400, "INVALID_ARGUMENT", "POST", "/podyard/v1/tokens", body
    )
    everywhere = _token(yard, "ann@x.org", "*", "owner")
    assert _ask(yard, everywhere, "GET", yard.nodes()).status_code == 200
    for path in ("agents", "faults", "unservedCalls"):
        assert _ask(yard, everywhere, "GET", f"/podyard/v1/{path}").status_code == 403, path
    more = {"email": "ann@x.org", "project": "*", "roles": ["platform.owner"]}
    assert _ask(yard, everywhere, "POST", "/podyard/v1/tokens", more).status_code == 403
    second = _token(yard, "ben@x.org", "*", "platform.owner")
    assert (
        _ask(yard, second, "POST", "/podyard/v1/projects", {"projectId": "third"}).status_code
        == 200
    )


def test_tokens_are_listed_to_who_may_see_them(yard: Yard) -> None:
    owner = _token(yard, "owner@demo.example", "demo", "owner")
    viewer = _token(yard, NEWHIRE, "demo", "tpu.viewer")
    stranger = _token(yard, NEWHIRE, "other", "tpu.viewer")

    def emails(token: str, query: str = "") -> list[tuple[str, str]]:
        listed = _ask(yard, token, "GET", f"/podyard/v1/tokens{query}").json()["tokens"]
        assert all("token" not in item for item in listed)
        return sorted((item["email"], item.get("project", "*")) for item in listed)

    in_demo = [(NEWHIRE, "demo"), ("owner@demo.example", "demo")]
    assert emails(owner) == emails(owner, "?project=demo") == in_demo
    assert emails(viewer) == [(NEWHIRE, "demo")]
    assert emails(stranger) == [(NEWHIRE, "other")]
    assert emails(owner, "?project=other") == []
    everything = sorted([("owner@podyard.local", "*"), *in_demo, (NEWHIRE, "other")])
    assert emails(yard.token) == everything
    held = sorted(
        yard.ok("GET", "/podyard/v1/tokens")["tokens"],
        key=lambda t: (t["email"], t.get("project", "*")),
    )
    for caller, statuses in ((viewer, [200, 403, 403, 403]), (owner, [200, 403, 200, 403])):
        asked = [
            _ask(yard, caller, "GET", f"/podyard/v1/tokens/{item['tokenId']}").status_code
            for item in held
        ]
        assert asked == statuses
    assert _ask(yard, viewer, "GET", "/podyard/v1/tokens/none").status_code == 403
    yard.refused(404, "NOT_FOUND", "GET", "/podyard/v1/tokens/none")


def test_a_revoked_token_is_refused_and_stays_listed_for_a_month(yard: Yard) -> None:
    viewer = _token(yard, NEWHIRE, "demo", "tpu.viewer")
    (listed,) = yard.ok("GET", "/podyard/v1/tokens?project=demo")["tokens"]
    assert (listed["state"], listed["mintedBy"]) == ("ACTIVE", "owner@podyard.local")
    path = f"/podyard/v1/tokens/{listed['tokenId']}:revoke"
    first = _ask(yard, viewer, "POST", path).json()  # their own
    yard.clock.advance(PRINCIPAL_CACHE_SECONDS)
    assert _ask(yard, viewer, "GET", yard.nodes()).status_code == 401
    assert yard.ok("POST", path)["revokeTime"] == first["revokeTime"]
    yard.clock.advance((KEPT_DAYS - 1) * SECONDS_PER_DAY)
    _token(yard, NEWHIRE, "demo", "tpu.viewer")
    assert [
        item["state"] for item in yard.ok("GET", "/podyard/v1/tokens?project=demo")["tokens"]
    ] == [
        "REVOKED",
        "ACTIVE",
    ]
    yard.clock.advance(SECONDS_PER_DAY)
    _token(yard, NEWHIRE, "demo", "tpu.viewer")
    assert len(yard.ok("GET", "/podyard/v1/tokens?project=demo")["tokens"]) == 2


def test_a_token_lasts_90_days_and_its_end_is_announced_for_14(yard: Yard) -> None:
    viewer = _token(yard, NEWHIRE, "demo", "tpu.viewer")
    made = yard.ok("GET", "/podyard/v1/tokens?project=demo")["tokens"][0]
    assert made["expireTime"] == "2026-05-30T00:00:00Z"  # the yard begins on 1 March
    yard.clock.advance((90 - 14) * SECONDS_PER_DAY - 1)
    assert "podyard-token-expires" not in _ask(yard, viewer, "GET", yard.nodes()).headers
    yard.clock.advance(1)
    for path in (yard.nodes(), "/podyard/v1/whoami", "/nothing"):
        assert (
            _ask(yard, viewer, "GET", path).headers["podyard-token-expires"] == made["expireTime"]
        )
    # the local owner's has no end
    assert "podyard-token-expires" not in yard.call("GET", yard.nodes()).headers
    yard.clock.advance(14 * SECONDS_PER_DAY)
    ended = _ask(yard, viewer, "GET", yard.nodes())
    assert (ended.status_code, ended.json()["error"]["details"][0]["reason"]) == (
        401,
        "ACCESS_TOKEN_EXPIRED",
    )
    assert yard.ok("GET", f"/podyard/v1/tokens/{made['tokenId']}")["state"] == "EXPIRED"
    assert yard.call("GET", yard.nodes()).status_code == 200


@pytest.mark.parametrize("ttl", ["0s", "31536001s", "366d", "-1s", "x", ""])
def test_how_long_a_token_may_last(yard: Yard, ttl: str) -> None:
    body = {"email": NEWHIRE, "project": "demo", "roles": ["tpu.viewer"], "ttl": ttl}
    yard.refused(400, "INVALID_ARGUMENT", "POST", "/podyard/v1/tokens", body)


def test_who_holds_a_token_renews_it(yard: Yard) -> None:
    viewer = _token(yard, NEWHIRE, "demo", "tpu.viewer")
    renewed = _ask(yard, viewer, "POST", "/podyard/v1/tokens:renew", {}).json()
    for token in (viewer, renewed["token"]):
        assert _ask(yard, token, "GET", "/podyard/v1/whoami").json()["roles"] == {
            "demo": ["tpu.viewer"]
        }
    assert (renewed["project"], renewed["mintedBy"]) == ("demo", NEWHIRE)
    # the local owner's has no end
    yard.refused(400, "FAILED_PRECONDITION", "POST", "/podyard/v1/tokens:renew", {})
    key = yard.ok("POST", "/podyard/v1/projects/demo/apiKeys", {"email": "owner@podyard.local"})[
        "key"
    ]
    by_key = yard.bare.post("/podyard/v1/tokens:renew", params={"key": key}, json={})
    assert (by_key.status_code, "only tokens can be renewed" in by_key.text) == (403, True)


def test_the_last_use_of_a_token_is_noted_every_ten_minutes(yard: Yard) -> None:
    viewer = _token(yard, NEWHIRE, "demo", "tpu.viewer")

    def last_use() -> str | None:
        used: str | None = yard.ok("GET", "/podyard/v1/tokens?project=demo")["tokens"][0].get(
            "lastUseTime"
        )
        return used

    assert last_use() is None
    seen = []
    for seconds in (0, 599, 1):
        yard.clock.advance(seconds)
        _ask(yard, viewer, "GET", yard.nodes())
        seen.append(last_use())
    assert seen == ["2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-01T00:10:00Z"]


def test_the_local_owner_s_token_is_not_revoked_but_replaced(yard: Yard) -> None:
    mine = yard.ok("GET", "/podyard/v1/tokens")["tokens"][0]
    assert "expireTime" not in mine
    path = f"/podyard/v1/tokens/{mine['tokenId']}:revoke"
    assert "podyard down" in yard.refused(400, "FAILED_PRECONDITION", "POST", path)
    (yard.data / "token").unlink()
    # as the next start does
    prepare(from_environment({"PODYARD_DATA": str(yard.data)}), yard.database)
    yard.clock.advance(PRINCIPAL_CACHE_SECONDS)
    assert yard.call("GET", yard.nodes()).status_code == 401
    fresh = (yard.data / "token").read_text().strip()
    listed = _ask(yard, fresh, "GET", "/podyard/v1/tokens").json()["tokens"]
    assert {item["tokenId"] == mine["tokenId"]: item["state"] for item in listed} == {
        True: "REVOKED",
        False: "ACTIVE",
    }


def test_the_command_line_shows_whole_lives_of_tokens_and_invitations(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PODYARD_URL", yard.url)

    def podyard(*arguments: str, token: str = yard.token) -> tuple[str, str]:
        monkeypatch.setenv("PODYARD_TOKEN", token)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # a process of its own would end here
            root.main(["auth", *arguments], standalone_mode=False)
            gc.collect()
        seen = capsys.readouterr()
        return seen.out, seen.err

    invited, said = podyard("invitation", "create", NEWHIRE, "--role", "tpu.viewer", "-o", "json")
    code = json.loads(invited)["code"]
    assert (
        said == f"send {NEWHIRE} this command: PODYARD_URL={yard.url} podyard auth accept {code}\n"
    )
    assert NEWHIRE in podyard("invitation", "list")[0]
    monkeypatch.delenv("PODYARD_TOKEN", raising=False)
    accepted, said = podyard("accept", code, "-o", "json", token="")
    viewer = json.loads(accepted)["token"]
    assert (
        said
        == f"to use it: export PODYARD_URL={yard.url} PODYARD_TOKEN=TOKEN PODYARD_PROJECT=demo\n"
    )
    made = json.loads(
        podyard("token", "renew", "--expires-in", "13d", "-o", "json", token=viewer)[0]
    )
    said = podyard("token", "list", token=made["token"])[1]
    assert said == (
        f"warning: your token expires at {made['expireTime']}; `podyard auth token renew` makes "
        "you a new one\n"
    )
    assert "state: ACTIVE" in podyard("token", "describe", made["tokenId"])[0]
    assert (
        podyard("token", "revoke", made["tokenId"])[1]
        == f"revoked token [{made['tokenId']}] of [{NEWHIRE}]\n"
    )
    assert podyard("token", "list")[0].count("REVOKED") == 1
    assert "owner@podyard.local" in podyard("token", "list", "--all-projects")[0]
    open_one = json.loads(
        podyard("invitation", "create", NEWHIRE, "--role", "owner", "-o", "json")[0]
    )
    podyard("invitation", "revoke", open_one["invitationId"])
    with pytest.raises(click.UsageError, match="is not a duration"):
        podyard("token", "renew", "--expires-in", "long")


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
    for path in (
        "projects",
        "tokens",
        "agents/local:register",
        "agents/local:sync",
        "agents/local:syncHosts",
    ):
        answer = _ask(yard, viewer, "POST", f"/podyard/v1/{path}", {"nonsense": 1})
        assert answer.status_code == 403, (path, answer.text)
    for verb in ("join", "report"):
        assert (
            _ask(
                yard, viewer, "POST", f"/podyard/v1/replicas/r:{verb}", {"nonsense": 1}
            ).status_code
            == 403
        )


@pytest.mark.parametrize("labels", [{"Team": "a"}, {"team": "A"}, {"team": "x" * 64}, {"1": "a"}])
def test_labels_of_jobs_and_projects_are_checked_as_those_of_nodes(
    yard: Yard, labels: dict[str, str]
) -> None:
    yard.create("n1")
    yard.refused(
        400,
        "INVALID_ARGUMENT",
        "POST",
        "/podyard/v1/projects",
        {"projectId": "labelled", "labels": labels},
    )
    job = {"recipe": "digits-cnn", "node": "n1", "labels": labels}
    yard.refused(400, "INVALID_ARGUMENT", "POST", f"{yard.jobs()}?jobId=j1", job)


def test_a_revoked_token_mints_no_successor_from_the_moment_on(yard: Yard) -> None:
    body = {"email": "ann@example.com", "project": "demo", "roles": ["owner"]}
    made = yard.ok("POST", "/podyard/v1/tokens", body)
    stolen = {"Authorization": f"Bearer {made['token']}"}
    assert yard.bare.get("/podyard/v1/whoami", headers=stolen).status_code == 200
    yard.ok("POST", f"/podyard/v1/tokens/{made['tokenId']}:revoke")
    for path, message in (
        ("/podyard/v1/tokens:renew", {}),
        ("/podyard/v1/tokens", body),
        ("/podyard/v1/projects/demo/invitations", {"email": "b@example.com", "roles": ["owner"]}),
        (f"{yard.nodes()}?nodeId=n", {"acceleratorType": "v2-8"}),
    ):
        answer = yard.bare.post(path, json=message, headers=stolen)
        assert answer.status_code == 401, path


def test_revoking_a_token_offers_to_end_what_it_has_minted(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"email": "ann@example.com", "project": "demo", "roles": ["owner"]}
    made = yard.ok("POST", "/podyard/v1/tokens", body)
    ann = {"Authorization": f"Bearer {made['token']}"}
    renewed = yard.bare.post("/podyard/v1/tokens:renew", json={}, headers=ann).json()
    bob = yard.ok("POST", "/podyard/v1/tokens", {**body, "email": "bob@example.com"})
    path = f"/podyard/v1/tokens/{made['tokenId']}"
    first = yard.ok("POST", f"{path}:revoke")
    assert [one["tokenId"] for one in first["minted"]] == [renewed["tokenId"]]
    successor = {"Authorization": f"Bearer {renewed['token']}"}
    assert yard.bare.get("/podyard/v1/whoami", headers=successor).status_code == 200

    monkeypatch.setenv("PODYARD_URL", yard.url)
    monkeypatch.setenv("PODYARD_TOKEN", yard.token)
    told = CliRunner().invoke(root, ["auth", "token", "revoke", made["tokenId"]])
    assert f"minted tokens since that still work: {renewed['tokenId']}" in told.stderr
    assert f"podyard auth token revoke {made['tokenId']} --with-minted" in told.stderr
    CliRunner().invoke(root, ["auth", "token", "revoke", made["tokenId"], "--with-minted"])
    states = {
        one["tokenId"]: one["state"] for one in yard.ok("GET", "/podyard/v1/tokens")["tokens"]
    }
    assert states[renewed["tokenId"]] == "REVOKED"
    assert states[bob["tokenId"]] == "ACTIVE"
