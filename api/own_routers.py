"""Everything that is not Google's Cloud TPU API: Podyard's own REST, Google's other APIs, and the
console."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.routing import Mount

from podyard.api import (
    agents,
    audit,
    billing,
    billing_info,
    budgets,
    catalogue,
    connect,
    credit_notes,
    explorer,
    exports,
    hosts,
    invoices,
    jobs,
    machines,
    measures,
    openapi,
    pods,
    queue_view,
    replica_files,
    reservations,
    sweeps,
    unserved,
    webhooks,
)
from podyard.api import clock as clock_routes
from podyard.api import faults as fault_routes
from podyard.api import platform as platform_routes
from podyard.api.access import auth, oauth, sign_in, tokens
from podyard.api.compute import discovery as compute_discovery
from podyard.api.compute.routes import router as compute
from podyard.api.google_apis import discovery as google_discovery
from podyard.api.google_apis.routes import router as google_apis
from podyard.api.iap.routes import router as iap
from podyard.api.own import Answering, LaterApp
from podyard.api.tpu import discovery

OWN_ROUTERS = tuple(
    module.router
    for module in (
        catalogue,
        jobs,
        sweeps,
        replica_files,  # before agents: a replica's own path ends with its id
        machines,
        agents,
        hosts,
        billing,
        exports,  # before invoices: a month of theirs may end with any verb
        credit_notes,
        billing_info,
        invoices,
        budgets,
        explorer,
        platform_routes,
        measures,
        tokens,
        sign_in,
        auth,
        oauth,
        audit,
        connect,
        reservations,
        queue_view,
        pods,
        clock_routes,
        fault_routes,
        webhooks,
        unserved,
    )
)


def make_rest(others: LaterApp) -> Answering:
    """`others` answers what has no route here."""
    app = _app(
        (*OWN_ROUTERS, sign_in.pages, oauth.pages, compute, google_apis, iap, unserved.answers)
    )
    app.router.routes += [
        *discovery.routes(),
        *compute_discovery.routes(),
        *google_discovery.routes(),
        *openapi.routes(OWN_ROUTERS),
    ]
    app.router.default = others
    return Answering(AsyncExitStackMiddleware(app.router), [*app.router.routes, Mount("", others)])


def make_pages(routers: Iterable[APIRouter]) -> Answering:
    """Return what the siblings of the API have."""
    app = _app(routers)
    return Answering(AsyncExitStackMiddleware(app.router), app.router.routes)


def _app(routers: Iterable[APIRouter]) -> FastAPI:
    app = FastAPI(
        title="Podyard", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    for router in routers:
        app.include_router(router)
    return app
