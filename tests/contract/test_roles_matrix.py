"""Every operation of the API with every role, and with credentials that are good for nothing here:
0 leaks.

What each operation needs is written down below by hand, so that a route that asks for less fails,
and so does a new one that nobody has put into the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from podyard.domain.credential import SECONDS_PER_DAY
from podyard.http.guard import PRINCIPAL_CACHE_SECONDS
from tests.contract.world import OPERATIONS, World, open_copy

BOSS = "boss@corp.example"  # owns demo; another person has taken this name in project `other`
NEEDS = {
    "public": "discovery.rest discovery.v1.rest platform.healthz platform.readyz "
    "tokens.accept_invitation oauth.token oauth.revoke "
    "machines.join",
    # Every credential; each sees only its own.
    "known": "sign_in.create_link "
    "openapi measures.metrics platform.list_projects auth.whoami tokens.list_tokens clock.show "
    "connect.describe_connection connect.open_connection "
    "catalogue.services catalogue.skus",
    "view": "sweeps.list_sweeps sweeps.get "
    "jobs.list_jobs jobs.get jobs.artifact jobs.artifacts jobs.attempts jobs.checkpoints "
    "jobs.evaluations "
    "jobs.logs jobs.job_log_text jobs.metrics hosts.list_hosts queue_view.list_queue "
    "reservations.list_reservations "
    "reservations.get "
    "pods.list_pods pods.get pods.defragment billing.price",
    "jobs": "sweeps.create sweeps.cancel jobs.create jobs.cancel jobs.resize jobs.stacks",
    "nodes": "jobs.upload hosts.materialise hosts.open_notebook "
    "platform.preempt platform.schedule_maintenance "
    "webhooks.set_webhook "
    "webhooks.list_webhooks webhooks.get_webhook webhooks.delete_webhook webhooks.test_webhook "
    "webhooks.list_deliveries",
    "billing": "billing.usage billing.events budgets.budget_events budgets.list_budgets "
    "budgets.get_budget budgets.get_costs budgets.what_if invoices.get_account "
    "invoices.list_commitments "
    "billing_info.get_billing_info "
    "invoices.list_credits invoices.list_invoices invoices.get_invoice invoices.preview "
    "invoices.ledger "
    "invoices.explain explorer.explore_costs credit_notes.list_notes "
    "exports.create exports.list_exports exports.get exports.download exports.export_month",
    "own": "budgets.set_budget budgets.delete_budget invoices.patch_account invoices.buy "
    "invoices.add_credit "
    "billing_info.put_billing_info "
    "invoices.close credit_notes.create_note reservations.create reservations.delete "
    "auth.create_key auth.list_keys "
    "auth.delete_key auth.create_api_key auth.list_api_keys auth.delete_api_key "
    "tokens.create_invitation "
    "tokens.list_invitations tokens.revoke_invitation tokens.describe_token tokens.revoke_token "
    "tokens.create_token",
    # Every token can renew itself; the body is read first.
    "holder": "tokens.renew_token",
    "platform": "machines.list_agents machines.get machines.drain machines.resume machines.remove "
    "machines.create_join_token clock.get_operation clock.advance clock.set_rate faults.create "
    "faults.list_faults "
    "audit.list_lines "
    "faults.get faults.delete faults.create_all platform.create_project platform.update_project "
    "unserved.list_calls",
    "agent": (
        "hosts.connect_host hosts.host_token machines.register machines.rotate agents.sync "
        "hosts.sync_hosts"
    ),
    "replica": "agents.specification agents.file agents.join agents.report "
    "replica_files.list_objects "
    "replica_files.object_digest replica_files.read_object replica_files.write_object "
    "replica_files.append "
    "replica_files.delete_object",
}
ROLES = {
    "tpu.viewer": {"view"},
    "jobs.runner": {"view", "jobs"},
    "tpu.admin": {"view", "jobs", "nodes"},
    "billing.viewer": {"billing"},
    "owner": {"view", "jobs", "nodes", "billing", "own"},
}
EVERYBODY = {"public", "known", "holder"}
NEED_OF = {name: need for need, names in NEEDS.items() for name in names.split()}


def need_of(name: str) -> str:
    """Return what an operation needs. Google's: reading needs `view`, and everything else
    `nodes`."""
    if name in NEED_OF:
        return NEED_OF[name]
    version, _, method = name.partition(".")
    assert version.startswith("v") and method, f"{name} is not in the table"
    reads = OPERATIONS[name][0] == "GET" or method in (
        "nodes.getGuestAttributes",
        "generateServiceIdentity",
    )
    return "view" if reads else "nodes"


@pytest.fixture(scope="module")
def world(prepared_world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_copy(prepared_world, tmp_path_factory.mktemp("world")) as found:
        yield found


def _token(world: World, email: str, project: str, role: str, **more: Any) -> dict[str, Any]:
    return world.yard.ok(
        "POST", "/podyard/v1/tokens", {"email": email, "project": project, "roles": [role], **more}
    )


def _ask(world: World, name: str, token: str) -> httpx.Response:
    """With a body that nothing takes: who may not ask is refused before it is read."""
    verb, path = OPERATIONS[name]
    body = None if verb in ("GET", "DELETE") else {"nonsense": 1}
    headers = {"Authorization": f"Bearer {token}"}
    return world.yard.bare.request(
        verb, path.format(**world.parameters(path)), headers=headers, json=body
    )


def _by_reading(name: str) -> tuple[bool, str]:
    """Return what only reads comes first, and what deletes last."""
    return OPERATIONS[name][0] != "GET", {"DELETE": "z"}.get(OPERATIONS[name][0], "a") + name


def test_every_operation_is_in_the_table_once() -> None:
    named = [name for names in NEEDS.values() for name in names.split()]
    assert len(named) == len(set(named))
    assert set(named) <= set(OPERATIONS)
    assert {need_of(name) for name in OPERATIONS} == set(NEEDS)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_the_table_says_and_nothing_else(
    role: str, prepared_world: World, tmp_path: Path
) -> None:
    with open_copy(prepared_world, tmp_path) as world:
        token = _token(world, "ann@corp.example", "demo", role)["token"]
        wrong = []
        for name in sorted(OPERATIONS, key=_by_reading):
            allowed = need_of(name) in ROLES[role] | EVERYBODY
            status = _ask(world, name, token).status_code
            if (status not in (401, 403)) != allowed:
                wrong.append((name, status))
        assert wrong == [], role


def test_a_squatted_email_opens_nothing(world: World) -> None:
    yard = world.yard
    yard.ok("POST", "/podyard/v1/projects", {"projectId": "other"})
    _token(world, BOSS, "demo", "owner")
    thief = _token(world, "thief@other.example", "other", "owner")["token"]
    as_thief = {"headers": {"Authorization": f"Bearer {thief}"}}
    # The thief is not an owner of the platform, and cannot say that they are the boss; but they can
    # accept for them.
    asked = {"email": BOSS, "project": "other", "roles": ["owner"]}
    assert "Invite them instead" in yard.refused(
        403, "PERMISSION_DENIED", "POST", "/podyard/v1/tokens", asked, **as_thief
    )
    invited = yard.ok(
        "POST",
        "/podyard/v1/projects/other/invitations",
        {"email": BOSS, "roles": ["owner"]},
        **as_thief,
    )
    squatted = yard.ok("POST", "/podyard/v1/invitations:accept", {"code": invited["code"]})["token"]
    again = yard.ok(
        "POST", "/podyard/v1/tokens:renew", {}, headers={"Authorization": f"Bearer {squatted}"}
    )
    for email in (BOSS, "owner@podyard.local"):
        yard.refused(
            403,
            "PERMISSION_DENIED",
            "POST",
            "/podyard/v1/projects/other/apiKeys",
            {"email": email},
            **as_thief,
        )
        path = f"/podyard/v1/projects/other/serviceAccounts/{email}/keys"
        yard.refused(403, "PERMISSION_DENIED", "POST", path, {}, **as_thief)
    for token in (squatted, again["token"], thief):
        leaks = []
        for name in OPERATIONS:
            need, answer = need_of(name), _ask(world, name, token)
            if need in ("known", "public") and "other" not in OPERATIONS[name][1]:
                told = name in (
                    "auth.whoami",
                    "platform.list_projects",
                    "tokens.list_tokens",
                    "measures.metrics",
                )
                leaks += [(name, answer.text)] if told and "demo" in answer.text else []
            elif need != "holder" and name != "tokens.create_token" and answer.status_code != 403:
                leaks.append((name, answer.status_code))
        assert leaks == []
        for email in (BOSS, "bot@demo.iam.gserviceaccount.com"):
            wanted = {"email": email, "project": "demo", "roles": ["tpu.viewer"]}
            by = {"headers": {"Authorization": f"Bearer {token}"}}
            yard.refused(403, "PERMISSION_DENIED", "POST", "/podyard/v1/tokens", wanted, **by)


def test_revoked_and_expired_tokens_open_nothing(world: World) -> None:
    yard = world.yard
    revoked, short = (
        _token(world, BOSS, "demo", "owner"),
        _token(world, BOSS, "demo", "owner", ttl="86400s"),
    )
    for made in (revoked, short):
        headers = {"Authorization": f"Bearer {made['token']}"}
        assert yard.ok("GET", "/podyard/v1/whoami", headers=headers)["roles"] == {"demo": ["owner"]}
    yard.ok("POST", f"/podyard/v1/tokens/{revoked['tokenId']}:revoke")
    yard.clock.advance(max(PRINCIPAL_CACHE_SECONDS, SECONDS_PER_DAY))
    for made in (revoked, short):
        statuses = {need_of(name): set[int]() for name in OPERATIONS}
        for name in OPERATIONS:
            statuses[need_of(name)].add(_ask(world, name, made["token"]).status_code)
        assert {need for need, found in statuses.items() if found != {401}} == {"public"}
