"""Google's discovery documents of these APIs, made from the tables. A document lists what is
served; `rootUrl` is the URL that it was fetched from."""

from __future__ import annotations

import functools
import json
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from podyard.api.google_apis.schema import Api, ApiMethod, all_methods, vocabulary
from podyard.api.wire import discovery as wire
from podyard.api.wire.vocabulary import Field
from podyard.base.errors import not_found
from podyard.http.google import API_PREFIX


def routes() -> list[BaseRoute]:
    """Routes of the addresses that all documents once had; `of_host` has the new ones."""
    return [
        Route(
            f"/discovery/v1/apis/{name}/{{version}}/rest", _by_path, methods=["GET"],
            name=f"discovery.{name}",
        )
        for name in sorted({method.api.name for method in all_methods()})
    ]  # fmt: skip


def of_host(request: Request, host: str) -> Response:
    versions = _versions(host.partition(".")[0])
    return _answer(request, host, request.query_params.get("version") or versions[0])


async def _by_path(request: Request) -> Response:
    name = request.url.path.split("/")[4]
    return _answer(request, f"{name}.googleapis.com", request.path_params.get("version", ""))


def _versions(name: str) -> list[str]:
    return list(dict.fromkeys(item.api.version for item in all_methods() if item.api.name == name))


def _answer(request: Request, host: str, version: str) -> Response:
    name = host.partition(".")[0]
    if version not in _versions(name):
        raise not_found(f"discovery document of {name} {version[:40]}")
    return wire.answer(request, partial(_document_text, name, version))


@functools.cache
def _document_text(name: str, version: str) -> str:
    root = f"{wire.ROOT}{API_PREFIX.lstrip('/')}{name}.googleapis.com/"
    return json.dumps(document(name, version, root), ensure_ascii=False)


def document(name: str, version: str, root: str) -> dict[str, Any]:
    """The document of an API; `root` ends with a slash."""
    wanted = (name, version)
    methods = [item for item in all_methods() if (item.api.name, item.api.version) == wanted]
    api = methods[0].api
    return {
        **wire.head(name, version, root),
        "title": api.title,
        "description": "The methods that Podyard serves.",
        "baseUrl": root,
        "basePath": "",
        "servicePath": "",
        "batchPath": "batch",
        "schemas": {key: _schema(key) for key in _message_names(methods)},
        "resources": _resources(api, methods),
    }


def _message_names(methods: list[ApiMethod]) -> list[str]:
    """The messages that the methods need, with those inside of them."""
    wanted = {name for method in methods for name in (method.request, method.answer) if name}
    seen: set[str] = set()
    while fresh := wanted - seen:
        seen |= fresh
        wanted |= {
            field.type
            for name in fresh
            for field in vocabulary().messages[name].fields.values()
            if field.type in vocabulary().messages
        }
    return sorted(seen)


def _schema(name: str) -> dict[str, Any]:
    words = vocabulary()
    table = words.messages[name]
    return {
        "id": name,
        "type": "object",
        "description": table.text,
        "properties": {
            field.name: wire.property_of(words, field) for field in table.fields.values()
        },
    }


def _resources(api: Api, methods: list[ApiMethod]) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    for method in methods:
        *path, name = method.id.split(".")
        holder: dict[str, Any] = {"resources": resources}
        for part in path:
            holder = holder.setdefault("resources", {}).setdefault(part, {})
        holder.setdefault("methods", {})[name] = _method(api, method)
    return resources


def _method(api: Api, method: ApiMethod) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    path = method.path
    for name in method.pattern.groupindex:
        start = path.index(f"{{{name}")
        inside = path[start + 1 : path.index("}", start)].partition("=")[2]
        pattern = {"pattern": f"^{inside.replace('*', '[^/]+')}$"} if inside else {}
        parameters[name] = {"location": "path", "required": True, "type": "string", **pattern}
        if inside:
            path = path.replace(f"{{{name}={inside}}}", f"{{+{name}}}")
    for name, kind in method.query.items():
        plain = name.removesuffix("[]")
        field = Field(plain, kind.removesuffix("[]"), repeated=name.endswith("[]"))
        parameters[plain] = wire.query_parameter(vocabulary(), field)
    answer: dict[str, Any] = {
        "id": f"{api.name}.{method.id}",
        "description": method.text,
        "httpMethod": method.verb,
        "path": path,
        "parameterOrder": list(method.pattern.groupindex),
        "parameters": parameters,
        "response": {"$ref": method.answer},
        "scopes": [wire.SCOPE],
    }
    return answer | ({"request": {"$ref": method.request}} if method.request else {})
