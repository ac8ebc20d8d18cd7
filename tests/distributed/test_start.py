"""`podyard up` on a bad day: damaged files, a full disk, processes that stand still, folders that
are open to all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podyard.stack import processes
from tests.stack import PODYARD, Stack, open_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]

ZONE = "europe-west4-a"
HEARTBEAT_SECONDS = 3.0
NODE_PATH = "/v2/projects/demo/locations/us-central1-f/nodes"


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that a Podyard has run on."""
    folder = tmp_path_factory.mktemp("used") / "data"
    with open_stack(folder) as stack:
        stack.create_node("kept", "v2-8", "us-central1-f")
    return folder


@pytest.fixture
def folder(used: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(used, tmp_path / "data"))


def _no_database(data: Path) -> None:
    (data / "podyard.db").write_bytes(b"this is not a database\n" * 1000)


def _half_a_database(data: Path) -> None:
    os.truncate(data / "podyard.db", (data / "podyard.db").stat().st_size // 2)


def _empty_database(data: Path) -> None:
    os.truncate(data / "podyard.db", 0)


def _damaged_page(data: Path) -> None:
    with contextlib.closing(sqlite3.connect(data / "podyard.db")) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'nodes'"
        page, size = (
            connection.execute(query).fetchone()[0],
            connection.execute("PRAGMA page_size").fetchone()[0],
        )
    with (data / "podyard.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x5a" * size)


def _empty_token(data: Path) -> None:
    (data / "token").write_text("")


def _empty_token_of_the_agent(data: Path) -> None:
    (data / "agent-local.token").write_text("\n")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_no_database, "podyard.db"),
        (_half_a_database, "podyard.db"),
        (_empty_database, "podyard.db"),
        (_damaged_page, "podyard.db"),
        (_empty_token, "token"),
        (_empty_token_of_the_agent, "agent-local.token"),
    ],
    ids=lambda value: value.__name__.removeprefix("_") if callable(value) else "",
)
def test_a_damaged_file_is_named_in_one_line(
    damage: Callable[[Path], None], named: str, folder: Path
) -> None:
    damage(folder)
    before = (folder / named).read_bytes()
    stack = Stack(folder)
    done = stack.podyard("up", "--port", "0", "--detach")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert str(folder / named) in done.stderr
    assert "restore" in done.stderr  # what to do
    assert stack.processes() == []
    assert (folder / named).read_bytes() == before


@contextlib.contextmanager
def _small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_named_in_one_line(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk", "1m") as disk:
        stack = Stack(disk / "data")
        done = stack.podyard("up", "--port", "0", "--detach")
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert f"the disk of {disk / 'data'} is full" in done.stderr
        assert stack.processes() == []


def test_a_disk_that_fills_up_costs_no_process_and_no_restart(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk", "24m") as disk, open_stack(disk / "data") as stack:
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"\0" * 4096):
                pass
        body = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
        refused = until(lambda: _refusal(stack, body), 30, "a refused change")
        assert refused["status"] == "UNAVAILABLE" and "full" in refused["message"]
        before = stack.main_processes()
        stack.kill("loop")
        until(lambda: stack.main_processes() - before or None, 30, "another loop")
        assert {name for name, _ in stack.main_processes()} == {name for name, _ in before}
        filler.unlink()
        stack.create_node("after", "v2-8", "us-central1-f")


def _refusal(stack: Stack, body: dict[str, str]) -> dict[str, str] | None:
    """None when there was room for one more change in the log of the database."""
    response = stack.http.post(f"{NODE_PATH}?nodeId=node-{time.monotonic_ns()}", json=body)
    error: dict[str, str] | None = response.json().get("error")
    return error


def test_files_are_closed_and_children_that_stand_still_are_replaced(folder: Path) -> None:
    (folder / "notes.txt").write_text("the user's own")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    umask = os.umask(0o022)
    try:
        with open_stack(folder, {"PODYARD_HEARTBEAT_SECONDS": str(HEARTBEAT_SECONDS)}) as stack:
            stack.create_node("open", "v3-8", ZONE)
            path = stack.submit("open", ZONE, node="open", steps=20, checkpointEverySteps=10)
            assert stack.wait_job(path)["state"] == "SUCCEEDED"
            _check_modes(folder)
            _disconnect(stack)
            _refuse_neighbours(stack, folder.parent / "neighbour")
            _stand_still(stack)
    finally:
        os.umask(umask)
    _check_modes(folder)


def _check_modes(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.name != "notes.txt"]
    assert {"podyard.db", "podyard.log", "token", "objects", "broker.conf"} <= {
        path.name for path in files
    }
    modes = {}
    for path in files:
        # a record of a process that has gone meanwhile
        with contextlib.suppress(FileNotFoundError):
            modes[str(path)] = path.lstat().st_mode
    # Programs in boxes are other users, and read it; on the machine a closed folder is around it.
    modes.pop(str(folder / "datasets" / "mirror"), None)
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert (folder / "notes.txt").stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o755


def _disconnect(stack: Stack) -> None:
    """Clients that go in the middle of their requests leave no error and no traceback in the
    log."""
    head = f"Host: localhost\r\nAuthorization: Bearer {stack.token}\r\n"
    for path in (
        f"{NODE_PATH}?nodeId=gone",
        "/podyard/v1/projects/demo/locations/us-central1-f/jobs?jobId=gone",
    ):
        with socket.create_connection(("127.0.0.1", stack.ports[0])) as connection:
            connection.sendall(
                f"POST {path} HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\nhalf".encode()
            )
            time.sleep(0.1)
    with socket.create_connection(("127.0.0.1", stack.ports[0])) as connection:
        connection.sendall(f"GET /console/demo/nodes/live HTTP/1.1\r\n{head}\r\n".encode())
        assert b"text/event-stream" in connection.recv(65536)
    stack.call("GET", NODE_PATH)
    log_path = stack.data / "podyard.log"
    until(
        lambda: True if log_path.read_text().count("has disconnected") == 2 else None,
        10,
        "a line for each POST",
    )
    log = log_path.read_text()
    assert '"ERROR"' not in log and "Traceback" not in log


def _refuse_neighbours(stack: Stack, folder: Path) -> None:
    """Another folder cannot have the ports of this one, and is told whose they are."""
    http_port, grpc_port = (str(port) for port in stack.ports)
    for ports in (("--port", http_port), ("--port", "0", "--grpc-port", grpc_port)):
        done = Stack(folder).podyard("up", "--detach", *ports)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert f"is taken by the Podyard on {stack.data}" in done.stderr
        assert {path.name for path in folder.iterdir()} == {"podyard.log", "up.lock"}
    assert stack.status_knows_all()


def test_a_frozen_supervisor_is_named_clients_are_served_and_down_ends_it(folder: Path) -> None:
    with open_stack(folder) as stack:
        pid = dict(stack.main_processes())["supervisor"]
        os.kill(pid, signal.SIGSTOP)
        status = stack.podyard("status")
        assert status.returncode == 1
        assert "Stopped by a signal or a debugger: supervisor." in status.stderr
        assert f"kill -CONT {pid}" in status.stderr
        (line,) = (line for line in status.stdout.splitlines() if line.startswith("supervisor"))
        assert "frozen" in line
        stack.create_node("served", "v2-8", ZONE)
        down = stack.podyard("down")
        assert (down.returncode, down.stderr) == (0, "")
        assert stack.processes() == []


def _stand_still(stack: Stack) -> None:
    """The three that beat are replaced; the broker, which does not, is left alone."""
    before = dict(stack.main_processes())
    still = ("api", "loop", "agent", "broker")
    for name in still:
        os.kill(before[name], signal.SIGSTOP)
    try:
        until(
            lambda: _replaced(stack, before) or None,
            60,
            "other processes instead of those that stand still",
        )
    finally:
        os.kill(before["broker"], signal.SIGCONT)
    after = dict(stack.main_processes())
    assert {name for name in before if after[name] == before[name]} == {"broker", "supervisor"}
    stack.create_node("after", "v2-8", "us-central1-f")


def _replaced(stack: Stack, before: dict[str, int]) -> bool:
    after = dict(stack.main_processes())
    return after.keys() == before.keys() and all(
        after[name] != before[name] for name in ("api", "loop", "agent")
    )


def test_two_that_start_at_once_and_a_down_meanwhile(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    command = [*PODYARD, "up", "--data", str(stack.data), "--port", "0"]
    both = [
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    refused = until(
        lambda: next((one for one in both if one.poll() is not None), None),
        30,
        "the refusal of one",
    )
    assert refused.returncode == 2
    assert refused.stderr is not None and str(stack.data) in refused.stderr.read().decode()
    # The other one is still starting: nothing is recorded as ready, and `down` finds it all the
    # same.
    stack.down()
    assert [one.wait(30) for one in both if one is not refused] == [0]
    assert stack.processes() == []
    for one in both:
        assert one.stderr is not None
        one.stderr.close()


def test_up_while_the_folder_is_claimed_starts_and_deletes_nothing(folder: Path) -> None:
    (folder / "podyard.json").write_text(json.dumps({"url": "http://127.0.0.1:1"}))
    claim = processes.claim(folder)
    assert claim is not None
    try:
        stack = Stack(folder)
        done = stack.podyard("up", "--port", "0", "--detach")
        assert done.returncode == 2
        assert "try again" in done.stderr
        assert stack.processes() == []
    finally:
        os.close(claim)
    assert (folder / "podyard.json").exists()
