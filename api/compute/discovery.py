"""The discovery document of Compute Engine, made from our own tables: it has what is served, and
nothing else."""

from __future__ import annotations

import functools
import json
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from podyard.api.compute.schema import VERSIONS, ComputeMethod, list_kind, methods, vocabulary
from podyard.api.wire import discovery as wire
from podyard.base.errors import not_found

REVISION = "20261106"  # of Google's document that the tables are from


def routes() -> list[BaseRoute]:
    """Google's `https://compute.googleapis.com/$discovery/rest?version=v1` comes here, too, from
    the proxies (http/google.py): on one port it would be Cloud TPU's."""
    path = "/discovery/v1/apis/compute/{version}/rest"
    return [Route(path, _answer, methods=["GET"], name="discovery.compute")]


async def _answer(request: Request) -> Response:
    version = request.path_params["version"]
    if version not in VERSIONS:
        raise not_found(f"discovery document of version {version} of compute")
    return wire.answer(request, partial(_text, version))


@functools.cache
def _text(version: str) -> str:
    return json.dumps(document(version, wire.ROOT), ensure_ascii=False)


def document(version: str, root: str) -> dict[str, Any]:
    """The document of a version; `root` is our URL with a slash at its end."""
    words = vocabulary()
    service = f"compute/{version}/"
    return {
        **wire.head("compute", version, root),
        "revision": REVISION,
        "title": "Compute Engine API",
        "description": "Instances, disks and networks, as Podyard serves them.",
        "baseUrl": f"{root}{service}",
        "basePath": f"/{service}",
        "servicePath": service,
        "batchPath": f"batch/compute/{version}",
        "schemas": {
            name: {
                "id": name,
                "type": "object",
                "description": message.text,
                "properties": {
                    field.name: _property(field.name, name, wire.property_of(words, field))
                    for field in message.fields.values()
                },
            }
            for name, message in sorted(words.messages.items())
        },
        "resources": _resources(),
    }


def _property(field: str, message: str, shown: dict[str, Any]) -> dict[str, Any]:
    kind = f"compute#{message[0].lower()}{message[1:]}"
    return {**shown, "default": kind} if field == "kind" else shown


def _resources() -> dict[str, Any]:
    resources: dict[str, Any] = {}
    for method in methods():
        resources.setdefault(method.collection, {})[method.name] = _method(method)
    return {name: {"methods": of_it} for name, of_it in resources.items()}


def _method(method: ComputeMethod) -> dict[str, Any]:
    words = vocabulary()
    parameters: dict[str, Any] = {
        name: {"location": "path", "required": True, "type": "string"}
        for name in method.placeholders
    }
    for field in method.query.values():
        parameters[field.name] = wire.query_parameter(words, field)
        if field.name in method.required:
            parameters[field.name] |= {"required": True}
    is_list = method.answer.endswith(("[]", "{}"))
    messages = {
        "request": method.body,
        "response": list_kind(method) if is_list else method.answer,
    }
    return {
        "id": f"compute.{method.id}",
        "description": method.text,
        "httpMethod": method.verb,
        "path": method.path,
        "flatPath": method.path,
        "parameterOrder": [*method.placeholders, *method.required],
        "parameters": parameters,
        "scopes": [wire.SCOPE],
        **{part: {"$ref": name} for part, name in messages.items() if name},
    }
