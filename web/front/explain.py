"""Explanations of the hardware: a matrix product cycle by cycle, an all-reduce step by step. The
pages show nothing that belongs to the project.

The engine is imported by the first page that needs it: numpy is a tenth of the API's memory and of
its start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from podyard.base.errors import PodyardError, invalid
from podyard.control.access import identity
from podyard.engine import film
from podyard.engine.lesson.picture import Picture
from podyard.engine.timing.systolic import Dataflow
from podyard.hardware.accelerator_types import AcceleratorType, all_types
from podyard.hardware.generations import GENERATIONS
from podyard.http import context
from podyard.web.front.lesson_steps import LESSON_PAGES, STEPS, step_of
from podyard.web.kit.render import ConsoleRoute, page, project_url

# how long a browser may use script and style without asking; an upgrade shows after that
ASSET_SECONDS = 60

OPERANDS_MAX = 4096  # decimals that are drawn before the size of the product is checked

Asset = Literal["film.js", "film.css", "explain.js", "explain.css"]

router = APIRouter(prefix="/console/{project}", route_class=ConsoleRoute)


@router.get("/mxu")
def show(  # noqa: PLR0913
    request: Request, project: str, m: int = 4, k: int = 4, n: int = 4, rows: int = 4,
    cols: int = 4,
    dataflow: Dataflow = "ws", seed: int = 0, numbers: Literal["whole", "decimal"] = "whole",
    at: int = 0,
) -> Response:  # fmt: skip
    """The figure of one product at cycle `at`, and the form for another; what cannot be shown has
    its reason above the form."""
    from podyard.engine.lesson.digits import products
    from podyard.engine.numerics import explain_html
    from podyard.engine.numerics.explain import DATAFLOW_NAMES, SIDE_MAX, decimal_operands, explain

    check_project(request, project)
    values: dict[str, Any] = {"title": "", "figure": "", "products": None}
    failure = None
    try:
        is_drawn = numbers == "decimal" and min(m, k, n) > 0 and m * k + k * n <= OPERANDS_MAX
        operands = decimal_operands(m, k, n, seed) if is_drawn else None
        trace = explain(m, k, n, rows, cols, dataflow, seed, operands)
        values = {
            "title": trace.title,
            "figure": Markup(explain_html.figure(trace, at, _frames_url(request))),
        }
        values["products"] = None if operands is None else draw(products(*operands))
    except PodyardError as error:
        failure = error
    sizes = [
        ("m", "m: rows of x", m, None), ("k", "k: depth", k, None),
        ("n", "n: columns of w", n, None),
        ("rows", "Rows of the array", rows, SIDE_MAX),
        ("cols", "Columns of the array", cols, SIDE_MAX),
        ("seed", "Seed of the operands", seed, None),
    ]  # fmt: skip
    values |= {
        "sizes": sizes,
        "dataflow": dataflow,
        "dataflows": DATAFLOW_NAMES,
        "numbers": numbers,
    }
    return explain_page(request, project, "mxu", "explain_mxu.html", failure, **values)


@router.get("/all-reduce")
def show_all_reduce(
    request: Request,
    project: str,
    ranks: str = "",
    accelerator_type: str = "",
    nbytes: int | None = None,
    at: int = 0,
) -> Response:
    """The figure of one all-reduce at step `at`, and the form for another. An empty field asks for
    nothing."""
    from podyard.engine.collectives import explain as reduce
    from podyard.engine.collectives import explain_html as reduce_html

    check_project(request, project)
    values: dict[str, Any] = {"title": "", "figure": ""}
    failure = None
    nbytes = reduce.DEFAULT_BYTES if nbytes is None else nbytes
    try:
        trace = reduce.explain(_number(ranks, reduce.RANKS_MAX), accelerator_type or None, nbytes)
        values = {
            "title": trace.title,
            "figure": Markup(reduce_html.figure(trace, at, _frames_url(request))),
        }
    except PodyardError as error:
        failure = error
    values |= {
        "ranks": ranks or reduce.DEFAULT_RANKS,
        "accelerator_type": accelerator_type,
        "nbytes": nbytes,
        "ranks_max": reduce.RANKS_MAX,
        "bytes_max": reduce.BYTES_MAX,
        "chips_max": reduce.CHIPS_MAX,
        "groups": _drawn_types(reduce.CHIPS_MAX),
    }
    return explain_page(
        request, project, "all-reduce", "explain_all_reduce.html", failure, **values
    )


@router.get("/mxu/{name}")
def asset(request: Request, project: str, name: Asset) -> Response:
    from podyard.engine.numerics.explain_html import PACKAGE

    return asset_response(request, project, PACKAGE, name)


@router.get("/all-reduce/{name}")
def all_reduce_asset(request: Request, project: str, name: Asset) -> Response:
    from podyard.engine.collectives.explain_html import PACKAGE

    return asset_response(request, project, PACKAGE, name)


def asset_response(request: Request, project: str, package: str, name: str) -> Response:
    """A figure's script and style: the content security policy allows none inside of a page."""
    check_project(request, project)
    kind = "text/javascript" if name in film.SCRIPTS else "text/css"
    headers = {"Cache-Control": f"private, max-age={ASSET_SECONDS}"}
    return Response(film.asset(package, name), media_type=f"{kind}; charset=utf-8", headers=headers)


def explain_page(
    request: Request, project: str, section: str, template: str,
    failure: PodyardError | None = None, **values: Any
) -> Response:  # fmt: skip
    """A page of the lesson, with the way to the others and, where the reader came from a step, to
    the next step."""
    return page(
        request,
        template,
        status=failure.code.http_status if failure else 200,
        section=section,
        project=project,
        url=project_url(project, section),
        error=failure.message if failure else None,
        step=step_of(request.query_params.get("lesson", "")),
        steps=STEPS,
        lesson_pages=LESSON_PAGES,
        styles=film.STYLES,
        scripts=film.SCRIPTS,
        **values,
    )


def draw(picture: Picture) -> Markup:
    return Markup(picture.html)


def _frames_url(request: Request) -> Callable[[int], str]:
    """The address of another frame of the same film: it works without a script."""
    query = {key: value for key, value in request.query_params.items() if key != "at"}
    return lambda at: f"?{urlencode({**query, 'at': at})}#film"


def _drawn_types(chips_max: int) -> list[tuple[str, list[AcceleratorType]]]:
    """Slices that are drawn chip by chip, by generation; larger ones have a table only and are
    typed by name."""
    kinds = [kind for kind in all_types() if kind.chip_count <= chips_max]
    return [
        (f"TPU {name}: {GENERATIONS[name].dimensions}-D torus", list(group))
        for name, group in itertools.groupby(kinds, lambda kind: kind.generation.name)
    ]


def _number(text: str, most: int) -> int | None:
    try:
        return int(text) if text else None
    except ValueError:
        raise invalid(
            f"ranks must be a number from 1 to {most}, got {text[:40]!r}", "ranks"
        ) from None


def check_project(request: Request, project: str) -> None:
    """Check the project that every page asks, so that the address tells nobody which projects there
    are."""
    context.principal(request).require("podyard.projects.get", project, f"projects/{project}")
    context.read(request, lambda uow: identity.project_row(uow, project))
