"""Several programs on one host, each with some of its chips."""

from __future__ import annotations

import sys

import pytest

from tests.tpu_program import code, run

pytest.importorskip("jax", reason="programs under test import JAX")
pytestmark = pytest.mark.real

DEVICES = "import jax; print([(one.id, tuple(one.coords)) for one in jax.local_devices()])"


@pytest.mark.parametrize(
    ("changes", "devices"),
    [
        ({"TPU_VISIBLE_CHIPS": "3"}, "[(0, (0, 0, 0))]"),
        (
            {"TPU_VISIBLE_DEVICES": "2,3", "TPU_CHIPS_PER_HOST_BOUNDS": "1,2,1"},
            "[(0, (0, 0, 0)), (1, (0, 1, 0))]",
        ),
    ],
)
def test_the_callers_chips_are_the_programs(changes: dict[str, str], devices: str) -> None:
    done = run("--tpu v5litepod-4", *code(DEVICES), **changes)
    assert done.stdout.strip() == devices, done.stderr


def test_chips_that_the_slice_does_not_have_are_rejected() -> None:
    done = run("--tpu v5litepod-4", *code(DEVICES), TPU_VISIBLE_CHIPS="4")
    assert done.returncode != 0 and not done.stdout
    assert "TPU_VISIBLE_CHIPS=4 is not a list of chips" in done.stderr


def test_a_command_starts_a_program_on_each_chip() -> None:
    start = f"TPU_VISIBLE_CHIPS=$chip {sys.executable} -c '{DEVICES}'"
    script = f"""
        import subprocess
        text = {f"for chip in 0 1; do {start} & done; wait"!r}
        raise SystemExit(subprocess.call(["sh", "-c", text]))
    """
    done = run("--tpu v4-8", *code(script))
    assert done.stdout.count("[(0, (0, 0, 0))]") == 2, done.stderr
