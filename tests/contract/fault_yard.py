"""What the tests of faults share: a small fleet on a virtual clock, and short words for what they
ask."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event, select

from podyard.db.engines.direct_statements import DirectConnection
from podyard.db.tables.base import state_changes
from podyard.domain.fleet_file import load_fleet
from tests.yard import ZONE, Yard

FLEET = load_fleet(f"""
zones:
  {ZONE}: {{v2: {{shape: 4x4, pods: 2}}, v3: {{shape: 4x4}}}}
timings: {{create_seconds: 60, delete_seconds: 30}}
""")
FAULTS = "/podyard/v1/faults"
SPOT = {"schedulingConfig": {"spot": True}}


def add(yard: Yard, effect: str, **fields: Any) -> str:
    if "starts" in fields:
        fields["from"] = fields.pop("starts")
    fault: str = yard.ok("POST", FAULTS, {"effect": effect, **fields})["fault"]
    return fault


def fired(yard: Yard, fault: str) -> tuple[int, bool]:
    found = yard.ok("GET", f"{FAULTS}/{fault}")
    return found["fired"], found["over"]


def advance(yard: Yard, duration: str) -> None:
    yard.ok("POST", "/podyard/v1/clock:advance", {"duration": duration})
    yard.step()
    yard.step()


def ready(yard: Yard, *names: str, kind: str = "v2-8", **fields: Any) -> None:
    body = {"acceleratorType": kind, "runtimeVersion": "tpu-vm-base", **fields}
    for name in names:
        yard.ok("POST", f"{yard.nodes()}?nodeId={name}", body)
    yard.step()
    advance(yard, "60s")
    assert {node(yard, name)["state"] for name in names} == {"READY"}


def node(yard: Yard, name: str) -> dict[str, Any]:
    return yard.ok("GET", f"{yard.nodes()}/{name}")


def states(yard: Yard) -> dict[str, str]:
    listed = yard.ok("GET", yard.nodes()).get("nodes", [])
    return {item["name"].rpartition("/")[2]: item["state"] for item in listed}


def queue(yard: Yard, name: str = "q", count: int = 1, **fields: Any) -> None:
    made = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    spec: dict[str, Any] = {"parent": f"projects/demo/locations/{ZONE}", "node": made}
    spec |= (
        {"nodeId": f"{name}-n"}
        if count == 1
        else {"multisliceParams": {"nodeCount": count, "nodeIdPrefix": name}}
    )
    yard.ok("POST", f"{queues()}?queuedResourceId={name}", {"tpu": {"nodeSpec": [spec]}, **fields})


def queues() -> str:
    return f"/v2/projects/demo/locations/{ZONE}/queuedResources"


def queued(yard: Yard, name: str = "q") -> str:
    state: str = yard.ok("GET", f"{queues()}/{name}")["state"]["state"]
    return state


def changes(yard: Yard, name: str) -> list[tuple[str, str, str]]:
    """(state, reason, actor) of everything that has happened to a node or queued resource."""
    mine = state_changes.c.resource_name.like(f"%/{name}")
    rows = yard.database.read(
        lambda uow: uow.all(select(state_changes).where(mine).order_by(state_changes.c.seq))
    )
    return [(row["to_state"], row["reason"], row["actor"]) for row in rows]


def statements(yard: Yard, work: Any) -> list[str]:
    """Return what `work` asks the database, straight through the driver and by SQLAlchemy."""
    found: list[str] = []
    ask = DirectConnection._ask

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        found.append(statement)

    def note_direct(self: DirectConnection, text: str, values: tuple[Any, ...]) -> Any:
        found.append(text)
        return ask(self, text, values)

    engines = (yard.database.engine, yard.database._reader)
    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    DirectConnection._ask = note_direct  # type: ignore[method-assign]
    try:
        work()
    finally:
        DirectConnection._ask = ask  # type: ignore[method-assign]
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)
    return found
