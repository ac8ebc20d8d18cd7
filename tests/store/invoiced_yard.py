"""A yard with many nodes and invoiced months, made by the use cases and the real loop: what is
copied and backed up.

`python -m tests.store.invoiced_yard --nodes 10000 FOLDER` makes one as a data folder.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from podyard.base.clock import ClockMode, ManualClock, RealTime
from podyard.base.rng import Streams
from podyard.control.billing import accounts, commitments
from podyard.control.compute import nodes
from podyard.db.billing import invoices as invoice_rows
from podyard.db.compute import nodes as node_rows
from podyard.db.store import platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.invoice import IssuedInvoice
from podyard.domain.node import NodeState, UsageClass
from podyard.domain.principal import PLATFORM
from podyard.testing.server import write_empty_database
from tests.builders import PROJECT, ZONE, Play, node_spec

START = RealTime.from_rfc3339("2026-02-20T00:00:00Z")
END = RealTime.from_rfc3339("2026-05-03T00:00:00Z")
MONTHS = 3  # invoiced by then
FLEET = """
zones:
  us-central1-a: {{v2: {{pods: 2, shape: 16x16}}, v5e: {{pods: {pods}, shape: 16x16}}}}
timings: {{create_seconds: 10, start_seconds: 5, stop_seconds: 5, delete_seconds: 5}}
"""
WAVE = 250  # nodes that are created in one turn of the loop
TOGETHER = 50  # use cases in one unit
DAY_SECONDS = 86_400.0

Change = Callable[[UnitOfWork], object]


def fill(database: Database, clock: ManualClock, count: int, seed: int = 0) -> str:
    """Creates `count` nodes in the first days; over three months some of them are stopped, started,
    relabelled and deleted, and each month is invoiced. Returns the text of the fleet's file."""
    chance = Random(seed)
    # it stands still afterwards
    database.run(lambda uow: platform_clock.set_up(uow, ClockMode.LOCAL))
    fleet = FLEET.format(pods=count // 200 + 1)
    play = Play(database, clock, fleet)
    database.run(
        lambda uow: accounts.patch(uow, PLATFORM, PROJECT, {"grace_hours": 24, "tax": "0.081"})
    )
    database.run(
        lambda uow: commitments.add_credit(
            uow, PLATFORM, PROJECT, "1000.25", None, "2026-05", "a gift"
        )
    )
    names = [f"n{index}" for index in range(count)]
    for wave in _parts(names, WAVE):
        _run_all(play, [_creation(play, chance, name) for name in wave])
        play.turn(1)
        play.turn(11)
    while clock.now() < END:
        play.turn(DAY_SECONDS * chance.uniform(1, 3))
        for some in _parts(chance.sample(names, max(3, count // 40)), WAVE):
            _run_all(play, [_change(play, chance, name) for name in some])
            play.turn(1)
            play.turn(6)
    deadline = time.monotonic() + 300
    while len(issued(database)) < MONTHS:
        assert time.monotonic() < deadline, "the months are not closed"
        play.turn(1)
    play.loop.stop()
    return fleet


def issued(database: Database) -> list[IssuedInvoice]:
    return database.read(lambda uow: invoice_rows.of_project(uow, PROJECT))


def _creation(play: Play, chance: Random, name: str) -> Change:
    usage = chance.choice([UsageClass.ON_DEMAND, UsageClass.ON_DEMAND, UsageClass.SPOT])
    spec = node_spec("v5litepod-1", usage_class=usage, labels={"team": chance.choice("abc")})
    return lambda uow: nodes.create(uow, play.fleet, PLATFORM, PROJECT, ZONE, name, spec)


def _change(play: Play, chance: Random, name: str) -> Change:
    """Whatever the node's state allows."""
    drawn, team = chance.random(), chance.choice("abc")

    def body(uow: UnitOfWork) -> None:
        node = node_rows.find(uow, PROJECT, ZONE, name)
        where = {"principal": PLATFORM, "project": PROJECT, "zone": ZONE, "node_id": name}
        if node is None:
            nodes.create(uow, play.fleet, spec=node_spec("v5litepod-1"), **where)
        elif node.state is NodeState.STOPPED:
            nodes.start(uow, play.fleet, **where)
        elif node.state is NodeState.READY and drawn < 0.4:
            nodes.stop(uow, play.fleet, **where)
        elif node.state is NodeState.READY and drawn < 0.7:
            nodes.patch(uow, changes={"labels": {"team": team}}, **where)
        elif node.state is NodeState.READY:
            nodes.delete(uow, play.fleet, **where)

    return body


def _parts(names: Sequence[str], size: int) -> list[Sequence[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


def _run_all(play: Play, changes: Sequence[Change]) -> None:
    for start in range(0, len(changes), TOGETHER):
        some = changes[start : start + TOGETHER]

        def body(uow: UnitOfWork, some: Sequence[Change] = some) -> None:
            for change in some:
                change(uow)

        play.database.run(body)


def make(folder: Path, count: int, seed: int = 0) -> None:
    """A data folder with such a yard, as `podyard up` would find it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_empty_database(folder / "podyard.db")
    clock = ManualClock(START)
    with contextlib.closing(
        Database(f"sqlite:///{folder / 'podyard.db'}", clock, Streams(seed))
    ) as database:
        (folder / "fleet.yaml").write_text(fill(database, clock, count, seed), encoding="utf-8")
    (folder / "fleet").write_text(f"{folder.absolute() / 'fleet.yaml'}\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    make(given.folder, given.nodes, given.seed)
    print(f"{given.nodes} nodes, {MONTHS} invoiced months: {time.monotonic() - began:.1f} s")
