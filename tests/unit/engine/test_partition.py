"""The split of a global step over devices against what XLA's own partitioner makes of it."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard import engine
from podyard.base.errors import Code, PodyardError
from podyard.engine.program import collective_passes
from podyard.engine.program.attributes import contradiction
from podyard.engine.program.from_jaxpr import program_of_jaxpr
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import DTYPE_BYTES, Body, Program, matrix_flops, walk
from podyard.engine.program.loops import trip_count
from podyard.engine.program.partition import partition
from podyard.engine.program.shardings import Sharding, mesh_of
from tests.waiting import patient

# XLA is asked once, by one worker of the test run
pytestmark = pytest.mark.xdist_group("partition")
DEVICES, BATCH = 4, 32
F32, S32 = jnp.float32, jnp.int32
Shape: Any = jax.ShapeDtypeStruct
Split: Any = jax.sharding.PartitionSpec
Named: Any = jax.sharding.NamedSharding
Step = tuple[Callable[..., Any], tuple[Any, ...]]


def of(*shape: int, dtype: Any = F32) -> Any:
    return Shape(shape, dtype)


def conv(x: Any, w: Any, **changes: Any) -> Any:
    options = {"window_strides": (1, 1), "padding": "SAME", **changes}
    return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options)


def mlp(weights: Any, x: Any, y: Any) -> Any:
    hidden = jax.nn.relu(x @ weights[0] + weights[1])
    return ((hidden @ weights[2] - y) ** 2).mean()


def conv_net(weights: Any, x: Any, labels: Any, key: Any) -> Any:
    x = jax.nn.relu(conv(x, weights[0]) + weights[1])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(BATCH, -1)
    x = jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0.0)
    return cross_entropy(x @ weights[2], labels)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, logits.shape[-1])).sum() / BATCH


def batch_norm(weights: Any, x: Any) -> Any:
    x = conv(x, weights[0], window_strides=(2, 2))
    mean = x.mean((0, 1, 2))
    x = (x - mean) * lax.rsqrt(((x - mean) ** 2).mean((0, 1, 2)) + 1e-5) * weights[1] + weights[2]
    return (jax.nn.relu(x) ** 2).mean()


def embedding(weights: Any, tokens: Any, labels: Any) -> Any:
    return cross_entropy(weights[0][tokens].mean(1) @ weights[1], labels)


def layers_in_a_scan(weights: Any, x: Any) -> Any:
    return (lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, weights)[0] ** 2).mean()


def attention(weights: Any, x: Any) -> Any:
    q, k, v = (jnp.einsum("bsd,dhe->hbse", x, weights[i]) for i in range(3))
    mixed = jax.nn.softmax(jnp.einsum("hbqe,hbke->hbqk", q, k)) @ v
    return (jnp.einsum("hbse,hed->bsd", mixed, weights[3]) ** 2).mean()


def picked(weights: Any, x: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x @ weights), labels[:, None], 1).mean()


def concatenated(weights: Any, x: Any, y: Any) -> Any:
    return (jnp.concatenate([x, jnp.tanh(y), jnp.zeros((BATCH, 3))], 1) @ weights).var()


def turned(weights: Any, x: Any) -> Any:
    columns = jnp.transpose(x, (2, 0, 1))
    return (jnp.tensordot(weights, columns, ((0,), (0,))).transpose(1, 0, 2).sum(2) ** 2).mean()


def depthwise(weights: Any, x: Any) -> Any:
    return (conv(conv(x, weights[0], feature_group_count=6), weights[1]) ** 2).mean()


def normalised(weights: Any, x: Any) -> Any:
    x = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * weights[0]
    return (jax.nn.gelu(x @ weights[1]) ** 2).mean()


def average_pooled(weights: Any, x: Any) -> Any:
    x = (
        lax.reduce_window(conv(x, weights[0]), 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        / 4
    )
    return (x.mean((1, 2)) @ weights[1]).var()


def over_time(weights: Any, x: Any) -> Any:
    def cell(state: Any, row: Any) -> Any:
        state = jnp.tanh(row @ weights[0] + state @ weights[1])
        return state, state

    return (lax.scan(cell, jnp.zeros((BATCH, 12)), x.transpose(1, 0, 2))[1] ** 2).mean()


def padded(weights: Any, x: Any) -> Any:
    wide = jnp.pad(x, ((0, 0), (1, 2)))[:, 1:]
    return (jnp.sort(wide @ weights, axis=1)[:, :5] ** 2).mean()


def contrastive(weights: Any, x: Any, y: Any) -> Any:
    """Each row meets all rows of the batch."""
    logits = jnp.tanh(x @ weights[0]) @ jnp.tanh(y @ weights[1]).T
    return -jnp.trace(jax.nn.log_softmax(logits)) / BATCH


IMAGES, LABELS, ROWS = of(BATCH, 8, 8, 6), of(BATCH, dtype=S32), of(BATCH, 24)
LOSSES: dict[str, tuple[Callable[..., Any], Any, tuple[Any, ...]]] = {
    "mlp": (mlp, (of(24, 48), of(48), of(48, 10)), (ROWS, of(BATCH, 10))),
    "conv net, max pool, dropout": (
        conv_net, (of(3, 3, 6, 16), of(16), of(256, 10)),
        (IMAGES, LABELS, jax.eval_shape(lambda: jax.random.key(0))),
    ),
    "batch norm": (batch_norm, (of(3, 3, 6, 16), of(16), of(16)), (IMAGES,)),
    "embedding and softmax": (embedding, (of(100, 24), of(24, 10)),
        (of(BATCH, 7, dtype=S32), LABELS)),
    "scan over layers": (layers_in_a_scan, of(5, 24, 24), (ROWS,)),
    "attention": (attention, (*(of(24, 3, 5),) * 3, of(3, 5, 24)), (of(BATCH, 9, 24),)),
    "take_along_axis": (picked, of(24, 10), (ROWS, LABELS)),
    "concatenation": (concatenated, of(37, 10), (ROWS, of(BATCH, 10))),
    "transposes": (turned, of(10, 24), (of(BATCH, 7, 10),)),
    "depthwise": (depthwise, (of(3, 3, 1, 6), of(1, 1, 6, 12)), (IMAGES,)),
    "layer norm": (normalised, (of(24), of(24, 48)), (ROWS,)),
    "average pool": (average_pooled, (of(3, 3, 6, 16), of(16, 10)), (IMAGES,)),
    "recurrent": (over_time, (of(24, 12), of(12, 12)), (of(BATCH, 5, 24),)),
    "contrastive": (contrastive, (of(24, 12), of(10, 12)), (ROWS, of(BATCH, 10))),
    "padding, slices, sorting": (padded, of(26, 10), (ROWS,)),
}  # fmt: skip


def clipped_update(weights: Any, x: Any, y: Any) -> Any:
    """A whole step: gradients are needed by something that waits for all of them."""
    loss, gradients = jax.value_and_grad(mlp)(weights, x, y)
    norm = jnp.sqrt(sum((one**2).sum() for one in gradients))
    return loss, tuple(
        w - g / jnp.maximum(norm, 1.0) for w, g in zip(weights, gradients, strict=True)
    )


STEPS: dict[str, Step] = {
    name: (jax.value_and_grad(loss), (weights, *data))
    for name, (loss, weights, data) in LOSSES.items()
}
STEPS["update clipped by its norm"] = (clipped_update, STEPS["mlp"][1])


# --- what XLA makes of them, in a process that believes in four devices

_COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)
_ARRAY = re.compile(r"\b([a-z]\w*)\[([0-9,]*)\]")


def collectives_of_xla(text: str) -> dict[str, int]:
    """Bytes by kind of collective, of results; those of a loop's body apart, once."""
    found: dict[str, int] = {}
    looped = True
    for line in text.splitlines():
        if line.endswith("{") and "->" in line:
            looped = not line.startswith("ENTRY")
        for types, kind in _COLLECTIVE.findall(line):
            key = f"{kind} in a loop" if looped else kind
            sizes = [
                math.prod(map(int, filter(None, shape.split(",")))) * DTYPE_BYTES[dtype]
                for dtype, shape in _ARRAY.findall(types)
            ]
            found[key] = found.get(key, 0) + int(sum(sizes))
    return found


def compile_all() -> None:
    """Prints what XLA's partitioner puts between the devices, for each step."""
    mesh = jax.make_mesh((DEVICES,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    told = {}
    for name, (step, arguments) in STEPS.items():
        placed = jax.tree.map(
            lambda leaf: Shape(
                leaf.shape,
                leaf.dtype,
                sharding=Named(mesh, Split("x") if leaf.shape[:1] == (BATCH,) else Split()),
            ),
            arguments,
        )
        compiled = jax.jit(step, out_shardings=Named(mesh, Split())).lower(*placed).compile()
        told[name] = collectives_of_xla(compiled.as_text() or "")
    print(json.dumps(told))


@pytest.fixture(scope="module")
def xla() -> dict[str, dict[str, int]]:
    root = Path(__file__).parents[3]
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    run = subprocess.run(
        [sys.executable, "-c",
            "from tests.unit.engine.test_partition import compile_all; compile_all()"],
        cwd=root, env=environment, capture_output=True, text=True, timeout=patient(120),
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    told: dict[str, dict[str, int]] = json.loads(run.stdout.splitlines()[-1])
    return told


# --- what is made of them here


def split(step: Step, devices: int = DEVICES) -> tuple[Program, Program]:
    """(the global program, one device's)."""
    program = program_of_jaxpr(jax.make_jaxpr(step[0])(*step[1]))
    program.mesh = mesh_of({"x": devices})
    everywhere = tuple(range(len(program.mesh.sizes)))
    for value in program.body.parameters:
        shape = program.types[value].shape
        dims = [
            everywhere if place == 0 and size == BATCH else () for place, size in enumerate(shape)
        ]
        program.shardings[value] = Sharding(tuple(dims))
    for place, value in enumerate(program.body.results):
        program.result_shardings[place] = Sharding(((),) * len(program.types[value].shape))
    # What only the TPU's compiler does afterwards.
    with (
        mock.patch.object(collective_passes, "_narrow"),
        mock.patch.object(collective_passes, "_sum_once"),
        mock.patch.object(collective_passes, "sum_after_loops"),
        mock.patch.object(collective_passes, "_WHOLE_DEVICES", 1),
    ):
        return program, partition(program)


def collectives_of(program: Program, body: Body | None = None) -> dict[str, int]:
    """Bytes by kind of collective, of results; those of a loop's body apart, once."""
    found: dict[str, int] = {}
    for operation in (body or program.body).operations:
        if operation.opcode in (
            "all_reduce",
            "all_gather",
            "all_to_all",
            "reduce_scatter",
            "collective_permute",
        ):
            key = operation.opcode.replace("_", "-") + (" in a loop" if body is not None else "")
            made = sum(program.types[value].nbytes for value in operation.results)
            found[key] = found.get(key, 0) + operation.int("bytes", made)
        for inner in operation.bodies:
            for key, nbytes in collectives_of(program, inner).items():
                found[key] = found.get(key, 0) + nbytes
    return found


def matrix_work(program: Program, body: Body | None = None) -> int:
    """Flops of all products, each as often as the loops around it say."""
    total = 0
    for operation in (body or program.body).operations:
        if operation.opcode in ("dot_general", "convolution"):
            total += matrix_flops(program, operation)
        turns = (trip_count(program, operation) or 1) if operation.opcode == "while" else 1
        total += turns * sum(matrix_work(program, inner) for inner in operation.bodies)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_devices_send_each_other_what_xla_sends(name: str, xla: dict[str, dict[str, int]]) -> None:
    assert collectives_of(split(STEPS[name])[1]) == xla[name]


@pytest.mark.parametrize("name", STEPS)
def test_devices_share_the_products_evenly(name: str) -> None:
    whole, own = split(STEPS[name])
    assert matrix_work(own) * DEVICES == matrix_work(whole)


@pytest.mark.parametrize("name", STEPS)
def test_one_device_has_the_whole_program(name: str) -> None:
    whole, own = split(STEPS[name], devices=1)
    assert (own.body, own.types) == (whole.body, whole.types)


@pytest.mark.parametrize("name", STEPS)
def test_operands_of_a_product_are_split_alike(name: str) -> None:
    own = split(STEPS[name])[1]
    for operation in walk(own.body):
        if operation.opcode in ("dot_general", "convolution"):
            given, made = (
                [own.types[value] for value in each]
                for each in (operation.operands, operation.results)
            )
            assert contradiction(operation, given, made) == "", operation


@pytest.mark.parametrize("batch", [0, 12, 33])
def test_batch_that_does_not_divide_is_refused(batch: int) -> None:
    with pytest.raises(
        PodyardError, match=rf"global_batch {batch} is not a positive multiple of v3-8's 8"
    ) as refused:
        engine.analyze(
            lambda x: x * 2.0, of(max(batch, 1), 4), accelerator_type="v3-8", global_batch=batch
        )
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_weights_with_as_many_rows_as_the_batch_are_taken_for_data() -> None:
    """The rule is by size: they are split, too, and the devices make them whole before they are
    multiplied with."""
    weights, data = of(BATCH, 24), of(BATCH, 16, BATCH)
    whole, own = split((lambda w, x: (x @ w).sum(), (weights, data)))
    assert [own.types[value].shape for value in own.body.parameters] == [(8, 24), (8, 16, 32)]
    assert collectives_of(own) == {"all-gather": 4 * BATCH * 24, "all-reduce": 4}
    assert matrix_work(own) * DEVICES == matrix_work(whole)


def test_a_reshape_that_splits_the_batch_exchanges_it() -> None:
    """As tiles of a vocabulary's logits: no device has the whole array at any time."""
    text = """
module @jit_f attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(
      %arg0: tensor<64x1024x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}, {}]>})
      -> (tensor<64x1024x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}, {}]>}) {
    %0 = stablehlo.reshape %arg0 : (tensor<64x1024x512xf32>) -> tensor<4x16384x512xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"x"}, {}]> : tensor<4x16384x512xf32>
    %2 = stablehlo.tanh %1 : tensor<4x16384x512xf32>
    %3 = sdy.sharding_constraint %2 <@mesh, [{}, {"x"}, {}]> : tensor<4x16384x512xf32>
    %4 = stablehlo.multiply %3, %3 : tensor<4x16384x512xf32>
    %5 = stablehlo.reshape %4 : (tensor<4x16384x512xf32>) -> tensor<64x1024x512xf32>
    return %5 : tensor<64x1024x512xf32>
  }
}
"""
    own = partition(parse_stablehlo(text))
    sent = [one.opcode for one in own.body.operations]
    assert "all_gather" not in sent and sent.count("all_to_all") == 2
    part = 64 * 1024 * 512 // 8
    assert all(own.types[value].size == part
               for one in own.body.operations for value in one.results)  # fmt: skip


def test_a_product_of_sides_that_are_split_along_others_gathers_them() -> None:
    """Tensor parallel: activations lie along the axis of the weights' columns, weights' rows along
    another. Both are gathered; the columns stay where they are."""
    text = """
module @jit_f attributes {mhlo.num_partitions = 64 : i32} {
  sdy.mesh @mesh = <["fsdp"=8, "tensor"=8]>
  func.func public @main(
      %arg0: tensor<64x2048xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {"tensor"}]>},
      %arg1: tensor<2048x8192xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {"tensor"}]>})
      -> (tensor<64x8192xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {"tensor"}]>}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]
        : (tensor<64x2048xf32>, tensor<2048x8192xf32>) -> tensor<64x8192xf32>
    return %0 : tensor<64x8192xf32>
  }
}
"""
    own = partition(parse_stablehlo(text))
    sent = [one.opcode for one in own.body.operations if one.opcode.startswith(("all", "reduce"))]
    assert sent == ["all_gather", "all_gather"]


def test_two_axes_that_change_places_exchange_parts() -> None:
    """As gradients of activations that a table's update wants: 4 and 2 parts become 2 and 4, by an
    exchange of two and a change of places. No device has more than its part at any time."""
    text = """
module @jit_f attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func public @main(
      %arg0: tensor<64x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>})
      -> (tensor<64x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"y"}, {"x"}]>}) {
    %0 = stablehlo.tanh %arg0 : tensor<64x512xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"x"}, {"y"}]> : tensor<64x512xf32>
    %2 = sdy.sharding_constraint %1 <@mesh, [{"y"}, {"x"}]> : tensor<64x512xf32>
    return %2 : tensor<64x512xf32>
  }
}
"""
    own = partition(parse_stablehlo(text))
    sent = [one.opcode for one in own.body.operations]
    assert sent.count("all_to_all") == sent.count("collective_permute") == 1
    assert "all_gather" not in sent
    assert all(own.types[value].size == 64 * 512 // 8
               for one in own.body.operations for value in one.results)  # fmt: skip
