"""Lists of what Podyard has none of."""

from __future__ import annotations

import re
from typing import Any

import pytest

from podyard.api.compute import empty
from tests.unit.compute.documents import google_document


def _ask(path: str, verb: str = "GET") -> tuple[int, dict[str, Any]]:
    answer = empty.answer(verb, path)
    assert answer is not None, path
    return answer


def _compute(path: str) -> tuple[int, dict[str, Any]]:
    return _ask(f"/compute/v1/projects/demo/{path}")


def test_lists_of_compute_engine_are_empty_and_of_google_s_kind() -> None:
    document = google_document()
    seen = 0
    for resource in document["resources"].values():
        for method in (resource["methods"].get(name) for name in ("list", "aggregatedList")):
            if method is None or not method["path"].startswith("projects/{project}/"):
                continue
            path = re.sub(r"\{\w+\}", "x", method["path"].removeprefix("projects/{project}/"))
            answer = empty.answer("GET", f"/compute/v1/projects/demo/{path}")
            # a list below a thing, which is not there, or one that nobody asked for yet
            if answer is None or answer[0] != 200:
                continue
            found = answer[1]
            expected = document["schemas"][method["response"]["$ref"]]["properties"]
            assert found["kind"] == expected["kind"]["default"], path
            assert found.keys() <= expected.keys()
            assert not found.get("items")
            seen += 1
    assert seen > 10
    assert (
        _ask("/compute/beta/projects/demo/zones/us-central1-a/instances")[1]["kind"]
        == "compute#instanceList"
    )


@pytest.mark.parametrize(
    ("path", "thing"),
    [
        ("zones/us-central1-a/instances/one", "zones/us-central1-a/instances/one"),
        ("zones/us-central1-a/instances/one/serialPort", "zones/us-central1-a/instances/one"),
        ("global/snapshots/one", "global/snapshots/one"),
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


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/compute/v1/projects/demo/zones/us-central1-a/instances"),
        ("DELETE", "/compute/v1/projects/demo/global/networks/default"),
        ("GET", "/compute/v1/projects/demo/global"),
        ("GET", "/compute/v1/projects/demo/global/rollouts"),
        ("GET", "/compute/v1/projects/demo/zones//instances"),
        ("GET", "/compute/v2/projects/demo/zones/us-central1-a/instances"),
    ],
)
def test_everything_else_has_no_answer(verb: str, path: str) -> None:
    assert empty.answer(verb, path) is None
