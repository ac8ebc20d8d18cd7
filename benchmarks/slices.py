"""Slices per second: from the row of a request to the row of a READY node, one durable unit of work
each.

SQLite on a file with synchronous=FULL, group commit; no HTTP. The requests are there before the
clock starts; the loop then reads the fleet, decides, and applies each placing in a separate unit.

    python -m benchmarks.slices [--nodes 3000] [--type v4-8]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from sqlalchemy import func, select

from podyard import migrations
from podyard.api.app import prepare
from podyard.base.clock import OsClock
from podyard.control.compute import nodes
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.db.tables.compute import nodes as nodes_table
from podyard.db.tables.compute import slices
from podyard.domain.fleet_file import load_fleet
from podyard.domain.node import NodeSpec, UsageClass
from podyard.domain.principal import PLATFORM
from podyard.hardware.accelerator_types import parse
from podyard.loop.steps import Loop
from podyard.settings import from_environment

ZONE = "us-central2-b"
REQUESTS_TOGETHER = 64


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=3000)
    parser.add_argument("--type", default="v4-8")
    options = parser.parse_args()
    kind = parse(options.type)
    pods = -(-options.nodes * kind.chip_count // 4096)
    fleet = load_fleet(f"zones: {{{ZONE}: {{{kind.generation.name}: {{pods: {pods}}}}}}}")
    clock = OsClock()
    with tempfile.TemporaryDirectory() as folder:
        settings = from_environment({"PODYARD_DATA": folder})
        database = Database(f"sqlite:///{Path(folder) / 'podyard.db'}", clock)
        migrations.upgrade(database)
        prepare(settings, database)
        loop = Loop(database, fleet, lambda *_: None, clock, "benchmark")
        loop.anchor()
        spec = NodeSpec(kind.name, kind.topology.text, "tpu-vm-v4-base", UsageClass.ON_DEMAND)

        def request(index: int):  # type: ignore[no-untyped-def]
            return lambda uow: nodes.create(uow, fleet, PLATFORM, "demo", ZONE, f"n{index}", spec)

        begin = clock.monotonic_seconds()
        for first in range(0, options.nodes, REQUESTS_TOGETHER):
            last = min(first + REQUESTS_TOGETHER, options.nodes)
            database.run_together([request(index) for index in range(first, last)])
        requested = clock.monotonic_seconds() - begin
        begin = clock.monotonic_seconds()
        while database.read(_placed) < options.nodes:
            loop.round()
        seconds = clock.monotonic_seconds() - begin
        print(f"{options.nodes} x {kind.name} in {pods} pods of 4096 chips")
        print(f"requests: {options.nodes / requested:,.0f} a second (one durable unit each)")
        print(f"slices:   {options.nodes / seconds:,.0f} a second (one durable unit each)")
        database.close()


def _placed(uow: UnitOfWork) -> int:
    query = select(func.count()).select_from(
        nodes_table.join(slices, slices.c.node_key == nodes_table.c.node_key)
    )
    return int(uow.execute(query.where(nodes_table.c.state == "READY")).scalar_one())


if __name__ == "__main__":
    main()
