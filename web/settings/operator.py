"""For the owner of the platform: its clock and fault rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.clock import RATE_ONE, ClockMode
from podyard.base.durations import parse_duration
from podyard.base.errors import PodyardError, invalid
from podyard.control.access import identity
from podyard.control.checks import faults
from podyard.control.platform import clock
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fault import EFFECTS, MATCH_KEYS, Kind
from podyard.domain.principal import Principal
from podyard.http import context
from podyard.web.kit.commands import Command
from podyard.web.kit.render import ConsoleRoute, form_of, page, project_url, see_other

PRESETS = ("1h", "1d", "30d")
# Buttons on a node's page: what they say, and the rule's effect and parameters. All are over by
# themselves.
NODE_FAULTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "notice": ("Preempt with 30 s of notice", {"effect": "preempt", "notice": 30}),
    "host": ("A host is down for 10 min", {"effect": "host", "seconds": 600}),
    "chip": ("A chip is broken for 10 min", {"effect": "chip", "seconds": 600}),
    "link": ("A link is slow for 10 min", {"effect": "link", "seconds": 600, "factor": 4}),
    "metadata": ("Metadata servers down for 10 min", {"effect": "metadata", "until": "10m"}),
    "maintenance": ("Maintenance for 10 min", {"effect": "maintenance", "seconds": 600}),
}

router = APIRouter(prefix="/console/{project}/operator", route_class=ConsoleRoute)


@router.get("")
def show(request: Request, project: str) -> Response:
    return _page(request, project, dict(request.query_params), None)


@router.post("/{action}")
async def act(request: Request, project: str, action: str) -> Response:
    fields = await form_of(request)
    return await context.in_thread(lambda: _act(request, project, action, fields))


def _act(request: Request, project: str, action: str, fields: Mapping[str, str]) -> Response:
    caller = context.principal(request)
    caller.require("podyard.clock.set", "*", "clock")
    try:
        body = _ACTIONS[action](caller, fields) if action in _ACTIONS else None
        if body is None:
            raise invalid(f"there is no {action} here")
        context.write(request, body)
    except PodyardError as error:
        return _page(request, project, fields, error)
    # Users who came from a node's page go back to it.
    back, pages = fields.get("back", ""), project_url(project, "nodes")
    return see_other(
        back
        if action == "node" and back.startswith(f"{pages}/")
        else project_url(project, "operator")
    )


Body = Callable[[UnitOfWork], object]


def _advance(caller: Principal, fields: Mapping[str, str]) -> Body:
    try:
        nanos = parse_duration(fields.get("duration", "").strip())
    except ValueError as error:
        raise invalid(str(error), "duration") from None
    return lambda uow: clock.advance(uow, caller, by_nanos=nanos)


def _rate(caller: Principal, fields: Mapping[str, str]) -> Body:
    text = fields.get("rate", "").strip()
    try:
        rate = float(text)
    except ValueError:
        raise invalid(
            f"{text!r} is not a number of platform seconds per real second", "rate"
        ) from None
    return lambda uow: clock.set_rate(uow, caller, rate)


def _add(caller: Principal, fields: Mapping[str, str]) -> Body:
    effect = fields.get("effect", "")
    known = EFFECTS.get(effect)
    given = {key: value.strip() for key, value in fields.items() if value.strip()}
    rule: dict[str, Any] = {"effect": effect}
    match = {key: given[f"match.{key}"] for key in MATCH_KEYS if f"match.{key}" in given}
    if match:
        rule["match"] = match
    rule |= {key: given[key] for key in ("from", "until", "every") if key in given}
    rule |= {key: _number(given[key], key) for key in ("probability", "count") if key in given}
    for key, parameter in known.parameters.items() if known else ():
        text = given.get(f"{effect}.{key}")
        if text is not None:
            numeric = parameter.kind in (Kind.NUMBER, Kind.WHOLE)
            rule[key] = (
                text == "true"
                if parameter.kind is Kind.FLAG
                else _number(text, key)
                if numeric
                else text
            )
    return lambda uow: faults.create(uow, caller, rule)


def _strike(caller: Principal, fields: Mapping[str, str]) -> Body:
    """One of `NODE_FAULTS`, once, to the node `resource`."""
    known = NODE_FAULTS.get(fields.get("fault", ""))
    if known is None:
        raise invalid(
            f"{fields.get('fault', '')!r} is not one of {', '.join(NODE_FAULTS)}", "fault"
        )
    once = {} if "until" in known[1] else {"count": 1}
    rule = {**known[1], **once, "match": {"resource": fields.get("resource", "")}}
    return lambda uow: faults.create(uow, caller, rule)


def _remove(caller: Principal, fields: Mapping[str, str]) -> Body:
    return lambda uow: faults.delete(uow, caller, fields.get("fault", ""))


_ACTIONS: Mapping[str, Callable[[Principal, Mapping[str, str]], Body]] = {
    "advance": _advance,
    "rate": _rate,
    "add": _add,
    "node": _strike,
    "remove": _remove,
}


def _number(text: str, field: str) -> int | float:
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        raise invalid(f"{text!r} is not a number", field) from None


def _page(
    request: Request, project: str, fields: Mapping[str, str], error: PodyardError | None
) -> Response:
    caller = context.principal(request)
    caller.require("podyard.clock.set", "*", "clock")

    def body(uow: UnitOfWork) -> dict[str, Any]:
        identity.project_row(uow, project)
        return {"clock": uow.clock, "now": uow.now, "rules": faults.list_faults(uow, caller)}

    found = context.read(request, body)
    chosen = fields.get("effect", "")
    return page(
        request,
        "operator.html",
        status=200 if error is None else error.code.http_status,
        section="operator",
        project=project,
        **found,
        virtual=found["clock"].mode is ClockMode.VIRTUAL,
        rate=found["clock"].rate_millionths / RATE_ONE,
        presets=PRESETS,
        effects=EFFECTS,
        chosen=chosen if chosen in EFFECTS else next(iter(EFFECTS)),
        match_keys=MATCH_KEYS,
        fields=fields,
        error=error.message if error else None,
        url=project_url(project, "operator"),
        commands=_COMMANDS,
    )


_COMMANDS = [
    Command(
        "clock",
        "podyard clock show\npodyard clock advance 30d\npodyard clock set-rate "
        "3600\npodyard clock pause",
    ),
    Command(
        "faults",
        "podyard fault effects\npodyard fault add preempt --zone 'us-*' --count 3 -p notice=30s",
    ),
]
