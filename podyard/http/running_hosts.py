"""Waiting for a host that was asked for to run."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from podyard.base.errors import Code, PodyardError
from podyard.db.compute import hosts
from podyard.domain.host_record import HostRecord, HostState
from podyard.http import context

HOST_SECONDS_MAX = 60.0  # for a host to run, as at its own listener
_LOOK_SECONDS = 0.1


async def wait_until_running(request: Request, host: HostRecord, name: str) -> tuple[str, int]:
    """Return where the ssh server of the host is, once it runs; `name` is for errors.

    Raises UNAVAILABLE for a host that cannot start or does not in time, NOT_FOUND for one that has
    gone.
    """
    host_id = host.host_id
    try:
        async with asyncio.timeout(HOST_SECONDS_MAX):
            while host.state is not HostState.RUNNING or "ssh" not in host.port_map:
                if host.state is HostState.VIRTUAL and host.problem:
                    raise PodyardError(Code.UNAVAILABLE, f"host {name}: {host.problem}")
                await asyncio.sleep(_LOOK_SECONDS)
                newer = await context.in_thread(
                    lambda: context.read(request, lambda uow: hosts.find(uow, host_id))
                )
                if newer is None:
                    raise PodyardError(Code.NOT_FOUND, f"host {name} has gone")
                host = newer
    except TimeoutError:
        text = (
            f"host {name} does not run after {HOST_SECONDS_MAX:.0f} s: {host.problem or host.state}"
        )
        raise PodyardError(Code.UNAVAILABLE, text) from None
    return host.bind_address or "127.0.0.1", host.port_map["ssh"]
