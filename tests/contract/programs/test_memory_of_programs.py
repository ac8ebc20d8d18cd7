"""What a program has in the memory of its TPU: counted as on a TPU, and refused where a TPU has no
room for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podyard.cli.programs.run_program import NO_STEP_CODE
from tests.tpu_program import code, report, run

pytest.importorskip("jax", reason="programs under test import JAX")

# Arrays of 1 GiB, and what is alive of them: a state, a step that makes a new one, and a copy for
# an average.
STATE = """
    import sys, jax, jax.numpy as jnp, numpy as np
    def used():
        return jax.local_devices()[0].memory_stats()["bytes_in_use"] / 2**30
    make = jax.jit(lambda value, count: [jnp.full((2**28,), value) for _ in range(count)], static_argnums=1)
    def new_state(state):
        return [array * 2 for array in state]
"""  # noqa: E501


# Scores of 2.25 GiB, two of them at the same time; what is alive next to them is 4 GiB.
SCORES = code(
    STATE
    + """
    state = make(0.0, 4)
    @jax.jit
    def scores(x):
        y = jax.nn.softmax(x @ x.T, axis=0)
        return jnp.sum(jax.nn.softmax(y @ y.T, axis=1) @ x)
    x = jax.device_put(np.ones((24576, 128), np.float32))
    for _ in range(2):
        print(scores(x).shape)
"""
)


def test_arrays_that_are_alive_are_refused_where_they_do_not_fit() -> None:
    done = run("--tpu v2-8 --dry-run --steps 100", *code(STATE + """
    states = []
    for number in range(4):
        print(number, used(), flush=True)
        states.append(make(float(number), 3))
    """))  # fmt: skip
    assert done.stdout.splitlines() == ["0 0.0", "1 3.0", "2 6.0"]
    assert (
        "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 3.00G. That "
        "was not possible. There"
        " are 1.48G free.; (0x0x0_HBM0)"
    ) in done.stderr
    assert done.returncode == 1


def test_what_is_freed_and_what_is_donated_makes_room() -> None:
    done = run("--tpu v2-8 --dry-run --steps 100", *code(STATE + """
    train, keep = jax.jit(new_state, donate_argnums=0), jax.jit(new_state)
    state = make(1.0, 4)
    for _ in range(8):
        state = train(state)
    print(used())
    try:
        keep(state)
    except jax.errors.JaxRuntimeError as error:
        print(str(error)[:18])
    del state
    print(used())
    for _ in range(8):
        kept = make(1.0, 6)
        del kept
    """))  # fmt: skip
    assert done.stdout.splitlines() == ["4.0", "RESOURCE_EXHAUSTED", "0.0"], done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("dry", ["", " --dry-run"])
def test_each_device_counts_its_part_as_it_lies_in_memory(dry: str) -> None:
    done = run(f"--tpu v3-8{dry}", *code("""
        import jax, json, jax.numpy as jnp, numpy as np
        from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
        mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
        device = jax.devices()[5]
        def added(make):
            before = device.memory_stats()["bytes_in_use"]
            kept.append(make())
            return device.memory_stats()["bytes_in_use"] - before
        kept, ones = [], np.ones((8192, 256), np.float32)
        split, whole, host = (NamedSharding(mesh, P(*spec), memory_kind=kind) for spec, kind in
                              ((("x",), "device"), ((), "device"), (("x",), "pinned_host")))
        found = {
            "split": added(lambda: jax.device_put(ones, split)),
            "whole": added(lambda: jax.device_put(ones, whole)),
            "made": added(lambda: jax.jit(lambda: jnp.ones((8192, 256)), out_shardings=split)()),
            "padded": added(lambda: jax.device_put(np.ones((1000, 3), np.float32), device)),
            "elsewhere": added(lambda: jax.device_put(ones, jax.devices()[0])),
            "host": added(lambda: jax.device_put(ones, host)),
            "parts": added(lambda: [shard.data for shard in kept[0].addressable_shards]),
        }
        print(json.dumps(found))
    """))  # fmt: skip
    assert done.returncode == (NO_STEP_CODE if dry else 0), done.stderr  # it does not train
    nbytes = 8192 * 256 * 4
    assert json.loads(done.stdout) == {
        "split": nbytes // 8,
        "whole": nbytes,
        "made": nbytes // 8,
        "padded": 4 * 4 * 1024,  # lies as f32[3,1000], in four tiles of 4 rows and 256 numbers
        "elsewhere": 0,
        "host": 0,
        "parts": 0,
    }


def test_a_step_is_judged_with_what_is_alive_next_to_it(tmp_path: Path) -> None:
    done, found = report("--tpu v2-8 --dry-run --steps 8", tmp_path, *SCORES)
    assert (done.returncode, done.stdout) == (0, "()\n()\n"), done.stderr
    step = _module(found, "jit_scores")
    assert (step["peakBytes"] // 2**30, step["otherLiveBytes"] / 2**30) == (4, 4.0)
    assert (step["fits"], step["verdict"]) == (False, "does not fit (4.5 + 4.0 alive of 7.5 GiB)")
    assert (
        "does not fit on v2-8: 4.51 GiB and 4.00 GiB of other arrays of 7.48 GiB a core"
        in done.stderr
    )


def _module(found: Any, name: str) -> Any:
    return next(module for module in found["modules"] if module["name"] == name)


def test_a_module_that_needs_too_much_in_between_is_an_error_only_under_strict() -> None:
    done = run("--tpu v2-8 --dry-run --steps 8 --strict", *SCORES)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        "RESOURCE_EXHAUSTED: Error loading program: Attempting to reserve 4.50G at the bottom of "
        "memory. That was not"
        " possible. There are 3.47G free, 0B reserved, and 3.47G reservable."
    ) in done.stderr


def test_an_array_larger_than_the_slice_is_refused_when_it_is_compiled() -> None:
    done = run("--tpu v3-8", *code("""
        import jax, jax.numpy as jnp
        def attention(n):
            x = jnp.ones((n, n), dtype=jnp.bfloat16)
            x = jax.nn.softmax(jnp.dot(x, x)) + jnp.sum(x, axis=0)
            return jnp.dot(x, x)
        for n in (64, 10**9):
            jax.jit(attention, static_argnums=0).lower(n).compile()
            print(n)
    """))  # fmt: skip
    assert done.stdout == "64\n"
    assert (
        "RESOURCE_EXHAUSTED: Aborting compilation early because it's unlikely to have enough "
        "memory. Requires 3.47E,"
        " has 15.48G available."
    ) in done.stderr


OFFLOAD = """
import functools, sys
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec as P
places = dict(names_which_can_be_saved=["x"], names_which_can_be_offloaded=[])
if sys.argv[1] == "offload":
    places = dict(names_which_can_be_saved=[], names_which_can_be_offloaded=["x"])
policy = jax.checkpoint_policies.save_and_offload_only_these_names(
    offload_src="device", offload_dst="pinned_host", **places)
@functools.partial(jax.checkpoint, policy=policy)
def layer(x, w):
    return jnp.tanh(checkpoint_name(x, "x") @ w), None
@jax.jit
def step(ws, x):
    loss = lambda ws: (jax.lax.scan(layer, x, ws)[0] ** 2).mean()
    return ws - 0.1 * jax.grad(loss)(ws)
mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
size, rows = int(sys.argv[2]), int(sys.argv[3])
ws = jax.device_put(jnp.ones((16, size, size)) / size, NamedSharding(mesh, P(None, "d")))
x = jax.device_put(jnp.ones((rows, size)), NamedSharding(mesh, P("d")))
for _ in range(3): ws = step(ws, x)
print(float(ws.sum()))
"""


def test_activations_that_checkpoint_offloads_lie_on_the_host(tmp_path: Path) -> None:
    kept, offloaded = (
        report("--tpu v6e-8 --dry-run", tmp_path, *code(OFFLOAD), kind, "4096", "65536")[1]
        for kind in ("keep", "offload")
    )
    steps = [next(one for one in document["modules"] if one["digest"] == document["step"])
             for document in (kept, offloaded)]  # fmt: skip
    stack = 16 * 65536 * 4096 * 2 / 8  # products read it in bfloat16
    assert steps[0]["peakBytes"] - steps[1]["peakBytes"] == pytest.approx(stack, rel=0.15)
    assert steps[0]["deviceSecondsPerRun"] <= steps[1]["deviceSecondsPerRun"]
    computed = [run("--tpu v6e-8", *code(OFFLOAD), kind, "64", "64").stdout
                for kind in ("keep", "offload")]  # fmt: skip
    assert computed[0] and computed[0] == computed[1]
