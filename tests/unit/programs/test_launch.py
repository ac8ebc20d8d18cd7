"""Several workers of one command: their lines, their end, and nothing that is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from podyard.base.clock import OsClock
from podyard.programs.launch import END_SECONDS
from tests.waiting import patient

LAUNCH = """
import os, sys
from podyard.base.clock import OsClock
from podyard.programs.launch import END_SECONDS
from tests.waiting import patient
from podyard.programs.launch import launch
count = int(sys.argv[1])
end = launch([sys.executable, "-c", sys.argv[2]], [os.environ | {"N": str(n)} for n in range(count)], OsClock(),
             lambda: None)
print(end.code, end.failed_worker, flush=True)
"""  # noqa: E501


def _start(count: int, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(count), textwrap.dedent(code)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _run(count: int, code: str, typed: str = "") -> tuple[str, str]:
    return _start(count, code).communicate(typed, timeout=60)


def test_lines_say_which_worker_wrote_them_and_the_first_one_reads() -> None:
    out, err = _run(
        3,
        "import os, sys; print(os.environ['N'], repr(sys.stdin.read())); print('e', "
        "file=sys.stderr)",
        "hi",
    )
    assert sorted(out.splitlines()) == [
        "0 None",
        "[worker 0] 0 'hi'",
        "[worker 1] 1 ''",
        "[worker 2] 2 ''",
    ]
    assert sorted(err.splitlines()) == [f"[worker {n}] e" for n in range(3)]


def test_one_worker_alone_writes_where_its_launcher_does() -> None:
    out, _ = _run(1, "print(input())", "typed\n")
    assert out == "typed\n0 None\n"


def test_the_first_failure_ends_the_others_and_its_traceback_is_first() -> None:
    out, err = _run(
        3,
        """
        import os, time
        if os.environ["N"] == "2":
            raise SystemExit("worker 2 gives up")
        try:
            time.sleep(1000)
        finally:
            print("ended")
        """,
    )
    assert out.splitlines()[-1] == "1 2"
    assert err.splitlines()[0] == "[worker 2] worker 2 gives up"


@pytest.mark.slow
def test_workers_that_do_not_listen_are_killed_within_ten_seconds(tmp_path: Path) -> None:
    started = OsClock().monotonic_seconds()
    code = f"""
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.environ["N"] == "0":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
            open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
            time.sleep(100)
        while not os.path.exists({str(tmp_path / "child")!r}):
            time.sleep(0.05)
        sys.exit(7)
    """
    out, _ = _run(2, code)
    assert out.splitlines()[-1] == "7 1"
    assert OsClock().monotonic_seconds() - started < patient(END_SECONDS)
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_all_workers(number: signal.Signals) -> None:
    process = _start(2, "import time; print('up', flush=True); time.sleep(50)")
    assert process.stdout is not None
    assert {process.stdout.readline(), process.stdout.readline()} == {
        "[worker 0] up\n",
        "[worker 1] up\n",
    }
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert out.split()[0] in ({str(-number)} if number == signal.SIGTERM else {"1", str(-number)})


@pytest.mark.skipif(
    sys.platform != "linux", reason="Linux ends a process with its parent; others do not"
)
def test_workers_end_with_a_launcher_that_is_killed() -> None:
    process = _start(2, "import os, time; print(os.getpid(), flush=True); time.sleep(50)")
    assert process.stdout is not None
    pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
    process.kill()
    process.communicate(timeout=30)
    clock = OsClock()
    until = clock.monotonic_seconds() + 10
    while any(map(_runs, pids)) and clock.monotonic_seconds() < until:
        clock.sleep(0.05)
    assert not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
