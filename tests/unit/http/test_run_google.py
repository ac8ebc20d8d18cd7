"""Google's other hosts to `podyard run` and gcloud's proxy: nothing is sent to them."""

from __future__ import annotations

import pytest

from podyard.cli.redirect import google as redirect_google
from podyard.cli.redirect.google import Refusals
from podyard.http.google import api_path, refusal

COMPUTE = "compute.googleapis.com"
SHARED = "www.googleapis.com"
DOCUMENT = "/discovery/v1/apis/compute/v1/rest"


@pytest.mark.parametrize(
    ("host", "path", "own"),
    [
        (COMPUTE, "/compute/v1/projects/demo/zones?alt=json", None),
        (COMPUTE, "/compute/beta/projects/demo", None),
        (SHARED, "/compute/v1/projects/demo", None),
        (SHARED, DOCUMENT, None),
        (COMPUTE, "/$discovery/rest?version=v1", DOCUMENT),
        (COMPUTE, "/$discovery/rest", DOCUMENT),
    ],
)
def test_compute_engine_is_asked_of_the_api(host: str, path: str, own: str | None) -> None:
    assert api_path(host, path) == (own or path)


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("storage.googleapis.com", "/compute/v1/projects/demo/zones"),
        (SHARED, "/$discovery/rest"),
        (SHARED, "/discovery/v1/apis/storage/v1/rest"),
        (COMPUTE, "/storage/v1/b"),
    ],
)
def test_what_is_not_compute_engine_is_not(host: str, path: str) -> None:
    assert api_path(host, path) is None


def test_everything_else_is_not_implemented() -> None:
    status, answer = refusal("GET https://storage.googleapis.com/storage/v1/b")
    error = answer["error"]
    assert (status, error["code"], error["status"]) == (501, 501, "UNIMPLEMENTED")
    assert error["message"] == (
        "GET https://storage.googleapis.com/storage/v1/b is not served by Podyard; nothing was "
        "sent to Google"
    )


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
