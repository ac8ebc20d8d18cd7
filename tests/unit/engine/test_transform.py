from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from podyard.base.errors import Code, PodyardError
from podyard.engine.numerics.transform import mxu_jit, mxu_numerics

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 8)).astype(np.float32)
W = RNG.standard_normal((8, 8)).astype(np.float32)


def rounded(x: Any) -> Any:
    return lax.reduce_precision(x, 8, 7)


def matrix_operands_rounded(fn: Callable[..., Any], *args: Any) -> list[bool]:
    """For every dot and convolution of the transformed program, nested ones included: are both
    operands fresh from a reduce_precision to bfloat16?"""
    found: list[bool] = []

    def walk(jaxpr: Any) -> None:
        makers = {out: eqn for eqn in jaxpr.eqns for out in eqn.outvars}
        for eqn in jaxpr.eqns:
            if eqn.primitive.name in ("dot_general", "conv_general_dilated"):
                names = [makers[v].primitive.name if v in makers else "" for v in eqn.invars]
                found.append(names == ["reduce_precision"] * 2)
            for value in eqn.params.values():
                for one in value if isinstance(value, tuple | list) else (value,):
                    if hasattr(one, "jaxpr") or hasattr(one, "eqns"):
                        walk(getattr(one, "jaxpr", one))

    walk(jax.make_jaxpr(mxu_numerics(fn))(*args).jaxpr)
    return found


@pytest.mark.slow
def test_backward_pass_equals_hand_rounded_gradients() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    got = mxu_jit(jax.grad(loss, argnums=(0, 1)))(W, X)
    hidden = np.asarray(jnp.tanh(rounded(X) @ rounded(W)))
    slope = 2 * hidden * (1 - hidden**2)
    by_hand = (rounded(X).T @ rounded(slope), rounded(slope) @ rounded(W).T)
    plain = jax.grad(loss, argnums=(0, 1))(W, X)
    for ours, expected, float32 in zip(got, by_hand, plain, strict=True):
        assert np.allclose(ours, expected, rtol=1e-2, atol=1e-3)
        assert np.abs(ours - expected).mean() < np.abs(ours - float32).mean() / 5


def test_convolution_and_its_gradients_are_rounded() -> None:
    image = RNG.standard_normal((2, 5, 5, 3)).astype(np.float32)
    kernel = RNG.standard_normal((3, 3, 3, 4)).astype(np.float32)

    def conv(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    got = mxu_jit(conv)(image, kernel)
    assert np.allclose(got, conv(rounded(image), rounded(kernel)), atol=1e-5)
    assert not np.allclose(got, conv(image, kernel), atol=1e-5)
    gradient = jax.grad(lambda x, k: jnp.sum(conv(x, k) ** 2), argnums=(0, 1))
    assert matrix_operands_rounded(gradient, image, kernel) == [True] * 3


def scanned(w: Any, x: Any) -> Any:
    return lax.scan(lambda carry, _: (jnp.sin(carry @ w), None), x, None, length=3)[0]


def branched(w: Any, x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda: x @ w, lambda: x @ (2 * w))


def looped(w: Any, x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1] @ w)), (0, x))[1]


def rematted(w: Any, x: Any) -> Any:
    return jax.checkpoint(lambda v: jnp.sin(v @ w))(x)


def jitted(w: Any, x: Any) -> Any:
    return jax.jit(lambda v: jax.nn.gelu(v @ w))(x)


@jax.custom_vjp
def _square(x: Any) -> Any:
    return x @ x


_square.defvjp(lambda x: (x @ x, x), lambda x, slope: (slope @ x.T + x.T @ slope,))


def custom(w: Any, x: Any) -> Any:
    return jax.nn.relu(x @ _square(w))


def vmapped(w: Any, x: Any) -> Any:
    return jax.vmap(lambda row: row @ w)(x)


@pytest.mark.parametrize("fn", [scanned, branched, looped, rematted, jitted, custom, vmapped])
def test_reaches_into(fn: Callable[..., Any]) -> None:
    flags = matrix_operands_rounded(fn, W, X)
    assert flags and all(flags)
    if fn is not looped:  # has no reverse derivative in JAX
        flags = matrix_operands_rounded(jax.grad(lambda w, x: jnp.sum(fn(w, x))), W, X)
        assert flags and all(flags)
    assert np.allclose(mxu_jit(fn)(W, X), fn(W, X), rtol=0.2, atol=0.2)
    assert not np.array_equal(mxu_jit(fn)(W, X), jax.jit(fn)(W, X))


def test_trees_and_other_types_pass_through() -> None:
    def fn(tree: dict[str, Any]) -> dict[str, Any]:
        indexed = tree["x"][jnp.arange(2), jnp.array([1, 2])]
        return {"ints": tree["i"] @ tree["i"], "half": tree["b"] @ tree["b"], "indexed": indexed}

    tree = {"i": np.eye(3, dtype=np.int32) * 300, "b": jnp.eye(3, dtype=jnp.bfloat16), "x": X}
    result = mxu_jit(fn)(tree)
    assert result["ints"][0, 0] == 90_000
    assert result["half"].dtype == jnp.bfloat16
    # The gradient of an index is a scatter, whose inner program adds two scalars.
    gradient = mxu_jit(jax.grad(lambda x: fn({**tree, "x": x})["indexed"].sum()))(X)
    assert float(gradient.sum()) == 2


def test_unknown_primitive_with_an_inner_program_is_refused_by_name() -> None:
    custom_vmap: Any = jax.custom_batching.custom_vmap
    product = custom_vmap(lambda x, w: x @ w)
    product.def_vmap(lambda size, batched, x, w: (x @ w, True))
    with pytest.raises(PodyardError, match="'custom_vmap_call'") as caught:
        mxu_jit(product)(X, W)
    assert caught.value.code is Code.UNIMPLEMENTED


def test_a_product_without_a_rule_is_refused() -> None:
    from jax.experimental import pallas

    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    call: Any = pallas.pallas_call
    doubled = call(kernel, out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype), interpret=True)
    with pytest.raises(PodyardError, match="'pallas_call'"):
        mxu_jit(doubled)(X)
    with pytest.raises(PodyardError, match="F32_F32_F32 does not exist on TPUs"):
        mxu_jit(lambda x, w: jnp.matmul(x, w, precision="F32_F32_F32"))(X, W)


@pytest.mark.slow
def test_solvers_multiply_rounded_operands_inside() -> None:
    from jax.scipy.sparse import linalg

    cg: Any = linalg.cg
    matrix = (np.eye(8) * 4 + 0.1 * (W + W.T)).astype(np.float32)

    def iterate(a: Any, b: Any) -> Any:
        return cg(lambda v: a @ v, b, tol=0, maxiter=3)[0]

    sides = X[:2].T
    for solve in (iterate, jnp.linalg.solve):
        flags = matrix_operands_rounded(solve, matrix, sides)
        assert flags
        exact = np.linalg.solve(matrix, sides)
        assert np.allclose(mxu_jit(solve)(matrix, sides), exact, atol=0.02)
    assert not np.array_equal(mxu_jit(iterate)(matrix, sides), jax.jit(iterate)(matrix, sides))
    gradient = jax.grad(lambda a, b: jnp.sum(iterate(a, b) ** 2))
    ours, plain = mxu_jit(gradient)(matrix, sides), jax.jit(gradient)(matrix, sides)
    assert np.allclose(ours, plain, atol=0.02) and not np.array_equal(ours, plain)


@pytest.mark.slow
def test_a_shard_map_computes_with_rounded_operands_and_its_axis() -> None:
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, columns = jax.sharding.PartitionSpec("x"), jax.sharding.PartitionSpec(None, "x")
    shard_map: Any = jax.shard_map
    mapped = shard_map(
        lambda x, w: jax.lax.psum(x @ w, "x"),
        mesh=mesh,
        in_specs=(columns, rows),
        out_specs=jax.sharding.PartitionSpec(),
    )
    assert np.array_equal(
        mxu_jit(mapped)(X, W), jax.jit(lambda x, w: rounded(x) @ rounded(w))(X, W)
    )
    gradient = jax.grad(lambda x, w: jnp.sum(jnp.sin(mapped(x, w))), argnums=(0, 1))
    assert matrix_operands_rounded(gradient, X, W) == [True] * 3
    assert np.array_equal(
        shard_map(
            mxu_numerics(lambda x, w: x @ w), mesh=mesh, in_specs=(rows, rows), out_specs=rows
        )(X, W),
        mxu_jit(lambda x, w: x @ w)(X, W),
    )


@pytest.mark.slow
def test_ragged_products_have_rounded_operands() -> None:
    sizes = np.array([2, 4], np.int32)
    experts = np.stack([W, 2 * W])

    def ragged(x: Any, w: Any) -> Any:
        return lax.ragged_dot(x, w, sizes)

    assert np.array_equal(
        mxu_jit(ragged)(X, experts),
        jax.jit(lambda x, w: ragged(rounded(x), rounded(w)))(X, experts),
    )
    assert not np.array_equal(mxu_jit(ragged)(X, experts), jax.jit(ragged)(X, experts))
    gradient = mxu_jit(jax.grad(lambda x, w: jnp.sum(ragged(x, w)), argnums=1))(X, experts)
    by_hand = rounded(X[:2]).sum(0)[:, None] + np.zeros((8, 8))
    assert np.allclose(gradient[0], by_hand, atol=1e-5)


def test_nested_control_flow_and_maps_are_reached() -> None:
    def fn(w: Any, x: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            return lax.switch(i % 2, [lambda v: v @ w, lambda v: jax.nn.softmax(v @ w)], carry)

        return lax.fori_loop(
            0, 3, body, lax.map(lambda rows: jax.nn.gelu(rows @ w), x.reshape(3, 2, 8))
        )

    flags = matrix_operands_rounded(fn, W, X)
    assert len(flags) == 3 and all(flags)
    flags = matrix_operands_rounded(jax.grad(lambda w: jnp.sum(fn(w, X))), W)
    assert len(flags) > 3 and all(flags)


@pytest.mark.parametrize("compile_with", [mxu_jit, mxu_numerics])
def test_a_gradient_from_outside_is_refused(compile_with: Callable[..., Any]) -> None:
    fn = compile_with(lambda w, x: jnp.sum(x @ w))
    for differentiate in (
        lambda: jax.grad(fn)(W, X),
        lambda: jax.jvp(fn, (W, X), (W, X)),
        lambda: jax.linearize(fn, W, X),
        lambda: jax.hessian(fn)(W, X),
        lambda: jax.jit(jax.grad(lambda w: jax.vmap(fn, (None, 0))(w, X).sum()))(W),
        lambda: jax.grad(lambda w: compile_with(lambda x: jnp.sum(x @ w))(X))(W),
    ):
        with pytest.raises(PodyardError, match=r"mxu_jit\(jax.grad\(loss\)\)") as caught:
            differentiate()
        assert caught.value.code is Code.FAILED_PRECONDITION


@pytest.mark.slow
def test_random_keys_and_whole_numbers_are_arguments_too() -> None:
    def noisy(x: Any, key: Any, seed: Any) -> Any:
        return x @ W + jax.random.uniform(jax.random.fold_in(key, seed), x.shape)

    key = jax.random.key(3)
    expected = jax.jit(
        lambda x: rounded(x) @ rounded(W) + jax.random.uniform(jax.random.fold_in(key, 5), x.shape)
    )(X)
    for seed in (5, np.int32(5), jnp.uint32(5)):
        assert np.array_equal(mxu_jit(noisy)(X, key, seed), expected)
        assert np.allclose(mxu_numerics(noisy)(X, key, seed), expected, atol=1e-5)


def test_what_a_gradient_does_not_pass_through_may_be_inside_of_it() -> None:
    fn = mxu_jit(lambda x: x @ W)
    slope = jax.grad(lambda x: jnp.sum(x) + jnp.sum(fn(lax.stop_gradient(x))) + jnp.sum(fn(X)))(X)
    assert np.array_equal(slope, np.ones_like(X))


@pytest.mark.slow
def test_arguments_of_jit_are_passed_on() -> None:
    def fn(x: Any, times: int, *, activation: str = "none", scale: Any = 1.0) -> Any:
        assert isinstance(times, int)
        for _ in range(times):
            x = scale * (x @ W)
        return jnp.tanh(x) if activation == "tanh" else x

    def by_hand(x: Any) -> Any:
        return jnp.tanh(rounded(2 * (rounded(x) @ rounded(W))) @ rounded(W) * 2)

    expected = jax.jit(by_hand)(X)
    by_name = mxu_jit(fn, static_argnames=("times", "activation"))
    for result in (
        by_name(X, times=2, activation="tanh", scale=np.float32(2)),
        by_name(X, 2, activation="tanh", scale=2.0),
        mxu_jit(fn, static_argnums=1, static_argnames="activation")(
            X, 2, activation="tanh", scale=jnp.float32(2)
        ),
    ):
        assert np.array_equal(result, expected)
    given = jnp.asarray(X)
    mxu_jit(lambda x: x @ W, donate_argnums=0)(given)
    assert given.is_deleted()


# Ties of the rounding, both zeros, subnormals, what rounds to infinity, infinities and NaN.
SPECIAL = np.array(
    [
        1 + 2**-8,
        1 + 3 * 2**-8,
        -0.0,
        0.0,
        1e-40,
        -3e-39,
        3.4e38,
        -3.3961776e38,
        np.inf,
        -np.inf,
        np.nan,
        1 / 3,
    ],
    np.float32,
)


@pytest.mark.parametrize(("m", "k", "n"), [(2, 1, 2), (7, 300, 5), (64, 96, 48), (128, 1600, 64)])
def test_reference_mode_has_the_bits_of_ml_dtypes_rounding_and_a_float32_dot(
    m: int, k: int, n: int
) -> None:
    x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    if m == 7:
        x[:, : SPECIAL.size] = SPECIAL
        x[1:, 6:11] = 0
    by_ml_dtypes = [value.astype(ml_dtypes.bfloat16).astype(np.float32) for value in (x, w)]
    expected = np.asarray(jax.jit(lambda a, b: a @ b)(*by_ml_dtypes))
    got = np.asarray(mxu_jit(lambda a, b: a @ b)(x, w))
    defined = ~np.isnan(expected)
    assert np.array_equal(got.view(np.uint32)[defined], expected.view(np.uint32)[defined])
    assert np.isnan(got[~defined]).all() and np.isnan(expected).sum() == (n if m == 7 else 0)


def test_rounding_is_that_of_ml_dtypes_for_special_values() -> None:
    ones = np.ones((1, 2), np.float32)
    got = np.asarray(mxu_jit(lambda x: lax.dot(x, ones))(SPECIAL[:, None]))[:, 0]
    expected = SPECIAL.astype(ml_dtypes.bfloat16).astype(np.float32)
    normal = ~(np.abs(expected) < 2.0**-126) | (expected == 0)
    assert (
        np.array_equal(got[normal], expected[normal], equal_nan=True)
        and normal.sum() == SPECIAL.size - 2
    )


@pytest.mark.slow
def test_a_product_with_one_row_has_the_digits_of_a_real_tpu() -> None:
    """jax-ml/jax#16349, on a v3-8: two rows at once are rounded to bfloat16, each row alone is not.
    The TPU's own approximation of `erfinv` in `normal` shows in the fifth digit of float32."""
    with jax.threefry_partitionable(False):
        _, first, second = jax.random.split(jax.random.PRNGKey(0), 3)
        x, k = jax.random.normal(first, (1, 2, 4)), jax.random.normal(second, (4, 2))
    together = np.asarray(mxu_jit(jnp.matmul)(x, k))
    apart = np.concatenate([mxu_jit(jnp.matmul)(x[:, row : row + 1], k) for row in (0, 1)], axis=1)
    np.testing.assert_allclose(together, [[[0.31184387, 5.3089447], [0.5985794, 3.6086464]]], 1e-6)
    np.testing.assert_allclose(apart, [[[0.31908777, 5.3246055], [0.60039854, 3.6162388]]], 5e-5)


@pytest.mark.parametrize(
    "operands",
    [(X, W[:, 0]), (X[0], W), (X[0], W[:, 0]), (X[:1], W), (X, W[:, :1])],
    ids=["column", "row", "inner", "one row", "one column"],
)
def test_products_with_a_vector_are_those_of_float32(operands: Any) -> None:
    assert np.array_equal(mxu_jit(jnp.matmul)(*operands), jax.jit(jnp.matmul)(*operands))


@pytest.mark.parametrize(
    ("preset", "precision"),
    [
        ("BF16_BF16_F32", "default"),
        ("BF16_BF16_F32_X3", "high"),
        ("BF16_BF16_F32_X6", "highest"),
    ],
)
def test_algorithms_of_bfloat16_are_the_precisions_of_as_many_passes(
    preset: str, precision: Any
) -> None:
    product = mxu_jit(lambda x, w: jnp.matmul(x, w, precision=preset))(X, W)
    assert np.array_equal(product, mxu_jit(jnp.matmul, precision)(X, W))


@pytest.mark.parametrize("precision", ["default", "high", "highest"])
def test_fast_mode_multiplies_the_same_numbers(precision: Any) -> None:
    x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in ((64, 96), (96, 48)))
    run = mxu_jit(lambda a, b: a @ b, precision, mode="fast")
    bound = np.abs(x) @ np.abs(w) * 96 * np.finfo(np.float32).eps
    error = np.abs(run(x, w) - mxu_jit(lambda a, b: a @ b, precision)(x, w))
    assert np.all(error <= bound)
    assert np.array_equal(run(x, w), mxu_jit(lambda a, b: a @ b, precision, mode="fast")(x, w))
    text = str(jax.make_jaxpr(run)(x, w))
    assert "bf16[64,96]" in text
    assert "bf16" not in str(jax.make_jaxpr(run)(x[:8], w))  # too few rows to win anything


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["high", "highest"])
@pytest.mark.parametrize("mode", ["reference", "fast"])
def test_infinities_stay_what_float32_makes_of_them(precision: Any, mode: Any) -> None:
    x = np.zeros((SPECIAL.size, 40), np.float32)
    x[:, 0] = SPECIAL
    w = np.zeros((40, 40), np.float32)
    w[0, :6] = [1, -2.5, 1 / 3, 0, np.inf, -np.inf]
    plain = np.asarray(jax.jit(lambda a, b: a @ b)(x, w))
    got = np.asarray(mxu_jit(lambda a, b: a @ b, precision, mode=mode)(x, w))
    assert np.array_equal(np.isnan(got), np.isnan(plain)) and np.isinf(plain).any()
    assert np.allclose(got, plain, rtol=1e-4, equal_nan=True)
    swapped = np.asarray(mxu_jit(lambda a, b: (b.T @ a.T).T, precision, mode=mode)(x, w))
    assert np.allclose(swapped, plain, rtol=1e-4, equal_nan=True)


def test_a_float32_operand_beside_bfloat16_is_rounded() -> None:
    def mixed(x: Any, w: Any) -> Any:
        return lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)

    half = W.astype(ml_dtypes.bfloat16)
    expected = mxu_jit(mixed)(X, half.astype(np.float32))
    assert np.array_equal(mxu_jit(mixed)(X, half), expected)
    assert not np.array_equal(jax.jit(mixed)(X, half), expected)


def test_unknown_settings_are_refused() -> None:
    for settings in ({"precision": "low"}, {"mode": "exact"}):
        with pytest.raises(PodyardError, match="precision is default, high or highest") as caught:
            mxu_jit(lambda x: x, **settings)  # type: ignore[arg-type]
        assert caught.value.code is Code.INVALID_ARGUMENT
