"""Inside a TPU: the lesson and its pages. What they show is the engine's (`podyard.engine.lesson`), the same as in a
notebook. Every choice is a link or a form by GET.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

from podyard.base.errors import PodyardError
from podyard.engine.lesson import chips
from podyard.engine.lesson.picture import PACKAGE, Picture
from podyard.hardware.generations import GENERATIONS
from podyard.web.explain import asset_response, check_project, explain_page
from podyard.web.render import ConsoleRoute

router = APIRouter(prefix="/console/{project}", route_class=ConsoleRoute)


@router.get("/lesson")
def show(request: Request, project: str) -> Response:
    check_project(request, project)
    return explain_page(request, project, "lesson", "lesson.html")


@router.get("/lesson/{name}")
def asset(request: Request, project: str, name: Literal["lesson.css"]) -> Response:
    return asset_response(request, project, PACKAGE, name)


@router.get("/generations")
def show_generations(request: Request, project: str, a: str = "v2", b: str = "v3") -> Response:
    """Two chips to one scale, and all figures of both with their sources."""
    check_project(request, project)
    values: dict[str, Any] = {"a": a, "b": b, "names": tuple(GENERATIONS), "picture": None, "sources": ()}
    failure = None
    try:
        names = dict.fromkeys((a, b))
        values |= {"picture": drawn(chips.chips(a, b)), "sources": [drawn(chips.sources(name)) for name in names]}
    except PodyardError as error:
        failure = error
    return explain_page(request, project, "generations", "explain_generations.html", failure, **values)


def drawn(picture: Picture) -> Markup:
    return Markup(picture.html)
