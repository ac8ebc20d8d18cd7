"""Which sums over devices are one collective, and which are scattered where arrays lie turned. What
is expected is what the compiler made of the same programs (libtpu 0.0.42.1, v3 and v5e alike)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.partition import partition
from tests.unit.engine.meshes import BF16, F32, Spec, SplitMesh, sent_by

_keep: Any = lax.with_sharding_constraint


def _scores(order: str) -> str:
    """A loss of scores that are split over eight devices: alone, with its gradients behind it, or
    before it."""
    mesh = SplitMesh({"model": 8})

    def loss(x: Any, table: Any, labels: Any) -> Any:
        scores = jax.nn.log_softmax(jnp.einsum("nd,vd->nv", x, table).astype(F32))
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], -1))

    def step(x: Any, table: Any, labels: Any) -> Any:
        if order == "alone":
            return loss(x, table, labels)
        value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(x, table, labels)
        return (*gradients, value) if order == "last" else (value, *gradients)

    given = (
        mesh.array((512, 256), None, None, dtype=BF16),
        mesh.array((16384, 256), "model", None, dtype=BF16),
        mesh.array((512,), None, dtype=jnp.int32),
    )  # fmt: skip
    return str(jax.jit(step).trace(*given).lower(lowering_platforms=("tpu",)).as_text())


@pytest.mark.parametrize(("order", "collectives"), [("alone", 3), ("last", 4), ("first", 4)])
def test_a_maximum_joins_no_sum_and_the_scores_of_labels_wait_for_the_backward_pass(
    order: str, collectives: int
) -> None:
    """The maximum, the sum of exponentials, and the scores that are picked; of the backward pass
    the sum of what came back, which goes with the picked scores, and the gradient of what was
    multiplied."""
    program = partition(parse_stablehlo(_scores(order)))
    sums = [one for one in program.body.operations if one.opcode == "all_reduce"]
    numbers = Counter(one.int("tuple") for one in sums)
    assert len(numbers) == collectives
    assert [one.text("by") for one in sums].count("maximum") == 1
    together = [one for one in sums if numbers[one.int("tuple")] > 1]
    assert [str(program.types[one.results[0]]) for one in together] == (
        [] if order == "alone" else ["f32[512,1]", "f32[512]"]
    )


@pytest.mark.parametrize("on", ["v3-8", "v5litepod-8"])
@pytest.mark.parametrize("rows", [1, 2])
def test_tokens_are_gathered_however_few_rows_a_device_has(on: str, rows: int) -> None:
    mesh = SplitMesh({"data": 8})

    def fn(table: Any, text: Any) -> Any:
        return jnp.mean(
            jnp.square(
                jnp.tanh(_keep(table[text].astype(BF16), mesh.on("data", None, None)))
            ).astype(F32)
        )

    table, text = (
        mesh.array((4096, 1280), None, "data"),
        mesh.array((8 * rows, 256), "data", None, dtype=jnp.int32),
    )
    kinds = [kind for kind, _ in sent_by(fn, on, table, text)]
    assert kinds == ["all-gather", "all-reduce", "all-to-all"]


@pytest.mark.parametrize("on", ["v3-8", "v5litepod-8"])
@pytest.mark.parametrize(
    ("features", "kind"), [(512, "all-reduce"), (1024, "reduce-scatter"), (2048, "reduce-scatter")]
)
@pytest.mark.parametrize("heads", [4, 16])
def test_a_sum_of_three_dimensions_lies_as_it_is_read(
    on: str, features: int, kind: str, heads: int
) -> None:
    """Weights into heads are split in their first dimension, and their gradient is always
    scattered. Those out of heads are split in lanes: each device has whole 512 bytes of these, or
    the sum is whole."""
    mesh = SplitMesh({"data": 4, "model": 2})

    def into(weight: Any, x: Any) -> Any:
        made = _keep(
            jnp.einsum("btd,dhk->bthk", x, weight.astype(BF16)),
            mesh.on("data", None, "model", None),
        )
        return jnp.mean(jnp.square(made).astype(F32))

    def out_of(weight: Any, x: Any) -> Any:
        made = _keep(
            jnp.einsum("bthk,hkd->btd", x, weight.astype(BF16)), mesh.on("data", None, None)
        )
        return jnp.mean(jnp.square(made).astype(F32))

    def sent(loss: Any, weight: Any, x: Any) -> list[str]:
        return [
            kind for kind, _ in sent_by(lambda w, x: w - 0.01 * jax.grad(loss)(w, x), on, weight, x)
        ]

    weight = mesh.array((features, heads, 128), "data", "model", None)
    x = mesh.array((16, 128, features), "data", None, None, dtype=BF16)
    assert sent(into, weight, x) == ["all-gather", "reduce-scatter"]
    weight = mesh.array((heads, 128, features), "model", None, "data")
    x = mesh.array((16, 128, heads, 128), "data", None, "model", None, dtype=BF16)
    assert sent(out_of, weight, x) == sorted(["all-gather", "all-reduce", kind])


@pytest.mark.parametrize("on", ["v3-8", "v5litepod-8"])
@pytest.mark.parametrize(
    ("shapes", "collectives"),
    [
        ([(30_712, 1024), (8, 1024)], 1),
        ([(30_720, 1024), (8, 1024)], 2),
        ([(8, 128)] * 256, 1),
        ([(8, 128)] * 300, 2),
    ],
    ids=["120 MiB", "more", "256 arrays", "300 arrays"],
)
def test_sums_are_joined_up_to_a_size_and_a_number(
    on: str, shapes: list[tuple[int, int]], collectives: int
) -> None:
    def fn(*arrays: Any) -> Any:
        return tuple(lax.psum(jnp.sin(one), "data") for one in arrays)

    mesh = SplitMesh({"data": 8})
    each = jax.shard_map(
        fn, mesh=mesh.mesh, in_specs=Spec("data"), out_specs=Spec(), check_vma=False
    )
    given = [mesh.array((8 * rows, lanes), "data", None) for rows, lanes in shapes]
    assert [kind for kind, _ in sent_by(each, on, *given)] == ["all-reduce"] * collectives
