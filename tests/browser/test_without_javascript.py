"""What a browser without JavaScript does: it posts forms and follows redirects. So do these tests,
with httpx."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.stack import Stack, until
from tests.waiting import patient

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

NODES = "/console/demo/nodes"
FORM = {
    "zone": "us-central1-b",
    "accelerator_type": "v2-8",
    "usage": "on-demand",
    "runtime_version": "tpu-vm-base",
}


@pytest.fixture
def visitor(stack: Stack) -> Iterator[httpx.Client]:
    headers = {"Origin": stack.url}
    with httpx.Client(
        base_url=stack.url,
        headers=headers,
        follow_redirects=True,
        timeout=patient(30),
        trust_env=False,
    ) as found:
        answer = found.post("/login", data={"token": stack.token})
        assert answer.status_code == 200 and answer.url.path == "/console/demo/overview"
        yield found


def csrf(visitor: httpx.Client) -> str:
    found = re.search(r'name="csrf_token" value="([0-9a-f]{64})"', visitor.get(f"{NODES}/new").text)
    assert found is not None
    return found[1]


def test_the_cookie_is_closed_to_scripts_and_other_sites(stack: Stack) -> None:
    answer = httpx.post(f"{stack.url}/login", data={"token": stack.token}, trust_env=False)
    cookie = answer.headers["set-cookie"].lower()
    assert answer.status_code == 303 and answer.headers["location"] == "/console"
    assert "podyard_session=" in cookie and "httponly" in cookie and "samesite=strict" in cookie


@pytest.mark.parametrize("token", ["", "wrong", "pdy_" + "x" * 2000, "ünïcode", "a\x00b"])
def test_a_wrong_token_is_told_so(stack: Stack, token: str) -> None:
    answer = httpx.post(f"{stack.url}/login", data={"token": token}, trust_env=False)
    assert (
        answer.status_code == 401
        and 'role="alert"' in answer.text
        and "set-cookie" not in answer.headers
    )


def test_an_agents_token_does_not_sign_in(stack: Stack) -> None:
    token = (stack.data / "agent-local.token").read_text().strip()
    answer = httpx.post(f"{stack.url}/login", data={"token": token}, trust_env=False)
    assert answer.status_code == 403 and "set-cookie" not in answer.headers


def test_another_sites_form_does_nothing(stack: Stack, visitor: httpx.Client) -> None:
    token = csrf(visitor)
    fields = {**FORM, "node_id": "forged"}
    assert visitor.post(f"{NODES}/new", data=fields).status_code == 403, "no CSRF token"
    assert visitor.post(f"{NODES}/new", data={**fields, "csrf_token": "0" * 64}).status_code == 403
    evil = {"Origin": "http://evil.example"}
    assert (
        visitor.post(f"{NODES}/new", data={**fields, "csrf_token": token}, headers=evil).status_code
        == 403
    )
    assert (
        httpx.post(f"{stack.url}/login", data={"token": stack.token}, headers=evil).status_code
        == 403
    )
    assert visitor.get(f"{NODES}/us-central1-b/forged").status_code == 404


def test_the_life_of_a_node_by_forms_alone(visitor: httpx.Client) -> None:
    token = csrf(visitor)
    preview = visitor.get(f"{NODES}/new", params={**FORM, "node_id": "plain"}).text
    assert (
        "podyard tpu create plain" in preview
        and "per hour" in preview
        and "gcloud compute tpus" in preview
    )
    answer = visitor.post(f"{NODES}/new", data={**FORM, "node_id": "plain", "csrf_token": token})
    assert answer.status_code == 200 and answer.history[0].status_code == 303
    page = f"{NODES}/us-central1-b/plain"

    def shows(state: str) -> bool | None:
        return f">{state}</span></h1>" in visitor.get(page).text.replace("\n", "") or None

    until(lambda: shows("READY"), 10, "READY")
    again = visitor.post(f"{NODES}/new", data={**FORM, "node_id": "plain", "csrf_token": token})
    assert (
        again.status_code == 409
        and "already exists" in again.text
        and 'value="plain"' in again.text
    )
    asked = visitor.get(page, params={"confirm": "confirm-stop"}).text
    assert re.search(r'<dialog id="confirm-stop"[^>]* open>', asked), (
        "the question stands open without a script"
    )
    assert visitor.post(f"{page}/stop", data={"csrf_token": token}).status_code == 200
    until(lambda: shows("STOPPED"), 10, "STOPPED")
    refused = visitor.post(f"{page}/stop", data={"csrf_token": token})
    assert refused.status_code == 400 and "not supported while in state STOPPED" in refused.text
    assert visitor.post(f"{page}/preempt", data={"csrf_token": token}).status_code == 400
    assert visitor.post(f"{page}/explode", data={"csrf_token": token}).status_code == 404
    assert visitor.post(f"{page}/delete", data={"csrf_token": token}).url.path == NODES
    until(lambda: visitor.get(page).status_code == 404 or None, 10, "the deletion")


def test_a_node_is_created_type_first_by_links_alone(visitor: httpx.Client) -> None:
    page = visitor.get("/console/demo/create", params={"type": "v2-8", "usage": "preemptible"}).text
    link = re.search(r'href="([^"]+/nodes/new\?zone=us-central1-b[^"]+)"', page)
    assert link is not None and "have room for v2-8 now" in page
    form = visitor.get(html.unescape(link[1])).text
    assert re.search(r'<option value="preemptible" selected', form)
    panel = re.search(r'href="([^"]+/connect)"', form)
    assert panel is not None and "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE" in visitor.get(panel[1]).text


def test_a_job_form_says_what_is_wrong_and_keeps_the_rest(visitor: httpx.Client) -> None:
    fields = {**FORM, "node": "", "recipe": "digits-cnn", "steps": "7", "csrf_token": csrf(visitor)}
    for wrong, text in (({"global_batch": "13"}, "globalBatch 13"), ({"seed": "x"}, "Seed is"),
                        ({"arg.dropout": "2"}, "between 0.0 and 0.9"),
                        ({"job_id": "Bad"}, "jobId")):  # fmt: skip
        answer = visitor.post("/console/demo/jobs/new", data={**fields, **wrong})
        assert answer.status_code == 400 and text in answer.text and 'value="7"' in answer.text, (
            text
        )
        (value,) = wrong.values()
        assert f'value="{value}"' in answer.text


def test_pages_are_not_kept_and_run_no_foreign_code(visitor: httpx.Client) -> None:
    names = ("overview", "compare", "nodes", "jobs", "billing", "pods")
    pages = [f"/console/demo/{name}" for name in names]
    for page in pages:
        answer = visitor.get(page)
        assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
        assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_signing_out_ends_the_session(visitor: httpx.Client) -> None:
    assert visitor.post("/console/logout", data={"csrf_token": csrf(visitor)}).url.path == "/login"
    assert visitor.get(NODES).url.path == "/login"


def test_held_usage_is_shown_with_its_reason(stack: Stack, visitor: httpx.Client) -> None:
    """No price of a preemptible v5e is known: its usage is metered and held, never billed as
    zero."""
    zone = "us-central1-a"
    version = "v2-alpha-tpuv5-lite"
    stack.create_node(
        "unpriced",
        "v5litepod-4",
        zone,
        runtimeVersion=version,
        schedulingConfig={"preemptible": True},
    )
    choice = {"zone": zone, "accelerator_type": "v5litepod-4", "usage": "preemptible"}
    preview = visitor.get(f"{NODES}/new", params=choice)
    assert "No price" in preview.text and "no preemptible price of v5litepod-4" in preview.text
    page = until(
        lambda: _with(visitor.get("/console/demo/billing").text, "unpriced is held"),
        10,
        "the held usage",
    )
    assert "no preemptible price of v5litepod-4 in us-central1" in page
    assert "no preemptible price" in visitor.get(f"{NODES}/{zone}/unpriced").text
    stack.delete_node("unpriced", zone)


def test_a_viewer_sees_no_bill_and_no_buttons(stack: Stack) -> None:
    zone = "us-central1-b"
    stack.create_node("seen", "v2-8", zone)
    body = {"email": "viewer@example.com", "project": "demo", "roles": ["tpu.viewer"]}
    token = stack.call("POST", "/podyard/v1/tokens", body)["token"]
    with httpx.Client(
        base_url=stack.url, headers={"Origin": stack.url}, follow_redirects=True, trust_env=False
    ) as viewer:
        first = viewer.post("/login", data={"token": token}).text
        assert "Overview" in first and "seen" in first, "the event"
        assert "Today" not in first and "being calculated" not in first, "no spend"
        page = viewer.get(NODES).text
        assert "seen" in page and "$4.5" in page, "the list with prices, which are no secret"
        assert "data-dialog=" not in viewer.get(f"{NODES}/{zone}/seen").text
        field = re.search(r'name="csrf_token" value="([0-9a-f]{64})"', page)
        assert field is not None
        refused = viewer.post(f"{NODES}/{zone}/seen/delete", data={"csrf_token": field[1]})
        assert refused.status_code == 403 and "tpu.nodes.delete" in refused.text
        for page in (
            "/console/demo/billing",
            f"{NODES}/new",
            "/console/demo/jobs/new",
            "/console/other/nodes",
        ):
            answer = viewer.get(page)
            assert answer.status_code in (403, 404) and 'class="top"' in answer.text, page
    stack.delete_node("seen", zone)


def test_a_live_page_sends_what_changes_and_ends(stack: Stack, visitor: httpx.Client) -> None:
    zone = "us-central1-c"
    stack.create_node("live", "v2-8", zone)
    with visitor.stream("GET", f"{NODES}/{zone}/live/live") as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.iter_lines()
        assert next(lines) == "event: part" and "READY" in next(lines)
        stack.delete_node("live", zone)
        rest = list(lines)
    assert "event: over" in rest and any("is gone" in line for line in rest)


def _with(page: str, text: str) -> str | None:
    return page if text in page else None
