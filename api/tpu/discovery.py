"""Google's discovery documents of the Cloud TPU API, made from our own tables of messages and
methods.

googleapiclient, SkyPilot, Ray and TensorFlow's resolver fetch them without credentials, and then
call the `rootUrl` that stands in them: it is the URL that they were fetched from.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from podyard.api.tpu.schema import (
    VERSIONS,
    Field,
    MessageSchema,
    Method,
    enums,
    messages,
    methods_of,
)
from podyard.base.errors import not_found

DEFAULT_VERSION = (
    # what Google serves when no version is asked for has not been seen; clients then call v2
    # methods
    "v2"
)
REVISION = "20261001"  # of Google's documents that the tables are from
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_ROOT = "@root@"
_FORMATS: Mapping[str, Mapping[str, str]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "string", "format": "int64"},
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


def routes() -> list[BaseRoute]:
    return [
        Route("/$discovery/rest", _by_query, methods=["GET"], name="discovery"),
        Route(
            "/discovery/v1/apis/tpu/{version}/rest", _by_path, methods=["GET"], name="discovery.v1"
        ),
    ]


async def _by_query(request: Request) -> Response:
    return _answer(request, request.query_params.get("version") or DEFAULT_VERSION)


async def _by_path(request: Request) -> Response:
    return _answer(request, request.path_params["version"])


def _answer(request: Request, version: str) -> Response:
    if version not in VERSIONS:
        raise not_found(f"discovery document of version {version}")
    # In a document that was rendered once, only the root is to be put in; it has nothing that JSON
    # would escape.
    root = (
        f"{request.url.scheme}://"
        f"{request.url.netloc}{request.scope['state'].get('capability_prefix', '')}/"
    )
    text = _document_text(version).replace(_ROOT, json.dumps(root)[1:-1])
    return Response(text, media_type="application/json; charset=UTF-8")


@functools.cache
def _document_text(version: str) -> str:
    return json.dumps(document(version, _ROOT), ensure_ascii=False)


def document(version: str, root: str) -> dict[str, Any]:
    """The document of a version; `root` is our URL with a slash at its end."""
    return {
        "kind": "discovery#restDescription",
        "discoveryVersion": "v1",
        "id": f"tpu:{version}",
        "name": "tpu",
        "version": version,
        "version_module": True,
        "revision": REVISION,
        "title": "Cloud TPU API",
        "description": "TPU nodes and queued resources, as Podyard serves them.",
        "ownerDomain": "google.com",
        "ownerName": "Google",
        "canonicalName": "TPU",
        "protocol": "rest",
        "rootUrl": root,
        "baseUrl": root,
        "basePath": "",
        "servicePath": "",
        "batchPath": "batch",
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
        "schemas": {
            name: _schema(version, message)
            for name, message in sorted(_rest_messages(version).items())
        },
        "resources": _resources(version),
    }


def _rest_messages(version: str) -> dict[str, MessageSchema]:
    """The messages that REST knows, by their short names: a request only when it is itself the
    body."""
    bodies = {
        method.request
        for method in methods_of(version)
        if method.body == "*" and method.rpc != "CancelOperation"
    }
    requests = {method.request for method in methods_of(version)}
    return {
        message.short: message
        for name, message in messages(version).items()
        if name in bodies or name not in requests
    }


def _schema(version: str, message: MessageSchema) -> dict[str, Any]:
    in_path = {
        method.path_field for method in methods_of(version) if method.request == message.name
    }
    return {
        "id": message.short,
        "type": "object",
        "description": message.text,
        "properties": {
            field.name: _property(version, field)
            for field in message.fields.values()
            if not field.hidden and field.name not in in_path
        },
    }


def _property(version: str, field: Field) -> dict[str, Any]:
    kind: dict[str, Any]
    if field.type in messages(version):
        kind = {"$ref": messages(version)[field.type].short}
    elif field.type in enums(version):
        names = list(enums(version)[field.type])
        kind = {
            "type": "string",
            "enum": names,
            "enumDescriptions": [_words(name) for name in names],
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
    kind["description"] = field.text
    if field.output_only:
        kind["readOnly"] = True
    return kind


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize() + "."


def _resources(version: str) -> dict[str, Any]:
    locations: dict[str, Any] = {"methods": {}, "resources": {}}
    for method in methods_of(version):
        resource, _, name = method.id.rpartition(".")
        holder = (
            locations
            if not resource
            else locations["resources"].setdefault(resource, {"methods": {}})
        )
        holder["methods"][name] = _method(version, method)
    return {"projects": {"resources": {"locations": locations}}}


def _method(version: str, method: Method) -> dict[str, Any]:
    request = messages(version)[method.request]
    path = method.path_field
    pattern = "^projects/[^/]+" + ("/locations/[^/]+" if "=L" in method.path else "")
    pattern += f"/{method.collection}/[^/]+$" if method.collection else "$"
    parameters: dict[str, Any] = {
        path: {
            "description": request.fields[path].text,
            "location": "path",
            "required": True,
            "type": "string",
            "pattern": pattern,
        }
    }
    flat = f"{version}/{method.flat_path}"
    for placeholder, plural in (
        ("project", "projects"),
        ("zone", "locations"),
        ("id", method.collection),
    ):
        flat = flat.replace(f"{{{placeholder}}}", f"{{{plural}Id}}")
    found: dict[str, Any] = {
        "id": f"tpu.projects.locations.{method.id}",
        "description": method.text,
        "httpMethod": method.verb,
        "path": f"{version}/{{+{path}}}{method.path[method.path.index('}') + 1 :]}",
        "flatPath": flat,
        "parameterOrder": [path],
        "parameters": parameters,
        "response": {"$ref": method.response},
        "scopes": [SCOPE],
    }
    if method.body == "*" and method.rpc != "CancelOperation":
        found["request"] = {"$ref": request.short}
    elif method.body not in ("-", "*"):
        found["request"] = {"$ref": messages(version)[request.fields[method.body].type].short}
    if method.body != "*":
        for field in request.fields.values():
            if field.name not in (path, "name", "parent", method.body) and not field.hidden:
                given = _property(version, field)
                repeated = {"repeated": True} if given.get("type") == "array" else {}
                kind = given.get("items", given)
                parameters[field.name] = {
                    **kind,
                    "description": field.text,
                    "location": "query",
                    **repeated,
                }
    return found
