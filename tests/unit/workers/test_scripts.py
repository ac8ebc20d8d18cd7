"""Scripts of hosts: run once in a life, found again, their end known even when nobody saw it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from podyard.base.clock import OsClock
from podyard.settings import UMASK
from podyard.workers.host.scripts import (
    HOST_VARIABLE,
    HostProcesses,
    ScriptState,
    Seen,
    end_all,
    process_table,
)
from podyard.workers.kit.process_group import ProcessRecord, write_record


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    """A host's id, no process of which outlives the test."""
    host_id = f"host-{tmp_path.name}-{os.getpid()}"
    yield host_id
    assert end_all([host_id], [tmp_path], OsClock())


def _env(host_id: str, home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), HOST_VARIABLE: host_id}


def _until(good: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not good():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_script_runs_once_and_its_exit_code_is_kept(tmp_path: Path, host: str) -> None:
    first = HostProcesses(tmp_path, host, 1)
    first.run_script("startup-script", "echo here >> log; exit 3", _env(host, tmp_path))
    _until(lambda: not first.is_running("startup-script"))
    assert first.look() == {"startup-script": ScriptState("DONE", 3)}
    again = HostProcesses(tmp_path, host, 1)
    again.run_script("startup-script", "echo here >> log", _env(host, tmp_path))
    assert again.look() == {"startup-script": ScriptState("DONE", 3)}
    next_life = HostProcesses(tmp_path, host, 2)
    next_life.run_script("startup-script", "echo here >> log", _env(host, tmp_path))
    _until(lambda: not next_life.is_running("startup-script"))
    assert (tmp_path / "log").read_text() == "here\nhere\n"


def test_a_script_has_the_usual_umask_and_its_records_have_ours(tmp_path: Path, host: str) -> None:
    umask = os.umask(UMASK)
    try:
        processes = HostProcesses(tmp_path, host, 1)
        processes.run_script("startup-script", "umask > umask; touch made", _env(host, tmp_path))
        _until(lambda: not processes.is_running("startup-script"))
    finally:
        os.umask(umask)
    assert (tmp_path / "umask").read_text().strip() == "0022"
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o644
    records = [
        path for path in (tmp_path / "processes").iterdir() if path.suffix in (".json", ".log")
    ]
    assert records and {path.stat().st_mode & 0o777 for path in records} == {0o600}


def test_an_interpreter_is_the_scripts_own(tmp_path: Path, host: str) -> None:
    processes = HostProcesses(tmp_path, host, 1)
    processes.run_script(
        "startup-script",
        "#!/usr/bin/env python3\nopen('log', 'w').write('x')",
        _env(host, tmp_path),
    )
    _until(lambda: not processes.is_running("startup-script"))
    assert (tmp_path / "log").read_text() == "x"


def test_a_running_script_is_adopted_and_not_run_again(tmp_path: Path, host: str) -> None:
    script = "echo here >> log; while test ! -e go; do sleep 0.01; done; exit 4"
    first = HostProcesses(tmp_path, host, 1)
    first.run_script("startup-script", script, _env(host, tmp_path))
    _until((tmp_path / "log").exists)
    second = HostProcesses(tmp_path, host, 1)
    second.run_script("startup-script", script, _env(host, tmp_path))
    assert second.is_running("startup-script")
    (tmp_path / "go").touch()
    _until(lambda: not second.is_running("startup-script"))
    assert second.look()["startup-script"] == ScriptState("DONE", 4)
    _until(lambda: not first.is_running("startup-script"))
    assert (tmp_path / "log").read_text() == "here\n"


def test_a_script_that_vanished_runs_again(tmp_path: Path, host: str) -> None:
    first = HostProcesses(tmp_path, host, 1)
    first.run_script("startup-script", "echo here >> log; sleep 1000", _env(host, tmp_path))
    _until((tmp_path / "log").exists)
    assert end_all([host], [tmp_path], OsClock())
    _until(lambda: not first.is_running("startup-script"))
    second = HostProcesses(tmp_path, host, 1)
    second.run_script("startup-script", "echo here >> log", _env(host, tmp_path))
    _until(lambda: not second.is_running("startup-script"))
    assert (tmp_path / "log").read_text() == "here\nhere\n"


def test_every_process_is_found_by_its_environment_or_its_session(
    tmp_path: Path, host: str
) -> None:
    processes = HostProcesses(tmp_path, host, 1)
    script = "setsid sleep 1000 & env -i sleep 1000 & wait"
    processes.run_script("startup-script", script, _env(host, tmp_path))

    def names() -> list[str]:
        found = []
        for process in processes.find(process_table()):
            with contextlib.suppress(psutil.Error):
                found.append(process.name())
        return sorted(found)

    _until(lambda: names().count("sleep") == 2)
    assert end_all([host], [tmp_path], OsClock())
    assert names() == []
    _until(lambda: not processes.is_running("startup-script"))


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no host started, the leader of a separate session."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_record_whose_pid_is_anothers_by_now_finds_nobody(
    tmp_path: Path, host: str, stranger: subprocess.Popen[bytes]
) -> None:
    processes = HostProcesses(tmp_path, host, 1)
    started = psutil.Process(stranger.pid).create_time()
    write_record(tmp_path / "processes", ProcessRecord("session-1", 1, stranger.pid, started - 2))
    assert processes.find(process_table()) == []
    write_record(tmp_path / "processes", ProcessRecord("session-1", 1, stranger.pid, started))
    assert [process.pid for process in processes.find(process_table())] == [stranger.pid]


@pytest.mark.parametrize("session", ["outside this pid namespace", "init", "ours"])
def test_a_session_that_no_host_can_have_started_finds_nobody(tmp_path: Path, session: str) -> None:
    pid = {"outside this pid namespace": 0, "init": 1, "ours": os.getsid(0)}[session]
    processes = HostProcesses(tmp_path, "host-of-nobody", 1)
    for started in (psutil.boot_time() + 1, time.time()):
        write_record(tmp_path / "processes", ProcessRecord("session-1", 1, pid, started))
        mine = Seen(psutil.Process(), pid, "")  # what the machine's table says of us there
        assert processes.find([mine]) == []


def test_a_session_of_before_the_machine_started_finds_nobody(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"], start_new_session=True)
    ended.wait()
    processes = HostProcesses(tmp_path, "host-of-nobody", 1)
    left = Seen(psutil.Process(), ended.pid, "")
    write_record(tmp_path / "processes", ProcessRecord("session-1", 1, ended.pid, time.time()))
    assert processes.find([left]) == [left.process]
    write_record(
        tmp_path / "processes", ProcessRecord("session-1", 1, ended.pid, psutil.boot_time() - 1)
    )
    assert processes.find([left]) == []
