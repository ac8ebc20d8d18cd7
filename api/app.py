"""The ASGI application: Google's wire, Podyard's own REST and the console behind one guard."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Mount

from podyard.api import front, gcloud_proxy, yard_folders
from podyard.api.iap.relay import Relays
from podyard.api.own import Answering, Before, LaterApp
from podyard.api.tpu.call import Answers
from podyard.api.tpu.encoding import Encoding
from podyard.api.tpu.routes import called_method
from podyard.api.tpu.routes import routes as tpu_routes
from podyard.base.clock import ClockMode, RealClock
from podyard.base.errors import Code, PodyardError
from podyard.base.files import write_atomically
from podyard.base.rng import secret_token
from podyard.control.access import identity
from podyard.control.billing import card_prices
from podyard.control.platform import audit as audit_control
from podyard.db.access import credentials
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.audit import AuditLine
from podyard.domain.credential import use_is_to_be_noted
from podyard.domain.fleet import Fleet
from podyard.domain.principal import Principal
from podyard.http import errors, google
from podyard.http.audit import Audit, AuditQueue
from podyard.http.context import Platform
from podyard.http.faults import Faults, Rules
from podyard.http.guard import Guard
from podyard.http.requests import Counts, Requests
from podyard.http.tunnels import Tunnels
from podyard.pricing.current_card import machine_card
from podyard.settings import AGENT, Settings

if TYPE_CHECKING:
    from fastapi import APIRouter

logger = logging.getLogger(__name__)


def prepare(settings: Settings, database: Database) -> None:
    """Prepare what has to stand before anybody can call: the clock's row, the first project, the
    tokens of owner and agent, and prices of the past as they were. Raises FAILED_PRECONDITION for a
    rate card that has changed them."""
    yard_folders.check(settings, database)
    owner_token = _token_file(settings.token_path)
    agent_token = _token_file(settings.agent_token_path) if AGENT in settings.roles else None

    def body(uow: UnitOfWork) -> None:
        platform_clock.set_up(uow, ClockMode(settings.clock_mode))
        identity.bootstrap(uow, owner_token, agent_token, settings.agent_id)

    database.run(body)
    database.read(card_prices.check_at_start)
    machine_card()  # one that cannot be read is refused now, and on no page


def create_app(
    settings: Settings,
    database: Database,
    fleet: Fleet,
    clock: RealClock,
    more: Callable[[], Iterable[APIRouter]] = tuple,
) -> Starlette:
    """`more` gives the routers of the siblings that the composition root adds (the console's
    pages)."""

    def make_pages() -> Answering:
        from podyard.api import own_routers

        return own_routers.make_pages(more())

    def make_rest() -> Answering:
        from podyard.api import own_routers

        return own_routers.make_rest(LaterApp(make_pages))

    own = LaterApp(make_rest)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        own.load_in_background()
        async with (
            front.running(app, settings.bind_address, settings.grpc_port),
            gcloud_proxy.running(app),
        ):
            app.state.audit.start()
            yield
        app.state.audit.close()
        database.close()

    # Routes are tried in their order: v2 first, since it is asked most, and the catalogue before
    # v1, below which it is.
    v2, *others = tpu_routes()
    routes = [v2, Before(google.CATALOGUE_PATH, own), *others, Mount("", own)]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.state.platform = Platform(settings, database, fleet, clock)
    app.state.front = "off"
    app.state.answers = Answers()
    errors.install(app)

    def authenticate(token: str) -> Principal:
        found = database.read(lambda uow: identity.authenticate(uow, token))
        if found.token_id is not None and use_is_to_be_noted(found.last_used, clock.now()):
            _note_use(database, found.token_id)
        return found

    app.state.tunnels, app.state.relays = Tunnels(authenticate), Relays()
    # Behind the guard: the middleware that is added last is asked first.
    app.state.faults = Rules(database, clock)
    # Inside of the faults: compression holds the beginning of an answer back, and a fault may send
    # nothing else.
    app.add_middleware(Encoding)
    app.add_middleware(Faults, rules=app.state.faults, called=called_method)
    app.add_middleware(Guard, authenticate=authenticate, clock=clock)
    lines = AuditQueue(partial(_write_audit, database, settings.audit_days))
    app.state.audit = lines
    app.add_middleware(Audit, lines=lines, clock=clock)
    app.state.requests = Counts()
    app.add_middleware(Requests, counts=app.state.requests, clock=clock)
    return app


def _write_audit(database: Database, days: int, lines: Sequence[AuditLine]) -> None:
    database.run(lambda uow: audit_control.keep(uow, lines, days), actor="audit")


def _note_use(database: Database, token_id: str) -> None:
    """A failed write (a full disk) must not refuse a caller who only reads."""
    try:
        database.run(lambda uow: credentials.note_use(uow, token_id))
    except PodyardError as error:
        logger.warning("the use of a token could not be noted: %s", error.message)


def _token_file(path: Path) -> str:
    """The token in the file, made at first start; readable by its owner only. Raises
    FAILED_PRECONDITION for a file
    that holds none."""
    try:
        token = path.read_bytes().strip()
    except FileNotFoundError:
        return _new_token(path)
    if not token or not token.isascii() or len(token.split()) != 1:
        how = "empty" if not token else "damaged"
        text = (
            f"the token file {path} is {how}: restore it, or delete it, and the next start "
            "makes a new token"
        )
        raise PodyardError(Code.FAILED_PRECONDITION, text)
    return token.decode("ascii")


def _new_token(path: Path) -> str:
    token = identity.TOKEN_PREFIX + secret_token()
    try:
        write_atomically(path, f"{token}\n".encode())
    except OSError as error:
        text = f"the token file {path} cannot be written: {error.strerror}"
        raise PodyardError(Code.FAILED_PRECONDITION, text) from None
    return token
