"""`podyard run --tpu`: a program that a TPU rejects gets the TPU's error."""

from __future__ import annotations

import pytest

from tests.tpu_program import code, run

pytest.importorskip("jax", reason="programs under test import JAX")
pytestmark = pytest.mark.real

PROGRAM = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl

def attempt(name, function):
    try:
        print(name, "runs", jax.tree.leaves(function())[0].shape)
    except Exception as error:
        print(name, type(error).__name__, str(error).splitlines()[0])

def double(x, out):
    out[...] = x[...] * 2

def kernel(shape, block=None):
    rows = {} if block is None else dict(
        grid=tuple(size // part for size, part in zip(shape, block)),
        in_specs=[pl.BlockSpec(block, lambda i, j: (i, j))],
        out_specs=pl.BlockSpec(block, lambda i, j: (i, j)),
    )
    call = pl.pallas_call(double, out_shape=jax.ShapeDtypeStruct(shape, jnp.float32), **rows)
    return call(jnp.ones(shape))

square = jnp.eye(4) + 0.1
attempt("schur", lambda: jax.scipy.linalg.schur(square))
attempt("eigh", lambda: jnp.linalg.eigh(square))
attempt("tiles", lambda: kernel((32, 256), (8, 128)))
attempt("block", lambda: kernel((9, 10), (3, 5)))
attempt("vmem", lambda: kernel((8192, 1024)))
"""


@pytest.mark.parametrize("mode", ["", "--dry-run"])
def test_errors_are_those_of_a_tpu(mode: str) -> None:
    done = run(f"--tpu v5litepod-8 {mode}", *code(PROGRAM))
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert lines["schur"] == (
        "NotImplementedError MLIR translation rule for primitive 'schur' not found for platform tpu"
    )
    assert lines["eigh"] == "runs (4,)"
    assert lines["tiles"] == "runs (32, 256)"
    assert lines["block"].startswith("ValueError The Pallas TPU lowering currently requires")
    assert lines["vmem"].startswith("JaxRuntimeError RESOURCE_EXHAUSTED: E1001")


def test_lenient_goes_on_with_a_warning() -> None:
    program = "import jax, jax.numpy as jnp\nprint(jax.scipy.linalg.schur(jnp.eye(4))[0].shape)\n"
    done = run("--tpu v5litepod-8 --lenient", *code(program))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(4, 4)\n"
    assert done.stderr.count("a TPU rejects this program: NotImplementedError") == 1
