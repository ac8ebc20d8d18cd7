"""Units of systemd on hosts: systemctl and journalctl as bootstrap scripts of launchers use them,
in boxes of root and without root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from podyard.base.boxes import why_not
from tests.conftest import require
from tests.distributed.boxes import ZONE, run_on
from tests.ordinary_user import UserStack, make_user
from tests.stack import Stack, open_stack, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]
NODE = f"/v2/projects/demo/locations/{ZONE}/nodes/one"
TICKER = """[Unit]
Description=A ticker
After=network-online.target

[Service]
EnvironmentFile=/etc/default/ticker
Environment="GREETING=hello there" PYTHONUNBUFFERED=1
WorkingDirectory=/srv/ticker
ExecStartPre=/bin/sh -c 'echo preparing $TPU_WORKER_ID'
ExecStart=/bin/sh -c 'echo "$GREETING ${NAME} in $PWD as $(id -un)"; touch ran; exec sleep 1000'
ExecStop=/bin/sh -c 'echo stopping $MAINPID'
User=podyard
Restart=always
RestartSec=200ms

[Install]
WantedBy=multi-user.target
"""


@pytest.fixture(scope="module", params=["root", "user"])
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    if request.param == "user":
        with make_user() as (name, home):
            yard = UserStack(home / "data", name, {"PODYARD_BOXES": "on"})
            try:
                yard.up()
                yard.create_node("one", "v3-8", ZONE)
                yield yard
            finally:
                yard.down()
                yard.http.close()
        return
    needs = why_not("on") if os.geteuid() == 0 else "root"
    require(None if needs else "boxes", f"root, and what boxes need ({needs})")
    with open_stack(tmp_path_factory.mktemp("units"), {"PODYARD_BOXES": "on"}) as yard:
        yard.create_node("one", "v3-8", ZONE)
        yield yard


def _run(stack: Stack, command: str) -> subprocess.CompletedProcess[str]:
    return run_on(stack, "one", command)


def _lines(stack: Stack, command: str) -> list[str]:
    done = _run(stack, command)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.splitlines()


def _write(stack: Stack, name: str, text: str) -> None:
    _lines(stack, f"sudo tee /etc/systemd/system/{name} > /dev/null <<'UNIT'\n{text}\nUNIT")


def _state(stack: Stack, name: str, *properties: str) -> list[str]:
    return _lines(stack, f"systemctl show {name} --value -p {','.join(properties)}")


def test_a_service_runs_is_started_again_and_comes_back_with_its_host(stack: Stack) -> None:
    _write(stack, "ticker.service", TICKER)
    prepare = "sudo mkdir -p /srv/ticker && sudo chmod 777 /srv/ticker"
    _lines(stack, f"{prepare} && echo NAME=world | sudo tee /etc/default/ticker > /dev/null")
    done = _run(stack, "sudo systemctl daemon-reload && sudo systemctl enable --now ticker")
    assert done.returncode == 0 and "Created symlink" in done.stderr, done.stderr
    assert _lines(stack, "systemctl is-active ticker; systemctl is-enabled ticker") == [
        "active", "enabled",
    ]  # fmt: skip
    said = ["preparing 0", "hello there world in /srv/ticker as podyard"]

    def journal(*options: str) -> list[str]:
        return _lines(stack, f"journalctl -u ticker --no-pager -o cat {' '.join(options)}")

    until(lambda: said[1] in journal() or None, 20, "its first line")
    assert [line for line in journal() if line in said] == said
    status = _lines(stack, "systemctl status ticker --no-pager")
    assert status[0] == "● ticker.service - A ticker"
    assert "active (running)" in status[2] and "(sleep)" in status[3], status
    assert "sh[" in _lines(stack, "journalctl -xeu ticker")[0]
    # Somebody kills it: it comes back, as another process.
    first, restarts = _state(stack, "ticker", "MainPID", "NRestarts")
    assert restarts == "0"
    _lines(stack, f"sudo kill -9 {first}")

    def is_back() -> list[str] | None:
        state, pid, count = _state(stack, "ticker", "ActiveState", "MainPID", "NRestarts")
        return [pid, count] if state == "active" and pid not in ("0", first) else None

    _, restarts = until(is_back, 20, "a restart")
    assert restarts == "1"
    # The host restarts, and what is enabled with it.
    for verb, state in (("stop", "STOPPED"), ("start", "READY")):
        stack.call("POST", f"{NODE}:{verb}", {})
        until(lambda s=state: stack.call("GET", NODE)["state"] == s or None, 60, state)
    _lines(stack, "rm /srv/ticker/ran; true")
    until(lambda: _run(stack, "systemctl is-active ticker").returncode == 0 or None, 30, "a boot")
    assert journal().count(said[1]) == 3
    done = _run(
        stack, "sudo systemctl stop ticker; systemctl is-active ticker; pgrep -f 'sleep 1000'"
    )
    assert (done.returncode, done.stdout) == (1, "inactive\n"), done.stderr
    assert journal("-n", "2")[0].startswith("stopping ")
    assert _lines(stack, "sudo systemctl disable ticker; systemctl is-enabled ticker || true") == [
        "disabled"
    ]


def test_a_service_that_fails_says_so(stack: Stack) -> None:
    _write(
        stack,
        "bad.service",
        "[Service]\nExecStart=/bin/sh -c 'echo no luck; exit 7'\nRestart=on-failure\n"
        "RestartSec=50ms\nStartLimitBurst=3",
    )
    _lines(stack, "sudo systemctl start bad")
    until(lambda: _state(stack, "bad", "ActiveState") == ["failed"] or None, 20, "the last start")
    assert _state(stack, "bad", "Result", "NRestarts", "ExecMainStatus") == [
        "start-limit-hit",
        "3",
        "7",
    ]
    assert _run(stack, "systemctl status bad").returncode == 3
    assert _lines(stack, "journalctl -u bad -o cat | grep -c 'no luck'") == ["3"]
    _write(
        stack,
        "once.service",
        "[Service]\nType=oneshot\nExecStart=/bin/true\nExecStart=/bin/false\n",
    )
    done = _run(stack, "sudo systemctl start once")
    assert done.returncode == 1 and "Job for once.service failed" in done.stderr
    _write(
        stack,
        "once.service",
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'sleep 1; echo in'\n",
    )
    assert _lines(stack, "sudo systemctl start once && journalctl -u once -o cat | grep -x in") == [
        "in"
    ]
    assert _state(stack, "once", "ActiveState", "SubState") == ["active", "exited"]


def test_all_processes_of_a_service_end_with_it(stack: Stack) -> None:
    daemon = "(setsid sleep 1003 & echo $! > /run/daemon.pid) & setsid sleep 1004 &"
    text = f"[Service]\nType=forking\nPIDFile=daemon.pid\nExecStart=/bin/sh -c '{daemon} sleep 1'\n"
    _write(stack, "daemon.service", text)
    count = "pgrep -fc '^sleep 100[34]' || true"
    assert _lines(stack, f"sudo systemctl restart daemon; {count}; systemctl is-active daemon") == [
        "2",
        "active",
    ]
    pid = _lines(stack, "cat /run/daemon.pid")
    assert _state(stack, "daemon", "MainPID") == pid
    assert _lines(stack, f"sudo systemctl stop daemon; {count}") == ["0"]


def test_what_is_not_there_is_refused_in_a_sentence(stack: Stack) -> None:
    for command, code, why in (
        (
            "sudo systemctl start nothing",
            5,
            "Failed to start nothing.service: Unit nothing.service not found.",
        ),
        ("systemctl status nothing", 4, "Unit nothing.service could not be found."),
        (
            "systemctl isolate rescue.target",
            1,
            "isolate is not supported on hosts of Podyard: use start",
        ),
        ("systemctl start ticker", 1, "start needs root: use sudo systemctl start"),
        ("sudo systemctl start x.timer", 1, "x.timer: hosts of Podyard run services only"),
        ("journalctl --since yesterday", 1, "--since is not supported"),
    ):
        done = _run(stack, command)
        assert done.returncode == code and why in done.stderr, (command, done)
    done = _run(stack, "journalctl -u nothing; echo; systemctl is-active nothing")
    assert (done.returncode, done.stdout) == (3, "-- No entries --\n\ninactive\n")


def test_a_journal_is_followed(stack: Stack) -> None:
    counter = (
        "[Service]\nExecStart=/bin/sh -c 'for i in 1 2 3 4 5 6; do echo n$i; sleep 0.5; done'\n"
    )
    _write(stack, "counter.service", counter)
    follow = "timeout 20 journalctl -fu counter -o cat | grep -m1 n6"
    assert _lines(stack, f"sudo systemctl start counter && {follow}") == ["n6"]
