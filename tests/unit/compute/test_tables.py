"""The tables of Compute Engine against Google's own document, and against what has a handler."""

from __future__ import annotations

from typing import Any

import pytest
from googleapiclient.discovery import build_from_document

from podyard.api.compute import discovery, operations, routes
from podyard.api.compute.schema import VERSIONS, methods, vocabulary
from tests.unit.compute.documents import google_document

GOOGLE = google_document()
# What Google's document writes without a name, inside of another message.
OWN_MESSAGES = {
    "OperationError", "OperationErrorItem", "OperationWarning", "MetadataItem", "Warning",
    "FirewallEntry", "MachineTypeAccelerator",
}  # fmt: skip


def _google_method(method_id: str) -> dict[str, Any]:
    collection, _, name = method_id.partition(".")
    found: dict[str, Any] = GOOGLE["resources"][collection]["methods"][name]
    return found


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.id)
def test_a_method_is_google_s(method: Any) -> None:
    google, own = _google_method(method.id), discovery.document("v1", "http://h/")
    shown = own["resources"][method.collection]["methods"][method.name]
    for name in ("id", "httpMethod", "path", "request", "response"):
        assert shown.get(name) == google.get(name), name
    assert sorted(shown["parameterOrder"]) == sorted(google["parameterOrder"])
    for name, parameter in shown["parameters"].items():
        if name == "returnPartialSuccess":
            continue  # of older documents; gcloud goes on sending it
        expected = google["parameters"][name]
        assert (parameter["location"], parameter["type"]) == (
            expected["location"],
            expected["type"],
        ), name


@pytest.mark.parametrize("name", sorted(set(vocabulary().messages) - OWN_MESSAGES))
def test_a_message_is_google_s(name: str) -> None:
    shown = discovery.document("v1", "http://h/")["schemas"][name]["properties"]
    expected = GOOGLE["schemas"][name]["properties"]
    assert shown.keys() <= expected.keys()
    for field, own in shown.items():
        google = expected[field]
        kinds = (own.get("type"), google.get("type"))
        if "$ref" in own and "properties" in google:
            continue  # Google writes it without a name
        assert own.get("$ref") == google.get("$ref"), field
        assert kinds[0] == kinds[1], field
        if "enum" in own:
            assert set(own["enum"]) <= set(google["enum"]), field


def test_every_method_has_a_handler_and_no_other() -> None:
    assert {*routes.HANDLERS, *operations.WAITING} == {method.id for method in methods()}


@pytest.mark.parametrize("version", VERSIONS)
def test_google_s_client_is_built_from_the_document(version: str) -> None:
    service = build_from_document(discovery.document(version, "http://127.0.0.1:1/"), http=object())
    request = service.disks().list(project="p", zone="z", filter="name = a", maxResults=2)
    assert request.uri.startswith(f"http://127.0.0.1:1/compute/{version}/projects/p/zones/z/disks?")
