"""Lines of the report that people act on: their own source, one warning, the machine's own time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tpu_program import PROGRAMS, code, report

pytest.importorskip("jax", reason="programs under test import JAX")
pytestmark = pytest.mark.real

PROGRAM = PROGRAMS / "report_lines.py"
LINE = next(
    number
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
    if "jax.lax.top_k" in line
)


@pytest.mark.parametrize("options", ["--tpu v5litepod-1", "--tpu v5litepod-4 --dry-run"])
def test_a_doubt_names_the_line_of_the_program(tmp_path: Path, options: str) -> None:
    done, document = report(options, tmp_path, str(PROGRAM))
    assert done.returncode == 0, done.stderr
    assert f"lower bound: operation top_k (report_lines.py:{LINE}) is not modelled" in done.stderr
    assert any(f"report_lines.py:{LINE}" in doubt for doubt in document["doubts"])


def test_processes_of_a_run_give_a_warning_once(tmp_path: Path) -> None:
    done, _ = report("--tpu v5litepod-16", tmp_path, str(PROGRAM))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("compiler option xla_tpu_enable_latency_hiding_scheduler") == 1


def test_the_time_on_this_machine_is_without_the_programs_own_work(tmp_path: Path) -> None:
    """The program sleeps for a second after each step, and its first step is compiled."""
    _, document = report("--tpu v5litepod-1", tmp_path, str(PROGRAM))
    (step,) = [one for one in document["modules"] if one["name"] == "jit_train_step"]
    assert 0 < step["wallSecondsPerRun"] < 1
    _, dry = report("--tpu v5litepod-1 --dry-run", tmp_path, str(PROGRAM))
    (step,) = [one for one in dry["modules"] if one["name"] == "jit_train_step"]
    assert step["wallSecondsPerRun"] is None


MESH = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = mesh_utils.create_device_mesh((8, 8))
if sys.argv[1] == "mixed":
    devices = np.random.default_rng(0).permutation(devices.ravel()).reshape(8, 8)
mesh = Mesh(devices, ("rows", "columns"))
split = lambda *axes: NamedSharding(mesh, P(*axes))
@jax.jit
def step(w, x):
    def loss(w):
        return (jax.lax.with_sharding_constraint(x @ w, split("rows", "columns")) ** 2).mean()
    return w - 0.1 * jax.grad(loss)(w)
w = jax.device_put(jnp.ones((8192, 8192)), split("rows", "columns"))
x = jax.device_put(jnp.ones((65536, 8192)), split("rows", "columns"))
for _ in range(3): w = step(w, x)
"""


def test_a_mesh_that_lies_on_the_torus_is_faster_than_a_mixed_one(tmp_path: Path) -> None:
    seconds = {}
    for order in ("torus", "mixed"):
        _, document = report("--tpu v5litepod-64 --workers 1 --dry-run", tmp_path,
                             *code(MESH), order)  # fmt: skip
        (step,) = (one for one in document["modules"] if one["digest"] == document["step"])
        seconds[order] = step["deviceSecondsPerRun"]
    assert seconds["torus"] < 0.8 * seconds["mixed"]
