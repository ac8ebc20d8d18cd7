"""Podyard's own REST for fault rules. A rule is written as in a scenario file, and shown as it may
be written again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired

from fastapi import APIRouter, Request
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    create_model,
)
from typing_extensions import TypedDict

from podyard.api import deps
from podyard.api.deps import Timestamp
from podyard.control.checks import faults
from podyard.domain.fault import (
    COUNT_MAX,
    EFFECTS,
    EVERY_SECONDS_MIN,
    MATCH_KEYS,
    PATTERN_CHARACTERS_MAX,
    RULES_MAX,
    SECONDS_MAX,
    FaultRule,
    Kind,
    Parameter,
    rule_json,
)

router = APIRouter(prefix="/podyard/v1", route_class=deps.Route)

_Seconds = Annotated[StrictInt | StrictFloat, Field(ge=0, le=SECONDS_MAX)] | StrictStr
_Pattern = Annotated[StrictStr, Field(min_length=1, max_length=PATTERN_CHARACTERS_MAX)]
_STRICT = ConfigDict(extra="forbid")


def _parameters() -> Iterator[tuple[str, Parameter]]:
    for effect in EFFECTS.values():
        yield from effect.parameters.items()


def _type_of(name: str) -> Any:
    """Return what a parameter may be in any of the effects that take it; `parse_rule` knows what it
    may be in each."""
    same = [parameter for key, parameter in _parameters() if key == name]
    first = same[0]
    if first.kind is Kind.FLAG:
        return StrictBool
    if first.kind is Kind.TEXT:
        return Annotated[StrictStr, Field(max_length=PATTERN_CHARACTERS_MAX)]
    if first.kind is Kind.SECONDS:
        return _Seconds
    least, most = min(item.least for item in same), max(item.most for item in same)
    number = StrictInt if first.kind is Kind.WHOLE else StrictInt | StrictFloat
    return Annotated[number, Field(ge=least, le=most)]


def _optional(kind: Any, text: str) -> Any:
    return (kind | None, Field(default=None, description=text))


# Both messages say in the API's document what `parse_rule` takes; they are made of the table that
# it goes by.
_KEYS: dict[str, Any] = {
    key: (_Pattern, Field(default="*", description="A pattern: `*`, `?`, `[...]`."))
    for key in MATCH_KEYS
}
MatchMessage = create_model("MatchMessage", __config__=_STRICT, **_KEYS)
_FIELDS: dict[str, Any] = {
    "effect": (Literal[tuple(EFFECTS)], ...),
    "match": _optional(MatchMessage, "What it acts on; nothing: on all that the effect can see."),
    "probability": _optional(
        Annotated[StrictInt | StrictFloat, Field(ge=0, le=1)], "Of each stroke; 1."
    ),
    "count": _optional(
        Annotated[StrictInt, Field(ge=1, le=COUNT_MAX)], "How often at most; without it: no limit."
    ),
    "from": _optional(_Seconds, "A time, or a length of time from now."),
    "until": _optional(_Seconds, "The same; without it: until the rule is removed."),
    "every": _optional(
        Annotated[StrictInt | StrictFloat, Field(ge=EVERY_SECONDS_MIN, le=SECONDS_MAX)] | StrictStr,
        "How often an event comes again.",
    ),
    **{key: _optional(_type_of(key), parameter.text) for key, parameter in _parameters()},
}
FaultMessage = create_model("FaultMessage", __config__=_STRICT, **_FIELDS)
FaultsMessage = create_model(
    "FaultsMessage",
    __config__=_STRICT,
    faults=(Annotated[list[FaultMessage], Field(max_length=RULES_MAX)], ...),  # type: ignore[valid-type]
)

FaultAnswer = TypedDict(
    "FaultAnswer",
    {
        "name": str,
        "fault": str,
        "effect": str,
        "match": dict[str, str],
        "probability": NotRequired[float],
        "count": NotRequired[int],
        "from": Timestamp,
        "until": NotRequired[Timestamp],
        "every": NotRequired[float],
        "createTime": Timestamp,
        "fired": int,
        "over": bool,
        "notice": NotRequired[float],
        "during": NotRequired[str],
        "limit": NotRequired[int],
        "seconds": NotRequired[float],
        "worker": NotRequired[int],
        "chips": NotRequired[int],
        "factor": NotRequired[float],
        "as": NotRequired[str],
        "state": NotRequired[str],
        "code": NotRequired[int],
        "message": NotRequired[str],
        "real": NotRequired[bool],
        "close": NotRequired[bool],
    },
)


class FaultList(deps.NextPage):
    faults: list[FaultAnswer]


class FaultsAdded(TypedDict):
    faults: list[FaultAnswer]


@router.post("/faults")
def create(request: Request, body: Annotated[deps.Body, FaultMessage]) -> FaultAnswer:
    """Adds a fault rule."""
    caller = deps.principal(request)
    return _fault_answer(_change_rules(request, lambda uow: faults.create(uow, caller, body)))


@router.post("/faults:batchCreate")
def create_all(request: Request, body: Annotated[deps.Body, FaultsMessage]) -> FaultsAdded:
    """Adds fault rules, all or none."""
    caller = deps.principal(request)
    caller.require("podyard.faults.create", "*", "faults")
    deps.parse(_Outside, body)
    added = _change_rules(request, lambda uow: faults.create_all(uow, caller, body["faults"]))
    return {"faults": [_fault_answer(rule) for rule in added]}


@router.get("/faults", openapi_extra=deps.asks(*deps.PAGING))
def list_faults(request: Request) -> FaultList:
    """All fault rules, in the order in which they were added."""
    caller = deps.principal(request)
    found = deps.read(request, lambda uow: faults.list_faults(uow, caller))
    page, token = deps.page_of(request, found, lambda rule: rule.fault_id)
    return {"faults": [_fault_answer(rule) for rule in page], **deps.next_page(token)}


@router.get("/faults/{fault}")
def get(request: Request, fault: str) -> FaultAnswer:
    caller = deps.principal(request)
    return _fault_answer(deps.read(request, lambda uow: faults.get(uow, caller, fault)))


@router.delete("/faults/{fault}")
def delete(request: Request, fault: str) -> deps.Empty:
    """Removes a fault rule; what it has broken works again."""
    caller = deps.principal(request)
    _change_rules(request, lambda uow: faults.delete(uow, caller, fault))
    return {}


class _Outside(BaseModel):
    """The surroundings of the rules, which `parse_rules` reads."""

    model_config = _STRICT
    faults: list[Any]


def _change_rules(request: Request, work: Any) -> Any:
    """Calls that come after the answer find the rules as they are now."""
    found = deps.write(request, work)
    request.app.state.faults.forget()
    return found


def _fault_answer(rule: FaultRule) -> FaultAnswer:
    answer: Any = {
        "name": f"faults/{rule.fault_id}",
        "fault": rule.fault_id,
        **rule_json(rule),
        "createTime": rule.created.rfc3339(),
        "fired": rule.fired,
        "over": rule.over,
    }
    found: FaultAnswer = answer
    return found
