"""`podyard connect`: what a machine without Podyard reaches through the door, and the tunnels that
lead there."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from typing_extensions import TypedDict

from podyard import __version__
from podyard.api import deps
from podyard.base.errors import Code, PodyardError, invalid
from podyard.base.files import read_json
from podyard.control.compute import host_connections
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.host_record import HostRecord
from podyard.http.context import credential, in_thread
from podyard.http.gcloud_authority import PROXY_FILE, authority
from podyard.http.running_hosts import wait_until_running
from podyard.http.tunnels import PROTOCOL, TAKE_OVER, Tunnels

router = APIRouter(prefix="/podyard/v1", route_class=deps.Route)

TARGETS = ("api", "grpc", "storage", "gcloud", "host")


class ReachableHosts(TypedDict):
    """Hosts with addresses in a row, from this one on."""

    address: str
    count: int


class ConnectionAnswer(TypedDict):
    """`ports`: of this Podyard's own machine; none for what it does not serve. `gcloudRoots`: the
    certificate that gcloud trusts there, PEM. `hosts`: those that the caller may use."""

    version: str
    ports: dict[str, int]
    gcloudRoots: str
    hosts: list[ReachableHosts]


@router.get("/connection")
def describe_connection(request: Request) -> ConnectionAnswer:
    """Return what can be reached with `:open`."""
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: host_connections.reachable(uow, caller))
    platform = deps.platform(request)
    return {
        "version": __version__,
        "ports": _ports(request),
        "gcloudRoots": authority(platform.settings.data, platform.clock).certificate.decode(),
        "hosts": [{"address": address, "count": count} for address, count in found],
    }


@router.get(
    "/connection:open",
    responses={101: {"description": "A tunnel."}, **deps.errors(404, 429)},
    openapi_extra=deps.asks(
        {
            "name": "target",
            "description": f"One of {', '.join(TARGETS)}.",
            "schema": {"type": "string"},
        },
        {
            "name": "address",
            "description": "The host's external address.",
            "schema": {"type": "string"},
        },
    ),
)
async def open_connection(request: Request) -> Response:
    """Turns the connection into a tunnel (101) to one part of this Podyard, or to a host of a
    node."""
    target, address = (
        request.query_params.get("target", ""),
        request.query_params.get("address", ""),
    )
    if target not in TARGETS:
        raise invalid(f"target {target!r} must be one of {', '.join(TARGETS)}", "target")
    if (target == "host") != bool(address):
        raise invalid("address is for target host, which needs it", "address")
    take_over = request.scope.get("extensions", {}).get(TAKE_OVER)
    if request.headers.get("upgrade", "").lower() != PROTOCOL or take_over is None:
        text = f"this needs Upgrade: {PROTOCOL}, through the public port: use `podyard connect`"
        raise PodyardError(Code.FAILED_PRECONDITION, text)
    if target == "host":
        place = await _running_host(request, address)
    else:
        port = _ports(request).get(target)
        if port is None:
            raise PodyardError(Code.FAILED_PRECONDITION, f"this Podyard does not serve {target}")
        place = (deps.platform(request).settings.bind_address, port)
    tunnels: Tunnels = request.app.state.tunnels
    return await tunnels.open(deps.principal(request).email, credential(request), *place)


def _ports(request: Request) -> dict[str, int]:
    settings = deps.platform(request).settings
    found: dict[str, Any] = {
        "api": settings.port,
        "grpc": settings.grpc_port,
        "storage": settings.storage_port,
        "gcloud": read_json(settings.data / PROXY_FILE).get("port"),
    }
    return {name: port for name, port in found.items() if isinstance(port, int)}


async def _running_host(request: Request, address: str) -> tuple[str, int]:
    """Return where the ssh server of the host at this external address is, once it runs."""
    caller = deps.principal(request)

    def materialise(uow: UnitOfWork) -> HostRecord:
        return host_connections.open_by_address(uow, caller, address)

    host = await in_thread(lambda: deps.write(request, materialise))
    return await wait_until_running(request, host, address)
