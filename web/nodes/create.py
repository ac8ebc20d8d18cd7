"""The page that a new node begins on: how many chips of what, which zones have them now, and what
that costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.control.compute.rooms import RoomView, ZoneRoom
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.domain.fleet import Fleet, quota_units, region_of
from podyard.domain.node import UsageClass
from podyard.engine.plan.forecast import SliceForecast, SlicePrice, forecast
from podyard.hardware import accelerator_types
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.hardware.generation import Generation
from podyard.hardware.generations import GENERATIONS
from podyard.http import context, step_time
from podyard.http.step_time import StepEstimate
from podyard.pricing.sku import Price
from podyard.web.jobs.create_program import TimedProgram, memory_text, own_jobs, program_of
from podyard.web.jobs.create_program import steps as program_steps
from podyard.web.kit import client_commands, commands, forms
from podyard.web.kit.render import ConsoleRoute, page, project_url

USAGES = (UsageClass.ON_DEMAND, UsageClass.PREEMPTIBLE, UsageClass.SPOT)
ALTERNATIVES_MAX = 4
TRIED_MAX = 16  # types and usage classes that are looked at for these
LARGER_MAX = 3  # sizes of the same generation that a program is tried on
CHIPS_MAX = 10_000  # above every pod there is

router = APIRouter(prefix="/console/{project}/create", route_class=ConsoleRoute)


@dataclasses.dataclass(frozen=True, slots=True)
class CreateQuery:
    """The query of the address. `kind` None: `chips` of any generation. `zone`: whose commands are
    shown; empty: of the best."""

    kind: AcceleratorType | None
    chips: int
    usage: UsageClass
    program: TimedProgram
    zone: str

    def query(self, **changes: str) -> str:
        """The address that asks for the same with some changes; an empty value takes a field
        out."""
        own = {
            "type": self.kind.name if self.kind else "",
            "chips": "" if self.kind else str(self.chips),
            "usage": "" if self.usage is UsageClass.ON_DEMAND else str(self.usage),
            "module" if self.program.is_module else "recipe": self.program.name,
            "batch": "" if self.program.batch is None else str(self.program.batch),
            "tokens": str(self.program.run.tokens or ""),
            "tokens_per_step": str(self.program.run.tokens_per_step or ""),
        }
        return "?" + urlencode({name: value for name, value in {**own, **changes}.items() if value})


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """Price of an hour in one usage class; `why`: why there is none."""

    price: Price | None
    why: str

    @property
    def nanos(self) -> int | None:
        return self.price.total_nanos_per_hour if self.price else None


@dataclasses.dataclass(frozen=True, slots=True)
class ZoneRow:
    """A zone and a type. `seconds`: until a node is READY, as far as known. `note`: in one
    sentence, why not now."""

    room: ZoneRoom
    costs: Mapping[str, Cost]
    seconds: float | None
    step: StepEstimate | None
    note: str
    create_url: str
    commands_url: str

    @property
    def needs(self) -> str:
        """Memory of one device that a step needs; empty where that is not known."""
        return "" if self.step is None else memory_text(self.step, self.room.kind)

    @property
    def order(self) -> tuple[bool, float, int, str]:
        nanos = self.costs[self.room.usage_class].nanos
        late = self.seconds if self.seconds is not None else float("inf")
        return (not self.room.is_free, 0 if self.room.is_free else late, nanos or 0, self.room.zone)


@router.get("")
def show(request: Request, project: str) -> Response:
    fleet, fields = context.platform(request).fleet, dict(request.query_params)
    try:
        wanted, error = read_query(fleet, fields), None
    except PodyardError as refused:
        kept = {name: value for name, value in fields.items() if name in ("usage", "recipe")}
        wanted, error = read_query(fleet, kept), refused
    kinds = kinds_of(fleet, wanted)
    steps, doubt = program_steps(request, project, wanted.program, [kind.name for kind in kinds])
    larger = _larger(fleet, wanted) if misfit_of(wanted, steps) else []
    more, _ = program_steps(request, project, wanted.program, [kind.name for kind in larger])
    fitting = [
        kind
        for kind in larger
        if (step := more.get(kind.name)) is not None and step.fits and not step.error
    ]
    caller = context.principal(request)

    def body(uow: UnitOfWork) -> dict[str, Any]:
        values = _values(
            RoomView(uow, fleet, caller, project),
            fleet,
            project,
            wanted,
            kinds,
            {**more, **steps},
            fitting,
        )
        return {**values, "jobs": own_jobs(uow, caller, project)}

    values = context.read(request, body)
    return page(
        request,
        "create.html",
        status=error.code.http_status if error else 200,
        section="nodes",
        wide=True,
        error=error.message if error else doubt or None,
        recipes=step_time.recipe_names(),
        may_create=caller.may("tpu.nodes.create", project),
        **values,
    )


def read_query(fleet: Fleet, fields: Mapping[str, str]) -> CreateQuery:
    """Return what the address asks for. Raises INVALID_ARGUMENT, and names the nearest types of one
    that does not exist."""
    name, chips = (
        fields.get("type", "").strip(),
        forms.whole_if_given(fields, "chips", "Number of chips"),
    )
    kind = None
    if name or chips is None:
        kind = accelerator_types.parse(name or forms.DEFAULT_TYPE)
        if not name and not _is_offered(fleet, kind):
            kind = fleet.offered_types(next(iter(fleet.zones)))[0]
    usage = fields.get("usage", "")
    return CreateQuery(
        kind,
        kind.chip_count if kind else min(max(chips or 1, 1), CHIPS_MAX),
        UsageClass(usage) if usage in USAGES else UsageClass.ON_DEMAND,
        program_of(fields),
        fields.get("zone", ""),
    )


def kinds_of(fleet: Fleet, wanted: CreateQuery) -> list[AcceleratorType]:
    """The type that was named, or of each generation the smallest that has the chips."""
    if wanted.kind is not None:
        return [wanted.kind]
    return [
        kind
        for one in _generations(fleet)
        if (kind := _smallest(fleet, one, wanted.chips)) is not None
    ]


def _values(
    view: RoomView,
    fleet: Fleet,
    project: str,
    wanted: CreateQuery,
    kinds: Sequence[AcceleratorType],
    steps: Mapping[str, StepEstimate],
    fitting: Sequence[AcceleratorType],
) -> dict[str, Any]:
    rows = [
        _row(room, fleet, project, wanted, steps, view.now)
        for kind in kinds
        for room in view.rooms(kind, wanted.usage)
    ]
    rows.sort(key=lambda row: row.order)
    chosen = next((row for row in rows if row.room.zone == wanted.zone), rows[0] if rows else None)
    misfit = misfit_of(wanted, steps)
    others = _others(fleet, wanted) if not any(row.room.is_free for row in rows) else []
    if misfit:
        others = [(kind, wanted.usage) for kind in fitting]
    return {
        "project": project,
        "wanted": wanted,
        "url": project_url(project, "create"),
        "generations": [
            (one, _type_of_size(fleet, one, wanted.chips)) for one in _generations(fleet)
        ],
        "sizes": _sizes(fleet, wanted),
        "usages": USAGES,
        "rows": rows,
        "free_count": len({row.room.zone for row in rows if row.room.is_free}),
        "zone_count": len({row.room.zone for row in rows}),
        "chosen": chosen,
        "commands": _commands(project, chosen) if chosen else [],
        "forecasts": _forecasts(rows, wanted),
        "misfit": misfit,
        "alternatives": _alternatives(view, fleet, project, wanted, others, steps),
    }


def _row(
    room: ZoneRoom,
    fleet: Fleet,
    project: str,
    wanted: CreateQuery,
    steps: Mapping[str, StepEstimate],
    now: PlatformTime,
) -> ZoneRow:
    kind, starts = room.kind, room.room.starts
    creation = fleet.timings.creation_seconds(kind.host_count)
    seconds = None
    if room.room.nodes:
        seconds = creation
    elif starts is not None:
        seconds = max(0.0, starts.seconds_since(now)) + creation
    place = {"zone": room.zone, "accelerator_type": kind.name, "usage": str(room.usage_class)}
    costs = {
        str(usage): Cost(*forms.price_of(kind.name, room.zone, str(usage), now)) for usage in USAGES
    }
    note = room.room.reason
    if not room.quota.allows(kind):
        note = quota_note(room)
    # Where there is no room a plain creation fails, and a queued resource waits.
    form = ("nodes", "new") if room.is_free else ("queue", "resources", "new")
    create_url = f"{project_url(project, *form)}?{urlencode(place)}"
    query = wanted.query(type=kind.name, chips="", zone=room.zone)
    commands_url = f"{project_url(project, 'create')}{query}#commands"
    return ZoneRow(room, costs, seconds, steps.get(kind.name), note, create_url, commands_url)


def _forecasts(rows: Sequence[ZoneRow], wanted: CreateQuery) -> list[SliceForecast]:
    """Return the whole run on each type, in the zone that stands first for it."""
    if wanted.program.run.tokens is None:
        return []
    first: dict[str, ZoneRow] = {}
    for row in rows:
        first.setdefault(row.room.kind.name, row)
    return [
        forecast(
            row.room.kind,
            row.room.zone,
            row.step.on_slice,
            [SlicePrice(usage, cost.nanos, "USD") for usage, cost in row.costs.items()],
            wanted.program.run,
        )
        for row in first.values()
        if row.step is not None
    ]


def quota_note(room: ZoneRoom) -> str:
    """The reason why the quota does not allow a node there."""
    kind, left = room.kind, room.quota
    if left.limit is not None and quota_units(kind) > left.left:
        region, needed = region_of(room.zone), quota_units(kind)
        return (
            f"The quota in {region} has {left.left} of {left.limit} {left.unit} left, and "
            f"{kind.name} takes {needed}."
        )
    return f"The project may hold {left.chips} more chips, and {kind.name} has {kind.chip_count}."


def misfit_of(wanted: CreateQuery, steps: Mapping[str, StepEstimate]) -> StepEstimate | None:
    """The step of a program that needs more memory than the type has that was named; None where it
    fits."""
    step = steps.get(wanted.kind.name) if wanted.kind else None
    return None if step is None or step.error or step.fits else step


def _larger(fleet: Fleet, wanted: CreateQuery) -> list[AcceleratorType]:
    """Types with more memory: the next sizes, and as many chips of other generations."""
    if wanted.kind is None:
        return []
    sizes = [
        kind for kind in _types_of(fleet, wanted.kind.generation) if kind.chip_count > wanted.chips
    ]
    others = kinds_of(fleet, dataclasses.replace(wanted, kind=None))
    return [*sizes[:LARGER_MAX], *(kind for kind in others if kind is not wanted.kind)]


def _others(fleet: Fleet, wanted: CreateQuery) -> list[tuple[AcceleratorType, UsageClass]]:
    """Return what nearly fits: the same type bought otherwise, other generations, and smaller
    slices."""
    if wanted.kind is None:
        return []
    found = [(wanted.kind, usage) for usage in USAGES if usage is not wanted.usage]
    alike = kinds_of(fleet, dataclasses.replace(wanted, kind=None))
    smaller = [
        kind for kind in _types_of(fleet, wanted.kind.generation) if kind.chip_count < wanted.chips
    ]
    return found + [
        (kind, wanted.usage) for kind in (*alike, *reversed(smaller)) if kind is not wanted.kind
    ]


def _alternatives(
    view: RoomView,
    fleet: Fleet,
    project: str,
    wanted: CreateQuery,
    others: Sequence[tuple[AcceleratorType, UsageClass]],
    steps: Mapping[str, StepEstimate],
) -> list[ZoneRow]:
    """Of each the zone that has room and is the cheapest."""
    found: list[ZoneRow] = []
    for kind, usage in others[:TRIED_MAX]:
        free = [room for room in view.rooms(kind, usage, explain=False) if room.is_free]
        rows = [_row(room, fleet, project, wanted, steps, view.now) for room in free]
        if rows:
            found.append(min(rows, key=lambda row: row.order))
        if len(found) == ALTERNATIVES_MAX:
            break
    return found


def _commands(project: str, row: ZoneRow) -> list[commands.Command]:
    kind, usage = row.room.kind, str(row.room.usage_class)
    version = kind.generation.runtime_version_default
    spec = forms.node_spec(
        {"accelerator_type": kind.name, "usage": usage, "runtime_version": version}
    )
    return commands.create_node(project, row.room.zone, "", spec) + client_commands.create_node(
        project, row.room.zone, "NODE", spec
    )


def _generations(fleet: Fleet) -> list[Generation]:
    offered = {name for zone in fleet.zones.values() for name in zone.offers}
    of_nodes = (one for one in GENERATIONS.values() if one.wire_type is not None)
    return [one for one in of_nodes if one.name in offered]


def _is_offered(fleet: Fleet, kind: AcceleratorType) -> bool:
    offers = (zone.offers.get(kind.generation.name) for zone in fleet.zones.values())
    return any(offer is not None and offer.fits(kind) for offer in offers)


def _types_of(fleet: Fleet, generation: Generation) -> list[AcceleratorType]:
    return [kind for kind in accelerator_types.all_types(generation) if _is_offered(fleet, kind)]


def _smallest(fleet: Fleet, generation: Generation, chips: int) -> AcceleratorType | None:
    return next((kind for kind in _types_of(fleet, generation) if kind.chip_count >= chips), None)


def _type_of_size(fleet: Fleet, generation: Generation, chips: int) -> AcceleratorType | None:
    """The type of a generation that comes nearest to a number of chips."""
    offered = _types_of(fleet, generation)
    return _smallest(fleet, generation, chips) or (offered[-1] if offered else None)


def _sizes(
    fleet: Fleet, wanted: CreateQuery
) -> tuple[list[AcceleratorType | int], list[AcceleratorType | int]]:
    """Sizes to choose from: the usual ones, and the others. Numbers of chips where no generation is
    chosen."""
    if wanted.kind is None:
        most = max(
            (kind.chip_count for one in _generations(fleet) for kind in _types_of(fleet, one)),
            default=1,
        )
        counts = [2**power for power in range(most.bit_length()) if 2**power <= most]
        return [*counts], [] if wanted.chips in counts else [wanted.chips]
    generation = wanted.kind.generation
    offered = _types_of(fleet, generation)
    usual = [kind for kind in offered if kind.chip_count & (kind.chip_count - 1) == 0]
    return [*usual], [kind for kind in offered if kind not in usual]
