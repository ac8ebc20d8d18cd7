"""Two machines with an API and a loop each, on one PostgreSQL and one Redis; the clock of the
second is five minutes ahead. Machines are data folders here: they share contents, logs and objects,
and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from podyard.cli.tools.demo import check_bill
from tests.conftest import require
from tests.long_runs import times
from tests.stack import PODYARD, Stack, kill
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]

ZONE = "us-central1-f"
SKEW_SECONDS = 300
LEADERS_KILLED = times(3, 20)
STEPS = times(1000, 2000)  # of the job meanwhile
TAKE_OVER_SECONDS_MAX = 10.0  # the lease has 3 s
SHARED = ("contents", "logs", "objects")
COPIED = ("token", "yard.id", "secrets.key")


@dataclasses.dataclass
class Planes:
    """`ahead`: the stack of the machine whose clock is wrong."""

    database: str
    broker: subprocess.Popen[bytes]
    broker_command: list[str]
    first: Stack
    ahead: Stack

    def lease(self) -> tuple[str, int]:
        return lease_of(self.database)

    def leader_pid(self) -> int:
        return int(self.lease()[0].split("/")[1])


def lease_of(database: str) -> tuple[str, int]:
    """(owner, fence) of the leader."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT owner, fence FROM leases WHERE name = 'loop.leader'"
        ).fetchone()
    assert row is not None
    return str(row[0]), int(row[1])


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    server = require(shutil.which("redis-server"), "Redis")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    return [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]


@pytest.fixture(scope="module")
def yard(
    postgresql_url: str, redis: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Planes]:
    with psycopg.connect(f"{postgresql_url}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE planes")
    database = f"{postgresql_url}/planes"
    env = {
        "PODYARD_DATABASE_URL": database,
        "PODYARD_BROKER_URL": f"redis://127.0.0.1:{redis[2]}/0",
    }
    folder = tmp_path_factory.mktemp("planes")
    skewed = {
        "PYTHONPATH": str(Path(__file__).parent / "skewed"),
        "PODYARD_TEST_SKEW_SECONDS": str(SKEW_SECONDS),
    }
    first = Stack(folder / "first", env)
    ahead = Stack(folder / "ahead", env | skewed | {"PODYARD_ROLES": "api,loop,storage"})
    found = Planes(database, _start(redis), redis, first, ahead)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: (found.broker.kill(), found.broker.wait()))
        for one in (first, ahead):
            stack.callback(lambda one=one: one.http.close())
            stack.callback(one.down)
        first.up()
        share_folders(first.data, ahead.data)
        ahead.up()
        yield found
    assert first.violations() == []
    assert until(
        lambda: True if not first.processes() and not ahead.processes() else None,
        10,
        "the last process",
    )


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def share_folders(first: Path, second: Path) -> None:
    """What the page docs/howto/deploy.md tells operators to do on a second machine."""
    second.mkdir()
    for name in SHARED:
        (first / name).mkdir(exist_ok=True)
        (second / name).symlink_to(first / name)
    for name in COPIED:
        if (first / name).exists():
            shutil.copy(first / name, second / name)


def _roles(stack: Stack) -> set[str]:
    done = stack.podyard("status", "-o", "json")
    return {row["process"] for row in json.loads(done.stdout)["processes"]}


def test_both_apis_serve_the_same_yard(yard: Planes) -> None:
    assert yard.first.token == yard.ahead.token
    assert {"agent", "api", "loop"} <= _roles(yard.first)
    assert "agent" not in _roles(yard.ahead)
    assert "broker" not in _roles(yard.first) | _roles(yard.ahead)
    yard.first.create_node("both", "v2-8", ZONE)
    path = f"/v2/projects/demo/locations/{ZONE}/nodes/both"
    assert yard.ahead.call("GET", path) == yard.first.call("GET", path)
    job = yard.ahead.submit("short", ZONE, node="both", steps=20)
    assert yard.first.wait_job(job)["state"] == "SUCCEEDED"
    assert yard.ahead.log_lines(job) == yard.first.log_lines(job)
    yard.ahead.delete_node("both", ZONE)
    for one in (yard.first, yard.ahead):
        times = one.call("GET", "/podyard/v1/clock")
        assert abs(float(times.get("lagSeconds", 0.0))) < SKEW_SECONDS / 2, times


@contextlib.contextmanager
def _supervisor_stopped(machine: Stack) -> Iterator[None]:
    """Nobody starts a process of that machine again: its stand-by has to take over. Else its own
    next loop does."""
    pid = machine.supervisor_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.repeats
def test_the_leader_is_killed_again_and_again(yard: Planes) -> None:
    yard.first.create_node("killed", "v2-8", ZONE)
    path = yard.first.submit("long", ZONE, node="killed", steps=STEPS, checkpointEverySteps=100)
    led: list[bool] = []
    slowest = 0.0
    for number in range(LEADERS_KILLED):
        pid = until(
            lambda: pid if psutil.pid_exists(pid := yard.leader_pid()) else None,
            20,
            "a living leader",
        )
        led.append(pid == yard.first.pid("loop"))
        machine = yard.first if led[-1] else yard.ahead
        _, fence = yard.lease()
        began = time.monotonic()
        with _supervisor_stopped(machine) if number % 2 == 0 else contextlib.nullcontext():
            kill(pid)
            until(
                lambda fence=fence: True if yard.lease()[1] > fence else None,
                TAKE_OVER_SECONDS_MAX,
                "the next leader",
            )
        slowest = max(slowest, time.monotonic() - began)
    print(
        f"{LEADERS_KILLED} leaders killed, {sum(led)} on the first machine; slowest take-over "
        f"{slowest:.1f} s"
    )
    assert 0 < sum(led) < LEADERS_KILLED  # both machines have led
    job = yard.ahead.wait_job(path)
    assert (job["state"], job["failures"], job["preemptions"]) == ("SUCCEEDED", 0, 0), job
    assert [point["step"] for point in yard.first.metrics(path)] == list(range(1, STEPS + 1))
    yard.first.delete_node("killed", ZONE)
    usage = yard.first.call("GET", "/podyard/v1/projects/demo/usage")
    assert (
        check_bill(usage, yard.ahead.call("GET", "/podyard/v1/projects/demo/events")["events"])
        is None
    )


def test_work_resumes_soon_after_redis_has_come_back(yard: Planes) -> None:
    yard.first.create_node("redis", "v2-8", ZONE)
    assert (
        yard.first.wait_job(yard.first.submit("before", ZONE, node="redis", steps=5))["state"]
        == "SUCCEEDED"
    )
    yard.broker.kill()
    yard.broker.wait()
    path = yard.first.submit("meanwhile", ZONE, node="redis", steps=5)
    time.sleep(1)
    yard.broker = _start(yard.broker_command)
    began = time.monotonic()

    def has_begun() -> bool | None:
        found = yard.first.call("GET", path)
        return True if found["state"] not in ("QUEUED", "STARTING") else None

    until(has_begun, 5, "the job after Redis is back")
    print(f"Redis back -> job runs: {time.monotonic() - began:.1f} s")
    assert yard.first.wait_job(path)["state"] == "SUCCEEDED"
    yard.first.delete_node("redis", ZONE)


def test_a_machine_with_another_folder_is_refused_in_words(yard: Planes, tmp_path: Path) -> None:
    stranger = Stack(tmp_path / "stranger", {**yard.first.env, "PODYARD_ROLES": "api"})
    try:
        done = stranger.podyard("up", "--detach", *stranger.up_options())
        assert (done.returncode, "copy yard.id, token" in done.stderr) == (2, True), done.stderr
        share_folders(yard.first.data, tmp_path / "half")
        (tmp_path / "half" / "objects").unlink()
        half = Stack(tmp_path / "half", {**yard.first.env, "PODYARD_ROLES": "api"})
        done = half.podyard("up", "--detach", *half.up_options())
        assert (done.returncode, "is not the folder objects that" in done.stderr) == (2, True), (
            done.stderr
        )
        assert not (tmp_path / "stranger" / "token").exists()
    finally:
        stranger.http.close()
        half.http.close()
    # the owner's token is still good
    assert yard.first.http.get("/podyard/v1/agents").status_code == 200


def _adopt_folders(stack: Stack) -> subprocess.CompletedProcess[str]:
    command = [*PODYARD, "admin", "adopt-folders", "--data", str(stack.data)]
    return subprocess.run(command, env={**os.environ, **stack.env}, capture_output=True, text=True)


def test_a_lost_data_folder_is_replaced_when_its_operator_says_so(
    yard: Planes, tmp_path: Path
) -> None:
    running = _adopt_folders(yard.first)
    assert (running.returncode, "Podyard runs on" in running.stderr) == (1, True), running.stderr
    with psycopg.connect(
        yard.database.replace("/planes", "/postgres"), autocommit=True
    ) as connection:
        connection.execute("CREATE DATABASE lost")
    env = {"PODYARD_DATABASE_URL": yard.database.replace("/planes", "/lost")}
    old, new = Stack(tmp_path / "old", env), Stack(tmp_path / "new", env)
    try:
        old.up()
        old.down()
        refused = new.podyard("up", "--detach", *new.up_options())
        assert (refused.returncode, "podyard admin adopt-folders" in refused.stderr) == (2, True), (
            refused.stderr
        )
        assert _adopt_folders(new).returncode == 0
        new.up()
        assert new.token != old.token
        new.create_node("n", "v2-8", ZONE)
        assert old.http.get(
            f"{new.url}/podyard/v1/agents", headers={"Authorization": f"Bearer {old.token}"}
        ).is_error
    finally:
        for one in (old, new):
            one.down()
            one.http.close()


def test_a_machine_may_run_a_loop_alone(yard: Planes, tmp_path: Path) -> None:
    alone = Stack(tmp_path / "alone", {**yard.first.env, "PODYARD_ROLES": "loop"})
    done = alone.podyard("up", "--detach", "--fleet", "instant")
    try:
        assert (done.returncode, "Podyard is ready: loop" in done.stderr) == (0, True), done.stderr
        assert _roles(alone) == {"loop", "supervisor"}
        kill(yard.first.pid("loop"))
        kill(yard.ahead.pid("loop"))
        until(
            lambda: True if psutil.pid_exists(yard.leader_pid()) else None,
            TAKE_OVER_SECONDS_MAX,
            "a leader",
        )
    finally:
        alone.down()
        alone.http.close()
