"""Modules of 100,000 operations: an answer or a refusal within ten seconds of the processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.published.rows import read_rows, read_trace
from podyard.base.interpreter import python_command

pytestmark = pytest.mark.slow
TENSOR = "tensor<128x128xf32>"
OPERATIONS = 100_000
CPU_SECONDS_MAX = 10.0
REFUSAL = "s of CPU time to estimate: estimate one layer of it"


def _long_chain(count: int) -> Iterator[str]:
    yield f"%v0 = stablehlo.tanh %a : {TENSOR}"
    for place in range(1, count):
        yield f"%v{place} = stablehlo.add %v{place - 1}, %a : {TENSOR}"
    yield f"return %v{count - 1} : {TENSOR}"


def _wide_fan_out(count: int) -> Iterator[str]:
    """One value that half of the operations read; the other half add up what they make."""
    yield f"%x = stablehlo.exponential %a : {TENSOR}"
    yield f"%s0 = stablehlo.tanh %a : {TENSOR}"
    for place in range(1, count // 2):
        yield (
            f"%v{place} = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : "
            f"({TENSOR}, {TENSOR}) -> {TENSOR}"
        )
        yield f"%s{place} = stablehlo.add %s{place - 1}, %v{place} : {TENSOR}"
    yield f"return %s{count // 2 - 1} : {TENSOR}"


def _deep_loops(count: int) -> Iterator[str]:
    """Loops in each other, 90 of them, each around a chain."""
    depth, scalar = 90, "tensor<i32>"
    value, ends = "%a", []
    for level in range(depth):
        yield f"%from{level} = stablehlo.constant dense<0> : {scalar}"
        yield f"%to{level} = stablehlo.constant dense<1> : {scalar}"
        yield f"%w{level}:2 = stablehlo.while(%k{level} = %from{level}, %x{level} = {value}) :"
        yield f"{scalar}, {TENSOR} cond {{"
        yield f"%p{level} = stablehlo.compare LT, %k{level}, %to{level} :"
        yield f"({scalar}, {scalar}) -> tensor<i1> stablehlo.return %p{level} : tensor<i1> }} do {{"
        value = f"%x{level}"
        for place in range(count // depth):
            yield f"%m{level}_{place} = stablehlo.add {value}, {value} : {TENSOR}"
            value = f"%m{level}_{place}"
        ends.append(f"%n{level} = stablehlo.add %k{level}, %to{level} : {scalar}")
    for level in reversed(range(depth)):
        yield f"{ends[level]} stablehlo.return %n{level}, {value} : {scalar}, {TENSOR} }}"
        value = f"%w{level}#1"
    yield f"return {value} : {TENSOR}"


SHAPES = {"chain": _long_chain, "fan-out": _wide_fan_out, "nesting": _deep_loops}


def _module(shape: str) -> str:
    lines = "\n".join(SHAPES[shape](OPERATIONS))
    return f"module {{ func.func public @main(%a: {TENSOR}) -> {TENSOR} {{\n{lines}\n}} }}"


def _run(command: list[str], question: Path, told: Path) -> tuple[int, str, float]:
    """Return the exit code, the output, and the seconds of the processor that it took."""
    with question.open() as source, told.open("w") as target:
        process = subprocess.Popen(command, stdin=source, stdout=target, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, told.read_text(), usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("shape", SHAPES)
def test_a_module_of_100_000_operations_is_estimated_or_refused_in_time(
    shape: str, tmp_path: Path
) -> None:
    module = tmp_path / "long.mlir"
    module.write_text(_module(shape))
    command = [sys.executable, "-c", "from podyard.main import cli; cli()"]
    arguments = ["estimate", "-", "--compare", "v3-8,v6e-8", "--accelerator-type", "v2-8"]
    code, text, seconds = _run([*command, *arguments], module, tmp_path / "told")
    assert seconds <= CPU_SECONDS_MAX
    assert code == 0 or text.count(REFUSAL) == 3, text[-500:]


def test_a_trainers_longest_step_is_estimated(tmp_path: Path) -> None:
    """It takes longer than a module of 100,000 operations may."""
    longest = max(
        (row for row in read_rows() if row.trace.exists() and row.slices == 1),
        key=lambda row: len(read_trace(row)),
    )
    module = tmp_path / "step.mlir"
    module.write_bytes(read_trace(longest))
    command = [sys.executable, "-c", "from podyard.main import cli; cli()"]
    arguments = ["estimate", "-", "--accelerator-type", longest.type]
    code, text, _ = _run([*command, *arguments], module, tmp_path / "told")
    assert code == 0 and REFUSAL not in text, text[-500:]


def test_a_job_with_such_a_module_is_refused_in_time(tmp_path: Path) -> None:
    question = tmp_path / "question.json"
    asked = {"stablehlo": _module("chain"), "acceleratorTypes": ["v2-8", "v3-8", "v6e-8"]}
    question.write_text(json.dumps(asked))
    code, text, seconds = _run(
        python_command("-m", "podyard.engine.step_time"), question, tmp_path / "told"
    )
    assert (code, seconds <= CPU_SECONDS_MAX) == (0, True)
    assert [REFUSAL in answer["message"] for answer in json.loads(text)] == [True] * 3
