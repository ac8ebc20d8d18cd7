"""Everything that is not Google's Cloud TPU API: Podyard's own REST, Google's other APIs, and the console."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from podyard.api import (
    agents,
    audit,
    auth,
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
    sign_in,
    sweeps,
    tokens,
    unserved,
)
from podyard.api import clock as clock_routes
from podyard.api import faults as fault_routes
from podyard.api import platform as platform_routes
from podyard.api.compute.routes import router as compute

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
        audit,
        connect,
        reservations,
        queue_view,
        pods,
        clock_routes,
        fault_routes,
        unserved,
    )
)


@dataclasses.dataclass(frozen=True, slots=True)
class OwnRouters:
    """`answer` has no handlers of errors: those of the application around it see what it raises."""

    answer: ASGIApp
    routes: list[BaseRoute]


def make(more: Iterable[APIRouter]) -> OwnRouters:
    """`more` are the routers of the siblings of the API."""
    app = FastAPI(title="Podyard", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    for router in (*OWN_ROUTERS, sign_in.pages, compute, unserved.answers, *more):
        app.include_router(router)
    app.router.routes += openapi.routes(OWN_ROUTERS)
    return OwnRouters(AsyncExitStackMiddleware(app.router), app.router.routes)
