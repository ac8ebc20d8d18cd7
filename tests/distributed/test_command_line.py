"""`podyard` as a user types it: exit codes, refusals of one line, and the demo."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import time
from fractions import Fraction
from pathlib import Path

import pytest

from podyard.base.durations import duration_for_people
from podyard.base.money import money_text
from podyard.testing.server import write_empty_database
from tests import doc_outputs
from tests.stack import PODYARD, Stack, open_stack, until
from tests.waiting import patient

# Seconds of this machine, and what they cost. Steps, accuracy and modelled time are the product's.
_MEASURED = re.compile(
    r"(?:(?<=wall )|(?<=billed )|(?<=Bill: ))(?:\d+ min)?(?: ?[\d.]+ s)?|\$[\d.]+"
)
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


def _refused(stack: Stack, *arguments: str) -> str:
    done = stack.podyard("up", "--detach", *arguments)
    assert done.returncode == 2, done
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert stack.processes() == []
    return done.stderr


def test_a_taken_port_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "--port" in _refused(Stack(tmp_path), "--port", str(port))


def test_a_folder_that_cannot_be_written_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert "--data" in _refused(Stack(file / "data"), "--port", "0")


def test_a_wrong_fleet_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("zones: {mars: {}}")
    assert "mars" in _refused(Stack(tmp_path / "data"), "--port", "0", "--fleet", str(fleet))


def test_a_newer_database_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    write_empty_database(tmp_path / "podyard.db")
    connection = sqlite3.connect(tmp_path / "podyard.db")
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    assert "newer" in _refused(Stack(tmp_path), "--port", "0")


def test_a_second_podyard_is_refused_and_nothing_is_billed_while_the_first_is_down(
    tmp_path: Path,
) -> None:
    with open_stack(tmp_path) as stack:
        done = stack.podyard("up", "--port", "0", "--detach")
        assert done.returncode == 2
        assert "already" in done.stderr
        assert stack.podyard("status").returncode == 0
        # A shell that points here, asked without a folder: the answer names the folder.
        stack.env |= {"PODYARD_URL": stack.url, "HOME": str(tmp_path)}
        elsewhere = stack.command("status")
        assert elsewhere.returncode == 1
        assert f"uses {stack.url}: `podyard status --data {stack.data}`" in elsewhere.stderr
        stack.create_node("still", "v2-8", "us-central1-f")
        stack.down()
        assert stack.podyard("status").returncode == 1
        stood = _platform_time(tmp_path)
        waited = until(
            lambda: None if _slept(tmp_path) < 3 else _slept(tmp_path), 10, "three seconds"
        )
        assert _platform_time(tmp_path) == stood
        stack.up()
        now = _parse(stack.call("GET", "/podyard/v1/clock")["platformTime"])
        # The clock goes on from where it stood; what passed since is the new stack's own running
        # time.
        assert 0 <= now - stood < waited
        usage = stack.call("GET", "/podyard/v1/projects/demo/usage")
        ready = next(
            e
            for e in stack.call("GET", "/podyard/v1/projects/demo/events")["events"]
            if e["toState"] == "READY"
        )
        assert usage["seconds"] <= now - _parse(ready["at"]) + 4


@pytest.mark.smoke
def test_a_job_goes_on_after_down_and_up_and_that_is_no_failure(tmp_path: Path) -> None:
    with open_stack(tmp_path) as stack:
        stack.create_node("long", "v2-8", "us-central1-f")
        path = stack.submit(
            "long", "us-central1-f", node="long", steps=300, checkpointEverySteps=20, maxFailures=0
        )
        stack.wait_steps(path, 30)
        stack.down()
        assert stack.processes() == []
        stack.up()
        job = stack.wait_job(path)
        assert (job["state"], job["failures"], job["preemptions"]) == ("SUCCEEDED", 0, 1), job
        assert [point["step"] for point in stack.metrics(path)] == list(range(1, 301))


def _slept(data: Path) -> float:
    return time.time() - (data / "podyard.log").stat().st_mtime


def _parse(text: str) -> float:
    from podyard.base.clock import PlatformTime

    return PlatformTime.from_rfc3339(text).nanos / 1e9


def _platform_time(data: Path) -> float:
    """Platform time as the database has it, while nothing runs."""
    from podyard.base.clock import OsClock
    from podyard.db.store.unit_of_work import Database

    database = Database(f"sqlite:///{data / 'podyard.db'}", OsClock())
    try:
        return database.read(lambda uow: uow.now).nanos / 1e9
    finally:
        database.close()


def test_commands_speak_json_and_errors_have_their_exit_code(tmp_path: Path) -> None:
    with open_stack(tmp_path) as stack:
        created = _run(stack, "tpu create a --accelerator-type v2-8 --version tpu-vm-base -o json")
        assert json.loads(created.stdout)["state"] == "READY"
        refused = _run(stack, "tpu create a --accelerator-type v2-8 --version tpu-vm-base")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "ALREADY_EXISTS" in refused.stderr
        assert _run(stack, "tpu create").returncode == 2
        assert _run(stack, "nonsense").returncode == 2
        assert json.loads(_run(stack, "bill show -o json").stdout)["seconds"] >= 1
        exports = _run(stack, "env").stdout.splitlines()
        assert all(re.fullmatch(r"export [A-Z0-9_]+=.+", line) for line in exports)
        assert f"export PODYARD_URL={stack.url}" in exports
        assert (
            _run(
                stack, "run -- sh -c 'test -n \"$CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU\"'"
            ).returncode
            == 0
        )
        assert "v4-4096" in _run(stack, "hardware list").stdout
        _check_a_job_without_its_data(stack)


def _check_a_job_without_its_data(stack: Stack) -> None:
    """It fails at once, its error is in its log, and it is found whatever zone it is in."""
    stack.create_node("elsewhere", "v2-8", "europe-west4-a")
    path = stack.submit(
        "no-data",
        "europe-west4-a",
        node="elsewhere",
        recipe="mnist-cnn",
        arguments={"data": "mnist"},
    )
    job = stack.wait_job(path)
    assert (job["state"], job["attempt"], job["error"]["status"]) == (
        "FAILED",
        1,
        "FAILED_PRECONDITION",
    ), job
    assert any(job["error"]["message"] in line for line in stack.log_lines(path)), stack.log_lines(
        path
    )
    described = _run(stack, "job describe no-data")
    assert "locations/europe-west4-a/jobs/no-data" in described.stdout, described.stderr
    assert job["error"]["message"] in _run(stack, "job logs no-data").stdout
    assert _run(stack, "job wait no-data").returncode == 1
    unanswered = _run(stack, "tpu delete elsewhere --zone europe-west4-a")
    assert unanswered.returncode == 2 and "--quiet" in unanswered.stderr
    assert (
        stack.call("GET", "/v2/projects/demo/locations/europe-west4-a/nodes/elsewhere")["state"]
        == "READY"
    )


def _run(stack: Stack, text: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    env["PODYARD_DATA"] = str(stack.data)
    return subprocess.run(
        [*PODYARD, *shlex.split(text)],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patient(120),
    )


@pytest.mark.smoke
def test_the_demo_proves_its_bill_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PODYARD, "demo"], capture_output=True, text=True, timeout=patient(300), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    single, pod, total = done.stdout.strip().splitlines()[-3:]
    row = r"{}  +{}  +{}  +{}  +accuracy 0\.\d\d  +steps 400"
    row += r"  +wall [\d.]+ (?:s|min[\d s]*)  +modelled [\d.]+ m?s \(tpu-model\)"
    billed = r"  +billed ((?:\d+ min)? ?(?:\d+ s)?)  +\$([\d.]+)"
    first = re.fullmatch(
        row.format("v2-8", "preemptible", "us-central1-f", "1 host") + billed, single
    )
    second = re.fullmatch(
        row.format("v3-32", "on demand", "europe-west4-a", "4 hosts") + billed, pod
    )
    assert first is not None, single
    assert second is not None, pod
    seconds = [_seconds(first[1]), _seconds(second[1])]
    assert f"${first[2]}" == money_text(Fraction(seconds[0] * 135, 360_000))
    assert f"${second[2]}" == money_text(Fraction(seconds[1] * 32, 3600))
    assert total.startswith(f"Bill: {duration_for_people(sum(seconds))}, $")
    assert "equal to the usage records" in total
    doc_outputs.check("../README.md", "demo", "\n".join((single, pod, total)), _MEASURED)


def _seconds(text: str) -> int:
    """`1 min 5 s`."""
    return sum(
        int(number) * {"min": 60, "s": 1}[unit]
        for number, unit in re.findall(r"(\d+) (min|s)", text)
    )


def test_an_interrupted_demo_takes_everything_down(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen(
        [*PODYARD, "demo"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = demo.stdout
    assert said is not None
    until(lambda: True if "READY" in said.readline() else None, 60, "the first node")
    (folder,) = tmp_path.glob("podyard-demo-*")
    assert Stack(folder).processes() != []
    demo.send_signal(signal.SIGINT)
    said.read()
    said.close()
    assert demo.wait(60) == 130
    assert Stack(folder).processes() == []
    assert not folder.exists()
