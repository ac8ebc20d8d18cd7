"""A small matrix product on a systolic array, cycle by cycle. The page shows nothing that belongs to the project."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from podyard.base.errors import PodyardError
from podyard.control import access
from podyard.engine.numerics import explain_html
from podyard.engine.numerics.explain import DATAFLOW_NAMES, SIDE_MAX, explain
from podyard.engine.timing.systolic import Dataflow
from podyard.http import context
from podyard.web.render import ConsoleRoute, page, project_url

ASSET_SECONDS = 60  # how long a browser may use script and style without asking; an upgrade shows after that

router = APIRouter(prefix="/console/{project}/mxu", route_class=ConsoleRoute)


@router.get("")
def show(
    request: Request, project: str, m: int = 4, k: int = 4, n: int = 4, rows: int = 4, cols: int = 4,
    dataflow: Dataflow = "ws", seed: int = 0,
) -> Response:  # fmt: skip
    """The figure of one product, and the form for another; what cannot be shown has its reason above the form."""
    _check(request, project)
    values: dict[str, Any] = {"title": "", "figure": "", "error": None}
    status = 200
    try:
        trace = explain(m, k, n, rows, cols, dataflow, seed)
        values |= {"title": trace.title, "figure": Markup(explain_html.figure(trace))}
    except PodyardError as error:
        values["error"] = error.message
        status = error.code.http_status
    sizes = [
        ("m", "m: rows of x", m, None), ("k", "k: depth", k, None), ("n", "n: columns of w", n, None),
        ("rows", "Rows of the array", rows, SIDE_MAX), ("cols", "Columns of the array", cols, SIDE_MAX),
        ("seed", "Seed of the operands", seed, None),
    ]  # fmt: skip
    return page(
        request,
        "explain_mxu.html",
        status=status,
        section="mxu",
        project=project,
        url=project_url(project, "mxu"),
        sizes=sizes,
        dataflow=dataflow,
        dataflows=DATAFLOW_NAMES,
        **values,
    )


@router.get("/{name}")
def asset(request: Request, project: str, name: Literal["explain.js", "explain.css"]) -> Response:
    """The figure's script and style: the content security policy allows none inside of a page."""
    _check(request, project)
    kind = "text/javascript" if name == explain_html.SCRIPT else "text/css"
    headers = {"Cache-Control": f"private, max-age={ASSET_SECONDS}"}
    return Response(explain_html.asset(name), media_type=f"{kind}; charset=utf-8", headers=headers)


def _check(request: Request, project: str) -> None:
    """What every page of a project asks, so that the address tells nobody which projects there are."""
    context.principal(request).require("podyard.projects.get", project, f"projects/{project}")
    context.read(request, lambda uow: access.project_row(uow, project))
