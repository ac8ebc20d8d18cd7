"""Users' programs as jobs: on all hosts at once, in their boxes, through failures, kills and
preemptions."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from podyard.programs.slice import PROGRAM_VARIABLE
from tests.stack import Stack, kill, open_stack, until
from tests.waiting import patient

ZONE = "europe-west4-a"
HOSTS = 4
RESUMES = """
import os, signal, sys, time, urllib.error, urllib.request
from urllib.parse import quote
bucket, _, folder = os.environ["PODYARD_OUTPUT"].removeprefix("gs://").partition("/")
name = quote(f"{folder}checkpoint-{os.environ['TPU_WORKER_ID']}", safe="")
storage = os.environ["STORAGE_EMULATOR_HOST"]
step = 0
try:
    with urllib.request.urlopen(f"{storage}/storage/v1/b/{bucket}/o/{name}?alt=media") as found:
        step = int(found.read())
except urllib.error.HTTPError as error:
    assert error.code == 404, error
print("starts at", "zero" if step == 0 else "more", flush=True)

def save(*_):
    url = f"{storage}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
    urllib.request.urlopen(urllib.request.Request(url, data=str(step).encode(), method="POST")).close()
    print("saved", flush=True)
    sys.exit(1)

signal.signal(signal.SIGTERM, save)
until = step + 10 if step else 1 << 60
while step < until:
    time.sleep(0.05)
    step += 1
"""  # noqa: E501
FOREVER = "while true; do sleep 0.2; done"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, boxes: str) -> Iterator[Stack]:
    with open_stack(
        tmp_path_factory.mktemp("programs"), {"PODYARD_BOXES": boxes, "PODYARD_RUNTIMES": "off"}
    ) as found:
        found.create_node("slice", "v3-32", ZONE)
        yield found


def _submit(stack: Stack, job: str, command: str, **fields: Any) -> str:
    return stack.submit(
        job, ZONE, **{"recipe": None, "node": "slice", "run": {"command": command}, **fields}
    )


def _lines(stack: Stack, path: str, text: str, count: int = HOSTS) -> list[str]:
    """The lines of a job once `count` of them hold a text."""

    def ask() -> list[str] | None:
        found = stack.log_lines(path)
        return found if sum(text in line for line in found) >= count else None

    return until(ask, 30, f"{count} lines with {text!r}")


def _programs(stack: Stack) -> list[psutil.Process]:
    """Return what users' programs run on this machine, in boxes or not."""
    found = []
    for process in psutil.process_iter():
        environment = _environment(process)
        if PROGRAM_VARIABLE in environment and environment.get("PODYARD_URL") == stack.url:
            found.append(process)
    return found


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.smoke
def test_a_command_runs_on_every_host_with_what_it_needs(stack: Stack) -> None:
    said = (
        "echo worker $TPU_WORKER_ID of $SKYPILOT_NUM_NODES rank $SKYPILOT_NODE_RANK job "
        "$PODYARD_JOB $COLOUR"
    )
    said += (
        ' "$(echo "$SKYPILOT_NODE_IPS" | wc -l)" $(basename $PWD); echo apart >&2; '
        "env | grep -c "
        "TOKEN= || true"
    )
    path = _submit(
        stack,
        "hello",
        "",
        run={"command": said, "env": {"COLOUR": "it's $HOME"}, "secrets": {"KEY": "xyz"}},
    )
    job = stack.wait_job(path, 60)
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 1), job
    lines = sorted(line for line in stack.log_lines(path) if line.startswith("worker"))
    assert lines == [f"worker {n} of 4 rank {n} job hello it's $HOME 4 hello" for n in range(HOSTS)]
    output = f"gs://demo-podyard-jobs/jobs/{ZONE}/hello"
    assert job["run"] == {
        "command": said,
        "env": {"COLOUR": "it's $HOME"},
        "secrets": ["KEY"],
        "output": output,
    }
    assert stack.log_lines(path).count("0") == HOSTS, (
        "no token of the platform's in its environment"
    )
    until(
        lambda: True if not _programs(stack) and not stack.replicas() else None,
        10,
        "the end of all processes",
    )


def test_the_logs_of_every_attempt_and_worker_are_copied_to_the_output(stack: Stack) -> None:
    path = _submit(
        stack, "copied", "echo worker $TPU_WORKER_ID; test $TPU_WORKER_ID != 2", maxFailures=1
    )
    assert stack.wait_job(path)["state"] == "FAILED"
    output = stack.call("GET", path)["run"]["output"]
    bucket, _, folder = output.removeprefix("gs://").partition("/")
    # A worker that ends before it speaks, since another has failed, has no log.
    spoke = {(line["attempt"], line["worker"]) for line in stack.log(path)}
    assert {(1, 2), (2, 2)} <= spoke
    names = sorted(f"{folder.rstrip('/')}/logs/attempt-{n}/worker-{w}.log" for n, w in spoke)

    def copied() -> list[str] | None:
        found = [
            item["name"]
            for item in _storage(stack, f"/storage/v1/b/{bucket}/o?prefix={folder}").get(
                "items", []
            )
        ]
        return sorted(found) if len(found) >= len(names) else None

    assert until(copied, 60, "copies of the logs") == names
    name = f"{folder.rstrip('/')}/logs/attempt-1/worker-2.log"
    media = f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media"
    (line,) = [line for line in _storage_text(stack, media).splitlines() if " stdout " in line]
    assert line.endswith("Z [1.2] stdout worker 2")


def _storage_text(stack: Stack, path: str) -> str:
    port = json.loads((stack.data / "podyard.json").read_text())["ports"]["storage"]
    headers = {"Authorization": f"Bearer {(stack.data / 'token').read_text().strip()}"}
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    ) as answer:
        text: str = answer.read().decode()
        return text


def _storage(stack: Stack, path: str) -> Any:
    return json.loads(_storage_text(stack, path))


def test_the_error_names_the_worker_its_exit_code_and_what_it_wrote_last(stack: Stack) -> None:
    code = (
        f"if [ $TPU_WORKER_ID = 2 ]; then python -c 'raise ValueError(42)'; exit 3; fi; {FOREVER}"
    )
    path = _submit(stack, "fails", code, maxFailures=0)
    began = time.monotonic()
    job = stack.wait_job(path, 60)
    assert time.monotonic() - began < patient(30)
    assert job["state"] == "FAILED"
    message = job["error"]["message"]
    assert "replica 2: the program ended with exit code 3" in message and message.endswith(
        "ValueError: 42"
    ), message
    until(lambda: True if not _programs(stack) else None, 10, "the end of the others")


def test_a_cancelled_program_has_time_to_save_and_then_none(stack: Stack) -> None:
    saves = f"trap 'sleep 2; echo saved; exit 0' TERM; echo up; {FOREVER}"
    path = _submit(stack, "saves", saves)
    _lines(stack, path, "up")
    stack.call("POST", f"{path}:cancel", {})
    assert stack.wait_job(path, 30)["state"] == "CANCELLED"
    assert stack.log_lines(path).count("saved") == HOSTS
    path = _submit(stack, "deaf", f"trap '' TERM; (trap '' TERM; {FOREVER}) & echo up; {FOREVER}")
    _lines(stack, path, "up")
    stack.call("POST", f"{path}:cancel", {})
    assert stack.wait_job(path, 30)["state"] == "CANCELLED"
    until(lambda: True if not _programs(stack) else None, 5, "the end of what hears no signal")


def test_a_killed_replica_takes_its_program_along_and_the_job_begins_again(stack: Stack) -> None:
    path = _submit(stack, "killed", f"echo attempt $PODYARD_ATTEMPT; {FOREVER}")
    _lines(stack, path, "attempt 1")
    before = {process.pid for process in _programs(stack)}
    assert len(before) >= HOSTS
    kill(stack.replicas()[0].pid)
    lines = _lines(stack, path, "attempt 2")
    assert [line for line in lines if line.startswith("attempt")].count("attempt 1") == HOSTS
    assert not before & {process.pid for process in _programs(stack)}
    stack.call("POST", f"{path}:cancel", {})
    assert stack.wait_job(path, 30)["state"] == "CANCELLED"


@pytest.mark.parametrize("process", ["host_server", "agent", "api"])
def test_a_program_goes_on_through_a_kill_of_the_platforms_processes(
    stack: Stack, process: str
) -> None:
    path = _submit(
        stack,
        f"through-{process.replace('_', '-')}",
        "echo up; for i in $(seq 30); do sleep 0.2; done; echo end",
    )
    _lines(stack, path, "up")
    if process == "host_server":
        (server,) = [
            p for p in stack.processes() if "podyard.workers.host.server" in " ".join(_cmdline(p))
        ]
        kill(server.pid)
    else:
        kill(stack.pid(process))
    job = stack.wait_job(path, 60)
    assert (job["state"], job["attempt"]) == ("SUCCEEDED", 1), job
    assert stack.log_lines(path).count("end") == HOSTS


def test_agent_and_replica_killed_together_leave_no_program(stack: Stack) -> None:
    path = _submit(stack, "both", f"echo attempt $PODYARD_ATTEMPT; {FOREVER}")
    _lines(stack, path, "attempt 1")
    replicas = stack.replicas()
    os.kill(stack.pid("agent"), signal.SIGKILL)
    for replica in replicas:
        kill(replica.pid)
    _lines(stack, path, "attempt 2")
    attempts = {_environment(process).get("PODYARD_ATTEMPT") for process in _programs(stack)} - {
        None
    }
    assert attempts == {"2"}
    stack.call("POST", f"{path}:cancel", {})
    assert stack.wait_job(path, 30)["state"] == "CANCELLED"


def test_a_preempted_program_saves_and_goes_on_on_another_node(stack: Stack) -> None:
    uploaded = stack.http.post(
        f"/podyard/v1/projects/demo/locations/{ZONE}/jobs:upload?name=resumes.py",
        content=RESUMES.encode(),
    )
    target = {
        "acceleratorType": "v3-32",
        "runtimeVersion": "tpu-vm-base",
        "schedulingConfig": {"spot": True},
    }
    path = _submit(stack, "spot", "", node=None, run={"source": uploaded.json()["uri"]}, **target)
    _lines(stack, path, "starts at zero")
    fault = {"effect": "preempt", "match": {"resource": "*spot*"}, "notice": "20s", "count": 1}
    stack.call("POST", "/podyard/v1/faults", fault)
    job = stack.wait_job(path, 90)
    assert (job["state"], job["preemptions"], job["failures"], job["attempt"]) == (
        "SUCCEEDED",
        1,
        0,
        2,
    ), job
    lines = stack.log_lines(path)
    assert (
        lines.count("saved")
        == lines.count("starts at zero")
        == lines.count("starts at more")
        == HOSTS
    )
