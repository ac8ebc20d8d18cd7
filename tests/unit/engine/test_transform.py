from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
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
    """For every dot and convolution of the transformed program, nested ones included: are both operands fresh from a
    reduce_precision to bfloat16?"""
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
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

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
    from jax.scipy.sparse import linalg

    cg: Any = linalg.cg
    with pytest.raises(PodyardError, match="'custom_linear_solve'") as caught:
        mxu_jit(lambda a, b: cg(lambda v: a @ v, b)[0])(np.eye(4, dtype=np.float32), np.ones(4, np.float32))
    assert caught.value.code is Code.UNIMPLEMENTED


def test_a_product_without_a_rule_is_refused() -> None:
    with pytest.raises(PodyardError, match="ragged_dot"):
        mxu_jit(lambda x, w: lax.ragged_dot(x, w, jnp.array([6], jnp.int32)))(X, W[None])
    with pytest.raises(PodyardError, match="precisions default, high and highest"):
        mxu_jit(lambda x, w: jnp.matmul(x, w, precision="F32_F32_F32"))(X, W)
