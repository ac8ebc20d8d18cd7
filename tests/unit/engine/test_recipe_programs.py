from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.base.rng import Streams
from podyard.engine.recipes import tensors
from podyard.engine.recipes.layers import (
    batch_norm,
    causal_attention,
    conv,
    max_pool,
    max_pool_2x2,
    softmax_cross_entropy,
)
from podyard.engine.recipes.model import Model
from podyard.engine.recipes.programs import PROGRAMS, RecipeProgram, model_of, program_of
from podyard.engine.recipes.resnet import ResNet
from podyard.engine.recipes.tensors import draw, numbers_below, pixels
from podyard.engine.recipes.transformer import TransformerLm
from podyard.engine.training.optimizers import Momentum, exponential_decay

KEY = np.array([0, 7], np.uint32)
SMALL_LM = {
    "layers": 2,
    "width": 16,
    "heads": 2,
    "sequence": 8,
    "vocabulary": 11,
    "dtype": "float32",
}
# Compiling is most of this file's time, and nothing here depends on how well the code is optimized.
QUICK: dict[str, bool | int | float | str] = {"xla_backend_optimization_level": 0}


def size(tree: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def kinds(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (tuple(leaf.shape), np.dtype(leaf.dtype)), tree)


def quick(fn: Callable[..., Any]) -> Any:
    return jax.jit(fn, compiler_options=QUICK)


def compiled(program: RecipeProgram, batch_size: int) -> Any:
    return quick(program.step).lower(*program.abstract_arguments(batch_size)).compile()


def run(step: Any, state: Any, batch: Any, count: int, key: Any = KEY) -> tuple[Any, list[float]]:
    losses = []
    for _ in range(count):
        state, metrics = step(state, batch, key)
        losses.append(float(metrics["loss"]))
    return state, losses


@cache
def small_mnist() -> tuple[RecipeProgram, Any]:
    program = program_of("mnist-cnn", {"learningRate": 0.05})
    return program, compiled(program, 8)


@cache
def small_digits() -> tuple[RecipeProgram, Any]:
    program = program_of("digits-cnn", {"dropout": 0})
    return program, compiled(program, 4)


def forward_multiply_adds(jaxpr: Any) -> int:
    """Of the products and convolutions of a program without gradients."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("dot_general", "conv_general_dilated"):
            right = eqn.invars[1].aval.shape
            # Kernels are [..., in, out] everywhere here.
            total += math.prod(eqn.outvars[0].aval.shape) * math.prod(right[:-1])
        for value in eqn.params.values():
            if hasattr(value, "jaxpr"):
                total += forward_multiply_adds(value.jaxpr)
    return total


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("digits-cnn", (9 * 1 + 1) * 32 + (9 * 32 + 1) * 64 + (1024 + 1) * 128 + (128 + 1) * 10),
        ("mnist-cnn", (25 * 1 + 1) * 32 + (25 * 32 + 1) * 64 + (3136 + 1) * 128 + (128 + 1) * 10),
        ("fashion-cnn", (9 * 1 + 1) * 64 + (13 * 13 * 64 + 1) * 10),
        # 896 + 9,248 + 18,496 + 36,928 for the convolutions
        ("cifar10-cnn", 65_568 + (6 * 6 * 64 + 1) * 512 + (512 + 1) * 10),
        ("mlp", (784 + 1) * 512 + (512 + 1) * 512 + (512 + 1) * 10),
        ("resnet-50", 25_557_032),
        ("transformer-lm", 124_439_808),  # the small GPT-2
    ],
)
def test_parameter_counts_are_the_known_ones(name: str, count: int) -> None:
    state, _, _ = program_of(name, {}).abstract_arguments(1)
    assert size(state["params"]) == count
    assert size(state["opt"]) == {"mnist-cnn": 0, "resnet-50": 1}.get(name, 2) * count


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_keeps_the_shapes_and_types_of_the_state_at_the_default_batch(name: str) -> None:
    program = program_of(name, {})
    assert program.example_count >= program.default_global_batch
    state, batch, key = program.abstract_arguments(program.default_global_batch)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(batch)} == {program.default_global_batch}
    _, (after, metrics) = jax.make_jaxpr(program.step, return_shape=True)(state, batch, key)
    assert kinds(after) == kinds(state)
    assert metrics["loss"].shape == () and metrics["loss"].dtype == jnp.float32
    assert ("accuracy" in metrics) == (name != "transformer-lm")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cifar10-cnn", {}),
        ("mnist-cnn", {}),
        ("transformer-lm", SMALL_LM),
        ("transformer-lm", SMALL_LM | {"scan": True}),
    ],
)
def test_concrete_arguments_fit_the_abstract_ones(name: str, arguments: dict[str, object]) -> None:
    program = program_of(name, arguments)
    state, batch, _ = program.abstract_arguments(3)
    assert kinds(program.init(Streams(0))) == kinds(state)
    streams = Streams(0)
    first, second = program.sample_batch(streams, 3), program.sample_batch(streams, 3)
    assert kinds(first) == kinds(batch)
    again = program.sample_batch(Streams(0), 3)
    for feature in first:
        assert np.array_equal(first[feature], again[feature])
        assert not np.array_equal(first[feature], second[feature])


def test_inputs_have_the_ranges_that_the_models_are_written_for() -> None:
    mnist = program_of("mnist-cnn", {}).sample_batch(Streams(0), 64)
    assert (mnist["image"].min(), mnist["image"].max()) == (-0.5, 0.5)
    assert set(mnist["label"]) == set(range(10))
    cifar = program_of("cifar10-cnn", {}).sample_batch(Streams(0), 8)
    assert (cifar["image"].min(), cifar["image"].max()) == (0, 1)
    assert np.allclose(cifar["image"] * 255, np.round(cifar["image"] * 255), atol=1e-4)
    tokens = program_of("transformer-lm", SMALL_LM).sample_batch(Streams(0), 50)["tokens"]
    assert set(tokens.ravel()) == set(range(11))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("digits-cnn", {"dropout": 0}),
        ("fashion-cnn", {}),
        ("cifar10-cnn", {}),
        ("mlp", {}),
        ("transformer-lm", SMALL_LM | {"learningRate": 0.01, "dtype": "bfloat16", "layers": 1}),
    ],
)
def test_a_few_steps_on_one_batch_lower_the_loss(name: str, arguments: dict[str, object]) -> None:
    program = program_of(name, arguments)
    step = small_digits()[1] if name == "digits-cnn" else compiled(program, 4)
    start, batch = program.init(Streams(0)), program.sample_batch(Streams(1), 4)
    state, losses = run(step, start, batch, 6)
    assert losses[-1] < 0.9 * losses[0], losses
    # Nothing is learned yet: the loss is near that of a guess.
    assert abs(losses[0] - math.log(11 if name == "transformer-lm" else 10)) < 1
    assert int(state["step"]) == 6


@pytest.mark.slow
def test_sgd_moves_parameters_down_the_measured_slope() -> None:
    program, step = small_mnist()
    state, batch = program.init(Streams(0)), program.sample_batch(Streams(1), 8)
    after, _ = step(state, batch, KEY)
    gradient = jax.tree.map(
        lambda new, old: (old - np.asarray(new)) / 0.05, after["params"], state["params"]
    )
    length = math.sqrt(
        sum(float(np.sum(np.square(part, dtype=np.float64))) for part in gradient.values())
    )

    def loss_at(distance: float) -> float:
        moved = {
            name: state["params"][name] + np.float32(distance / length) * gradient[name]
            for name in gradient
        }
        return float(step({**state, "params": moved}, batch, KEY)[1]["loss"])

    assert (loss_at(0.01) - loss_at(-0.01)) / 0.02 == pytest.approx(length, rel=0.02)


@pytest.mark.slow
def test_dropout_follows_key_and_step_alone() -> None:
    program, step = small_mnist()
    state, batch = program.init(Streams(0)), program.sample_batch(Streams(1), 8)

    def loss(state: Any, key: Any) -> float:
        return float(step(state, batch, key)[1]["loss"])

    assert loss(state, KEY) == loss(state, KEY)
    assert loss(state, KEY) != loss(state, KEY + np.uint32(1))
    assert loss(state, KEY) != loss({**state, "step": np.int32(1)}, KEY)


@pytest.mark.slow
def test_the_mnist_rate_decays_continuously() -> None:
    program, step = small_mnist()
    state, batch = program.init(Streams(0)), program.sample_batch(Streams(1), 8)
    rates = exponential_decay(0.05, 0.96, 100_000)
    assert float(rates(np.int32(0))) == pytest.approx(0.05)
    assert float(rates(np.int32(150_000))) == pytest.approx(0.05 * 0.96**1.5)
    late = {**state, "step": np.int32(10_000_000)}
    moved = step(late, batch, KEY)[0]["params"]["dense2/bias"]
    assert 0 < np.abs(np.asarray(moved)).max() < 0.05 * 0.96**100


@pytest.mark.slow
def test_a_step_without_dropout_has_the_loss_of_the_evaluation() -> None:
    program, step = small_digits()
    model = model_of("digits-cnn", {"dropout": 0.0})
    state, batch = program.init(Streams(3)), program.sample_batch(Streams(1), 4)
    _, metrics = step(state, batch, KEY)
    judged = quick(model.evaluate)(model.init(Streams(3)).params, {}, batch)
    assert float(metrics["loss"]) == pytest.approx(float(judged["loss"]), rel=1e-5)
    answers = quick(model.predict)(state["params"], {}, batch)
    assert float(judged["accuracy"]) == np.mean(np.asarray(answers) == batch["label"])


def test_resnet_does_the_known_work() -> None:
    """The count of v1.5; with the stride in the first 1x1 convolution it would be 3.86e9."""
    network = ResNet((3, 4, 6, 3), 64, 1000, jnp.dtype("bfloat16"))
    state, batch, _ = program_of("resnet-50", {}).abstract_arguments(1)
    traced = jax.make_jaxpr(network.loss)(state["params"], state["statistics"], batch, None)
    assert forward_multiply_adds(traced.jaxpr) == 4_089_184_256
    # 53 normalizations, each of a mean and a variance per channel
    assert len(state["statistics"]) == 2 * 53 and size(state["statistics"]) == 53_120


def test_resnet_size_and_type_follow_the_arguments() -> None:
    program = program_of("resnet-50", {"imageSize": 64, "dtype": "float32", "optimizer": "lars"})
    state, batch, _ = program.abstract_arguments(8)
    assert batch["image"].shape == (8, 64, 64, 3) and batch["image"].dtype == jnp.float32
    assert program_of("resnet-50", {}).abstract_arguments(8)[1]["image"].dtype == jnp.bfloat16
    assert set(state["opt"]) == {"velocity"}


@pytest.mark.slow
def test_a_small_resnet_learns_and_its_running_averages_move() -> None:
    network = ResNet((1,), 4, 10, jnp.dtype("bfloat16"))
    model = Model(
        params=network.params(),
        features={"image": pixels((16, 16, 3), network.dtype, -0.5), "label": numbers_below(10)},
        loss=network.loss,
        optimizer=lambda _batch: Momentum(lambda _steps: 0.2, 0.9, 1e-4),
        example_count=8,
        statistics=network.statistics(),
    )
    start, batch = model.first_state(Streams(0)), model.sample_batch(Streams(1), 8)
    step = quick(model.step)
    state, losses = run(step, start, batch, 1)
    kernel = start["params"]["conv1_conv/kernel"].astype(network.dtype).astype(np.float32)
    image = batch["image"].astype(np.float32)
    stem = conv(image, kernel, 2, ((3, 3), (3, 3)))
    moved = state["statistics"]
    mean, variance = (moved[f"conv1_bn/moving_{part}"] for part in ("mean", "variance"))
    assert np.allclose(mean, 0.1 * np.mean(stem, (0, 1, 2)), rtol=0.02, atol=1e-3)
    assert np.allclose(variance, 0.9 + 0.1 * np.var(stem, (0, 1, 2)), rtol=0.02)
    assert all(not np.array_equal(moved[name], start["statistics"][name]) for name in moved)
    _, later = run(step, state, batch, 5)
    assert later[-1] < 0.9 * losses[0], (losses, later)


@pytest.mark.slow
def test_unrolled_scanned_and_rematerialized_transformers_are_the_same_function() -> None:
    unrolled = TransformerLm(2, 16, 2, 8, 11, jnp.dtype("float32"), scan=False, remat=False)
    scanned = dataclasses.replace(unrolled, scan=True)
    program = program_of("transformer-lm", SMALL_LM)
    params, batch = program.init(Streams(0))["params"], program.sample_batch(Streams(1), 3)
    stacked = {
        **params,
        "blocks": jax.tree.map(lambda *layers: np.stack(layers), *params["blocks"]),
    }

    def loss_of(network: TransformerLm) -> Any:
        return quick(lambda params: network.loss(params, {}, batch, None)[0])

    expected = float(loss_of(unrolled)(params))
    loss = loss_of(scanned)
    assert float(loss(stacked)) == pytest.approx(expected, rel=1e-6)
    assert float(loss_of(dataclasses.replace(scanned, remat=True))(stacked)) == pytest.approx(
        expected, rel=1e-6
    )
    # Not because the blocks do nothing:
    doubled = {**stacked, "blocks": jax.tree.map(lambda own: 2 * own, stacked["blocks"])}
    assert float(loss(doubled)) != pytest.approx(expected, rel=1e-4)


def test_each_token_is_predicted_from_the_one_before_and_its_position() -> None:
    """With blocks that add nothing, the whole model is a few lines of numpy."""
    network = TransformerLm(1, 16, 2, 8, 11, jnp.dtype("float32"), scan=False, remat=False)
    program = program_of("transformer-lm", SMALL_LM | {"layers": 1})
    params, batch = program.init(Streams(0))["params"], program.sample_batch(Streams(1), 3)
    params["blocks"] = jax.tree.map(np.zeros_like, params["blocks"])
    x = params["embedding"][batch["tokens"][:, :8]] + params["positions"]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    logits = x @ params["embedding"].T
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    by_hand = -np.mean([log_p[n, s, batch["tokens"][n, s + 1]] for n in range(3) for s in range(8)])
    loss = quick(lambda params: network.loss(params, {}, batch, None)[0])(params)
    assert float(loss) == pytest.approx(float(by_hand), rel=1e-5)


@pytest.mark.slow
def test_scan_is_chosen_above_four_layers_and_remat_marks_the_blocks() -> None:
    def blocks(**arguments: object) -> Any:
        state, _, _ = program_of("transformer-lm", SMALL_LM | arguments).abstract_arguments(1)
        return state["params"]["blocks"]

    assert len(blocks(layers=4)) == 4
    assert blocks(layers=5)["mlp_in"]["bias"].shape == (5, 64)
    assert blocks(layers=1, scan=True)["mlp_in"]["bias"].shape == (1, 64)
    assert len(blocks(layers=5, scan=False)) == 5

    def text(**arguments: object) -> str:
        program = program_of("transformer-lm", SMALL_LM | {"layers": 1, "scan": True} | arguments)
        return str(jax.make_jaxpr(program.step)(*program.abstract_arguments(2)))

    # The primitive's name has changed between releases.
    assert re.search("remat|checkpoint", text(remat=True)) and not re.search(
        "remat|checkpoint", text()
    )


@pytest.mark.slow
def test_a_billion_parameters_are_traced_in_no_time() -> None:
    def traced(layers: int) -> tuple[int, int]:
        program = program_of("transformer-lm", {"layers": layers, "width": 2048, "heads": 16})
        arguments = program.abstract_arguments(program.default_global_batch)
        return size(arguments[0]["params"]), len(jax.make_jaxpr(program.step)(*arguments).eqns)

    _, few = traced(6)
    start = time.process_time()
    params, many = traced(24)
    assert time.process_time() - start < 2
    assert params == 1_313_626_112
    assert many == few


@pytest.mark.slow
def test_no_position_sees_a_later_one() -> None:
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((1, 6, 2, 4)).astype(np.float32) for _ in range(3))
    before = np.asarray(causal_attention(query, key, value))
    for tensor in (query, key, value):
        tensor[:, 4:] += 1
    after = np.asarray(causal_attention(query, key, value))
    assert np.array_equal(before[:, :4], after[:, :4])
    assert not np.isclose(before[:, 4:], after[:, 4:]).any()
    assert np.allclose(before[:, 0], value[:, 0])
    scores = query[0, 3, 1] @ key[0, :4, 1].T / 2
    weights = np.exp(scores) / np.exp(scores).sum()
    assert np.allclose(after[0, 3, 1], weights @ value[0, :4, 1], atol=1e-5)


def test_batch_norm_computes_in_float32_whatever_comes_in() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 3, 5)).astype(np.float32) * 3 + 100
    scale, bias = np.arange(1, 6, dtype=np.float32), np.ones(5, np.float32)
    narrow = jnp.asarray(x, jnp.bfloat16)
    got, mean, variance = quick(lambda x: batch_norm(x, scale, bias, 1e-5))(narrow)
    wide = np.asarray(narrow, np.float64)
    assert got.dtype == jnp.bfloat16 and mean.dtype == variance.dtype == jnp.float32
    assert np.allclose(mean, wide.mean((0, 1, 2)), rtol=1e-6)
    assert np.allclose(variance, wide.var((0, 1, 2)), rtol=1e-3)
    by_hand = (wide - wide.mean((0, 1, 2))) / np.sqrt(wide.var((0, 1, 2)) + 1e-5) * scale + bias
    assert np.allclose(np.asarray(got, np.float64), by_hand, rtol=0.01, atol=0.02)


def test_batch_norm_passes_no_gradient_to_shift_and_size_of_its_input() -> None:
    x = np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32)
    weight = np.random.default_rng(2).standard_normal((8, 3)).astype(np.float32)
    ones = np.ones(3, np.float32)
    slope = np.asarray(
        quick(jax.grad(lambda x: jnp.sum(weight * batch_norm(x, ones, ones, 1e-5)[0])))(x)
    )
    assert np.abs(slope).max() > 0.1
    assert np.allclose(slope.sum(0), 0, atol=1e-5)
    assert np.allclose((slope * (x - x.mean(0))).sum(0), 0, atol=1e-3)


def test_both_ways_of_pooling_are_the_same_function() -> None:
    x = np.random.default_rng(0).standard_normal((2, 6, 6, 3)).astype(np.float32)
    assert np.array_equal(max_pool(x, 2, 2), max_pool_2x2(x))
    pools = (lambda x: max_pool(x, 2, 2), max_pool_2x2)
    slopes = [quick(jax.grad(lambda x, pool=pool: jnp.sum(pool(x) ** 2)))(x) for pool in pools]
    assert np.array_equal(*slopes) and np.count_nonzero(slopes[0]) == 2 * 3 * 3 * 3
    padded = np.asarray(max_pool(x, 3, 2, ((1, 1), (1, 1))))
    assert padded.shape == (2, 3, 3, 3)
    assert np.array_equal(padded[:, 0, 0], x[:, :2, :2].max((1, 2)))
    assert np.array_equal(padded[:, 2, 1], x[:, 3:6, 1:4].max((1, 2)))


@pytest.mark.slow
def test_label_smoothing_spreads_a_share_of_the_target() -> None:
    logits = np.array([[2.0, 0.0, -1.0, 0.5]], np.float32)
    log_p = np.log(np.exp(logits) / np.exp(logits).sum())[0]
    for smoothing, target in ((0.0, [0, 1, 0, 0]), (0.1, [0.025, 0.925, 0.025, 0.025])):
        loss, correct = softmax_cross_entropy(logits, np.array([1]), smoothing)
        assert float(loss) == pytest.approx(-float(log_p @ np.array(target)), rel=1e-5)
        assert float(correct) == 0


def test_initial_values_follow_seed_and_scheme() -> None:
    program = program_of("transformer-lm", SMALL_LM | {"vocabulary": 5000, "scan": True})
    state, again, other = (program.init(Streams(seed)) for seed in (0, 0, 1))
    table = state["params"]["embedding"]
    assert table.std() == pytest.approx(0.02, rel=0.02) and abs(table.mean()) < 0.0003
    assert 0.95 < np.mean(np.abs(table) < 0.04) < 0.96
    assert np.array_equal(table, again["params"]["embedding"])
    assert not np.array_equal(table, other["params"]["embedding"])
    blocks = state["params"]["blocks"]
    assert blocks["mlp_out"]["kernel"].std() == pytest.approx(0.02 / math.sqrt(4), rel=0.1)
    assert np.all(blocks["norm1"]["scale"] == 1) and not blocks["mlp_in"]["bias"].any()
    assert not np.array_equal(blocks["mlp_in"]["kernel"][0], blocks["mlp_in"]["kernel"][1])


def test_tensors_drawn_in_pieces_are_those_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def uniform() -> Any:
        return draw(Streams(0), "t", (7, 9), np.float64, lambda unit: unit)

    whole = uniform()
    monkeypatch.setattr(tensors, "_PIECE", 8)
    assert np.array_equal(uniform(), whole)
    assert whole.min() >= 0 and whole.max() < 1 and len(np.unique(whole)) == 63


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        (
            "mnist",
            {},
            "unknown program 'mnist': use cifar10-cnn, digits-cnn, fashion-cnn, mlp, mnist-cnn",
        ),
        ("mlp", {"dropout": 0.1}, "unknown argument 'dropout' of program mlp: use learningRate"),
        (
            "mlp",
            {"learningRate": "fast"},
            "arguments.learningRate is a number between 1e-06 and 100.0, not 'fast'",
        ),
        ("mlp", {"learningRate": True}, "not True"),
        ("mlp", {"learningRate": math.nan}, "not nan"),
        ("mnist-cnn", {"dropout": 1}, "arguments.dropout is a number between 0.0 and 0.9, not 1"),
        (
            "resnet-50",
            {"imageSize": 31},
            "arguments.imageSize is a whole number between 32 and 512, not 31",
        ),
        ("resnet-50", {"imageSize": 64.5}, "not 64.5"),
        ("resnet-50", {"imageSize": 10**400}, "whole number between 32 and 512"),
        (
            "resnet-50",
            {"dtype": "float16"},
            "arguments.dtype is one of bfloat16, float32, not 'float16'",
        ),
        ("resnet-50", {"optimizer": ["lars"]}, "arguments.optimizer is one of momentum, lars"),
        ("transformer-lm", {"scan": 1}, "arguments.scan is true or false, not 1"),
        ("transformer-lm", {"remat": None}, "arguments.remat is true or false, not None"),
        (
            "transformer-lm",
            {"width": 100, "heads": 3},
            "arguments.heads divides the width 100 evenly, which 3 does",
        ),
    ],
)
def test_refusals_name_the_argument_and_what_is_allowed(
    name: str, arguments: dict[str, object], told: str
) -> None:
    with pytest.raises(PodyardError) as caught:
        program_of(name, arguments)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert told in caught.value.message
    assert caught.value.details


def test_an_empty_batch_is_refused() -> None:
    for batch in (0, -1, True, 1.5):
        with pytest.raises(PodyardError, match="global batch is a whole number of at least 1"):
            program_of("mlp", {}).abstract_arguments(batch)  # type: ignore[arg-type]


def test_defaults_are_allowed_values() -> None:
    for name, manifest in PROGRAMS.items():
        program = program_of(name, {})
        assert (program.name, program.default_global_batch) == (name, manifest.default_global_batch)
        for argument in manifest.arguments.values():
            assert argument.default is None or argument.accepts(argument.default), (name, argument)
    assert program_of("mlp", {"learningRate": 1}).example_count == 60_000
    assert program_of("resnet-50", {"imageSize": 96.0}).abstract_arguments(1)[1]["image"].shape == (
        1,
        96,
        96,
        3,
    )


def test_names_are_known_without_jax() -> None:
    code = (
        "import sys; import podyard.engine.recipes; from podyard.engine.recipes.programs "
        "import PROGRAMS;"
        "assert len(PROGRAMS) == 7; sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
