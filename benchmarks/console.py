"""First paint of the console's pages outside billing in Chromium, in a cold and in a warm process.

    python -m benchmarks.console [--nodes 0 50000] [--jobs 10000] [--waiting 500] [--pages overview
    nodes]

The nodes are as those of `benchmarks/lists.py`, with slices as far as the pods have room: nodes are
READY there, and the others are STOPPED. `--waiting` jobs wait for spot nodes of theirs. Cold, warm,
paint, whole and cpu are as in `benchmarks/dashboard.py`, which measures the pages of billing; kB
are those that are sent, compressed, without style sheet and script (25 kB, once). Bound: paint
within 400 ms, a page within 80 kB.
Expected before the first run: 150 ms for lists and forms; overview, queue and pods 1 s, since they
read every node.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import insert, update

from benchmarks import lists
from benchmarks.dashboard import chromium, fill_folder, line_of, measure
from podyard.control.billing import accounts
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.compute import nodes, slices
from podyard.db.tables.jobs import jobs
from podyard.domain.fleet import Fleet
from podyard.domain.fleet_file import instant_fleet
from podyard.domain.node import NodeState, UsageClass
from podyard.domain.slice import chips_text
from podyard.hardware.accelerator_types import kind_of
from podyard.hardware.torus import box_mask, coordinates

BYTES_MAX = 80_000
SENT_SIZE = "return performance.getEntriesByType('navigation')[0].encodedBodySize"
PAGES = (
    "overview", "nodes", "nodes?q=no-such-name", "nodes?sort=-price", "jobs", "compare", "queue",
    "queue/resources",
    "queue/resources/new", "queue/reservations", "pods", "pods/us-central2-b-v4-0", "create",
    "create?type=v2-8",
    "nodes/new", "jobs/new", "machines", "operator", "settings", "settings/access",
    "settings/project",
    "settings/keys", "settings/storage", "search?q=n-0001", "docs", "lesson", "connect",
)  # fmt: skip
OF_ROWS = ("nodes/us-central1-f/n-000000", "jobs/us-central1-f/j-000000")  # pages that need rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[0, 50_000])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--waiting", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pages", nargs="+")
    given = parser.parse_args()
    print(
        f"{'nodes':>6} {'page':<28}{'paint cold':>11}{'warm':>7}"
        f"{'whole cold':>12}{'warm':>7}{'cpu':>6}{'kB':>6}"
    )
    for count in given.nodes:
        with tempfile.TemporaryDirectory(prefix="podyard-console-") as folder:
            data = Path(folder)
            fill_folder(data, lambda uow, count=count: _fill(uow, count, given.jobs, given.waiting))  # type: ignore[misc]
            with chromium() as driver:
                for page in given.pages or (*PAGES, *(OF_ROWS if count else ())):
                    found = [
                        measure(driver, data, f"/console/demo/{page}", SENT_SIZE)
                        for _ in range(given.rounds)
                    ]
                    print(line_of(count, f"{page:<28}", found, BYTES_MAX), flush=True)


def _fill(uow: UnitOfWork, node_count: int, job_count: int, waiting: int) -> None:
    lists.fill(uow, node_count, job_count)
    accounts.open_for(uow, "demo")
    if not node_count:
        return
    places = {
        index: list(_places(instant_fleet(), *kind)) for index, kind in enumerate(lists.KINDS)
    }
    rows: list[dict[str, Any]] = []
    for index in range(node_count - waiting):
        free = places[index % len(lists.KINDS)]
        if free:
            rows.append(_slice(uow, index, *free.pop(0)))
    held = [row["node_key"] for row in rows]
    # Not `uow.execute`, which refuses states without a history.
    write = uow.connection.execute
    write(update(nodes).values(state=NodeState.STOPPED))
    write(update(nodes).where(nodes.c.node_key.in_(held)).values(state=NodeState.READY))
    write(insert(slices), rows)
    for index in range(waiting):
        key, job_key = (
            f"k-{node_count - waiting + index:07d}",
            f"j-{job_count - waiting + index:07d}",
        )
        wanted = {"state": NodeState.CREATING, "job_key": job_key, "usage_class": UsageClass.SPOT}
        write(update(nodes).where(nodes.c.node_key == key).values(**wanted))
        write(
            update(jobs)
            .where(jobs.c.job_key == job_key)
            .values(state="QUEUED", node_key=key, owns_node=True)
        )


def _places(
    fleet: Fleet, kind: str, topology: str, zone: str
) -> Iterator[tuple[str, str, Sequence[int], int]]:
    """(zone, pod, origin, chips) of every slice of the type that the zone has room for."""
    accelerator = kind_of(kind, topology)
    shape = tuple(int(length) for length in topology.split("x"))
    for pod in fleet.pods():
        if (pod.zone, pod.generation) == (zone, accelerator.generation):
            for corner in coordinates(pod.shape):
                if all(at % length == 0 for at, length in zip(corner, shape, strict=True)):
                    yield zone, pod.pod_id, corner, box_mask(pod.shape, corner, shape)


def _slice(
    uow: UnitOfWork, index: int, zone: str, pod_id: str, origin: Sequence[int], chips: int
) -> dict[str, Any]:
    topology = lists.KINDS[index % len(lists.KINDS)][1]
    return {
        "slice_id": f"s-{index:07d}",
        "node_key": f"k-{index:07d}",
        "zone": zone,
        "pod_id": pod_id,
        "origin": list(origin),
        "shape": [int(length) for length in topology.split("x")],
        "chips": chips_text(chips),
        "created": uow.now,
    }


if __name__ == "__main__":
    main()
