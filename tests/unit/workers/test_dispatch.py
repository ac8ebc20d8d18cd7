"""Where there is no broker, background work is done on this machine, one piece after the other."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from podyard.control.billing import exports
from podyard.control.jobs import log_copies
from podyard.control.platform import webhooks
from podyard.db.store.outbox import BACKGROUND
from podyard.workers.tasks import dispatch
from podyard.workers.tasks.background import WORK
from podyard.workers.tasks.dispatch import Dispatcher


class _Process:
    """A process that ends when it is told to; `started` are the commands of all."""

    started: list[list[str]]
    begun: threading.Semaphore
    may_end: threading.Semaphore

    def __init__(self, command: list[str], **_: Any) -> None:
        self.started.append(command[4:])
        self.begun.release()

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self) -> None:
        assert self.may_end.acquire(timeout=10)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> type[_Process]:
    class Process(_Process):
        started: list[list[str]] = []  # noqa: RUF012
        begun = threading.Semaphore(0)
        may_end = threading.Semaphore(0)

    monkeypatch.setattr(subprocess, "Popen", Process)
    return Process


def test_one_piece_of_work_follows_the_other_and_none_waits_twice(
    processes: type[_Process],
) -> None:
    send = Dispatcher("memory://")
    send("agent.local", "podyard.poke_agent", ["local"])  # it polls
    send(BACKGROUND, exports.TASK, ["a"])
    assert processes.begun.acquire(timeout=10)
    # what is under way may be asked for again, what waits need not
    for name in ("b", "b", "a", "b"):
        send(BACKGROUND, exports.TASK, [name])
    for _ in range(2):
        processes.may_end.release()
        assert processes.begun.acquire(timeout=10)
    processes.may_end.release()
    assert processes.started == [[exports.TASK, name] for name in ("a", "b", "a")]


def test_no_more_than_so_many_wait(
    processes: type[_Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "WAITING_MAX", 2)
    send = Dispatcher("memory://")
    send(BACKGROUND, webhooks.TASK, ["0"])
    assert processes.begun.acquire(timeout=10)
    for number in range(1, 5):
        send(BACKGROUND, webhooks.TASK, [str(number)])
    for _ in range(2):
        processes.may_end.release()
        assert processes.begun.acquire(timeout=10)
    processes.may_end.release()
    assert not processes.begun.acquire(timeout=0.05)
    assert [command[1] for command in processes.started] == ["0", "1", "2"]


def test_every_task_of_the_background_can_be_done() -> None:
    assert set(WORK) == {exports.TASK, webhooks.TASK, log_copies.TASK}


@pytest.mark.slow
def test_a_piece_of_work_ends_with_the_process_that_started_it() -> None:
    code = (
        "import threading; from podyard.workers.tasks import background\n"
        "background.WORK = {'forever': lambda *_: threading.Event().wait()}\n"
        "background.main('forever', 'x')"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    with process:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.2)
            assert process.stdin is not None
            process.stdin.close()  # as the kernel does for a process that was killed
            assert process.wait(20) == 1
        finally:
            process.kill()
