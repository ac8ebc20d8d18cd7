"""Google's discovery documents of the Cloud TPU API, made from our own tables of messages and
methods.

googleapiclient, SkyPilot, Ray and TensorFlow's resolver fetch them without credentials, and then
call the `rootUrl` that stands in them: it is the URL that they were fetched from.
"""

from __future__ import annotations

import functools
import json
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from podyard.api.tpu.schema import (
    VERSIONS,
    Method,
    messages,
    methods_of,
    vocabulary,
)
from podyard.api.wire import discovery as wire
from podyard.api.wire.vocabulary import MessageSchema
from podyard.base.errors import not_found

DEFAULT_VERSION = (
    # what Google serves when no version is asked for has not been seen; clients then call v2
    # methods
    "v2"
)
REVISION = "20261001"  # of Google's documents that the tables are from


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
    return wire.answer(request, partial(_document_text, version))


@functools.cache
def _document_text(version: str) -> str:
    return json.dumps(document(version, wire.ROOT), ensure_ascii=False)


def document(version: str, root: str) -> dict[str, Any]:
    """The document of a version; `root` is our URL with a slash at its end."""
    return {
        **wire.head("tpu", version, root),
        "revision": REVISION,
        "title": "Cloud TPU API",
        "description": "TPU nodes and queued resources, as Podyard serves them.",
        "canonicalName": "TPU",
        "baseUrl": root,
        "basePath": "",
        "servicePath": "",
        "batchPath": "batch",
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
            field.name: wire.property_of(vocabulary(version), field)
            for field in message.fields.values()
            if not field.hidden and field.name not in in_path
        },
    }


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
        "scopes": [wire.SCOPE],
    }
    if method.body == "*" and method.rpc != "CancelOperation":
        found["request"] = {"$ref": request.short}
    elif method.body not in ("-", "*"):
        found["request"] = {"$ref": messages(version)[request.fields[method.body].type].short}
    if method.body != "*":
        for field in request.fields.values():
            if field.name not in (path, "name", "parent", method.body) and not field.hidden:
                parameters[field.name] = wire.query_parameter(vocabulary(version), field)
    return found
