"""What open pages of the console cost other clients of the API.

    python -m benchmarks.open_pages [--nodes 350] [--pages 50] [--seconds 15]

Live pages are held open in another process: of ten, two are the overview, two the list of nodes,
one the list of jobs, and five pages of one node each, all different. Meanwhile one client asks the
API for a node, again and again: at rest, with the pages open, and at rest again. `busy` is the
processor time of the API process for each second.
Bound: the 99th percentile with open pages is below three times the one at rest.
Expected before the first run: a rendering takes 20 ms, so 25 pages of nodes half a core, and p99
five times as long.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import console, lists
from benchmarks.dashboard import fill_folder, processor_seconds, serving

JOBS = 100
WAITING = 20
OPENED_SECONDS = 5.0  # until every page has its first parts
PAUSE_SECONDS = 0.005
TIMES_MAX = 3.0


class Answers(NamedTuple):
    """Milliseconds of answers, and processor seconds of the API process for each second."""

    p50: float
    p99: float
    busy: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=350)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=15.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="podyard-pages-") as folder:
        data = Path(folder)
        fill_folder(data, lambda uow: console._fill(uow, given.nodes, JOBS, WAITING))
        token = (data / "token").read_text(encoding="ascii").strip()
        with serving(data) as port:
            _ask(port, token, 2.0)  # what is loaded late is loaded
            before = _ask(port, token, given.seconds)
            with _open_pages(port, token, given.pages) as refused:
                time.sleep(OPENED_SECONDS)
                during = _ask(port, token, given.seconds)
                count = refused.value
            after = _ask(port, token, given.seconds)
    for name, found in (
        ("at rest", before),
        (f"{given.pages} pages, {count} refused", during),
        ("at rest", after),
    ):
        print(
            f"{name:<24} p50 {found.p50:6.1f} ms   p99 {found.p99:6.1f} ms   busy {found.busy:.2f}"
        )
    times = during.p99 / statistics.mean((before.p99, after.p99))
    print(f"p99 is {times:.1f} times that at rest{'  LATE' if times >= TIMES_MAX else ''}")


def _ask(port: int, token: str, seconds: float) -> Answers:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    found, begun, cpu = [], time.monotonic(), processor_seconds(port)
    while time.monotonic() - begun < seconds:
        asked = time.perf_counter()
        path = f"/v2/projects/demo/locations/{lists.KINDS[0][2]}/nodes/none"
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        connection.getresponse().read()
        found.append((time.perf_counter() - asked) * 1000)
        time.sleep(PAUSE_SECONDS)
    busy = (processor_seconds(port) - cpu) / (time.monotonic() - begun)
    connection.close()
    found.sort()
    return Answers(found[len(found) // 2], found[len(found) * 99 // 100], busy)


@contextmanager
def _open_pages(port: int, token: str, count: int) -> Iterator[Any]:
    stop, refused = multiprocessing.Event(), multiprocessing.Value("i", 0)
    readers = multiprocessing.Process(
        target=_read, args=(port, token, _paths(count), stop, refused)
    )
    readers.start()
    try:
        yield refused
    finally:
        stop.set()
        readers.join()


def _paths(count: int) -> Sequence[str]:
    kinds = ("overview/live", "nodes/live", "jobs/live", "nodes/live", "overview/live")
    nodes = (
        f"nodes/{lists.KINDS[index % len(lists.KINDS)][2]}/n-{index:06d}/live"
        for index in range(count)
    )
    return [
        f"/console/demo/{kinds[index // 2 % 5] if index % 2 else next(nodes)}"
        for index in range(count)
    ]


def _read(port: int, token: str, paths: Sequence[str], stop: Event, refused: object) -> None:
    async def read(path: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            (
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: podyard_session={token}\r\n\r\n"
            ).encode()
        )
        if b" 200 " not in await reader.readline():
            refused.value += 1  # type: ignore[attr-defined]
        while await reader.read(65_536):
            pass

    async def read_all() -> None:
        tasks = [asyncio.create_task(read(path)) for path in paths]
        await asyncio.to_thread(stop.wait)
        for task in tasks:
            task.cancel()

    asyncio.run(read_all())


if __name__ == "__main__":
    main()
