"""Units of work on SQLite with full durability: grouped by the writer thread, compared with single
commits, in one run.

    python -m benchmarks.units_of_work [--seconds 2]

Expected before the first run: about 5 times single commits with 16 callers, and more with 64.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

from podyard import migrations
from podyard.base.clock import OsClock
from podyard.db.store import outbox
from podyard.db.store.unit_of_work import Database


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        single = raw_commits(Path(folder) / "raw.db", seconds)
        print(f"{'single commits (sqlite3)':<28} {single:9.0f}/s   1.00")
        database = Database(f"sqlite:///{Path(folder) / 'podyard.db'}", OsClock())
        migrations.upgrade(database)
        for callers in (1, 16, 64):
            rate = units(database, callers, seconds)
            print(f"{f'units, {callers} callers':<28} {rate:9.0f}/s   {rate / single:.2f}")
        database.close()


def raw_commits(path: Path, seconds: float) -> float:
    """One connection, one insert per BEGIN IMMEDIATE and COMMIT: what a unit costs without a
    group."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, queue TEXT, args TEXT)")
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t (queue, args) VALUES ('q', '[]')")
        connection.execute("COMMIT")
        count += 1
    elapsed = time.perf_counter() - start
    connection.close()
    return count / elapsed


def units(database: Database, callers: int, seconds: float) -> float:
    counts = [0] * callers
    start = time.perf_counter()

    def call(index: int) -> None:
        while time.perf_counter() - start < seconds:
            database.run(lambda uow: outbox.put(uow, "q", "t", ["1"]))
            counts[index] += 1

    threads = [threading.Thread(target=call, args=(index,)) for index in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
