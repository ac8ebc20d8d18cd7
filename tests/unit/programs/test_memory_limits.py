"""Modules that libtpu 0.0.42 refused because they need more memory than the devices have, and
modules that it took."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("jax", reason="programs are JAX's")

import jax
import jax.numpy as jnp

from podyard.hardware.generations import GENERATIONS, cost_model
from podyard.programs.arrays.memory_limits import early_refusal, size_text

V3 = GENERATIONS["v3"].hbm_usable_bytes_per_device
TILING = cost_model("v3").tiling


def _refusal(function: Any, *shapes: Any, devices: int = 1, limit: int = V3) -> str:
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return early_refusal(jax.jit(function).lower(*arguments).as_text(), devices, limit, TILING)


def _outer_product(x: Any) -> Any:
    return jnp.tanh(jnp.outer(x, x)) @ jnp.cos(jnp.outer(x, x))


@pytest.mark.parametrize(
    ("function", "shape", "needs"),
    [
        (lambda: jnp.zeros((20, 2**30), jnp.uint8), (), "24.00G"),
        (lambda x: jnp.tanh(x @ x).sum(), (70000, 70000), "18.26G"),
        (_outer_product, (66000,), "16.23G"),
        (_outer_product, (45000,), ""),
        (lambda x: jnp.sum(jnp.exp(x[:, None] * x[None, :])), (100_000,), ""),
        (lambda x: jnp.sum(x @ x), (20_000, 20_000), ""),
    ],
)
def test_what_one_core_of_v3_has_no_room_for(
    function: Any, shape: tuple[int, ...], needs: str
) -> None:
    refusal = _refusal(function, *([shape] if shape else []))
    assert bool(refusal) == bool(needs)
    # What is there besides the largest array is XLA's to say; libtpu has 18.26G for the product.
    assert not needs or float(refusal.partition("Requires ")[2].partition("G")[0]) >= float(
        needs[:-1]
    )


def test_parts_of_an_array_lie_on_all_devices() -> None:
    def square(x: Any) -> Any:
        return x @ x

    assert _refusal(square, (120_000, 120_000))
    assert not _refusal(square, (120_000, 120_000), devices=8)
    assert "Requires 19.38G, has 15.48G" in _refusal(lambda x: x + 1, (204_000, 204_000), devices=8)


def test_sizes_are_written_as_xla_writes_them() -> None:
    assert [size_text(size) for size in (0, 1536, 2**30, 7.48 * 2**30, 2e18 * 2)] == [
        "0.00B", "1.50K", "1.00G", "7.48G", "3.47E",
    ]  # fmt: skip


def test_a_device_of_eight_mebibytes_raises_when_it_is_full() -> None:
    """With JAX's own devices, computed: runs on the fast path, arrays that are put, and a thread's
    own arrays."""
    code = """
import dataclasses, threading, jax, numpy as np
from podyard.hardware.generations import GENERATIONS
from podyard.programs import jax_runs
from podyard.programs.arrays.jax_memory import DeviceMemory
from podyard.programs.records import ModuleRuns
small = dataclasses.replace(GENERATIONS["v3"], hbm_usable_bytes_per_device=8 * 2**20)
memory = DeviceMemory(small)
runs = jax_runs.install(memory, dry_run=False)
memory.attach(jax.devices()[0].client, lambda device: "0x0x0_HBM0")
inner = jax._src.compiler.compile_or_get_cached
def compile(*args, **named):
    executable = inner(*args, **named)
    runs.add_module(executable, ModuleRuns("0", "jit", 1))
    return executable
jax._src.compiler.compile_or_get_cached = compile
step = jax.jit(lambda x: x + 1)
x = jax.device_put(np.zeros(2**18, np.float32))
kept, errors = [], []
def fill(make):
    kept.clear()
    try:
        while True:
            kept.append(make())
    except jax.errors.JaxRuntimeError as error:
        errors.append(len(kept)), print(len(kept), str(error))
fill(lambda: step(x))
fill(lambda: jax.device_put(np.zeros(2**19, np.float32)))
thread = threading.Thread(target=fill, args=(lambda: step(x),))
thread.start(), thread.join()
kept.clear()
for _ in range(100):
    step(x)
print(memory.stats(jax.devices()[0])["bytes_in_use"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == [
        f"{count} RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate "
        f"{size}. That was not "
        f"possible. There are {free} free.; (0x0x0_HBM0)"
        for count, size, free in (
            (7, "1.00M", "0.00B"),
            (3, "2.00M", "1.00M"),
            (7, "1.00M", "0.00B"),
        )
    ] + ["1048576"], done.stderr


def test_a_loop_with_a_large_result_does_not_make_its_other_results_large() -> None:
    def step(x: Any, w: Any) -> Any:
        def turn(x: Any, _: Any) -> Any:
            return jnp.tanh(x), x

        last, stack = jax.lax.scan(turn, x, length=64)
        return last @ w, stack[0, 0]

    shapes = ((16384, 16384), (16384, 128))
    assert not _refusal(step, *shapes, limit=8 * 2**30)
