"""A new release next to an old one, on one PostgreSQL and one Redis: what an operator sees in a
rolling upgrade.

    git clone . OLD; git -C OLD checkout REVISION
    python -m tests.distributed.rolling_upgrade OLD

The old release runs everything, and trains. A new API and a new loop start next to it and bring the
database to their revision. Nodes and jobs of either API are placed by the old loop and run by the
old agent. The old loop dies, the new one leads. All steps are there once, the bill is exact, `fsck`
is clean, and no process logs a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from podyard.cli.tools.demo import check_bill
from tests import postgresql
from tests.distributed.test_control_planes import lease_of, share_folders
from tests.distributed.whole_yard import Broker
from tests.stack import Stack, kill, until

ROOT = Path(__file__).parents[2]
ZONE = "us-central1-f"
NODES = f"/v2/projects/demo/locations/{ZONE}/nodes"
STEPS = 3000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="a checkout of the old release")
    given = parser.parse_args()
    os.chdir("/")  # Python looks for modules in the working folder first
    programs = postgresql.binaries()
    assert programs is not None, "PostgreSQL is not installed"
    with (
        tempfile.TemporaryDirectory(prefix="podyard-upgrade-") as folder,
        postgresql.serve(programs) as server,
    ):
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE upgrade")
        database = f"{server}/upgrade"
        broker = Broker(Path(folder), "127.0.0.1")
        env = {
            "PODYARD_DATABASE_URL": database,
            "PODYARD_BROKER_URL": broker.url,
            "PODYARD_BOXES": "off",
        }
        old = Stack(Path(folder) / "old", env | {"PYTHONPATH": str(given.old.resolve())})
        new = Stack(
            Path(folder) / "new",
            env | {"PYTHONPATH": str(ROOT), "PODYARD_ROLES": "api,loop,storage"},
        )
        try:
            upgrade(old, new, database)
        finally:
            for stack in (new, old):
                with contextlib.suppress(AssertionError):
                    stack.down()
                stack.http.close()
            broker.stop()
        for stack in (old, new):
            assert "Traceback" not in (stack.data / "podyard.log").read_text(), stack.data.name


def upgrade(old: Stack, new: Stack, database: str) -> None:
    old.up()
    before = _revision(database)
    old.create_node("first", "v2-8", ZONE)
    long = old.submit("long", ZONE, node="first", steps=STEPS, checkpointEverySteps=200)
    old.wait_steps(long, 50)
    share_folders(old.data, new.data)
    new.up()
    print(
        f"revision {before} under the old release, {_revision(database)} with the new "
        "one next to it"
    )
    assert _leader(database) == old.pid("loop")
    assert old.call("GET", f"{NODES}/first") == new.call("GET", f"{NODES}/first")
    for name, stack in (("by-new", new), ("by-old", old)):
        stack.create_node(name, "v2-8", ZONE)
        _succeeds(stack, stack.submit(f"job-{name}", ZONE, node=name, steps=20))
    print("the old loop and agent: nodes and jobs of both APIs")
    with _stopped(old.supervisor_pid()):
        kill(old.pid("loop"))
        until(
            lambda: True if _leader(database) == new.pid("loop") else None, 20, "the new loop leads"
        )
    for name, stack in (("by-new", new), ("by-old", old)):
        _succeeds(stack, stack.submit(f"more-{name}", ZONE, node=name, steps=20))
    job = _succeeds(new, long)
    assert (job["failures"], job["preemptions"]) == (0, 0), job
    assert [point["step"] for point in new.metrics(long)] == list(range(1, STEPS + 1))
    print(
        f"the new loop, the old agent: jobs of both APIs, and the long one; {STEPS} "
        "steps, each once"
    )
    for name in ("first", "by-new", "by-old"):
        new.delete_node(name, ZONE)
    old.down()
    usage = new.call("GET", "/podyard/v1/projects/demo/usage")
    assert check_bill(usage, new.call("GET", "/podyard/v1/projects/demo/events")["events"]) is None
    assert new.violations() == []
    print("the old release is down: the bill is exact, fsck is clean")


def _succeeds(stack: Stack, path: str) -> dict[str, Any]:
    job = stack.wait_job(path, 300)
    assert job["state"] == "SUCCEEDED", job
    return job


def _leader(database: str) -> int:
    return int(lease_of(database)[0].split("/")[1])


def _revision(database: str) -> str:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert row is not None
    return str(row[0])


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
