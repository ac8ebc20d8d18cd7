"""The gRPC front: `google.cloud.tpu.{v1,v2,v2alpha1}.Tpu`, `google.longrunning.Operations`,
`google.cloud.location.Locations` and `google.cloud.billing.v1.CloudCatalog`.

Each RPC becomes the HTTP request that google.api.http says, and goes through the ASGI application
of this process: authentication, limits and handlers are the same. Operations are shown in the
version that began them, since their service has no version and clients refuse types of another one.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

import grpc
from google.protobuf import json_format

from podyard.api import catalogue_grpc
from podyard.api.tpu import descriptors
from podyard.api.tpu.schema import PROTO_VERSIONS, Method, methods_of
from podyard.base.errors import Code
from podyard.http.guard import BODY_BYTES_MAX

RPCS_MAX = 512  # at once; a client that polls without pause has one
SHARED_VERSION = "v2"  # whose routes the services without a version use
# What of a call's metadata goes on as headers.
_HEADERS = ("authorization", "x-goog-api-key", "x-goog-user-project", "x-goog-request-reason")

_CODES = {Code(code.value[0]): code for code in grpc.StatusCode}

Asgi = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class Front(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Every RPC of the services, by its full path."""

    def __init__(self, app: Asgi) -> None:
        self._app = app
        self._handlers: dict[str, grpc.RpcMethodHandler] = {}
        for version in PROTO_VERSIONS:
            service = f"{descriptors.package(version)}.Tpu"
            for method in descriptors.tpu_methods(version):
                names = (
                    descriptors.request_name(version, method),
                    descriptors.response_name(version, method),
                )
                self._add(service, version, method, *names)
        for method in methods_of(SHARED_VERSION):
            resource, _, _ = method.id.rpartition(".")
            if resource == "operations":
                self._add(
                    descriptors.OPERATIONS,
                    SHARED_VERSION,
                    method,
                    *_service("google.longrunning", method),
                )
            elif not resource and method.rpc != "GenerateServiceIdentity":
                self._add(
                    descriptors.LOCATIONS,
                    SHARED_VERSION,
                    method,
                    *_service("google.cloud.location", method),
                )

        for rpc, names in catalogue_grpc.METHODS.items():
            self._handlers[f"/{catalogue_grpc.SERVICE}/{rpc}"] = self._of_catalogue(rpc, *names)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)

    def _add(self, service: str, version: str, method: Method, request: str, response: str) -> None:
        takes, gives = descriptors.message_class(request), descriptors.message_class(response)

        async def handle(message: Any, context: grpc.aio.ServicerContext) -> Any:
            status, answer = await self._call(version, method, message, context)
            if status == 200:
                return json_format.ParseDict(
                    answer, gives(), ignore_unknown_fields=True, descriptor_pool=descriptors.pool()
                )
            return await _abort(context, answer)

        self._handlers[f"/{service}/{method.rpc}"] = grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=takes.FromString,
            response_serializer=gives.SerializeToString,
        )

    async def _call(
        self, version: str, method: Method, message: Any, context: grpc.aio.ServicerContext
    ) -> tuple[int, Any]:
        fields = json_format.MessageToDict(message, descriptor_pool=descriptors.pool())
        path, query, body = http_request(version, method, fields)
        status, answered = await _asgi(self._app, method.verb, path, query, _headers(context), body)
        return status, json.loads(answered)

    def _of_catalogue(self, rpc: str, request: str, response: str) -> grpc.RpcMethodHandler:
        takes, gives = catalogue_grpc.message_class(request), catalogue_grpc.message_class(response)

        async def handle(message: Any, context: grpc.aio.ServicerContext) -> Any:
            fields = json_format.MessageToDict(message)
            path = catalogue_grpc.path_of(rpc, fields)
            status, answered = await _asgi(
                self._app, "GET", path, urlencode(fields), _headers(context), b""
            )
            if status == 200:
                return json_format.ParseDict(json.loads(answered), gives())
            return await _abort(context, json.loads(answered))

        return grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=takes.FromString,
            response_serializer=gives.SerializeToString,
        )


def http_request(version: str, method: Method, fields: dict[str, Any]) -> tuple[str, str, bytes]:
    """(path, query, body) of the HTTP request that an RPC stands for; `fields` is its request as
    JSON."""
    where = method.path_field
    # google.api.http of UpdateNode: the path is the name of the node in the body.
    name = (
        fields.get(method.body, {}).get("name", "")
        if method.rpc == "UpdateNode"
        else fields.pop(where, "")
    )
    path = f"/{version}/{quote(name)}{method.path[method.path.index('}') + 1 :]}"
    if method.body == "*":
        return path, "", json.dumps(fields).encode()
    body = b"" if method.body == "-" else json.dumps(fields.pop(method.body, {})).encode()
    values = [
        (key, str(item).lower() if isinstance(item, bool) else item)
        for key, value in fields.items()
        for item in (value if isinstance(value, list) else [value])
    ]
    return path, urlencode(values), body


async def serve(app: Asgi, address: str) -> tuple[grpc.aio.Server, int]:
    """Starts the front on a free port; returns both. Raises OSError when it cannot listen."""
    server = grpc.aio.server(
        maximum_concurrent_rpcs=RPCS_MAX,
        options=(
            ("grpc.max_receive_message_length", BODY_BYTES_MAX),
            ("grpc.so_reuseport", 0),  # nobody shares the port
        ),
    )
    server.add_generic_rpc_handlers((Front(app),))
    try:
        port = server.add_insecure_port(f"{address}:0")
    except RuntimeError as error:
        raise OSError(str(error)) from None
    await server.start()
    return server, port


def _service(package: str, method: Method) -> tuple[str, str]:
    own = {"Empty": "google.protobuf.Empty"}
    return f"{package}.{method.request}", own.get(method.response) or f"{package}.{method.response}"


def _headers(context: grpc.aio.ServicerContext) -> list[tuple[bytes, bytes]]:
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    for key, value in context.invocation_metadata() or ():
        if key in _HEADERS:
            headers.append((key.encode(), value.encode() if isinstance(value, str) else value))
    return headers


async def _asgi(
    app: Asgi, verb: str, path: str, query: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[int, bytes]:
    """One request to the application, without a socket."""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": verb,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
        "state": {"operations_in_own_version": True},
    }
    status, parts = 500, []

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(parts)


async def _abort(context: grpc.aio.ServicerContext, answer: Mapping[str, Any]) -> None:
    """Ends the call with the error of the envelope; its details travel as google.rpc.Status, as
    Google's do."""
    error = answer["error"]
    code = Code[error["status"]]
    status = descriptors.message_class("google.rpc.Status")()
    shown = {"code": int(code), "message": error["message"], "details": error.get("details", [])}
    json_format.ParseDict(
        shown, status, ignore_unknown_fields=True, descriptor_pool=descriptors.pool()
    )
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(_CODES[code], error["message"], trailing)
