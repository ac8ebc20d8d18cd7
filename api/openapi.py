"""The OpenAPI 3.1 document of everything that the API serves; the console's pages are not part of
it.

Google's wire is made from its tables of messages and methods, our own REST from its routes
(`deps.Route`). The document says the canonical form of messages only: requests may have enums as
numbers and names in snake_case as well, and Google's operations take and leave aside the parameters
that every Google API takes (`alt`, `prettyPrint`, ...).
"""

from __future__ import annotations

import functools
import json
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from podyard import __version__
from podyard.api.tpu.discovery import DEFAULT_VERSION
from podyard.api.tpu.schema import VERSIONS, Method, enums, messages, methods_of
from podyard.api.wire.vocabulary import Field
from podyard.base.errors import Code
from podyard.control.access.identity import API_KEY_PREFIX
from podyard.http.guard import BODY_BYTES_MAX, is_public

_Json = dict[str, Any]
PATH = "/openapi.json"
JSON = "application/json"
_SCHEMAS = "#/components/schemas/"
_DURATION = r"^-?\d{1,12}(\.\d{1,9})?s$"
_INT64 = r"^-?\d{1,19}$"
_FORMATS: Mapping[str, Mapping[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32", "minimum": -(2**31), "maximum": 2**31 - 1},
    "int64": {"type": "string", "format": "int64", "pattern": _INT64},
    "timestamp": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "format": "google-duration", "pattern": _DURATION},
    "fieldmask": {"type": "string", "format": "google-fieldmask"},
    "map": {"type": "object", "additionalProperties": {"type": "string"}},
    "any": {
        "type": "object",
        "additionalProperties": True,
        "properties": {"@type": {"type": "string"}},
    },
}
# What an id in a path may hold at all: a slash or a colon would name another path.
_ID = {"type": "string", "pattern": "^[^/:]+$"}
_ERRORS: Mapping[int, str] = {
    400: "The request is wrong, or does not fit the state that its resource is in.",
    401: "No credential, or one that is not valid.",
    403: (
        "The caller may not do this, or the resource is not there; or the Host header is not "
        "this server's."
    ),
    404: "Not found.",
    409: "It is there already, or another change came first.",
    413: f"The body is larger than {BODY_BYTES_MAX} bytes.",
    429: "A quota is used up.",
    501: "Not there yet.",
    503: "Not now: the database or another part does not answer.",
}
_STATUS = {"type": "string", "enum": [code.name for code in Code]}
_ENVELOPE: Mapping[str, Any] = {
    "type": "object",
    "description": (
        "Every error. `code` is the HTTP status, `status` the name of the google.rpc code."
    ),
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer"},
                "message": {"type": "string"},
                "status": _STATUS,
                "details": {"type": "array", "items": _FORMATS["any"]},
            },
            "required": ["code", "message", "status"],
            "additionalProperties": False,
        }
    },
    "required": ["error"],
    "additionalProperties": False,
}
_SECURITY: Mapping[str, Any] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "An access token, or a JWT that a key has signed.",
    },
    "apiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "x-goog-api-key",
        "description": f"{API_KEY_PREFIX}...",
    },
    "apiKeyInQuery": {
        "type": "apiKey",
        "in": "query",
        "name": "key",
        "description": f"{API_KEY_PREFIX}...",
    },
}


def routes(own: Sequence[APIRouter]) -> list[BaseRoute]:
    """The route of the document. It is made when it is first asked for, not at start."""
    rendered = functools.cache(lambda: json.dumps(document(own), ensure_ascii=False))

    def answer(_request: Request) -> Response:
        return Response(rendered(), media_type=JSON)

    return [Route(PATH, answer, methods=["GET"], name="openapi")]


def document(own: Sequence[APIRouter]) -> dict[str, Any]:
    """The document; `own` are the routers of our own REST."""
    described = [route for router in own for route in router.routes if isinstance(route, APIRoute)]
    schemas: dict[str, Any] = {"Error": _ENVELOPE}
    paths: dict[str, dict[str, Any]] = {}
    for version in VERSIONS:
        schemas |= _google_schemas(version)
        for method in methods_of(version):
            at = paths.setdefault(f"/{version}/{method.flat_path}", {})
            at[method.verb.lower()] = _google_operation(version, method)
    for path, operation in _documents():
        paths[path] = {"get": operation}
    refs, own_schemas = _own_schemas(described)
    schemas |= own_schemas
    for route in described:
        for verb in route.methods or ():
            paths.setdefault(route.path, {})[verb.lower()] = _own_operation(route, verb, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Podyard",
            "version": __version__,
            "description": "Google's Cloud TPU API in all its versions, and Podyard's own "
            "REST. Requests "
            "may also name "
            "fields in snake_case and give enums as numbers; Google's operations leave aside the "
            "parameters that every "
            "Google API takes.",
        },
        "security": [{name: []} for name in _SECURITY],
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(schemas.items())), "securitySchemes": _SECURITY},
    }


def _operation(
    name: str, text: str, path: str, verb: str, answers: Mapping[int, Any], more: Sequence[int]
) -> _Json:
    """Return what all operations have: which errors may occur follows from the path, the verb and
    `more`."""
    public = is_public(path)
    statuses = {400, 403, 413, 503, *more} | (set() if public else {401})
    statuses |= {404} if "{" in path else set()
    statuses |= set() if verb == "GET" or public else {409}
    errors = {status: _refusal(status) for status in statuses}
    responses = {str(status): found for status, found in sorted({**errors, **answers}.items())}
    found: _Json = {"operationId": name, "summary": text, "responses": responses}
    return {**found, "security": []} if public else found


def _refusal(status: int) -> dict[str, Any]:
    return {"description": _ERRORS[status], "content": _json({"$ref": f"{_SCHEMAS}Error"})}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {JSON: {"schema": schema}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _ID}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


# Google's wire.


def _google_schemas(version: str) -> dict[str, Any]:
    """Every message that is a body, an answer, or part of one."""
    bodies = {method.request for method in methods_of(version) if method.body == "*"}
    requests = {method.request for method in methods_of(version)} - bodies
    found = {}
    for name, message in messages(version).items():
        if name in requests:
            continue
        in_path = {method.path_field for method in methods_of(version) if method.request == name}
        fields = [
            field
            for field in message.fields.values()
            if not field.hidden and field.name not in in_path
        ]
        found[f"{version}.{name}"] = {
            "type": "object",
            "description": message.text,
            "properties": {field.name: _google_property(version, field) for field in fields},
            "additionalProperties": False,
        }
    return found


def _google_property(version: str, field: Field) -> dict[str, Any]:
    kind: Mapping[str, Any]
    if field.type in messages(version):
        kind = {"$ref": f"{_SCHEMAS}{version}.{field.type}"}
    elif field.type in enums(version):
        kind = {"type": "string", "enum": list(enums(version)[field.type])}
    else:
        kind = _FORMATS[field.type]
    if field.repeated:
        kind = {"type": "array", "items": kind}
    text = (
        f"{field.text} Excludes the other fields of {field.one_of}." if field.one_of else field.text
    )
    return {**kind, "description": text, **({"readOnly": True} if field.output_only else {})}


def _google_operation(version: str, method: Method) -> dict[str, Any]:
    path = f"/{version}/{method.flat_path}"
    request = messages(version)[method.request]
    parameters = _path_parameters(path)
    if method.body != "*":
        parameters += [
            {
                "name": field.name,
                "in": "query",
                "description": field.text,
                "schema": _in_query(version, field),
            }
            for field in request.fields.values()
            if field.name not in (method.path_field, method.body) and not field.hidden
        ]
    answer = {
        "description": method.response,
        "content": _json({"$ref": f"{_SCHEMAS}{version}.{method.response}"}),
    }
    found = _operation(
        f"{version}.{method.id}", method.text, path, method.verb, {200: answer}, (429,)
    )
    found |= {"tags": [f"Cloud TPU {version}"], "parameters": parameters}
    if method.body != "-":
        body = method.request if method.body == "*" else request.fields[method.body].type
        found["requestBody"] = {"content": _json({"$ref": f"{_SCHEMAS}{version}.{body}"})}
    return found


def _in_query(version: str, field: Field) -> dict[str, Any]:
    kind = {
        name: value
        for name, value in _google_property(version, field).items()
        if name != "description"
    }
    # A page of a negative size is refused, though the field's type would allow it.
    return {**kind, "minimum": 0} if field.name == "pageSize" else kind


def _documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """The documents of the API itself."""
    answer = {200: {"description": "A document.", "content": _json({"type": "object"})}}
    by_path = {
        "name": "version",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "enum": list(VERSIONS)},
    }
    # Clients that know no version leave it empty.
    by_query = {
        "name": "version",
        "in": "query",
        "schema": {"type": "string", "enum": [*VERSIONS, ""]},
    }
    for path, text, version, name in (
        (
            "/$discovery/rest",
            f"Google's document; {DEFAULT_VERSION} unless asked.",
            by_query,
            "discovery.rest",
        ),
        (
            "/discovery/v1/apis/tpu/{version}/rest",
            "The same, by its path.",
            by_path,
            "discovery.v1.rest",
        ),
    ):
        found = _operation(name, text, path, "GET", answer, (404,))
        yield path, {**found, "parameters": [version]}
    yield PATH, _operation("openapi", "This document.", PATH, "GET", answer, ())


# Our own REST.


def _own_schemas(described: Sequence[APIRoute]) -> tuple[Mapping[Any, Any], dict[str, Any]]:
    """(schema by type, components) of all messages and answers."""
    types: dict[Any, typing.Literal["validation", "serialization"]] = {}
    for route in described:
        message, answer = _types(route)
        if message is not None:
            types[message] = "validation"
        if answer is not None:
            types[answer] = "serialization"
    adapters: list[Any] = [(kind, mode, TypeAdapter(kind)) for kind, mode in types.items()]
    found, shared = TypeAdapter.json_schemas(adapters, ref_template=f"{_SCHEMAS}{{model}}")
    components: dict[str, Any] = shared.get("$defs", {})
    return {kind: schema for (kind, _), schema in found.items()}, {
        n: _close_objects(s) for n, s in components.items()
    }


def _types(route: APIRoute) -> tuple[Any, Any]:
    """(message of the body, type of the answer) of a route; None: it has none, or the route says
    itself what it is."""
    hints = typing.get_type_hints(route.endpoint, include_extras=True)
    answer = hints.pop("return")
    marks = [mark for hint in hints.values() for mark in getattr(hint, "__metadata__", ())]
    message = next(
        (mark for mark in marks if isinstance(mark, type) and issubclass(mark, BaseModel)), None
    )
    return message, None if {200, 101} & route.responses.keys() else answer


def _close_objects(schema: Any) -> Any:
    """The schema, in which an object has no other fields than those that it names; without the
    titles that pydantic makes of names."""
    if isinstance(schema, list):
        return [_close_objects(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {
        name: _close_objects(value)
        for name, value in schema.items()
        if name != "title" or not isinstance(value, str)
    }
    return (
        {**found, "additionalProperties": False}
        if isinstance(found.get("properties"), dict)
        else found
    )


def _own_operation(route: APIRoute, verb: str, refs: Mapping[Any, Any]) -> dict[str, Any]:
    module = route.endpoint.__module__.rpartition(".")[2]
    name = f"{module}.{route.endpoint.__name__}"
    text = " ".join(
        (route.endpoint.__doc__ or f"{route.endpoint.__name__.capitalize()}.")
        .replace("_", " ")
        .split()
    )
    message, answered = _types(route)
    given = {status: found for status, found in route.responses.items() if found}
    answers: dict[int, Any] = {
        int(s): {"description": _ERRORS.get(int(s), "Done."), **f} for s, f in given.items()
    }
    if answered is not None:
        answers[200] = {"description": "Done.", "content": _json(refs[answered])}
    more = [int(status) for status in route.responses if int(status) >= 400]
    found = _operation(name, text, route.path, verb, answers, more)
    extra = route.openapi_extra or {}
    found |= {"tags": [module], **extra}
    found["parameters"] = _path_parameters(route.path) + extra.get("parameters", [])
    if message is not None:
        required = bool(message.model_json_schema().get("required"))
        found["requestBody"] = {"content": _json(refs[message]), "required": required}
    return found
