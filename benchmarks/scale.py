"""What one more node, agent, job and hint costs the control plane, by the use cases and the real
loop on one database.

    python -m benchmarks.scale [--nodes 500 1000 2000 4000] [--agents 50 100 200 400] [--jobs 50 100
    200 400]

Each series is measured at several sizes on SQLite and PostgreSQL; what is printed is a straight
line through the medians: milliseconds at no size, and milliseconds more for a thousand. Hints go
through a private Redis.
Expected before the first run: 5 ms of a placement more for 1,000 nodes, 1 ms of a sync whatever the
number of agents, 1 ms of a report whatever the number of jobs, 1,500 hints a second.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import redis
from sqlalchemy import text

from podyard import migrations
from podyard.base.clock import ClockMode, ManualClock, RealTime
from podyard.base.rng import Streams
from podyard.control.compute import nodes
from podyard.control.jobs import jobs, reports
from podyard.control.platform import agents
from podyard.db.store import outbox, platform_clock
from podyard.db.store.unit_of_work import Database, UnitOfWork
from podyard.domain.job import JobRequest
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.replica import Replica
from podyard.workers.tasks.dispatch import Dispatcher
from tests import postgresql
from tests.builders import AGENT, PROJECT, ZONE, Play, node_spec

REPEATS = 9
TOGETHER = 50  # use cases in one unit
WAVE = 250  # nodes that are created in one turn of the loop
HINTS = 2_000
START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")
FLEET = """
zones:
  us-central1-a: {{v5e: {{pods: {pods}, shape: 16x16}}}}
timings: {{create_seconds: 10, start_seconds: 5, stop_seconds: 5, delete_seconds: 5}}
"""


@dataclasses.dataclass
class Series:
    """Milliseconds by size, of each thing that was measured."""

    unit: str
    milliseconds: dict[str, dict[int, float]] = dataclasses.field(default_factory=dict)

    def take(self, name: str, size: int, work: Callable[[], object]) -> None:
        found = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            work()
            found.append((time.perf_counter() - began) * 1e3)
        self.milliseconds.setdefault(name, {})[size] = statistics.median(found)

    def show(self) -> None:
        for name, found in self.milliseconds.items():
            base, slope = _line(found)
            points = "  ".join(f"{size}: {value:.2f}" for size, value in found.items())
            print(
                f"  {name:<44} {base:8.2f} ms + {slope * 1000:8.2f} ms per 1,000 {self.unit} "
                f"  ({points})"
            )


def _line(found: dict[int, float]) -> tuple[float, float]:
    if len(found) == 1:
        return next(iter(found.values())), 0.0
    slope, base = statistics.linear_regression(list(found), list(found.values()))
    return base, slope


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    parser.add_argument("--agents", type=int, nargs="+", default=[50, 100, 200, 400])
    parser.add_argument("--jobs", type=int, nargs="+", default=[50, 100, 200, 400])
    given = parser.parse_args()
    programs = postgresql.binaries()
    assert programs is not None, "PostgreSQL is not installed"
    with tempfile.TemporaryDirectory() as folder, postgresql.serve(programs) as server:
        for name in ("SQLite", "PostgreSQL"):
            for index, (series, sizes) in enumerate(
                ((_nodes, given.nodes), (_agents, given.agents), (_jobs, given.jobs))
            ):
                url = (
                    f"sqlite:///{folder}/{index}.db"
                    if name == "SQLite"
                    else _new_database(server, f"s{index}")
                )
                print(f"{name}, {series.__name__.removeprefix('_')}")
                clock = ManualClock(START)
                with contextlib.closing(Database(url, clock, Streams(0))) as database:
                    migrations.upgrade(database)
                    series(Yard(database, clock, is_sqlite=name == "SQLite"), sizes).show()
    with _redis() as url:
        print(f"hints through Redis: {_hints(url):.0f} a second")


def _new_database(server: str, name: str) -> str:
    from sqlalchemy import create_engine

    engine = create_engine(
        f"{server.replace('postgresql:', 'postgresql+psycopg:')}/postgres",
        isolation_level="AUTOCOMMIT",
    )
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{server}/{name}"


@dataclasses.dataclass(frozen=True)
class Yard:
    database: Database
    clock: ManualClock
    is_sqlite: bool = True

    def play(self, chips: int) -> Play:
        self.database.run(lambda uow: platform_clock.set_up(uow, ClockMode.LOCAL))
        return Play(self.database, self.clock, FLEET.format(pods=chips // 200 + 2))

    def bytes(self) -> int:
        query = "SELECT pg_database_size(current_database()) AS bytes"
        if self.is_sqlite:
            query = (
                "SELECT page_count * page_size AS bytes FROM pragma_page_count(), "
                "pragma_page_size()"
            )
        return int(self.database.read(lambda uow: uow.all(text(query)))[0]["bytes"])


def _nodes(yard: Yard, sizes: Sequence[int]) -> Series:
    play, found, made = yard.play(max(sizes)), Series("nodes"), 0
    before = yard.bytes()
    for size in sizes:
        _create(play, range(made, size))
        made = size
        extra = iter(range(REPEATS))

        def one_more(extra: Iterator[int] = extra, size: int = size) -> None:
            _create(play, [f"{size}-{next(extra)}"], turn=False)
            play.loop.round()

        found.take("one more node, and the round that places it", size, one_more)
        found.take("a round that reconciles", size, functools.partial(_round, play))
        found.take("a list of all nodes", size, play.nodes)
    made += len(sizes) * REPEATS
    print(f"  bytes of the database for one node: {(yard.bytes() - before) / made:.0f}")
    play.loop.stop()
    return found


def _create(play: Play, names: Sequence[object] | range, *, turn: bool = True) -> None:
    for start in range(0, len(names), WAVE):
        wave = names[start : start + WAVE]
        for first in range(0, len(wave), TOGETHER):

            def body(
                uow: UnitOfWork, some: Sequence[object] = wave[first : first + TOGETHER]
            ) -> None:
                for name in some:
                    nodes.create(
                        uow,
                        play.fleet,
                        PLATFORM,
                        PROJECT,
                        ZONE,
                        f"n{name}",
                        node_spec("v5litepod-1"),
                    )

            play.database.run(body)
        if turn:
            play.turn(1)
            play.turn(11)


def _agents(yard: Yard, sizes: Sequence[int]) -> Series:
    play, found, made = yard.play(200), Series("agents"), 0
    fences: dict[str, int] = {}
    for size in sizes:
        for number in range(made, size):
            name = f"a{number:05}"
            fences[name] = _register(play, name)
        made = size

        def sync_all() -> None:
            for name, fence in fences.items():
                caller = dataclasses.replace(AGENT, agent_id=name)
                yard.database.run(functools.partial(_sync, caller=caller, fence=fence))

        found.take("all agents sync, one after the other", size, sync_all)
        found.take("a round that reconciles", size, functools.partial(_round, play))
    play.loop.stop()
    return found


def _sync(uow: UnitOfWork, caller: Principal, fence: int) -> None:
    reports.sync(uow, caller, caller.agent_id or "", fence, [])


def _register(play: Play, name: str) -> int:
    asked = agents.AskedRegistration(16, 16, "127.0.0.1", 1)
    caller = dataclasses.replace(AGENT, agent_id=name)
    return play.database.run(lambda uow: agents.register(uow, caller, name, asked))


def _jobs(yard: Yard, sizes: Sequence[int]) -> Series:
    """Jobs that run, each with its own node, and then as many that wait for places."""
    play, found, made = yard.play(2 * max(sizes)), Series("jobs"), 0
    play.register(replicas_max=max(sizes))
    for size in sizes:
        _create(play, range(made, size))
        for name in range(made, size):
            _submit(play, name)
        made = size
        play.turn(1)
        for replica in play.live():
            if replica.state != "RUNNING":
                play.say(replica)
        live = play.live()
        assert len(live) == size, (len(live), size)
        found.take(
            "a report of a replica",
            size,
            functools.partial(_report, play, live[0], itertools.count(1)),
        )
        found.take("a sync of the agent of all replicas", size, lambda: play.sync([]))
        found.take("a round that reconciles", size, functools.partial(_round, play))
    for size in sizes:
        first = max(sizes) + (0 if size == sizes[0] else sizes[sizes.index(size) - 1])
        _create(play, range(first, max(sizes) + size))
        for name in range(first, max(sizes) + size):
            _submit(play, name)
        play.turn(1)
        found.take("a round while jobs wait for places", size, functools.partial(_round, play))
    play.loop.stop()
    return found


def _round(play: Play) -> None:
    play.wait(1.1)
    play.loop.round()


def _report(play: Play, replica: Replica, steps: Iterator[int]) -> None:
    figures = {"loss": 1.0, "accuracy": 0.5, "wall_seconds": 0.1, "modelled_seconds": 0.1}
    play.say(replica, points=[{"step": next(steps), **figures}])


def _submit(play: Play, name: int) -> None:
    asked = JobRequest(recipe="digits-cnn", steps=10)
    play.database.run(
        lambda uow: jobs.create(
            uow, play.fleet, PLATFORM, PROJECT, ZONE, f"j{name}", asked, f"n{name}"
        )
    )


@contextlib.contextmanager
def _redis() -> Iterator[str]:
    server = shutil.which("redis-server")
    assert server is not None, "Redis is not installed"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [server, "--port", str(port), "--save", "", "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
    )
    try:
        client = redis.Redis(port=port)
        while True:
            with contextlib.suppress(redis.ConnectionError):
                client.ping()
                break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def _hints(url: str) -> float:
    """From rows of the outbox to messages in the broker, by the rounds of a loop."""
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(START)
        with contextlib.closing(
            Database(f"sqlite:///{Path(folder) / 'podyard.db'}", clock)
        ) as database:
            migrations.upgrade(database)
            play = Yard(database, clock).play(200)
            play.loop.send_message = Dispatcher(url)

            def put(uow: UnitOfWork, count: int) -> None:
                for number in range(count):
                    outbox.put(uow, f"agent.a{number}", "podyard.poke", [f"a{number}"])

            database.run(lambda uow: put(uow, 1))
            play.loop.send()  # Celery is loaded
            database.run(lambda uow: put(uow, HINTS))
            began = time.perf_counter()
            while database.read(outbox.list_unsent):
                play.loop.send()
            seconds = time.perf_counter() - began
            play.loop.stop()
            return HINTS / seconds


if __name__ == "__main__":
    main()
