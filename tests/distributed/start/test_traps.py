"""Podyard is started in a folder of another user's files: none of them runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import Stack, open_stack
from tests.waiting import until

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


@pytest.mark.xdist_group("stack")
def test_the_demo_runs_in_such_a_folder(trapped: tuple[Stack, Path]) -> None:
    stack, log = trapped
    done = stack.command("demo", seconds=240)
    assert done.returncode == 0, done.stderr
    assert not log.exists(), log.read_text(encoding="utf-8")
