"""The modules of users' programs on a node, with their times on the slice: a job's in REST, list,
description and page; a login's on its node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests import doc_outputs
from tests.stack import PODYARD, Stack, open_stack, until
from tests.tpu_program import PROGRAMS

ZONE = "us-central1-f"
TRAIN = (PROGRAMS / "reports" / "train.py").read_text(encoding="utf-8")
COLUMNS = ["MODULE", "RUNS", "ON", "THE", "TPU", "HERE", "MFU", "HFU", "MEMORY", "OF", "A", "CORE"]
pytest.importorskip("jax", reason="programs under test import JAX")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with open_stack(tmp_path_factory.mktemp("modules"), {"PODYARD_RUNTIMES": "off"}) as opened:
        opened.create_node("mine", "v2-8", ZONE)
        yield opened


def _job(stack: Stack, name: str, code: str) -> dict[str, Any]:
    run = {"command": f"cat > train.py <<'END'\n{code}\nEND\npython train.py"}
    path = stack.submit(name, ZONE, recipe=None, node="mine", run=run, maxFailures=0)
    stack.wait_job(path)
    return stack.call("GET", path)


def _podyard(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PODYARD, *words, "--data", str(stack.data)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done


def _listed(stack: Stack, name: str) -> dict[str, str]:
    lines = _podyard(stack, "job", "list", "-o", "csv").stdout.splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    return next(row for row in rows if row["JOB"] == name)


def test_a_job_shows_the_modules_of_its_program(stack: Stack) -> None:
    job = _job(stack, "trains", TRAIN)
    assert job["state"] == "SUCCEEDED", job
    run = job["programRun"]
    step = next(module for module in run["modules"] if module["name"] == "jit_train_step")
    assert (step["runs"], step["fits"]) == (10, True)
    assert 0 < step["seconds"] < 1e-3 and step["wallSeconds"] > 0
    assert 0 < step["mfu"] == step["hfu"] < 1 and step["verdict"].startswith("fits (")
    assert (run["step"], run["steps"]) == ("jit_train_step", 10)
    assert run["stepReason"].startswith("called repeatedly from train.py:18")
    assert job["stepsDone"] == 10
    assert job["modelledSeconds"] == run["seconds"] >= 10 * step["seconds"]

    row = _listed(stack, "trains")
    assert row["STEPS"] == "10" and float(row["MODELLED"]) == run["seconds"]
    described = _podyard(stack, "job", "describe", "trains", "--zone", ZONE)
    head, line, *_ = described.stderr.splitlines()
    assert head.split() == COLUMNS and line.split()[:2] == ["jit_train_step", "10"]
    assert "stepReason:" in described.stdout
    doc_outputs.check(
        "howto/jobs.md", "job", f"$ podyard job describe trains\n...\n{described.stderr}"
    )
    page = stack.http.get(f"/console/demo/jobs/{ZONE}/trains").text
    assert "0 to 0" not in page, "the program has printed no step"
    assert "Modules of the program" in page and "jit_train_step" in page


def test_a_failing_program_shows_what_it_ran_and_how_it_failed(stack: Stack) -> None:
    job = _job(stack, "fails", f"{TRAIN}\nraise SystemError('no data left')")
    assert job["state"] == "FAILED"
    assert job["programRun"]["error"] == "SystemError: no data left"
    assert job["stepsDone"] == 10
    described = _podyard(stack, "job", "describe", "fails", "--zone", ZONE)
    assert described.stderr.splitlines()[-1] == "the program failed: SystemError: no data left"


def test_what_is_not_known_is_not_zero(stack: Stack) -> None:
    job = _job(stack, "prints", "print('hello')")
    assert job["state"] == "SUCCEEDED"
    assert {"stepsDone", "modelledSeconds", "programRun"}.isdisjoint(job)
    row = _listed(stack, "prints")
    assert (row["STEPS"], row["MODELLED"]) == ("-", "")


def test_a_login_shows_its_modules_on_the_node(stack: Stack) -> None:
    stack.create_node("fresh", "v2-8", ZONE)
    command = f"cat > train.py <<'END'\n{TRAIN}\nEND\npython train.py"
    _podyard(stack, "tpu", "ssh", "fresh", "--zone", ZONE, "--command", command)

    def modules() -> list[dict[str, Any]] | None:
        text = _podyard(stack, "tpu", "programs", "fresh", "--zone", ZONE, "-o", "json").stdout
        ran: list[dict[str, Any]] = json.loads(text)
        step = [one for one in ran if one["name"] == "jit_train_step"]
        is_whole = step and step[0]["runs"] == 10
        return ran if is_whole and all(one["seconds"] is not None for one in ran) else None

    until(modules, 60, "an estimate of the step")
    table = _podyard(stack, "tpu", "programs", "fresh", "--zone", ZONE).stdout
    assert table.splitlines()[0].split() == COLUMNS
    command = "$ podyard tpu ssh fresh --command 'python train.py'\n$ podyard tpu programs fresh"
    doc_outputs.check("howto/programs.md", "ssh", f"{command}\n{table}")
