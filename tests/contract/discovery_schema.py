"""Google's own discovery documents, as googleapiclient ships them: the complete list of methods and
fields, and a check of answers against them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import googleapiclient

VERSIONS = ("v1", "v1alpha1", "v2", "v2alpha1")
_FORMATS = {
    "int64": r"-?\d{1,19}",
    "google-datetime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}(\d{3}){0,2})?Z",
    "google-duration": r"-?\d+(\.\d{1,9})?s",
}


@functools.cache
def document(version: str) -> dict[str, Any]:
    folder = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
    found: dict[str, Any] = json.loads((folder / f"tpu.{version}.json").read_text())
    return found


@functools.cache
def methods(version: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}

    def walk(resource: dict[str, Any]) -> None:
        for method in resource.get("methods", {}).values():
            found[method["id"].removeprefix("tpu.projects.locations.")] = method
        for inner in resource.get("resources", {}).values():
            walk(inner)

    walk(document(version))
    return found


def properties(version: str, schema: str) -> dict[str, Any]:
    found: dict[str, Any] = document(version)["schemas"][schema].get("properties", {})
    return found


def violations(version: str, schema: str, answer: object, path: str = "") -> list[str]:
    """Return what of an answer the document does not allow."""
    if not isinstance(answer, dict):
        return [f"{path}: {answer!r} is no {schema}"]
    known = properties(version, schema)
    found = [f"{path}.{name}: {schema} has no such field" for name in answer if name not in known]
    for name, value in answer.items():
        if name in known:
            found += _value(version, known[name], value, f"{path}.{name}")
    return found


def _value(version: str, kind: dict[str, Any], value: Any, path: str) -> list[str]:
    if "$ref" in kind:
        return violations(version, kind["$ref"], value, path)
    wanted = kind["type"]
    if wanted == "array":
        if not isinstance(value, list):
            return [f"{path}: {value!r} is not a list"]
        return [
            text
            for i, item in enumerate(value)
            for text in _value(version, kind["items"], item, f"{path}[{i}]")
        ]
    if wanted == "object":
        return [] if isinstance(value, dict) else [f"{path}: {value!r} is not an object"]
    types = {"string": str, "boolean": bool, "integer": int, "number": float}
    if wanted != "any" and type(value) is not types[wanted]:
        return [f"{path}: {value!r} is no {wanted}"]
    if "enum" in kind and value not in kind["enum"]:
        return [f"{path}: {value!r} is not one of {kind['enum']}"]
    pattern = _FORMATS.get(kind.get("format", ""))
    if pattern and not re.fullmatch(pattern, str(value)):
        return [f"{path}: {value!r} is no {kind['format']}"]
    return []


def request_fields(
    version: str, schema: str, prefix: str = "", seen: tuple[str, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """(path, type) of every field that a client may set, through all messages."""
    for name, kind in properties(version, schema).items():
        if kind.get("readOnly"):
            continue
        path = f"{prefix}{name}"
        inner = kind.get("$ref") or kind.get("items", {}).get("$ref")
        if inner is None or inner in seen or not properties(version, inner):
            yield path, kind
        else:
            yield from request_fields(version, inner, f"{path}.", (*seen, schema))
