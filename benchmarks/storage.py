"""64 MB up and down, next to a plain aiohttp file server, in one run.

    python -m benchmarks.storage [--megabytes 64] [--rounds 5]

The plain server writes a body to a file and serves it with FileResponse: no checksums, nothing
durable, no database. Both are separate processes; one is asked at a time, in turns, by one client
over a plain socket, and the best round of each counts, of time and of the server's processor time.
The client shares the CPUs with them. It needs the environment of `make
.venv-clients/storage/.made`, where aiohttp is. Bound: 0.5 of the plain server's rate, both ways.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

PLAIN_PYTHON = Path(__file__).parents[1] / ".venv-clients" / "storage" / "bin" / "python"
READY_SECONDS_MAX = 30.0
PIECE_BYTES = 1 << 20
PLAIN = """
import sys
from aiohttp import web

async def put(request):
    with open(sys.argv[1], "wb") as file:
        async for piece in request.content.iter_any():
            file.write(piece)
    return web.Response()

async def get(request):
    return web.FileResponse(sys.argv[1])

app = web.Application(client_max_size=1 << 40)
app.add_routes([web.put("/x", put), web.get("/x", get)])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[2]), print=None)
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        _serve(options.data, options.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        _compare(Path(folder), os.urandom(options.megabytes * 1_000_000), options.rounds)


def _compare(folder: Path, data: bytes, rounds: int) -> None:
    own = [sys.executable, "-m", "benchmarks.storage", "--data", str(folder / "data"), "--serve"]
    plain = [str(PLAIN_PYTHON), "-c", PLAIN, str(folder / "plain")]
    with _server(own) as (ours, our_process), _server(plain) as (theirs, their_process):
        token = (folder / "data" / "token").read_text().strip()
        _request(ours, "POST", "/storage/v1/b?project=demo", b'{"name":"bench"}', token)
        place = "/upload/storage/v1/b/bench/o?uploadType=media&name=x"
        cases: dict[str, tuple[psutil.Process, Callable[[], int]]] = {
            "up": (our_process, lambda: _request(ours, "POST", place, data, token)),
            "up, plain": (their_process, lambda: _request(theirs, "PUT", "/x", data, token)),
            "down": (our_process, lambda: _request(ours, "GET", "/bench/x", b"", token)),
            "down, plain": (their_process, lambda: _request(theirs, "GET", "/x", b"", token)),
        }
        best, busy = dict.fromkeys(cases, float("inf")), dict.fromkeys(cases, float("inf"))
        for _ in range(rounds):
            for name, (process, case) in cases.items():
                used, began = _processor_seconds(process), time.perf_counter()
                received = case()
                best[name] = min(best[name], time.perf_counter() - began)
                busy[name] = min(busy[name], _processor_seconds(process) - used)
                assert received == (len(data) if name.startswith("down") else received)
    for name, seconds in best.items():
        print(
            f"{name:12} {len(data) / seconds / 1e6:8.0f} MB/s, {busy[name] * 1000:4.0f} ms of "
            "processor time"
        )
    for name in ("up", "down"):
        print(
            f"{name}: {best[f'{name}, plain'] / best[name]:.2f} of the plain server's "
            "rate (bound 0.5)"
        )


def _processor_seconds(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def _request(port: int, method: str, path: str, body: bytes, token: str) -> int:
    """Return how many bytes the body of the answer has."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
        f"{token}\r\nConnection: close\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        connection.sendall(body)
        answer = connection.recv(PIECE_BYTES)
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(PIECE_BYTES)
        head_of_answer, _, first = answer.partition(b"\r\n\r\n")
        assert head_of_answer.split()[1] == b"200", answer[:300]
        received = len(first)
        buffer = bytearray(PIECE_BYTES)
        while count := connection.recv_into(buffer):
            received += count
    return received


@contextlib.contextmanager
def _server(command: list[str]) -> Iterator[tuple[int, psutil.Process]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([*command, str(port)])
    try:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(10)


def _serve(data: Path, port: int) -> None:
    """The storage process without its supervisor."""
    from podyard import migrations
    from podyard.api.app import prepare
    from podyard.api.server import serve_storage
    from podyard.api.storage.app import create_storage_app
    from podyard.base.clock import OsClock
    from podyard.db.store.unit_of_work import Database
    from podyard.domain.fleet_file import instant_fleet
    from podyard.settings import from_environment

    data.mkdir()
    settings = from_environment({"PODYARD_DATA": str(data)})
    clock = OsClock()
    database = Database(settings.database_url, clock)
    migrations.upgrade(database)
    prepare(settings, database)
    app = create_storage_app(settings, database, instant_fleet(), clock)
    serve_storage(app, socket.create_server(("127.0.0.1", port)), lambda: None)


if __name__ == "__main__":
    main()
