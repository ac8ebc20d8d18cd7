"""Boxes that an ordinary user's Podyard makes: the same from inside, but for limits and for users
besides the one."""

from __future__ import annotations

import contextlib
import platform
import pwd
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from podyard.base.boxes import BOXED_WITHOUT_ROOT
from podyard.workers.box import limit as box_limit
from tests.conftest import require
from tests.distributed.boxes import FORK_BOMB, ZONE, box_of, digest, hosts, run_on, ways_out
from tests.distributed.jax_slices import PROGRAM
from tests.ordinary_user import UserStack, make_user
from tests.stack import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack() -> Iterator[UserStack]:
    with make_user() as (name, home):
        yard = UserStack(home / "data", name, {"PODYARD_BOXES": "on"})
        why = yard.run(
            yard.python, "-c", "from podyard.base import boxes; print(boxes.why_not('on'))"
        ).stdout.strip()
        require(None if why else "boxes", f"boxes without root ({why})")
        yard.run(
            "sh", "-c", "umask 77; mkdir papers .ssh; echo mine | tee papers/one .ssh/id_ed25519"
        )
        try:
            yard.up()
            yard.create_node("one", "v3-8", ZONE)
            yard.create_node("other", "v3-32", ZONE)
            yield yard
        finally:
            yard.down()
            yard.http.close()
        left = until(lambda: _of_user(name) or "nothing", 10, "the last process")
        assert left == "nothing"
        assert yard.violations() == []


def _of_user(name: str) -> list[psutil.Process]:
    user, found = pwd.getpwnam(name).pw_uid, []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == user and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _platform(stack: UserStack) -> list[tuple[str, int]]:
    """Its processes, but for the loop, which ends by itself when nothing is to be done."""
    return sorted(item for item in stack.main_processes() if item[0] != "loop")


def test_a_host_is_a_machine_of_its_own(stack: UserStack) -> None:
    done = run_on(
        stack, "other",
        "id -un; sudo id -u; sudo -u podyard id -un; hostname; pwd; ls /dev | grep -c accel; "
        "pgrep -c sleep; ulimit -u;"
        " touch /tmp/x ~/y; sudo touch /etc/z /usr/z /usr/local/bin/z; python -m http.server 80 "
        ">/dev/null 2>&1 &"
        " echo $TPU_WORKER_HOSTNAMES;"
        " curl -sH Metadata-Flavor:Google "
        "http://metadata.google.internal/computeMetadata/v1/instance/name;"
        " echo; curl -sH Metadata-Flavor:Google "
        "http://169.254.169.254/computeMetadata/v1/instance/attributes/"
        "agent-worker-number; echo; curl -s -o /dev/null -w '%{http_code}' "
        "$PODYARD_URL/podyard/v1/projects",
    )  # fmt: skip
    addresses = ",".join(host["internalIp"] for host in hosts(stack, "other"))
    assert (done.returncode, done.stdout.split("\n")) == (
        0,
        [
            "podyard",
            "0",
            "podyard",
            "other-w-0",
            "/home/podyard",
            "4",
            "1",
            str(box_of(stack, "other").processes_max),
            addresses,
            "other-w-0",
            "0",
            "401",
        ],
    ), done.stderr
    assert {host["isolation"] for host in hosts(stack, "other") if host["state"] == "RUNNING"} == {
        BOXED_WITHOUT_ROOT
    }
    assert not Path("/run/netns", box_of(stack, "other").network).exists()
    ask = (
        "curl --retry 9 --retry-connrefused -so /dev/null -w '%{http_code} ' http://other-w-0:80/; "
    )
    greeting = (
        "python -c 'import socket; print(socket.create_connection((\"other-w-0\", 22)).recv(4))'"
    )
    assert run_on(stack, "other", ask + greeting, "3").stdout == "200 b'SSH-'\n"


def test_the_ways_out_of_a_box_of_root_lead_out_of_none_of_a_user(stack: UserStack) -> None:
    assert ways_out(stack) == []


def test_what_a_box_destroys_is_not_the_user_s(stack: UserStack) -> None:
    """All that the user might lose: home and Podyard's own processes, which belong to the same user
    as the box."""
    tops = [stack.home / name for name in ("papers", ".ssh", "venv")]
    before, running = [digest(top) for top in tops], _platform(stack)
    done = run_on(
        stack, "one",
        f"rm -rf {stack.home}/* {stack.home}/.ssh /home/* /usr/local/* ~/*; sudo rm -rf "
        "/etc/security/limits.d;"
        f"echo x > {stack.python}; pkill -9 python; sudo pkill -9 -f podyard; setsid sudo sh -c "
        "'kill -9 -1' & sleep 1",
    )  # fmt: skip
    assert done.returncode != 0  # its own shell is among those that it kills
    assert [digest(top) for top in tops] == before and all(before[:2])
    assert _platform(stack) == running
    assert (
        run_on(stack, "one", "test ! -e /etc/security/limits.d && echo still").stdout == "still\n"
    )


def test_a_box_cannot_ask_for_the_user_s_keys(stack: UserStack) -> None:
    """Keyrings of the kernel are in no namespace: to it the box and the user are one."""
    if platform.machine() != "x86_64":
        pytest.skip("the numbers of these calls are those of x86_64")
    text = (
        "import ctypes; print([ctypes.CDLL(None).syscall(n, 0, 0, 0, 0) for n in (248, 249, 250)])"
    )
    add = "import ctypes; print(ctypes.CDLL(None).syscall(248, b'user', b'k', b'secret', 6, -4))"
    assert int(stack.run(stack.python, "-c", add).stdout) > 0
    assert (
        run_on(stack, "one", f'python3 -c "{text}"; sudo python3 -c "{text}"').stdout
        == "[-1, -1, -1]\n" * 2
    )


def test_processes_are_counted_for_each_box(stack: UserStack) -> None:
    """The limit of a user's processes is the box's, whatever else the same user runs."""
    user = stack.home.stat().st_uid
    running = sum(
        process.num_threads() for process in psutil.process_iter() if process.uids().real == user
    )
    assert running > 15
    start = "prlimit --nproc=15 sh -c 'for n in $(seq {}); do sleep 1 & done; wait'"
    assert "fork" in run_on(stack, "one", start.format(20)).stderr
    assert run_on(stack, "other", start.format(10), "1").stderr == ""


def test_a_fork_bomb_is_ended_and_its_host_goes_on(stack: UserStack) -> None:
    done = run_on(stack, "one", FORK_BOMB)
    why = f"podyard: {box_limit.reason(box_of(stack, 'one'))}\n"
    assert (done.returncode, done.stderr) == (137, why)
    assert run_on(stack, "one", "echo on").stdout == "on\n"


def test_two_slices_at_once_have_their_own_sums(stack: UserStack) -> None:
    stack.create_node("left", "v3-32", ZONE)
    program = f"cat > program.py <<'END'\n{PROGRAM}END\npython program.py"

    def sums(node: str, value: int) -> list[str]:
        done = run_on(stack, node, f"{program} {value} plain", "all", seconds=120)
        return sorted(line for line in done.stdout.splitlines() if line.startswith("<"))

    with ThreadPoolExecutor() as pool:
        ours, theirs = pool.map(sums, ("other", "left"), (1, 1000))
    assert ours == [f"<{number} 8 32 32.0>" for number in range(4)]
    assert theirs == [f"<{number} 8 32 32000.0>" for number in range(4)]
    folders = [
        stack.data / "agents" / "local" / "hosts" / host["host"] for host in hosts(stack, "left")
    ]
    stack.delete_node("left", ZONE)
    until(
        lambda: not any(folder.exists() for folder in folders) or None, 30, "the end of its folders"
    )


def test_a_box_outlives_kills_and_is_found_again(stack: UserStack) -> None:
    """kill -9 for the host server and the agent; what holds the networks of boxes goes on, too."""
    assert run_on(stack, "one", "setsid sleep 7777 >/dev/null 2>&1 & echo ok").stdout == "ok\n"
    place = box_of(stack, "one")
    for process in (
        item for item in stack.processes() if "podyard.workers.host.server" in item.cmdline()
    ):
        process.kill()
    stack.kill("agent")
    until(lambda: run_on(stack, "one", "true").returncode == 0 or None, 30, "the host")
    ask = (
        "curl -sH Metadata-Flavor:Google "
        "http://metadata.google.internal/computeMetadata/v1/instance/name"
    )
    # with the box's first process
    assert run_on(stack, "one", f"pgrep -c sleep; {ask}").stdout == "2\none-w-0"
    assert place.is_alive() and box_of(stack, "one").pid == place.pid
