"""Our tables of methods and messages against the discovery documents that googleapiclient ships:
whatever we name is Google's, in Google's place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import googleapiclient
import pytest

from podyard.api.google_apis import discovery
from podyard.api.google_apis.schema import all_methods

FOLDER = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
APIS = sorted({(method.api.name, method.api.version) for method in all_methods()})
# Fields of several messages of Google's that are one message in our table, by version.
_MERGED = {"Project": {"state", "displayName", "lifecycleState", "projectNumber", "etag"}}


def _methods(resources: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in resources.values():
        yield from resource.get("methods", {}).values()
        yield from _methods(resource.get("resources", {}))


def _named(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {method["id"]: method for method in _methods(document["resources"])}


def _query(method: dict[str, Any]) -> set[str]:
    parameters = method.get("parameters", {})
    return {name for name, value in parameters.items() if value["location"] == "query"}


@pytest.mark.parametrize("name, version", APIS)
def test_what_is_served_is_as_in_googles_document(name: str, version: str) -> None:
    google = json.loads((FOLDER / f"{name}.{version}.json").read_text())
    own = discovery.document(name, version, "http://127.0.0.1/")
    theirs, wrong = _named(google), []
    for method_id, method in _named(own).items():
        other = theirs[method_id]
        for field in ("httpMethod", "path"):
            if method[field] != other[field]:
                wrong.append((method_id, field, method[field], other[field]))
        for field in ("request", "response"):
            if method.get(field) != other.get(field):
                wrong.append((method_id, field, method.get(field), other.get(field)))
        wrong += [(method_id, "query", extra) for extra in _query(method) - _query(other)]
    for schema, message in own["schemas"].items():
        fields = set(google["schemas"][schema].get("properties", {}))
        extra = set(message["properties"]) - fields - _MERGED.get(schema, set())
        wrong += [(schema, field) for field in sorted(extra)]
    assert wrong == []


def test_a_method_that_is_not_served_is_in_no_document() -> None:
    own = {
        f"{name}.{version}": _named(discovery.document(name, version, "/"))
        for name, version in APIS
    }
    assert not any(
        method_id.endswith((".signJwt", ".undelete", ".updateBillingInfo", ".tail"))
        for methods in own.values()
        for method_id in methods
    )
