"""Podyard is started in a folder of another user's files: none of them runs."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.stack import PODYARD, Stack, open_stack
from tests.waiting import patient, until

ZONE = "us-central1-a"
# Modules of the standard library, of dependencies and of ours: each is imported by some process.
NAMES = (
    "asyncio", "click", "httpx", "json", "logging", "numpy", "queue", "sitecustomize", "socket",
    "sqlalchemy", "typing", "uvicorn", "yaml",
)  # fmt: skip
TRAP = """import os, sys
with open({log!r}, "a") as log:
    log.write(f"{{__name__}} in {{sys.argv}}\\n")
raise ImportError("this module is a trap")
"""


def _set_traps(folder: Path) -> Path:
    """Return the file in which each trap that is imported writes its name."""
    log = folder.with_name("traps.log")
    text = TRAP.format(log=str(log))
    for name in NAMES:
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    for name in ("podyard", "podyard-copy"):
        (folder / name / "podyard").mkdir(parents=True)
        (folder / name / "__init__.py").write_text(text, encoding="utf-8")
    return log


@pytest.fixture(scope="module")
def trapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Path]]:
    folder = tmp_path_factory.mktemp("traps") / "folder"
    folder.mkdir()
    log = _set_traps(folder)
    with open_stack(tmp_path_factory.mktemp("data"), folder=folder) as stack:
        yield stack, log


@pytest.mark.xdist_group("stack")
def test_no_process_imports_from_the_folder_that_it_is_started_in(
    trapped: tuple[Stack, Path],
) -> None:
    stack, log = trapped
    node = stack.create_node("n", "v2-8", ZONE)
    assert node["state"] == "READY"
    job = stack.wait_job(stack.submit("j", ZONE, node="n", steps=5))
    assert job["state"] == "SUCCEEDED", stack.log_lines(f"{job['name']}")
    estimate = stack.command("estimate", "digits-cnn", "--accelerator-type", "v2-8")
    assert estimate.returncode == 0, estimate.stderr
    words = ("--data", str(stack.data), "n", "--zone", ZONE, "--", "echo", "on the host")
    host = stack.command("tpu", "exec", *words)
    assert (host.stdout.strip(), host.returncode) == ("on the host", 0), host.stderr
    until(lambda: stack.celery() or None, 30, "a Celery worker")
    assert not log.exists(), log.read_text(encoding="utf-8")
    # Storage starts with its first connection; the rest are commands that start helpers.
    data = ("--data", str(stack.data))
    (stack.data.parent / "object").write_text("weights")
    for command in (
        ("storage", "mb", "gs://bucket-of-traps", *data),
        ("storage", "cp", str(stack.data.parent / "object"), "gs://bucket-of-traps/object", *data),
        ("fsck", *data),
        ("admin", "backup", str(stack.data.parent / "yard.tar"), *data),
        ("doctor", *data),
        ("status", *data),
    ):
        done = stack.command(*command)
        assert "Traceback" not in done.stderr, done.stderr
        assert not log.exists(), (command, log.read_text(encoding="utf-8"))
    port = json.loads((stack.data / "podyard.json").read_text())["ports"]["storage"]
    answer = stack.http.get(f"http://127.0.0.1:{port}/storage/v1/b?project=demo", timeout=60)
    assert [bucket["name"] for bucket in answer.json()["items"]] == ["bucket-of-traps"]
    assert not log.exists(), log.read_text(encoding="utf-8")


@pytest.mark.xdist_group("stack")
def test_the_demo_runs_in_such_a_folder(trapped: tuple[Stack, Path]) -> None:
    stack, log = trapped
    done = stack.command("demo", seconds=240)
    assert done.returncode == 0, done.stderr
    assert not log.exists(), log.read_text(encoding="utf-8")


@pytest.mark.xdist_group("stack")
def test_ssh_and_machines_that_join_import_nothing_from_it(
    trapped: tuple[Stack, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, log = trapped
    monkeypatch.setenv("HOME", str(tmp_path))
    data = ("--data", str(stack.data))
    other = ("--data", str(tmp_path / "machine"))
    for command, code in (
        (("ssh", "setup", *data, "--yes"), 0),
        (("ssh", "setup", *data, "--remove"), 0),
        (("ssh", "connect", *data, "127.128.9.9"), 1),  # no host has this address
        (("agent", "join", stack.url, *other, "--token", "wrong"), None),
    ):
        done = stack.command(*command)
        assert "Traceback" not in done.stderr, done.stderr
        assert code is None or done.returncode == code, done.stderr
        assert not log.exists(), (command, log.read_text(encoding="utf-8"))


@pytest.mark.xdist_group("stack")
def test_what_serves_a_host_imports_nothing_from_its_users_home(
    trapped: tuple[Stack, Path], tmp_path: Path
) -> None:
    stack, log = trapped
    stack.create_node("home", "v2-8", ZONE)
    data = ("--data", str(stack.data), "--zone", ZONE)

    def on_host(command: str) -> str:
        done = stack.command("tpu", "exec", *data, "home", "--", command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    text = TRAP.replace("{log!r}", "os.path.expanduser('~/traps.log')").format()
    names = " ".join(f"{name}.py" for name in NAMES)
    on_host(f"for name in {names}; do printf %s {shlex.quote(text)} > ~/$name; done")
    (tmp_path / "object").write_text("weights")
    there, back = str(tmp_path / "object"), str(tmp_path / "back")
    for words in ((there, "home:object"), ("home:object", back)):
        done = stack.command("tpu", "scp", *data, *words)
        assert done.returncode == 0, done.stderr
    command = [*PODYARD, "tpu", "notebook", "home", *data, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=stack.folder) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()

        def page() -> bool | None:
            return httpx.get(url, timeout=60, trust_env=False).status_code < 400 or None

        until(page, patient(60), "the notebook's page")
        process.terminate()
    assert on_host("ls ~/traps.log 2> /dev/null || echo none") == "none", on_host("cat ~/traps.log")
    assert not log.exists(), log.read_text(encoding="utf-8")
