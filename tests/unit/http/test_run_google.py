"""What `podyard run` says for Google's other hosts, and that nothing is sent to them."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from podyard.cli import redirect_google
from podyard.cli.redirect_google import Refusals
from podyard.http.google import Google, is_of_project

ZONES = ("us-central1-a", "us-central1-f", "europe-west4-a")
COMPUTE = "compute.googleapis.com"


def _ask(path: str, method: str = "GET", host: str = COMPUTE) -> tuple[int, dict[str, Any]]:
    return Google(ZONES).answer(host, method, path)


def _compute(path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    return _ask(f"/compute/v1/projects/demo/{path}", method)


def _document() -> Any:
    found = importlib.util.find_spec("googleapiclient")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "discovery_cache" / "documents" / "compute.v1.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_lists_of_compute_engine_are_empty_and_of_google_s_kind() -> None:
    document = _document()
    seen = 0
    for resource in document["resources"].values():
        for method in (resource["methods"].get(name) for name in ("list", "aggregatedList")):
            if method is None or not method["path"].startswith("projects/{project}/"):
                continue
            path = re.sub(r"\{\w+\}", "x", method["path"].removeprefix("projects/{project}/"))
            status, found = _compute(path)
            # a list below a thing, which is not there, or one that nobody asked for yet
            if status != 200:
                continue
            expected = document["schemas"][method["response"]["$ref"]]["properties"]
            assert found["kind"] == expected["kind"]["default"], path
            assert found.keys() <= expected.keys()
            assert not found.get("items") or path in ("zones", "regions")
            seen += 1
    assert seen > 40
    assert (
        _ask("/compute/beta/projects/demo/zones/us-central1-a/instances")[1]["kind"]
        == "compute#instanceList"
    )


def test_the_zones_of_compute_engine_are_podyard_s() -> None:
    zones = _compute("zones")[1]["items"]
    assert [item["name"] for item in zones] == list(ZONES)
    assert [item["region"].rpartition("/")[2] for item in zones] == [
        "us-central1",
        "us-central1",
        "europe-west4",
    ]
    regions = _compute("regions")[1]["items"]
    assert [(item["name"], len(item["zones"])) for item in regions] == [
        ("us-central1", 2),
        ("europe-west4", 1),
    ]
    assert _compute("zones/us-central1-f") == (200, zones[1])
    assert _compute("regions/europe-west4") == (200, regions[1])
    assert "items" not in Google().answer(COMPUTE, "GET", "/compute/v1/projects/demo/zones")[1]


@pytest.mark.parametrize(
    ("path", "thing"),
    [
        ("zones/mars-a", "zones/mars-a"),
        ("zones/us-central1-a/instances/one", "zones/us-central1-a/instances/one"),
        ("zones/us-central1-a/instances/one/serialPort", "zones/us-central1-a/instances/one"),
        ("global/networks/default/getEffectiveFirewalls", "global/networks/default"),
        ("regions/us-central1/subnetworks/one", "regions/us-central1/subnetworks/one"),
    ],
)
def test_one_thing_of_compute_engine_is_not_found(path: str, thing: str) -> None:
    message = f"The resource 'projects/demo/{thing}' was not found"
    status, found = _compute(path)
    assert (status, found["error"]["code"], found["error"]["status"]) == (404, 404, "NOT_FOUND")
    assert found["error"]["message"] == message
    assert found["error"]["errors"] == [
        {"message": message, "domain": "global", "reason": "notFound"}
    ]


@pytest.mark.parametrize("version", ["v1", "beta", "alpha"])
def test_the_project_itself_is_asked_of_the_api(version: str) -> None:
    root = f"/compute/{version}/projects/demo"
    operation = f"{root}/global/operations/operation-metadata-0af"
    for path in (
        "",
        "?alt=json",
        "/setCommonInstanceMetadata",
        "/setCommonInstanceMetadata?alt=json",
    ):
        assert is_of_project(COMPUTE, f"{root}{path}")
    assert is_of_project(COMPUTE, f"{operation}/wait")
    assert not is_of_project("storage.googleapis.com", root)
    assert not is_of_project(COMPUTE, f"{root}/zones")


@pytest.mark.parametrize(
    ("method", "host", "path"),
    [
        ("POST", COMPUTE, "/compute/v1/projects/demo/zones/us-central1-a/instances"),
        ("DELETE", COMPUTE, "/compute/v1/projects/demo/global/networks/default"),
        ("POST", COMPUTE, "/compute/v1/projects/demo/setCommonInstanceMetadata"),
        ("GET", COMPUTE, "/compute/v1/projects/demo/global"),
        ("GET", COMPUTE, "/compute/v1/projects/demo/global/rollouts"),
        ("GET", COMPUTE, "/compute/v1/projects/demo/zones//instances"),
        ("GET", COMPUTE, "/compute/v2/projects/demo/zones/us-central1-a/instances"),
        ("GET", "storage.googleapis.com", "/storage/v1/b"),
        ("GET", "storage.googleapis.com", "/compute/v1/projects/demo/zones"),
        ("GET", "www.googleapis.com", "/discovery/v1/apis/storage/v1/rest"),
    ],
)
def test_everything_else_is_not_implemented(method: str, host: str, path: str) -> None:
    status, found = _ask(path, method, host)
    assert (status, found["error"]["code"], found["error"]["status"]) == (501, 501, "UNIMPLEMENTED")
    text = f"{method} https://{host}{path} is not served by Podyard; nothing was sent to Google"
    assert found["error"]["message"] == text


def test_google_s_hosts_are_known_by_their_whole_labels() -> None:
    inside = (
        "googleapis.com",
        "storage.googleapis.com",
        "a.b.googleapis.com",
        "host.c.demo.google.internal",
    )
    outside = (
        "notgoogleapis.com",
        "googleapis.com.example.org",
        "google.com",
        "pypi.org",
        "internal",
        "",
    )
    assert [host for host in (*inside, *outside) if redirect_google.is_google(host)] == list(inside)
    certified = (
        "iam.mtls.googleapis.com",
        "bucket.storage.googleapis.com",
        "storage.googleapis.com",
        "googleapis.com",
    )
    assert all(redirect_google.is_certified(host) for host in certified)
    assert not any(
        redirect_google.is_certified(host)
        for host in ("a.b.googleapis.com", "google.internal", "x.com")
    )


def test_refused_hosts_are_named_with_their_counts_the_most_frequent_first() -> None:
    found = Refusals()
    assert found.line() is None
    for index in range(12):
        found.add(f"h{index}.googleapis.com")
    found.add("h5.googleapis.com")
    line = found.line()
    assert line is not None
    start = (
        "podyard run: not served, and nothing was sent to Google: h5.googleapis.com (2), "
        "h0.googleapis.com (1), "
    )
    assert line.startswith(start)
    assert line.endswith("h9.googleapis.com (1) and 2 more hosts")
