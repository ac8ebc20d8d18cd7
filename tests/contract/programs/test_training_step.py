"""Dry runs and computed runs name the training step, however a program makes its parameters and
calls its functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tpu_program import code, report, run

pytest.importorskip("jax", reason="programs under test import JAX")

LOSS = """
import functools, jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
W = [jnp.ones((256, 256)) * .01 for _ in range(3)]
x = jnp.ones((128, 256))
def loss(W, x):
    h = x
    for w in W: h = jnp.tanh(h @ w)
    return (h ** 2).mean()
def step(rate, W, x): return [w - rate * g for w, g in zip(W, jax.grad(loss)(W, x))]
"""
LOOPS = {
    "eager parameters": ("""
train_step = jax.jit(functools.partial(step, .1))
for i in range(20): W = train_step(W, x); print(i, flush=True)
""", "jit_step"),
    "evaluation first": ("""
evaluate, train_step = jax.jit(loss), jax.jit(functools.partial(step, .1))
for i in range(40): evaluate(W, x)
for i in range(20): W = train_step(W, x); print(i, flush=True)
""", "jit_step"),
    "evaluation first that returns the model and its metrics": ("""
evaluate = jax.jit(lambda W, total, x: (W, total + loss(W, x)))
train_step, total = jax.jit(functools.partial(step, .1)), jnp.zeros(())
for i in range(40): W, total = evaluate(W, total, x)
for i in range(20): W = train_step(W, x); print(i, flush=True)
""", "jit_step"),
    "initializer in a loop, gradient and update": ("""
init = jax.jit(lambda key: jax.random.normal(key, (256, 256)))
W = [init(key) for key in jax.random.split(jax.random.key(0), 12)]
gradients, update = jax.jit(jax.grad(loss)), jax.jit(lambda W, g: [w - .1 * a for w, a in zip(W, g)])
for i in range(20): W = update(W, gradients(W, x)); print(i, flush=True)
""", "jit_loss"),  # noqa: E501
    "ahead of time": ("""
train_step = jax.jit(functools.partial(step, .1)).lower(W, x).compile()
for i in range(20): W = train_step(W, x); print(i, flush=True)
""", "jit_step"),
    "pmap": ("""
W, x = jax.tree.map(lambda a: jnp.stack([a] * 8), (W, x))
train_step = jax.pmap(functools.partial(step, .1), axis_name="i")
for i in range(20): W = train_step(W, x); print(i, flush=True)
""", "jit__fun"),
    "shard_map": ("""
mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
sharded = functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("i")), out_specs=P(), check_vma=False)
train_step = jax.jit(sharded(functools.partial(step, .1)))
for i in range(20): W = train_step(W, x); print(i, flush=True)
""", "jit_step"),  # noqa: E501
}  # fmt: skip


def _step(document: Any) -> Any:
    return next(module for module in document["modules"] if module["digest"] == document["step"])


@pytest.mark.parametrize("way", LOOPS)
def test_a_dry_run_goes_on_until_the_training_step_has_run(way: str, tmp_path: Path) -> None:
    program, name = LOOPS[way]
    done, document = report(
        "--tpu v5litepod-8 --dry-run --steps 5", tmp_path, *code(LOSS + program)
    )
    assert done.returncode == 0, done.stderr
    assert _step(document)["name"] == name, document["stepReason"]
    # a second compilation for the results' shardings counts by itself
    assert 5 <= len(done.stdout.split()) <= 6
    assert f"training step {name}: " in done.stderr and "gets its own results back" in done.stderr


def test_a_computed_run_names_the_same_step(tmp_path: Path) -> None:
    done, document = report(
        "--tpu v5litepod-8", tmp_path, *code(LOSS + LOOPS["eager parameters"][0])
    )
    step = _step(document)
    assert (step["name"], step["runs"], step["callSite"]) == ("jit_step", 20, "<string>:13"), (
        done.stderr
    )
    assert [one["isLibrary"] for one in document["modules"] if one["name"] != "jit_step"] == [
        True
    ] * 4


def test_a_module_with_the_training_loop_counts_by_its_turns(tmp_path: Path) -> None:
    program = code(LOSS + """
train = jax.jit(lambda W, xs: jax.lax.scan(lambda W, x: (step(.1, W, x), loss(W, x)), W, xs))
W, losses = train(W, jnp.stack([x] * 50))
print(losses.shape)
""")  # fmt: skip
    done, document = report("--tpu v5litepod-8 --dry-run", tmp_path, *program)
    assert (done.returncode, done.stdout) == (0, "(50,)\n"), done.stderr
    assert (_step(document)["turns"], _step(document)["runs"]) == (50, 1)
    assert (
        "1 of 50 turns of its loop" in done.stderr
        and "contains a training loop of 50 turns" in done.stderr
    )


EAGER_LOOPS = {
    "scan": ("W, losses = jax.lax.scan(lambda W, x: (step(.1, W, x), loss(W, x)), W, xs)", 50),
    "fori_loop": ("W = jax.lax.fori_loop(0, 50, lambda i, W: step(.1, W, xs[i]), W)", 50),
    "while_loop": ("W = jax.lax.while_loop(lambda W: loss(W, x) > 1, update, W)", 1),
}  # fmt: skip


@pytest.mark.parametrize("way", EAGER_LOOPS)
def test_a_training_loop_outside_of_jit_is_the_step(way: str, tmp_path: Path) -> None:
    program, turns = EAGER_LOOPS[way]
    done, document = report(
        "--tpu v5litepod-8 --dry-run", tmp_path,
        *code(f"{LOSS}xs = jnp.stack([x] * 50)\ndef update(W): return step(.1, W, x)\n{program}\n")
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (_step(document)["turns"], _step(document)["runs"]) == (turns, 1)
    assert "contains a training loop" in done.stderr and "1,000 steps $" in done.stderr


def test_a_scan_over_layers_outside_of_jit_is_a_part_of_a_step() -> None:
    done = run("--tpu v5litepod-8 --dry-run", *code(LOSS + """
W = jnp.stack(W)
def layer(h, w): return jnp.tanh(h @ w), None
def deep(W): return (jax.lax.scan(layer, x, W)[0] ** 2).mean()
for i in range(6): W = W - .1 * jax.grad(deep)(W)
"""))  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "no training step found: " in done.stderr and "jit_scan" in done.stderr


def test_a_program_without_a_training_step_has_no_price() -> None:
    done = run("--tpu v5litepod-8 --dry-run", *code("""
        import jax, jax.numpy as jnp
        x = jnp.ones(8)
        for key in jax.random.split(jax.random.key(0), 5):
            x = jnp.where(x > 0, x, jax.nn.gelu(x)) * 2 + jax.random.uniform(key, (8,))
        print(jax.jit(lambda x: x.sum())(x).shape)
    """))  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "()\n"), done.stderr
    last = next(
        line for line in done.stderr.splitlines() if line.startswith("no training step found: ")
    )
    assert "jit__uniform (5)" in last and "jit__lambda (1)" in last
    assert "$" not in done.stderr


def test_the_user_names_the_step(tmp_path: Path) -> None:
    program = code(LOSS + LOOPS["evaluation first"][0])
    done, document = report("--tpu v5litepod-8 --dry-run --step loss", tmp_path, *program)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (_step(document)["name"], _step(document)["runs"]) == ("jit_loss", 3)
    assert "training step jit_loss: --step loss" in done.stderr
    done = run("--tpu v5litepod-8 --dry-run --step train", *program)
    assert done.returncode == 3
    assert (
        "no training step found: the program called no jitted function train; seen: jit_"
        in done.stderr
    )
