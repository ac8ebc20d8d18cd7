"""The composition root: the console script, and the processes that `podyard up` starts.

`python -m podyard.main api|loop|agent|storage` runs one process with the settings of its
environment. Imports are local, so that no process pays for another's libraries.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from podyard.base.errors import Code, PodyardError
from podyard.base.heartbeat import Heartbeat, from_environment
from podyard.settings import UMASK

if TYPE_CHECKING:
    from fastapi import APIRouter

    from podyard.base.clock import RealClock
    from podyard.cli.programs.simulate import SimulationOutcome, SimulationRequest
    from podyard.domain.fleet import Fleet
    from podyard.settings import Settings

EXIT_SETUP = 2  # usage and set-up: what the user can mend before anything runs
AGENT_TOKEN_SECONDS_MAX = 60.0  # the first start makes the schema first
AGENT_TOKEN_POLL_SECONDS = 0.05
# Of API and loop, between two looks for garbage. A bill makes hundreds of thousands that stay: with
# Python's own 700 a third of its time goes into looking through them.
GARBAGE_AFTER_OBJECTS = 10_000
# The listening sockets that the supervisor holds over restarts.
HTTP_SOCKET_VARIABLE, STORAGE_SOCKET_VARIABLE = "PODYARD_HTTP_SOCKET", "PODYARD_STORAGE_SOCKET"
DOOR_SOCKET_VARIABLE = "PODYARD_DOOR_SOCKET"
# Set where the broker is that of this `podyard up`: all messages come from its loop, and its agent
# is the only one.
OWN_BROKER_VARIABLE = "PODYARD_OWN_BROKER"


def cli() -> None:
    """The console script `podyard`."""
    from podyard.cli.kit.commands import run

    run(sys.argv[1:], {"simulate": _simulate})


def _simulate(request: SimulationRequest) -> SimulationOutcome:
    from podyard.simulation.command import run

    return run(request)


def api(heartbeat: Heartbeat) -> None:
    """REST, Google's wire and the console."""
    # What is imported now stays for good: looking through it for garbage costs a tenth of the
    # start.
    gc.disable()
    from podyard import migrations, settings
    from podyard.api.app import create_app, prepare
    from podyard.api.server import DoorListener, serve
    from podyard.base import sealing
    from podyard.base.clock import OsClock
    from podyard.base.log import configure
    from podyard.db.store.unit_of_work import Database
    from podyard.http.door import Door
    from podyard.http.door_certificate import DoorCertificate, publish_fingerprint

    configure()
    found = settings.from_environment()
    clock = OsClock()
    _check_bind(found)
    sealing.use(found.secrets_key_path)
    tls = None
    if found.public_address is not None:
        tls = None if found.behind_proxy else DoorCertificate(found, clock)
        publish_fingerprint(found, clock)
    database = Database(found.database_url, clock, leases=found.leases, server_time=True)
    with _one_line(found):
        migrations.upgrade(database)
        prepare(found, database)
    app = create_app(found, database, _fleet(found), clock, functools.partial(_console, found))
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER_OBJECTS)
    gc.enable()
    held = os.environ.get(HTTP_SOCKET_VARIABLE)
    sockets = None if held is None else [socket.socket(fileno=int(held))]
    door = None
    if (listener := os.environ.get(DOOR_SOCKET_VARIABLE)) is not None:
        context, look = (None, lambda: None) if tls is None else (tls.context, tls.look)
        door = DoorListener(
            socket.socket(fileno=int(listener)), Door(app, found, clock), context, look
        )
    serve(app, found.bind_address, found.port, heartbeat.beat, sockets, door)


def _console(found: Settings) -> tuple[APIRouter, ...]:
    from podyard.web.front.pages import router
    from podyard.web.kit.render import keep_compiled

    keep_compiled(found.templates_path)
    return (router,)


def _check_bind(found: Settings) -> None:
    """Without `podyard up` in front, too: only the door listens beyond loopback."""
    from podyard.stack.door_options import is_loopback

    if not is_loopback(found.bind_address):
        text = (
            f"PODYARD_BIND_ADDRESS is {found.bind_address!r}: only `podyard up` "
            "opens a port to "
            "other machines"
        )
        raise PodyardError(Code.FAILED_PRECONDITION, text)


@contextlib.contextmanager
def _one_line(found: Settings) -> Iterator[None]:
    """A database file that cannot be used is refused in one line. A database server may come back:
    that is another process's failure, and the supervisor tries again."""
    from podyard import migrations
    from podyard.db.store import condition

    if found.database_path is None:
        yield
        return
    migrations.check_file(found.database_path, in_use=found.token_path.exists())
    try:
        yield
    except condition.DATABASE_ERRORS as error:
        raise condition.refusal(error, found.database_path) from error


def storage(heartbeat: Heartbeat) -> None:
    """Cloud Storage's APIs. It ends when nobody has needed it for a while."""
    from podyard import settings
    from podyard.api.server import serve_storage
    from podyard.api.storage.app import create_storage_app
    from podyard.base.clock import OsClock
    from podyard.base.log import configure
    from podyard.db.store.unit_of_work import Database

    configure()
    found = settings.from_environment()
    clock = OsClock()
    with contextlib.closing(
        Database(found.database_url, clock, leases=found.leases, server_time=True)
    ) as database:
        app = create_storage_app(found, database, _fleet(found), clock)
        serve_storage(
            app, socket.socket(fileno=int(os.environ[STORAGE_SOCKET_VARIABLE])), heartbeat.beat
        )


def loop(heartbeat: Heartbeat) -> None:
    """The control loop."""
    gc.set_threshold(GARBAGE_AFTER_OBJECTS)
    from podyard import settings
    from podyard.base import pokes, sealing
    from podyard.base.clock import OsClock
    from podyard.base.log import configure
    from podyard.loop.runner import main
    from podyard.workers.tasks.dispatch import Dispatcher

    configure()
    found = settings.from_environment()
    sealing.use(found.secrets_key_path, make=False)
    poked = (
        pokes.path_of_agent(found.data, found.agent_id)
        if OWN_BROKER_VARIABLE in os.environ
        else None
    )
    main(
        found,
        _fleet(found),
        Dispatcher(found.broker_url or "memory://", poked),
        OsClock(),
        heartbeat,
    )


def agent(heartbeat: Heartbeat) -> None:
    """The agent of this machine: the platform's own, or one that has joined."""
    from podyard import settings
    from podyard.base import agent_identity
    from podyard.base.clock import OsClock
    from podyard.base.log import configure
    from podyard.workers.agent.agent import run_agent
    from podyard.workers.agent.registration import Registration
    from podyard.workers.kit.agent_token import AgentToken

    configure()
    found = settings.from_environment()
    clock = OsClock()
    path = os.environ.get(agent_identity.VARIABLE)
    joined = None if path is None else agent_identity.load(Path(path))
    if path is not None and joined is not None:
        run_agent(
            agent_id=joined.agent,
            url=joined.url,
            token=AgentToken(Path(path), clock),
            data=found.data,
            broker_url=joined.broker_url or None,
            registration=Registration.of_joined(joined, found.data, clock),
            clock=clock,
            lease_seconds=joined.replica_lease_seconds,
            beat=heartbeat.beat,
        )
        return
    address = found.advertise_address or _own_address(found) or found.bind_address
    run_agent(
        agent_id=found.agent_id,
        url=os.environ["PODYARD_URL"],
        token=_agent_token(found.agent_token_path, clock),
        data=found.data,
        broker_url=found.broker_url,
        is_poked_by_loop=OWN_BROKER_VARIABLE in os.environ,
        registration=Registration(found.replicas_max, found.hosts_max, address, found.data, clock),
        clock=clock,
        lease_seconds=found.leases.replica_seconds,
        beat=heartbeat.beat,
    )


def _own_address(found: Settings) -> str | None:
    """The door's address is that of this machine, unless it is all of them."""
    return None if found.public_address in ("0.0.0.0", "::", "localhost") else found.public_address


def _agent_token(path: Path, clock: RealClock) -> str:
    """The token that the API makes at its first start, which may still be under way."""
    deadline = clock.monotonic_seconds() + AGENT_TOKEN_SECONDS_MAX
    while not path.exists() or not path.read_text(encoding="ascii").strip():
        if clock.monotonic_seconds() > deadline:
            raise PodyardError(
                Code.UNAVAILABLE, f"the API has not started: it has not created {path}"
            )
        clock.sleep(AGENT_TOKEN_POLL_SECONDS)
    return path.read_text(encoding="ascii").strip()


def _fleet(found: Settings) -> Fleet:
    from podyard.stack.fleets import read_fleet

    return read_fleet(found.fleet)


PROCESSES = {"api": api, "loop": loop, "agent": agent, "storage": storage}


def main(argv: list[str]) -> int:
    """Runs one process; a failure of the set-up is one line on stderr and exit code 2."""
    if len(argv) != 1 or argv[0] not in PROCESSES:
        print(f"usage: python -m podyard.main {'|'.join(PROCESSES)}", file=sys.stderr)
        return EXIT_SETUP
    os.umask(UMASK)
    heartbeat = from_environment(os.environ)
    try:
        PROCESSES[argv[0]](heartbeat)
    except PodyardError as error:
        heartbeat.say(error.message)  # the log may be on a full disk
        print(f"podyard {argv[0]}: {error.message}", file=sys.stderr)
        return EXIT_SETUP
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
