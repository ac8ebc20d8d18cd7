"""One command before renting: the slices that have room for a program, and a run of so many tokens
there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podyard.cli.programs.run_report.comparison import NOTHING_FITS_CODE
from tests.tpu_program import PROGRAMS, code, report, run

pytest.importorskip("jax", reason="programs under test import JAX")

# Sequences of 512 tokens, and weights of 4 GiB that are alive: too many for a core of v2.
LARGE = code("""
    import jax, jax.numpy as jnp, numpy as np
    weights = [jnp.zeros((2**15, 2**15), jnp.bfloat16) for _ in range(4)]
    @jax.jit
    def step(weight, batch):
        return weight + batch.sum().astype(jnp.bfloat16)
    while True:
        weights[0] = step(weights[0], np.zeros((8, 512), np.int32))
""")


def test_a_row_for_each_type_says_whether_it_fits_and_what_a_run_costs(tmp_path: Path) -> None:
    llama = (str(PROGRAMS / "llama.py"), "2", "2", "512", "1024", "8")
    done, documents = report(
        "--tpu v5p-8,v5litepod-16,v6e-8 --dry-run --steps 2 --tokens 1e9", tmp_path, *llama
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("TYPE "))
    assert lines[head].split()[-6:] == ["TOKENS", "A", "STEP", "HOURS", "ON-DEMAND", "SPOT"]
    rows = [line.split() for line in lines[head + 1 : head + 4]]
    assert [row[0] for row in rows] == ["v5p-8", "v5litepod-16", "v6e-8"]
    for row, document, devices in zip(rows, documents, (4, 16, 8), strict=True):
        found = document["forecast"]
        assert found["fits"] and row[1] == "fits"
        assert found["tokensPerStep"] == 2 * devices * 2048
        assert row[-4] == f"{found['tokensPerStep']:,}"
        assert found["hours"] == found["steps"] * found["stepSeconds"] / 3600
        assert row[-3] == f"{found['hours']:,.1f}" and row[-2].startswith("$")
        assert float(found["costs"][0]["amount"]) > float(found["costs"][-1]["amount"]) > 0
    assert "tokens of a step (v5p-8): from the argument s32[8,2048]" in lines


def test_with_strict_the_exit_code_says_that_nothing_fits(tmp_path: Path) -> None:
    options = "--dry-run --tokens 1e9 --strict --tpu"
    none = run(f"{options} v2-8", *LARGE)
    assert none.returncode == NOTHING_FITS_CODE, none.stderr
    assert "v2-8  does not fit (out of memory)" in none.stderr
    assert "v2-8: the program failed: JaxRuntimeError: RESOURCE_EXHAUSTED:" in none.stderr
    one = run(f"{options} v2-8,v3-8 --report {tmp_path / 'report.json'}", *LARGE)
    assert one.returncode == 0, one.stderr
    small, large = (
        document["forecast"] for document in json.loads((tmp_path / "report.json").read_text())
    )
    assert (small["fits"], small["hours"], small["costs"]) == (False, None, [])
    assert large["fits"] and large["tokensPerStep"] == 8 * 512


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--tokens 1e9", "--tokens can only be used with --dry-run"),
        ("--dry-run --tokens-per-step 9", "--tokens-per-step can only be used with --tokens"),
        ("--dry-run --tokens many", "'many' is not a number of tokens: use 1 to 1e18"),
        ("--dry-run --tokens 0.5", "'0.5' is not a number of tokens: use 1 to 1e18"),
    ],
)
def test_what_is_not_a_run_is_a_usage_error(options: str, error: str) -> None:
    done = run(f"--tpu v3-8 {options}", "-c", "")
    assert done.returncode == 2 and error in done.stderr
