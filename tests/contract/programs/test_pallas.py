"""Pallas kernels in programs: they run, are differentiated and rematerialised, and have a time and
a memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stack import PODYARD
from tests.tpu_program import SECONDS, code, environ, report, run

pytest.importorskip("jax", reason="programs under test import JAX")

FLASH = """
import sys, jax, jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention, mha_reference
W = {k: jax.random.normal(jax.random.key(i), (512, 512)) * .05 for i, k in enumerate("qkvo")}
def layer(attention, w, x):
    heads = lambda y: y.reshape(y.shape[0], y.shape[1], 4, 128).transpose(0, 2, 1, 3)
    o = attention(heads(x @ w["q"]), heads(x @ w["k"]), heads(x @ w["v"]))
    return x + o.transpose(0, 2, 1, 3).reshape(x.shape) @ w["o"]
def loss(attention, w, x): return (layer(attention, w, x) ** 2).mean()
flash = lambda q, k, v: flash_attention(q, k, v, causal=True)
plain = lambda q, k, v: mha_reference(q, k, v, None, causal=True)
x = jax.random.normal(jax.random.key(9), (1, 256, 512))
"""
STEPS = """
wrap = jax.checkpoint if REMAT else lambda f: f
@jax.jit
def train_step(w, x):
    l, g = jax.value_and_grad(lambda w: wrap(lambda w, x: loss(flash, w, x))(w, x))(w)
    return jax.tree.map(lambda a, b: a - .01 * b, w, g), l
for i in range(3): W, l = train_step(W, x); print(float(l), flush=True)
"""


def _step(document: Any) -> Any:
    return next(module for module in document["modules"] if module["digest"] == document["step"])


@pytest.mark.parametrize("remat", [False, True])
def test_a_step_with_flash_attention_has_one_price_computed_and_dry(
    remat: bool, tmp_path: Path
) -> None:
    program = code(FLASH + STEPS.replace("REMAT", str(remat)))
    done, computed = report("--tpu v5litepod-8", tmp_path, *program)
    assert done.returncode == 0, done.stderr
    losses = [float(line) for line in done.stdout.split()]
    assert losses[0] > losses[1] > losses[2] > 0
    dry_run, dry = report("--tpu v5litepod-8 --dry-run", tmp_path, *program)
    assert (dry_run.returncode, dry_run.stdout.split()) == (0, ["0.0"] * 3), dry_run.stderr
    one, other = _step(computed), _step(dry)
    assert one["deviceSecondsPerRun"] == other["deviceSecondsPerRun"] > 0
    assert one["kernels"] == other["kernels"] and len(one["kernels"]) == 3
    assert one["kernels"][0].endswith(f" in {1 + remat} run{'s' * remat}")
    assert "kernel _flash_attention_kernel: " in dry_run.stderr
    assert not one["doubts"] and other["fits"]
    assert one["peakBytes"] == other["peakBytes"] < 16 * 2**20


def test_gradients_through_kernels_are_those_of_plain_attention() -> None:
    done = run("--tpu v5litepod-1 --numerics f32", *code(FLASH + """
grads = [jax.jit(jax.grad(lambda w: loss(one, w, x)))(W) for one in (flash, plain)]
print(max(float(abs(a - b).max() / abs(b).max()) for a, b in zip(*map(jax.tree.leaves, grads))) < 1e-3)
batched = jax.jit(jax.vmap(lambda x: layer(flash, W, x)))(jnp.stack([x, -x]))
print(bool(jnp.allclose(batched[1], layer(plain, W, -x), atol=1e-3)))
scanned = jax.jit(lambda x: jax.lax.scan(lambda x, _: (layer(flash, W, x), None), x, None, length=3)[0])(x)
print(scanned.shape)
"""))  # fmt: skip  # noqa: E501
    assert done.stdout.split("\n")[:3] == ["True", "True", "(1, 256, 512)"], done.stderr


def test_kernels_are_sharded_by_shard_map(tmp_path: Path) -> None:
    program = code(FLASH + """
from jax.sharding import PartitionSpec as P
mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
sharded = jax.shard_map(flash, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
@jax.jit
def train_step(w, x):
    l, g = jax.value_and_grad(lambda w: loss(sharded, w, x))(w)
    return jax.tree.map(lambda a, b: a - .01 * b, w, g), l
x = jax.device_put(jnp.concatenate([x] * 8), jax.NamedSharding(mesh, P("data")))
for i in range(3): W, l = train_step(W, x); print(l.shape)
""")  # fmt: skip
    prices = []
    for options in ("", " --dry-run"):
        done, document = report(f"--tpu v5litepod-8{options}", tmp_path, *program)
        assert (done.returncode, done.stdout.split()) == (0, ["()"] * 3), done.stderr
        assert _step(document)["devices"] == 8
        prices.append(_step(document)["kernels"])
    assert prices[0] == prices[1] and len(prices[0]) == 3


BLOCKS = """
import functools, jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
"""


def test_blocks_past_the_end_read_padding_and_write_nothing() -> None:
    done = run("--tpu v5litepod-1", *code(BLOCKS + """
def double(x, out): out[...] = 2 * x[...]
x = jnp.arange(100 * 200.).reshape(100, 200)
spec = pl.BlockSpec((32, 128), lambda i, j: (i, j))
print(bool((pl.pallas_call(double, grid=(4, 2), in_specs=[spec], out_specs=spec, out_shape=x)(x) == 2 * x).all()))
def rows(x, out): out[...] = jnp.sum(x[...], axis=1, keepdims=True)
shape = jax.ShapeDtypeStruct((100, 1), x.dtype)
by_rows = [pl.BlockSpec((32, n), lambda i: (i, 0)) for n in (200, 1)]
sums = pl.pallas_call(rows, grid=(4,), in_specs=by_rows[:1], out_specs=by_rows[1], out_shape=shape)(x)
print(bool(jnp.allclose(sums[:, 0], x.sum(1))))
"""))  # fmt: skip  # noqa: E501
    assert done.stdout.split() == ["True", "True"], done.stderr


MATMUL = (
    BLOCKS
    + """
def kernel(x, y, z, acc, *, steps):
    @pl.when(pl.program_id(2) == 0)
    def _(): acc[...] = jnp.zeros_like(acc)
    acc[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)
    @pl.when(pl.program_id(2) == steps - 1)
    def _(): z[...] = acc[...].astype(z.dtype)
@functools.partial(jax.jit, static_argnames=["b"])
def matmul(x, y, *, b=128):
    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(functools.partial(kernel, steps=k // b), grid_spec=pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=0, grid=(m // b, n // b, k // b),
        in_specs=[pl.BlockSpec((b, b), lambda i, j, k: (i, k)), pl.BlockSpec((b, b), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((b, b), lambda i, j, k: (i, j)), scratch_shapes=[pltpu.VMEM((b, b), jnp.float32)]),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype))(x, y)
"""  # noqa: E501
)


def test_a_product_in_many_blocks_is_the_product(tmp_path: Path) -> None:
    done, document = report("--tpu v5litepod-1", tmp_path, *code(MATMUL + """
keys = jax.random.split(jax.random.key(0))
x, y = (jax.random.randint(key, (2048, 2048), -8, 8).astype(jnp.bfloat16) for key in keys)
for _ in range(2): z = matmul(x, y)
print(bool((z == x @ y).all()))
"""))  # fmt: skip
    assert done.stdout == "True\n", done.stderr
    step = _step(document)
    assert step["name"] == "jit_matmul" and step["flopsPerDevice"] == 2 * 2048**3
    # 4,096 steps of the grid; each reads two blocks of 128 x 128 numbers, which HBM takes longer
    # for than the units.
    assert 256 * 2**20 / 820e9 < step["deviceSecondsPerRun"] < 4e-3


PAGED = """
import jax, jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention
q, pages = jnp.ones((8, 8, 128), jnp.bfloat16), jnp.ones((2, 512, 16, 128), jnp.bfloat16)
lengths, table = jnp.full((8,), 900, jnp.int32), jnp.arange(512, dtype=jnp.int32).reshape(8, 64)
@jax.jit
def step(q): return q + paged_attention(q, pages, pages, lengths, table, pages_per_compute_block=8)
for _ in range(3): q = step(q)
"""
RAGGED = """
import jax, jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention
q, pages = jnp.ones((64, 8, 128), jnp.bfloat16), jnp.ones((128, 16, 4, 128), jnp.bfloat16)
table = jnp.zeros((8, 8), jnp.int32), jnp.arange(9, dtype=jnp.int32) * 8, jnp.array([8], jnp.int32)
@jax.jit
def step(q):
    lengths = jnp.full((8,), 64, jnp.int32)
    sizes = dict(num_kv_pages_per_block=4, num_queries_per_block=8)
    return q + ragged_paged_attention(q, pages, lengths, *table, **sizes)
for _ in range(3): q = step(q)
"""
MEGABLOX = """
import jax, jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.megablox import gmm
W, x, sizes = jnp.ones((8, 512, 512)), jnp.ones((1024, 512)), jnp.full((8,), 128, jnp.int32)
step = jax.jit(lambda W: W - jax.grad(lambda W: (gmm(x, W, sizes) ** 2).mean())(W))
for _ in range(3): W = step(W)
"""
SPLASH = """
import jax, jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask
mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((1024, 1024))] * 4)
attention = splash_attention_kernel.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1)
x = jnp.ones((4, 1024, 128))
step = jax.jit(lambda x: x - jax.grad(lambda x: jax.checkpoint(attention)(x, x, x).mean())(x))
for _ in range(3): x = step(x)
"""  # noqa: E501
QUANTISED = MATMUL.replace("jnp.float32", "jnp.int32").replace("z.dtype)", "z.dtype) * 2") + """
x = jnp.ones((1024, 1024), jnp.int8)
for _ in range(3): x = matmul(x, x, b=256)
"""  # fmt: skip


@pytest.mark.parametrize("program", [PAGED, RAGGED, MEGABLOX, SPLASH, QUANTISED])
def test_other_kernels_are_priced_in_a_dry_run(program: str, tmp_path: Path) -> None:
    done, document = report("--tpu v5litepod-1 --dry-run", tmp_path, *code(program))
    assert done.returncode == 0, done.stderr
    assert _step(document)["kernels"] and "error" not in done.stderr
    assert 0 < _step(document)["deviceSecondsPerRun"] < 0.01


TRAINER = """
import jax, jax.numpy as jnp, functools
from jax.sharding import NamedSharding, PartitionSpec as P
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
LENGTH, HEADS, WIDTH, ROWS = 4096, 4, 128, 8
block = kernels.BlockSizes(**{f"block_{name}": 1024 for name in
    ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")})
@functools.partial(jax.jit, static_argnums=0)
def kernel(mask):
    return kernels.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1, block_sizes=block)
@functools.partial(jax.checkpoint, static_argnums=(1,))
def layer(w, mask, x):
    q = jnp.einsum("bld,dhk->bhlk", x, w)
    spec, none = P("data"), jax.tree.map(lambda _: P(), kernel(mask))
    attention = jax.shard_map(lambda k, q: jax.vmap(k)(q, q, q), mesh=mesh,
                              in_specs=(none, spec), out_specs=spec, check_vma=False)
    return jnp.einsum("bhlk,dhk->bld", attention(kernel(mask), q), w)
def loss(ws, mask, x):
    return jax.lax.scan(lambda x, w: (layer(w, mask, x), None), x, ws)[0].mean()
@functools.partial(jax.jit, static_argnums=1)
def step(ws, mask, x):
    return ws - 0.01 * jax.grad(loss)(ws, mask, x)
mask = masks.MultiHeadMask([masks.KIND((LENGTH, LENGTH))] * HEADS)
ws = jax.device_put(jnp.ones((2, 512, HEADS, WIDTH)), NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((ROWS, LENGTH, 512)), NamedSharding(mesh, P("data")))
for _ in range(3): ws = step(ws, mask, x)
"""


def test_a_mask_of_constants_counts_the_blocks_that_it_leaves(tmp_path: Path) -> None:
    """Under jit, scan, checkpoint and shard_map, as trainers call it: the kernel visits 10 of 16
    blocks, the model has half of the scores, and neither has what is computed again."""
    _, causal = report("--tpu v5litepod-4 --dry-run", tmp_path,
                       *code(TRAINER.replace("KIND", "CausalMask")))  # fmt: skip
    _, full = report("--tpu v5litepod-4 --dry-run", tmp_path,
                     *code(TRAINER.replace("KIND", "FullMask")))  # fmt: skip
    step, whole = _step(causal), _step(full)
    rows, length, heads, width, layers, devices = 8, 4096, 4, 128, 2, 4
    # two products of a layer's forward pass, and twice as many of its backward one
    dense = 3 * 2 * 2 * rows * length * 512 * heads * width * layers / devices
    scores = 3 * 2 * 2 * rows * heads * length**2 * width * layers / devices
    assert whole["modelFlopsPerDevice"] == pytest.approx(dense + scores, rel=1e-3)
    assert step["modelFlopsPerDevice"] == pytest.approx(dense + scores / 2, rel=1e-3)
    assert step["maskedFlopsPerDevice"] == pytest.approx(scores / 2, rel=1e-3)
    assert not [doubt for doubt in step["doubts"] if "values that are not known" in doubt]
    seconds = [_kernel_seconds(one) for one in (step, whole)]
    assert 0.6 < seconds[0] / seconds[1] < 0.75


def _kernel_seconds(step: Any) -> float:
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    texts = [line.split(": ")[1].split()[:2] for line in step["kernels"]]
    return sum(float(number) * units[unit] for number, unit in texts)


LOOKUP = """
import jax, jax.numpy as jnp
def loss(w, tokens):
    table, out = w
    x = jax.nn.one_hot(tokens, 4096, dtype=jnp.bfloat16) @ table.astype(jnp.bfloat16)
    return ((x @ out.astype(jnp.bfloat16)).astype(jnp.float32) ** 2).mean()
step = jax.jit(lambda w, t: jax.tree.map(lambda w, g: w - 0.1 * g, w, jax.grad(loss)(w, t)))
w = (jnp.ones((4096, 512)), jnp.ones((512, 512)))
for _ in range(3): w = step(w, jnp.zeros((8192,), jnp.int32))
"""


def test_a_lookup_that_is_written_as_a_product_is_not_the_models(tmp_path: Path) -> None:
    _, document = report("--tpu v5litepod-1 --dry-run", tmp_path, *code(LOOKUP))
    step = _step(document)
    assert step["modelFlopsPerDevice"] == pytest.approx(3 * 2 * 8192 * 512 * 512, rel=1e-6)
    assert step["hfu"] > 5 * step["mfu"]


def test_blocks_that_a_tpu_refuses_are_refused_in_a_dry_run() -> None:
    done = run("--tpu v5litepod-1 --dry-run", *code(BLOCKS + """
def double(x, out): out[...] = 2 * x[...]
x = jnp.ones((256, 256))
spec = pl.BlockSpec((3, 100), lambda i, j: (i, j))
pl.pallas_call(double, grid=(85, 2), in_specs=[spec], out_specs=spec, out_shape=x)(x)
"""))  # fmt: skip
    assert done.returncode == 1 and "block shape" in done.stderr


EXPORT = """
import jax, jax.numpy as jnp, sys
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention
x = jax.ShapeDtypeStruct((8, 8, 2048, 128), jnp.bfloat16)
exported = jax.export.export(jax.jit(lambda q, k, v: flash_attention(q, k, v)), platforms=["tpu"])(x, x, x)
text = exported.mlir_module()
open(sys.argv[1], "w").write(text if WHOLE else text.replace("cost_estimate", "cost"))
"""  # noqa: E501


@pytest.mark.parametrize("whole", [True, False])
def test_an_exported_kernel_has_its_author_s_estimate(whole: bool, tmp_path: Path) -> None:
    file = tmp_path / "flash.mlir"
    program = EXPORT.replace("WHOLE", str(whole))
    command = [sys.executable, "-c", program, str(file)]
    subprocess.run(command, env=environ(JAX_PLATFORMS="cpu"), check=True, timeout=SECONDS)
    words = [*PODYARD, "estimate", str(file), "--accelerator-type", "v5litepod-1", "-o", "json"]
    done = subprocess.run(words, env=environ(), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert ("kernel body unknown" in json.dumps(json.loads(done.stdout))) != whole
