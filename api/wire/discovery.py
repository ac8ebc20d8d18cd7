"""Parts of discovery documents that do not depend on the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from podyard.api.wire.vocabulary import Field, Vocabulary

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ROOT = "@root@"  # stands for our URL in a document that is rendered once
_FORMATS: Mapping[str, Mapping[str, str]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "string", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "timestamp": {"type": "string", "format": "google-datetime"},
    "duration": {"type": "string", "format": "google-duration"},
    "fieldmask": {"type": "string", "format": "google-fieldmask"},
}
_PARAMETERS: Mapping[str, tuple[str, str]] = {
    "$.xgafv": ("string", "Format of errors."),
    "access_token": ("string", "Token of the caller, where no header can be sent."),
    "alt": ("string", "Format of answers: json."),
    "callback": ("string", "Taken and left aside."),
    "fields": ("string", "Taken and left aside."),
    "key": ("string", "API key of the caller."),
    "oauth_token": ("string", "Token of the caller, where no header can be sent."),
    "prettyPrint": ("boolean", "Taken and left aside."),
    "quotaUser": ("string", "Taken and left aside."),
    "uploadType": ("string", "Taken and left aside."),
    "upload_protocol": ("string", "Taken and left aside."),
}


def answer(request: Request, render: Callable[[], str]) -> Response:
    """The document that `render` has made, with the URL that it was fetched from. The URL has
    nothing that JSON would escape."""
    root = (
        f"{request.url.scheme}://"
        f"{request.url.netloc}{request.scope['state'].get('capability_prefix', '')}/"
    )
    text = render().replace(ROOT, json.dumps(root)[1:-1])
    return Response(text, media_type="application/json; charset=UTF-8")


def head(name: str, version: str, root: str) -> dict[str, Any]:
    """Fields that the documents of all APIs have."""
    return {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": f"{name}:{version}",
        "name": name,
        "version": version,
        "version_module": True,
        "ownerDomain": "google.com",
        "ownerName": "Google",
        "protocol": "rest",
        "rootUrl": root,
        "fullyEncodeReservedExpansion": True,
        "auth": {
            "oauth2": {
                "scopes": {SCOPE: {"description": "Everything that the caller's roles allow."}}
            }
        },
        "parameters": {
            name: {"location": "query", "type": kind, "description": text}
            for name, (kind, text) in _PARAMETERS.items()
        },
    }


def property_of(words: Vocabulary, field: Field) -> dict[str, Any]:
    """A field, as `properties` of a schema describe it."""
    kind: dict[str, Any]
    if field.type in words.messages:
        kind = {"$ref": words.messages[field.type].short}
    elif field.type in words.enums:
        names = list(words.enums[field.type])
        kind = {
            "type": "string",
            "enum": names,
            "enumDescriptions": [_sentence(name) for name in names],
        }
    elif field.type == "map":
        kind = {"type": "object", "additionalProperties": {"type": "string"}}
    elif field.type == "any":
        anything = {"type": "any", "description": "Fields of the message that @type names."}
        kind = {"type": "object", "additionalProperties": anything}
    else:
        kind = dict(_FORMATS[field.type])
    if field.repeated:
        kind = {"type": "array", "items": kind}
    if field.mapped:
        kind = {"type": "object", "additionalProperties": kind}
    text = {"description": field.text} if field.text else {}
    return {**kind, **text, **({"readOnly": True} if field.output_only else {})}


def query_parameter(words: Vocabulary, field: Field) -> dict[str, Any]:
    """A field of the query, as `parameters` of a method describe it."""
    whole = property_of(words, field)
    repeated = {"repeated": True} if whole.get("type") == "array" else {}
    text = {"description": field.text} if field.text else {}
    return {**whole.get("items", whole), **text, "location": "query", **repeated}


def _sentence(name: str) -> str:
    return name.replace("_", " ").capitalize() + "."
