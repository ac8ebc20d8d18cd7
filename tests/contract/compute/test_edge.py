"""Compute Engine's edge: lists, selections, operations, request ids, refusals."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

from tests.yard import ZONE, Yard

HERE = f"/compute/v1/projects/demo/zones/{ZONE}"
DISKS = f"{HERE}/disks"
EVERYWHERE = "/compute/v1/projects/demo/aggregated/disks"
REQUEST = "6d1b5ab7-5f5b-4f0e-8a70-6c5f0a0d9d01"


def _names(answer: dict[str, Any]) -> list[str]:
    return [item["name"] for item in answer.get("items", ())]


def _disks(yard: Yard, *names: str, **fields: Any) -> None:
    for name in names:
        yard.ok("POST", DISKS, {"name": name, **fields})


def _reason(yard: Yard, status: int, verb: str, path: str, body: Any = None) -> str:
    response = yard.call(verb, path, body)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, status), response.text
    assert error["errors"][0]["message"] == error["message"]
    return str(error["errors"][0]["reason"])


def test_pages_are_cut_and_continue_only_their_own_list(yard: Yard) -> None:
    _disks(yard, "c", "a", "e", "b", "d")
    first = yard.ok("GET", f"{DISKS}?maxResults=2")
    assert _names(first) == ["a", "b"]
    token = quote(first["nextPageToken"])
    second = yard.ok("GET", f"{DISKS}?maxResults=2&pageToken={token}")
    assert _names(second) == ["c", "d"]
    last = yard.ok("GET", f"{DISKS}?maxResults=2&pageToken={quote(second['nextPageToken'])}")
    assert (_names(last), last.get("nextPageToken")) == (["e"], None)
    for other in (
        f"{DISKS}?filter=name%3Da&pageToken={token}",
        f"{DISKS}?orderBy=creationTimestamp%20desc&pageToken={token}",
        f"{EVERYWHERE}?pageToken={token}",
        f"{DISKS}?pageToken=x",
    ):
        assert _reason(yard, 400, "GET", other) == "invalid"
    yard.ok("DELETE", f"{DISKS}/b")
    assert _names(yard.ok("GET", f"{DISKS}?maxResults=2&pageToken={token}")) == ["c", "d"]


def test_lists_have_two_orders(yard: Yard) -> None:
    for name in ("b", "a", "c"):
        _disks(yard, name)
        yard.step(1)
    newest = f"{DISKS}?orderBy=creationTimestamp%20desc&maxResults=2"
    page = yard.ok("GET", newest)
    assert _names(page) == ["c", "a"]
    assert _names(yard.ok("GET", f"{newest}&pageToken={quote(page['nextPageToken'])}")) == ["b"]
    assert _names(yard.ok("GET", f"{DISKS}?orderBy=name")) == ["a", "b", "c"]
    assert "orderBy" in yard.refused(400, "INVALID_ARGUMENT", "GET", f"{DISKS}?orderBy=sizeGb")


@pytest.mark.parametrize(
    ("filter_text", "names"),
    [
        ("name = a", ["a"]),
        ("name=a OR name=b", ["a", "b"]),
        ("labels.team = x", ["a", "b"]),
        ("(labels.team = x) AND (name = b)", ["b"]),
        ("labels.team:*", ["a", "b", "c"]),
        ("name != a", ["b", "c"]),
        ('name eq ".*(^a$).*"', ["a"]),
        (r'name eq ".*\ba\b.*"', ["a"]),
        (r"name eq .*\ba\b.*", ["a"]),
        ("name ne a", ["b", "c"]),
        ("sizeGb > 150", ["c"]),
        ("status = READY", ["a", "b", "c"]),
        ("status = FAILED", []),
        ("-labels.team = x", ["c"]),
        (r'"labels.te\"am" = x', []),
        ('"labels.$.team" = x', []),
        ('"labels." = x', []),
    ],
)
def test_lists_are_narrowed(yard: Yard, filter_text: str, names: list[str]) -> None:
    _disks(yard, "a", "b", labels={"team": "x"}, sizeGb="100")
    _disks(yard, "c", labels={"team": "y"}, sizeGb="200")
    assert _names(yard.ok("GET", f"{DISKS}?filter={quote(filter_text)}")) == names
    everywhere = yard.ok("GET", f"{EVERYWHERE}?filter={quote(filter_text)}")["items"]
    listed = [item["name"] for scope in everywhere.values() for item in scope["disks"]]
    assert listed == names


@pytest.mark.parametrize("pattern", ["(a+)+$", "(", "a*b*c*d*e", r"(.)\1"])
def test_a_pattern_that_could_run_for_ever_is_refused(yard: Yard, pattern: str) -> None:
    text = quote(f'name eq "{pattern}"')
    yard.refused(400, "INVALID_ARGUMENT", "GET", f"{DISKS}?filter={text}")


def test_an_answer_has_what_is_asked_for(yard: Yard) -> None:
    _disks(yard, "a")
    whole = yard.ok("GET", f"{DISKS}/a")
    assert yard.ok("GET", f"{DISKS}/a?fields=name,sizeGb") == {
        "name": "a",
        "sizeGb": whole["sizeGb"],
    }
    assert yard.ok("GET", f"{DISKS}?fields=items(name),kind") == {
        "kind": "compute#diskList",
        "items": [{"name": "a"}],
    }
    assert yard.ok("GET", f"{DISKS}?fields=items/name")["items"] == [{"name": "a"}]
    scoped = yard.ok("GET", f"{EVERYWHERE}?fields=items/*/disks/name")
    assert scoped == {"items": {f"zones/{ZONE}": {"disks": [{"name": "a"}]}}}
    for wrong in ("nothing", "items(name", "name)", "items(nothing)"):
        where = DISKS if "items" in wrong else f"{DISKS}/a"
        assert _reason(yard, 400, "GET", f"{where}?fields={wrong}") == "invalid"


def test_operations_are_kept_listed_and_forgotten(yard: Yard) -> None:
    made = yard.ok("POST", DISKS, {"name": "a"})
    assert made["user"] == "owner@podyard.local"
    assert made["targetId"] == yard.ok("GET", f"{DISKS}/a")["id"]
    here = f"{HERE}/operations"
    assert yard.ok("GET", f"{here}/{made['name']}") == made
    assert yard.ok("POST", f"{here}/{made['name']}/wait") == made
    yard.step(1)
    project = yard.ok(
        "POST", "/compute/v1/projects/demo/setCommonInstanceMetadata", {"items": [{"key": "a"}]}
    )
    assert _names(yard.ok("GET", here)) == [made["name"]]
    assert _names(yard.ok("GET", "/compute/v1/projects/demo/global/operations")) == [
        project["name"]
    ]
    everywhere = yard.ok("GET", "/compute/v1/projects/demo/aggregated/operations")["items"]
    assert sorted(everywhere) == ["global", f"zones/{ZONE}"]
    # The TPU API has its own operations, and Compute Engine none of those.
    tpus = f"/v2/projects/demo/locations/{ZONE}/operations"
    assert yard.ok("GET", tpus)["operations"] == []
    yard.refused(404, "NOT_FOUND", "GET", f"{tpus}/{made['name']}")
    node = yard.create("n")["name"].rpartition("/")[2]
    assert _reason(yard, 404, "GET", f"{here}/{node}") == "notFound"
    assert yard.call("DELETE", f"{here}/{made['name']}").status_code == 204
    assert _reason(yard, 404, "GET", f"{here}/{made['name']}") == "notFound"


def test_a_request_id_is_carried_out_once(yard: Yard) -> None:
    first = yard.ok("POST", f"{DISKS}?requestId={REQUEST}", {"name": "a"})
    assert yard.ok("POST", f"{DISKS}?requestId={REQUEST}", {"name": "a"}) == first
    assert _reason(yard, 409, "POST", f"{DISKS}?requestId={REQUEST}", {"name": "b"}) == (
        "alreadyExists"
    )
    assert _reason(yard, 400, "POST", f"{DISKS}?requestId=x", {"name": "b"}) == "invalid"
    assert _names(yard.ok("GET", DISKS)) == ["a"]


@pytest.mark.parametrize(
    ("status", "reason", "verb", "path", "body"),
    [
        (400, "required", "POST", DISKS, {}),
        (400, "invalid", "POST", DISKS, {"name": "a", "colour": "red"}),
        (400, "invalid", "POST", f"{DISKS}?colour=red", {"name": "a"}),
        (404, "notFound", "GET", f"{DISKS}/x", None),
        (404, "notFound", "GET", f"{HERE}/operations/x", None),
        (404, "notFound", "GET", "/compute/v1/projects/other/zones/x/disks", None),
        (501, "notImplemented", "POST", f"{DISKS}/x/createSnapshot", {}),
        (501, "notImplemented", "GET", "/compute/v2/projects/demo", None),
    ],
)
def test_a_wrong_request_is_refused_with_its_reason(
    yard: Yard, status: int, reason: str, verb: str, path: str, body: Any
) -> None:
    assert _reason(yard, status, verb, path, body) == reason
    assert _names(yard.ok("GET", DISKS)) == []


@pytest.mark.parametrize("version", ["v1", "beta"])
def test_google_s_client_reads_the_document_and_calls_what_it_says(
    yard: Yard, version: str
) -> None:
    options: dict[str, Any] = {
        "discoveryServiceUrl": f"{yard.url}/discovery/v1/apis/compute/{version}/rest",
        "credentials": Credentials(yard.token),
        "static_discovery": False,
        "cache_discovery": False,
    }
    with build("compute", version, **options) as service:
        place = {"project": "demo", "zone": ZONE}
        for name in ("a", "b"):
            begun = service.disks().insert(**place, body={"name": name}).execute()
            done = service.zoneOperations().wait(**place, operation=begun["name"]).execute()
            assert done["status"] == "DONE"
        request = service.disks().list(**place, maxResults=1)
        listed = []
        while request is not None:
            page = request.execute()
            listed += _names(page)
            request = service.disks().list_next(request, page)
        assert listed == ["a", "b"]
        with pytest.raises(HttpError, match="already exists"):
            service.disks().insert(**place, body={"name": "a"}).execute()


def test_a_batch_answers_each_call_by_itself(yard: Yard) -> None:
    """gcloud asks for the images of several projects so."""
    calls = ("debian-cloud", "windows-cloud", "nobody")
    parts = "".join(
        f"--B\r\nContent-Type: application/http\r\nContent-ID: <{name}>\r\n\r\n"
        f"GET /compute/v1/projects/{name}/global/images?alt=json HTTP/1.1\r\n\r\n\r\n"
        for name in calls
    )
    headers = {"Content-Type": "multipart/mixed; boundary=B"}
    response = yard.http.post("/batch/compute/v1", content=f"{parts}--B--", headers=headers)
    answers = response.text.split("Content-ID: ")[1:]
    assert [answer.split(">")[0] for answer in answers] == [f"<response-{name}" for name in calls]
    assert "debian-12" in answers[0] and "200 OK" in answers[1] and "items" not in answers[1]
    assert "The resource 'projects/nobody' was not found" in answers[2]
    response = yard.http.post("/batch/compute/v1", content="{}")
    assert response.status_code == 400
