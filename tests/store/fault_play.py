"""What the tests of fault rules and of recovery share."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from podyard.control.checks import faults
from podyard.db.platform import faults as rows
from podyard.db.tables.compute import slices
from podyard.domain.fault import FaultRule
from podyard.domain.principal import PLATFORM
from podyard.domain.slice import chips_from_text
from tests.builders import Play


def add(play: Play, effect: str, **fields: Any) -> str:
    given = {"effect": effect, **{name.rstrip("_"): value for name, value in fields.items()}}
    return play.database.run(lambda uow: faults.create(uow, PLATFORM, given)).fault_id


def rule(play: Play, fault: str) -> FaultRule:
    return play.database.read(lambda uow: faults.get(uow, PLATFORM, fault))


def remove(play: Play, fault: str) -> None:
    play.database.run(lambda uow: faults.delete(uow, PLATFORM, fault))


def chips(play: Play, name: str = "n") -> tuple[str, int] | None:
    """(pod, chips) that the node holds."""
    key = play.node(name).node_key
    row = play.database.read(lambda uow: uow.first(select(slices).where(slices.c.node_key == key)))
    return None if row is None else (row["pod_id"], chips_from_text(row["chips"]))


def broken(play: Play) -> dict[str, int]:
    return play.database.read(rows.broken_chips_by_pod)


def counted(play: Play) -> int:
    return play.database.read(lambda uow: uow.clock.fault_rules)


def check_room(play: Play) -> None:
    """No READY node stands on a broken chip, no chip has two slices."""
    taken: dict[str, int] = {}
    for row in play.database.read(lambda uow: uow.all(select(slices))):
        held = chips_from_text(row["chips"])
        assert not taken.get(row["pod_id"], 0) & held
        taken[row["pod_id"]] = taken.get(row["pod_id"], 0) | held
        node = next(item for item in play.held() if item["node_key"] == row["node_key"])
        assert node["state"] == "REPAIRING" or not held & broken(play).get(row["pod_id"], 0)
