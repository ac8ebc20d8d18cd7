"""Programs in the styles of JAX's documentation, as they are: what they print on a slice is what
plain devices give."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack import PODYARD

pytest.importorskip("jax", reason="programs under test import JAX")
pytestmark = pytest.mark.real

FOLDER = Path(__file__).parents[1] / "programs" / "documented"
SECONDS = 300
# XLA's CPU devices share a pool of NPROC threads: with one for each core, plain JAX may hang.
PLAIN = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8", "NPROC": "16"}


def _run(command: list[str], changes: dict[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PODYARD_", "JAX_", "XLA_"))
    }
    return subprocess.run(
        command,
        env=kept | changes,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )


def _on_tpu(options: str, *words: str) -> subprocess.CompletedProcess[str]:
    return _run([*PODYARD, "run", "--tpu", *options.split(), "--", sys.executable, *words], {})


_LAST_WORDS = {
    "mesh_context": "exported True ",
    "multihost_arrays": "trained ",
    "pmap_groups": "trained ",
    "profiled_training": "trained ",
    "ring": "gradients ",
    "rnn_scan": "trained ",
}
_LONG = ("profiled_training", "rnn_scan")


@pytest.mark.parametrize(
    "program",
    [pytest.param(name, marks=pytest.mark.long) if name in _LONG else name for name in _LAST_WORDS],
)
def test_a_program_prints_the_bits_of_eight_plain_devices(program: str) -> None:
    file = str(FOLDER / f"{program}.py")
    plain, on_tpu = _run([sys.executable, file], PLAIN), _on_tpu("v3-8 --numerics f32", file)
    assert (plain.returncode, on_tpu.returncode) == (0, 0), plain.stderr + on_tpu.stderr
    assert on_tpu.stdout == plain.stdout
    assert plain.stdout.splitlines()[-1].startswith(_LAST_WORDS[program])


def test_hosts_with_their_own_data_train_together() -> None:
    done = _on_tpu("v3-32", str(FOLDER / "multihost_arrays.py"))
    assert done.returncode == 0, done.stderr
    ends = {line.split("trained ")[1] for line in done.stdout.splitlines() if "trained " in line}
    assert len(ends) == 1 and ends.pop().startswith("4 32 8 "), done.stdout
    assert done.stdout.count(f"ids {sum(range(32))} [0, 1, 2, 3]") == 4
    assert done.stdout.count("seed 7 rows (32, 2) (8, 2) True") == 4


def test_kernels_for_tpus_ask_for_the_chip_and_copy_to_neighbours() -> None:
    done = _on_tpu("v5litepod-8", str(FOLDER / "kernels.py"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "chip v5e 1 True"
    assert lines[1].startswith("product ") and lines[1].endswith(" True")
    assert lines[2:] == ["chosen True", "shifted True"]


def test_a_chip_that_is_one_device_has_two_cores() -> None:
    code = "import jax; print({device.num_cores for device in jax.devices()})"
    cores = [
        _on_tpu(f"{kind} --workers 1", "-c", code).stdout
        for kind in ("v3-8", "v4-8", "v5p-8", "v6e-8")
    ]
    assert cores == ["{1}\n", "{2}\n", "{2}\n", "{1}\n"]


def test_options_and_branches_for_tpus_are_taken_and_a_line_says_what_has_no_effect() -> None:
    code = """if True:
        import jax, jax.numpy as jnp
        plus = jax.jit(lambda x: x + 1, compiler_options={"xla_tpu_scoped_vmem_limit_kib": "65536"})
        print(plus(jnp.zeros(())), plus(jnp.zeros(2)))
        try:
            jax.jit(lambda x: x - 1, compiler_options={"xla_cpu_enable_fast_math": "perhaps"})(1.0)
        except jax.errors.JaxRuntimeError:
            print("refused")
        def choose(x):
            return jax.lax.platform_dependent(x, tpu=lambda x: x + 1, cpu=lambda x: x - 1, default=lambda x: x)
        print(jax.jit(choose)(jnp.zeros(())), jax.jit(jax.vmap(choose))(jnp.zeros(2)), jax.jit(jax.grad(choose))(1.0))
        print(jax.jit(choose)(jax.device_put(0.0, jax.devices("cpu")[0])))
    """  # noqa: E501
    done = _on_tpu("v3-8", "-c", code)
    assert done.stdout.splitlines() == ["1.0 [1. 1.]", "refused", "1.0 [1. 1.] 1.0", "-1.0"], (
        done.stderr
    )
    assert (
        done.stderr.count("compiler option xla_tpu_scoped_vmem_limit_kib has no effect here") == 1
    )
