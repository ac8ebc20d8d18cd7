"""The supervisor's decisions, with a clock that the test controls and children that are real
processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard import settings
from podyard.base.clock import ManualClock, OsClock, RealTime
from podyard.base.heartbeat import (
    CHILD_VARIABLE,
    PIPE_VARIABLE,
    WORDS_BYTES_MAX,
    Heartbeat,
    from_environment,
)
from podyard.stack import modes, processes
from podyard.stack.child import Child
from podyard.stack.errors import SetupError
from podyard.stack.processes import StackProcess
from podyard.stack.progress import PROGRESS_CPU_SECONDS, STALL_SECONDS_MAX, cpu_seconds
from podyard.stack.supervisor import LATE_SECONDS_MAX, Supervisor
from tests.waiting import until

LIMIT_SECONDS = 60.0
START = RealTime.from_rfc3339("2026-03-01T00:00:00Z")
SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
BEATS_AND_SLEEPS = [
    sys.executable,
    "-c",
    f"import os, time; os.write(int(os.environ[{PIPE_VARIABLE!r}]), b'\\n'); time.sleep(600)",
]


class _Watched(Supervisor):
    """A supervisor of one child that the test chooses."""

    def __init__(self, data: Path, argv: list[str], *, beats: bool = True) -> None:
        self.clock = ManualClock(START)
        super().__init__(settings.from_environment({"PODYARD_DATA": str(data)}), self.clock)
        self._log = (data / "podyard.log").open("ab")
        self._claim = processes.claim(data)
        self.child = Child("loop", argv, dict(os.environ), beats=beats)
        self._children["loop"] = self.child
        self._spawn(self.child)
        self.first_pid = self.pid

    @property
    def pid(self) -> int:
        assert self.child.process is not None
        return self.child.process.pid

    def wait_first_beat(self) -> None:
        while not self.child.has_beaten:
            self._tick()
            OsClock().sleep(0.01)

    def run_for(self, seconds: float, tick_seconds: float = 1.0) -> None:
        for _ in range(int(seconds / tick_seconds)):
            self.clock.advance(tick_seconds)
            self._tick()

    def is_replaced(self) -> bool:
        """After a kill: until the end is seen, and the wait before the restart is over."""
        assert self.child.process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.process.wait(5)
        self.run_for(10)
        return self.pid != self.first_pid

    def is_untouched(self) -> bool:
        assert self.child.process is not None
        return self.pid == self.first_pid and self.child.process.poll() is None


@contextlib.contextmanager
def _watched(data: Path, argv: list[str], *, beats: bool = True) -> Iterator[_Watched]:
    supervisor = _Watched(data, argv, beats=beats)
    try:
        yield supervisor
    finally:
        supervisor.stop()
        assert supervisor._log is not None
        supervisor._log.close()


def test_a_child_that_falls_silent_is_replaced(tmp_path: Path) -> None:
    with _watched(tmp_path, BEATS_AND_SLEEPS) as supervisor:
        supervisor.wait_first_beat()
        supervisor.run_for(LIMIT_SECONDS)
        assert supervisor.is_untouched()
        supervisor.run_for(2)
        assert supervisor.is_replaced()
    assert "loop has sent no heartbeat for 61 s" in (tmp_path / "podyard.log").read_text()


def test_nobody_is_killed_when_the_supervisor_itself_was_late(tmp_path: Path) -> None:
    with _watched(tmp_path, BEATS_AND_SLEEPS) as supervisor:
        supervisor.wait_first_beat()
        supervisor.run_for(LIMIT_SECONDS - 1)
        supervisor.run_for(3600, 3600)
        assert supervisor.is_untouched()
        # A starved supervisor is late again and again.
        supervisor.run_for(10 * LIMIT_SECONDS, LATE_SECONDS_MAX + 1)
        assert supervisor.is_untouched()
        supervisor.run_for(LIMIT_SECONDS + 2)
        assert supervisor.is_replaced()


def test_a_child_that_has_not_begun_to_beat_has_the_time_of_a_start(tmp_path: Path) -> None:
    with _watched(tmp_path, SLEEPS) as supervisor:
        supervisor.settings = settings.from_environment(
            {**_data(tmp_path), "PODYARD_HEARTBEAT_SECONDS": "2"}
        )
        supervisor.run_for(STALL_SECONDS_MAX - 1, 0.4)
        assert supervisor.is_untouched()
        supervisor.run_for(3, 0.4)
        assert supervisor.is_replaced()


def test_the_broker_is_never_killed_for_its_silence(tmp_path: Path) -> None:
    with _watched(tmp_path, SLEEPS, beats=False) as supervisor:
        supervisor.run_for(100 * LIMIT_SECONDS)
        assert supervisor.is_untouched()


def _data(folder: Path) -> dict[str, str]:
    return {"PODYARD_DATA": str(folder)}


def test_a_supervisor_that_cannot_write_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _data: object) -> None:
        raise OSError(28, "No space left on device")

    with _watched(tmp_path, SLEEPS) as supervisor:
        monkeypatch.setattr(processes, "write_json", full)
        os.kill(supervisor.pid, signal.SIGKILL)
        assert supervisor.is_replaced()
        assert supervisor.child.restart_at is None


def test_a_process_deletes_only_files_that_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "podyard.json").write_text("{}")
    with _watched(tmp_path, SLEEPS):
        assert (tmp_path / "processes.json").exists()
    assert (tmp_path / "podyard.json").exists()
    assert not (tmp_path / "processes.json").exists()


def test_a_child_that_nobody_recorded_is_found_and_what_it_starts_is_not(tmp_path: Path) -> None:
    env = {**os.environ, **_data(tmp_path), CHILD_VARIABLE: "api"}
    other = {**env, "PODYARD_DATA": str(tmp_path / "other")}
    children = [
        subprocess.Popen(SLEEPS, env=env, start_new_session=True),
        subprocess.Popen(SLEEPS, env=env),
        subprocess.Popen(SLEEPS, env=other, start_new_session=True),
    ]
    try:
        assert [(one.name, one.pid) for one in processes.living(tmp_path)] == [
            ("api", children[0].pid)
        ]
        link = tmp_path.parent / f"{tmp_path.name}-link"
        link.symlink_to(tmp_path)
        assert [one.pid for one in processes.living(link)] == [children[0].pid]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert processes.living(tmp_path) == []


def test_another_process_with_a_recorded_pid_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEPS) as process:
        mine = processes.find_process("loop", process.pid)
        assert mine is not None
        processes.record(
            tmp_path, [StackProcess("loop", process.pid, "0@another start of the machine")]
        )
        assert processes.living(tmp_path) == []
        processes.record(tmp_path, [mine])
        assert processes.living(tmp_path) == [mine]
        assert processes.stop_orphans([mine], OsClock(), {"loop": 5.0}) == ["loop"]
        assert process.wait(5) == -signal.SIGTERM


def test_one_process_at_a_time_has_a_folder(tmp_path: Path) -> None:
    first = processes.claim(tmp_path)
    assert first is not None
    assert processes.claim(tmp_path) is None
    (tmp_path / processes.LOCK_FILE).unlink()  # as `podyard down --delete-data` does
    second = processes.claim(tmp_path)
    assert second is not None
    os.close(first)
    assert processes.claim(tmp_path) is None
    os.close(second)


def test_last_words_arrive_behind_any_number_of_heartbeats(tmp_path: Path) -> None:
    says = (
        "import os; from podyard.base.heartbeat import from_environment; beats = "
        "from_environment(os.environ);"
        "[beats.beat() for _ in range(1000)]; beats.say('no\\nroom'); beats.beat()"
    )
    child = Child("api", [sys.executable, "-c", says], dict(os.environ))
    with (tmp_path / "log").open("ab") as log:
        child.spawn(log, 0.0)
        assert child.process is not None and child.process.wait(30) == 0
    assert child.last_words() == "no room"
    child.end(1)


def test_a_process_knows_the_mark_of_the_one_before_once_that_has_ended(tmp_path: Path) -> None:
    says = (
        "import os; from podyard.base.heartbeat import from_environment; beats = "
        "from_environment(os.environ);"
        "beats.say(f'{beats.mark} {beats.ended or None}'); input()"
    )
    child = Child("loop", [sys.executable, "-c", says], dict(os.environ))

    def spawn() -> list[str]:
        child.spawn(log, 0.0)
        words: str = until(lambda: child.last_words() or None, 30, "its marks")
        return words.split()

    with (tmp_path / "log").open("ab") as log:
        mark, ended = spawn()
        assert ended == "None", "it is the first"
        assert child.process is not None and child.process.wait(30) != 0
        second, ended = spawn()
        assert ended == mark != second
    child.end(1)


def test_a_heartbeat_never_waits_nor_fails() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    environ = {PIPE_VARIABLE: str(write_end), CHILD_VARIABLE: "loop"}
    heartbeat = from_environment(environ)
    assert environ == {}  # children of the child must not pass for it
    for _ in range(100_000):
        heartbeat.beat()  # nobody reads: the pipe is full
    heartbeat.say("x" * 2 * WORDS_BYTES_MAX)
    os.close(read_end)
    heartbeat.beat()  # nobody is there any more
    os.close(write_end)
    Heartbeat().beat()


def test_modes_are_closed_but_for_what_users_made_on_hosts(tmp_path: Path) -> None:
    home = tmp_path / "agents" / "local" / "hosts" / "host-1" / "home"
    made = [
        tmp_path / "objects" / "run" / "checkpoint",
        tmp_path / "podyard.db-wal",
        home / "script.sh",
        tmp_path / "notes" / "mine",
    ]
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o755)
        path.parent.chmod(0o755)
    (tmp_path / "objects" / "link").symlink_to(tmp_path / "notes" / "mine")
    for folder in ("objects", "agents"):
        (tmp_path / folder).chmod(0o755)
    tmp_path.chmod(0o755)
    elsewhere = tmp_path / "elsewhere.db"
    elsewhere.write_text("")
    elsewhere.chmod(0o644)
    modes.close_to_others(tmp_path, elsewhere)
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o700, 0o755, 0o755]
    closed = (tmp_path / "objects", tmp_path / "objects" / "run", home.parent, tmp_path / "agents")
    assert {path.stat().st_mode & 0o777 for path in closed} == {0o700}
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert elsewhere.stat().st_mode & 0o777 == 0o600


# Computes and sleeps in turns, as a process that starts on a loaded machine.
COMPUTING = """
import time
while True:
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    time.sleep(0.01)
"""
COMPUTES = [sys.executable, "-c", COMPUTING]


def test_a_start_that_gets_on_is_waited_for_however_slow_the_machine_is(tmp_path: Path) -> None:
    with _watched(tmp_path, COMPUTES) as supervisor:
        rounds = iter(range(4))

        def is_done() -> bool:
            """Let 50 s of the clock go by, in which the child gets a second of CPU time."""
            enough = cpu_seconds(supervisor.pid) + PROGRESS_CPU_SECONDS
            until(lambda: cpu_seconds(supervisor.pid) > enough or None, 60, "a second of CPU time")
            supervisor.clock.advance(STALL_SECONDS_MAX - 10)
            return next(rounds, None) is None

        supervisor._await(is_done)
        assert supervisor.is_untouched()


def test_a_start_that_does_not_get_on_names_the_process(tmp_path: Path) -> None:
    with _watched(tmp_path, SLEEPS) as supervisor:

        def is_done() -> bool:
            supervisor.clock.advance(1.0)
            return False

        with pytest.raises(SetupError, match="the start of loop has made no progress for 60 s"):
            supervisor._await(is_done)


def test_a_child_that_dies_in_its_start_is_reported_with_its_last_line(tmp_path: Path) -> None:
    dies = [sys.executable, "-c", "raise ImportError('libpodyard.so: cannot open')"]
    with _watched(tmp_path, dies) as supervisor:
        assert supervisor.child.process is not None
        supervisor.child.process.wait(30)
        with pytest.raises(SetupError) as refused:
            supervisor._await(lambda: False)
    assert refused.value.message == (
        "the loop process ended with exit code 1: ImportError: libpodyard.so: cannot open"
    )
