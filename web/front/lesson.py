"""Inside a TPU: the lesson and its pages. What they show is the engine's (`podyard.engine.lesson`),
the same as in a notebook. Every choice is a link or a form by GET.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.errors import PodyardError, invalid
from podyard.engine.lesson import chips, devices
from podyard.engine.lesson.picture import PACKAGE
from podyard.hardware.generations import GENERATIONS
from podyard.web.front.explain import asset_response, check_project, draw, explain_page
from podyard.web.kit.render import ConsoleRoute, project_url

# A fraction that binary has not, a familiar one, the first whole number that bfloat16 skips, and a
# very large one.
NUMBER_EXAMPLES = ("0.1", "3.14159265", "257", "1.9999", "16777217", "3.4e38")
EDGE_MAX = 1_000_000  # millions of products, MB, kB: far beyond what such a chip is given

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
    values: dict[str, Any] = {
        "a": a,
        "b": b,
        "names": tuple(GENERATIONS),
        "picture": None,
        "sources": (),
    }
    failure = None
    try:
        names = dict.fromkeys((a, b))
        values |= {
            "picture": draw(chips.chips(a, b)),
            "sources": [draw(chips.sources(name)) for name in names],
        }
    except PodyardError as error:
        failure = error
    return explain_page(
        request, project, "generations", "explain_generations.html", failure, **values
    )


@router.get("/digits")
def show_digits(request: Request, project: str, value: str = "0.1") -> Response:
    """The bits of one number in both formats."""
    from podyard.engine.lesson.digits import digits

    check_project(request, project)
    values: dict[str, Any] = {"value": value, "examples": NUMBER_EXAMPLES, "picture": None}
    failure = None
    try:
        values["picture"] = draw(digits(_number(value)))
    except PodyardError as error:
        failure = error
    values["product_url"] = f"{project_url(project, 'mxu')}?numbers=decimal&lesson=2"
    return explain_page(request, project, "digits", "explain_digits.html", failure, **values)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise invalid(
            f"the number must be a decimal such as 0.1, got {text[:40]!r}", "value"
        ) from None


@router.get("/device")
def show_device(request: Request, project: str, type: str = "v3-8") -> Response:
    """A board of four chips with the figures that it was sold with."""
    check_project(request, project)
    values: dict[str, Any] = {"type": type, "names": tuple(devices.SOLD), "picture": None}
    failure = None
    try:
        values["picture"] = draw(devices.device(type))
    except PodyardError as error:
        failure = error
    return explain_page(request, project, "device", "explain_device.html", failure, **values)


@router.get("/tpu-v1")
def show_first_tpu(
    request: Request,
    project: str,
    bandwidth: float = 4.0,
    macs: int = 300,
    weights: int = 4,
    activations: int = 150,
) -> Response:
    """The first TPU with other memory, and the Edge TPU. `macs` in millions, `weights` in MB,
    `activations` in kB."""
    from podyard.engine.lesson.first_tpu import BANDWIDTH_FACTORS, edge_tpu, first_tpu

    check_project(request, project)
    fields = [
        ("macs", "Million products", macs), ("weights", "MB of weights", weights),
        ("activations", "kB in and out", activations),
    ]  # fmt: skip
    values: dict[str, Any] = {
        "bandwidth": bandwidth,
        "factors": BANDWIDTH_FACTORS,
        "picture": None,
        "edge": None,
    }
    failure = None
    try:
        if max(macs, weights, activations) > EDGE_MAX:
            raise invalid(
                f"the sizes of a model are at most {EDGE_MAX:,}, got "
                f"{max(macs, weights, activations):,}"
            )
        values["picture"] = draw(first_tpu(bandwidth))
        values["edge"] = draw(edge_tpu(macs * 10**6, weights * 10**6, activations * 10**3))
    except PodyardError as error:
        failure = error
    values |= {"edge_fields": fields, "edge_max": EDGE_MAX}
    return explain_page(request, project, "tpu-v1", "explain_tpu_v1.html", failure, **values)
