"""What a list of the console costs with many rows: processor time of one answer, and its size.

    python -m benchmarks.lists [--nodes 50000] [--jobs 10000] [--rounds 5]

Processor time is that of the whole process, of the request and of the server, the median of the
rounds. The page's size is that of the document as it is sent, compressed; style sheet and script
come once, and are named at the end.
Bound: 200 ms for an answer, 80 kB for a page with its style sheet and script.
Expected before the first run: 30 ms by an index, 100 ms where every row is looked at.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import insert

from podyard.base.clock import NANOS_PER_SECOND, PlatformTime
from podyard.db.store.records import columns
from podyard.db.store.unit_of_work import UnitOfWork
from podyard.db.tables.billing import usage_events
from podyard.db.tables.compute import nodes
from podyard.db.tables.jobs import jobs
from podyard.domain.job import Job, JobSpec, JobState
from podyard.domain.node import NodeSpec, NodeState, UsageClass
from podyard.web.front import pages
from tests.builders import node_record
from tests.yard import Yard, open_yard

KINDS = (
    ("v2-8", "2x2", "us-central1-f"),
    ("v3-8", "2x2", "europe-west4-a"),
    ("v4-8", "2x2x1", "us-central2-b"),
)
STATES = (NodeState.READY, NodeState.READY, NodeState.STOPPED, NodeState.CREATING)
ROWS_AT_ONCE = 5_000
ANSWER_MILLISECONDS_MAX = 200
BYTES_MAX = 80_000
ADDRESSES = (
    "nodes", "nodes?state=STOPPED", "nodes?zone=europe-west4-a&type=v3-8", "nodes?q=n-0499",
    "nodes?q=no-such-name",
    "nodes?label=team%3Dt3", "nodes?idle=1", "nodes?sort=-price", "nodes?sort=created",
    "nodes?sort=-hosts",
    "nodes?after=n-049000~k-0049000", "jobs", "jobs?state=RUNNING", "jobs?q=j-0099",
    "jobs?sort=-time",
    "jobs?label=team%3Dt3",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="podyard-lists-") as folder,
        open_yard(Path(folder), routers=(pages.router,)) as yard,
    ):
        yard.database.run(lambda uow: fill(uow, given.nodes, given.jobs))
        assets = sum(
            sent_bytes(yard.call("GET", f"/static/podyard.{kind}")) for kind in ("css", "js")
        )
        print(f"{'address':<45}{'ms':>6}{'kB':>7}")
        for address in ADDRESSES:
            milliseconds, size = measure(yard, address, given.rounds)
            late = "  LATE" if milliseconds > ANSWER_MILLISECONDS_MAX else ""
            large = "  LARGE" if size + assets > BYTES_MAX else ""
            print(f"{address:<45}{milliseconds:>6.0f}{size / 1000:>7.1f}{late}{large}", flush=True)
        print(f"style sheet and script: {assets / 1000:.1f} kB")


def measure(yard: Yard, address: str, rounds: int) -> tuple[float, int]:
    """(milliseconds of the process, bytes)."""
    found = []
    for _ in range(rounds + 1):
        began = time.process_time()
        answer = yard.call("GET", f"/console/demo/{address}")
        found.append((time.process_time() - began) * 1000)
        assert answer.status_code == 200, answer.text
    # the first one compiles templates and statements
    return statistics.median(found[1:]), sent_bytes(answer)


def sent_bytes(answer: httpx.Response) -> int:
    """As it went over the wire."""
    return int(answer.headers["content-length"])


def fill(uow: UnitOfWork, node_count: int, job_count: int) -> None:
    """Nodes that live, and jobs on them."""
    made = [_node(index, uow.now) for index in range(node_count)]
    for table, rows in (
        (nodes, [node for node, _ in made]),
        (usage_events, [event for _, event in made]),
        (jobs, [_job(index, uow.now) for index in range(job_count if node_count else 0)]),
    ):
        for at in range(0, len(rows), ROWS_AT_ONCE):
            # Not `uow.execute`, which refuses states without a history.
            uow.connection.execute(insert(table), rows[at : at + ROWS_AT_ONCE])


def _node(index: int, now: PlatformTime) -> tuple[dict[str, Any], dict[str, Any]]:
    kind, topology, zone = KINDS[index % len(KINDS)]
    usage, labels = tuple(UsageClass)[index % 2 * 2], {"team": f"t{index % 7}"}
    created = PlatformTime(now.nanos - index * 60 * NANOS_PER_SECOND)
    record = node_record(
        f"n-{index:06d}",
        kind,
        topology,
        project="demo",
        zone=zone,
        node_key=f"k-{index:07d}",
        state=STATES[index % len(STATES)],
        usage_class=usage,
        spec=NodeSpec(kind, topology, "tpu-vm-base", usage, labels=labels),
        created=created,
        created_by="owner@podyard.local",
    )
    event = {
        "event_id": f"e-{index}",
        "project": "demo",
        "resource_key": record.node_key,
        "resource_name": record.live_name,
        "resource_seq": 2,
        "labels": labels,
        "created_by": record.created_by,
        "zone": zone,
        "accelerator_type": kind,
        "usage_class": usage,
        "state": record.state,
        "billable": record.state is NodeState.READY,
        "at": created,
    }
    return columns(record), event


def _job(index: int, now: PlatformTime) -> dict[str, Any]:
    kind, topology, zone = KINDS[index % len(KINDS)]
    job = Job(
        job_key=f"j-{index:07d}",
        project="demo",
        zone=zone,
        job_id=f"j-{index:06d}",
        state=(JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED)[index % 3],
        spec=JobSpec(
            recipe="digits-cnn", arguments={}, steps=100, global_batch=8, seed=1,
            checkpoint_every_steps=10,
            labels={"team": f"t{index % 7}"},
        ),
        node_key=f"k-{index:07d}",
        node_id=f"n-{index:06d}",
        accelerator_type=kind,
        topology=topology,
        owns_node=False,
        steps_done=index % 100,
        wall_seconds=float(index % 1000),
        created=PlatformTime(now.nanos - index * 30 * NANOS_PER_SECOND),
    )  # fmt: skip
    return columns(job)


if __name__ == "__main__":
    main()
