"""Cost per request of the wire, of a constant route in the same process, and of the usual way to
write such a
server, in one run.

    python -m benchmarks.wire [--seconds 1.0] [--rounds 3] [--connections 16]

- GET: a node, against a route of the same application that answers a constant (same guard, same
  token). Bound: 0.55.
- POST: creating a node with its operation and event, durable (synchronous=FULL), against a FastAPI
  endpoint with a SQLAlchemy ORM session per request on SQLite with the same durability. Bound: 4.

Each server is a separate process with uvicorn; one is asked at a time, in turns, and the best round
of each counts. The client shares the CPUs with them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

READY_SECONDS_MAX = 30.0
NODE = b'{"acceleratorType":"v5litepod-1","runtimeVersion":"v2-alpha-tpuv5-lite"}'
ZONE = "us-central1-a"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--serve", choices=("podyard", "orm"))
    parser.add_argument("--data")
    parser.add_argument("--socket", type=int)
    options = parser.parse_args()
    if options.serve:
        (_serve_podyard if options.serve == "podyard" else _serve_orm)(
            Path(options.data), options.socket
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        _compare(Path(folder), options)


def _compare(folder: Path, options: argparse.Namespace) -> None:
    with _server("podyard", folder / "podyard") as ours, _server("orm", folder / "orm") as orm:
        token = (folder / "podyard" / "token").read_text().strip()
        nodes = f"/v2/projects/demo/locations/{ZONE}/nodes"
        number = iter(range(10**9))
        cases: dict[str, tuple[int, Callable[[], bytes]]] = {
            "constant route": (ours, lambda: _request("GET", "/constant", token)),
            "GET node": (ours, lambda: _request("GET", f"{nodes}/first", token)),
            "POST node": (
                ours,
                lambda: _request("POST", f"{nodes}?nodeId=n{next(number)}", token, NODE),
            ),
            "POST, FastAPI and ORM": (
                orm,
                lambda: _request("POST", f"/nodes?node_id=n{next(number)}", token, NODE),
            ),
            "GET, FastAPI and ORM": (orm, lambda: _request("GET", "/nodes/first", token)),
        }
        for port, path in ((ours, f"{nodes}?nodeId=first"), (orm, "/nodes?node_id=first")):
            asyncio.run(_load(port, functools.partial(_request, "POST", path, token, NODE), 1, 0.0))
        best = dict.fromkeys(cases, (0.0, 0.0, 0.0))
        for _ in range(options.rounds):
            for name, (port, request) in cases.items():
                found = asyncio.run(_load(port, request, options.connections, options.seconds))
                best[name] = max(best[name], found)
    print(f"{'':<24} requests/s   p50 ms   p99 ms")
    for name, (rate, p50, p99) in best.items():
        print(f"{name:<24} {rate:10.0f} {p50:8.2f} {p99:8.2f}")
    rates = {name: found[0] for name, found in best.items()}
    print(
        f"GET node / constant route     {rates['GET node'] / rates['constant route']:.2f}   "
        "(bound 0.55)"
    )
    print(f"GET node / GET ORM            {rates['GET node'] / rates['GET, FastAPI and ORM']:.2f}")
    print(
        "POST node / POST ORM          "
        f"{rates['POST node'] / rates['POST, FastAPI and ORM']:.2f}   (bound 4)"
    )


def _request(verb: str, path: str, token: str, body: bytes = b"") -> bytes:
    head = f"{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def _load(
    port: int, request: Callable[[], bytes], connections: int, seconds: float
) -> tuple[float, float, float]:
    """(requests a second, median and 99th percentile of the answers' milliseconds); every answer
    must be 200."""
    took: list[float] = []
    until = time.perf_counter() + seconds

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            start = time.perf_counter()
            writer.write(request())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"{head!r} {body!r}")
            took.append(time.perf_counter() - start)
            if time.perf_counter() >= until:
                break
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(connections)))
    rate = len(took) / (time.perf_counter() - start)
    took.sort()
    return rate, took[len(took) // 2] * 1000, took[min(len(took) - 1, len(took) * 99 // 100)] * 1000


@contextlib.contextmanager
def _server(kind: str, data: Path) -> Iterator[int]:
    data.mkdir()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    port: int = listener.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.wire", "--serve", kind, "--data", str(data)]
    process = subprocess.Popen(
        [*command, "--socket", str(listener.fileno())], pass_fds=(listener.fileno(),)
    )
    try:
        deadline = time.perf_counter() + READY_SECONDS_MAX
        while not (data / "ready").exists():
            if process.poll() is not None or time.perf_counter() > deadline:
                raise SystemExit(f"{kind} does not start")
            time.sleep(0.02)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        listener.close()


def _serve_podyard(data: Path, listening: int) -> None:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from podyard import migrations
    from podyard.api.app import create_app, prepare
    from podyard.base.clock import OsClock
    from podyard.db.store.unit_of_work import Database
    from podyard.domain.fleet_file import instant_fleet
    from podyard.settings import from_environment

    settings = from_environment({"PODYARD_DATA": str(data)})
    database = Database(settings.database_url, OsClock())
    migrations.upgrade(database)
    prepare(settings, database)
    app = create_app(settings, database, instant_fleet(), OsClock())

    async def constant(_request: Request) -> Response:
        return Response(b'{"constant": true}', media_type="application/json")

    app.router.routes.insert(0, Route("/constant", constant))
    _run(app, data, listening)


def _serve_orm(data: Path, listening: int) -> None:
    from benchmarks.orm_server import create

    _run(create(data), data, listening)


def _run(app: object, data: Path, listening: int) -> None:
    import uvicorn

    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")  # type: ignore[arg-type]
    (data / "ready").touch()
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listening)])


if __name__ == "__main__":
    main()
