"""What a TPU rejects, as rules on traced programs and on kernels."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402

from podyard.base.kernel_cost import KernelCost  # noqa: E402
from podyard.hardware.generations import GENERATIONS  # noqa: E402
from podyard.programs.lowering import kernel_rules, tpu_rules  # noqa: E402

SQUARE = jax.ShapeDtypeStruct((4, 4), jnp.float32)
MIB = 2**20


def _rejection(function: Callable[..., Any], *types: Any) -> str:
    error = tpu_rules.rejection(jax.make_jaxpr(function)(*types))
    return "" if error is None else f"{type(error).__name__}: {error}"


def test_this_jax_has_the_names() -> None:
    assert tpu_rules.missing() == []


@pytest.mark.parametrize(
    ("function", "primitive"),
    [
        (jnp.linalg.eig, "eig"),
        (jax.scipy.linalg.schur, "schur"),
        (jax.lax.linalg.hessenberg, "hessenberg"),
        (lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jax.scipy.linalg.schur(y)[0], x), "schur"),
        (jax.checkpoint(lambda x: jax.scipy.linalg.schur(x)[0]), "schur"),
        (jax.vmap(lambda x: jnp.linalg.eig(jnp.outer(x, x))[0].real), "eig"),
    ],
)
def test_an_operation_without_a_rule_for_tpus_is_rejected_in_jaxs_words(
    function: Callable[..., Any], primitive: str
) -> None:
    text = f"MLIR translation rule for primitive '{primitive}' not found for platform tpu"
    assert _rejection(function, SQUARE) == f"NotImplementedError: {text}"


@pytest.mark.parametrize(
    "function",
    [
        jnp.linalg.qr,
        jnp.linalg.cholesky,
        jnp.linalg.eigh,
        jnp.linalg.svd,
        lambda x: jax.lax.top_k(x, 2),
        lambda x: jax.debug.print("{x}", x=x),
        lambda x: jax.pure_callback(lambda y: y, SQUARE, x),
        jnp.fft.fft,
    ],
)
def test_operations_that_tpus_have_are_taken(function: Callable[..., Any]) -> None:
    assert _rejection(function, SQUARE) == ""


def test_branches_for_other_platforms_are_not_looked_at() -> None:
    def choose(x: Any) -> Any:
        return jax.lax.platform_dependent(
            x, cpu=lambda y: jnp.linalg.eig(y)[0].real, tpu=lambda y: y[0]
        )

    assert _rejection(choose, SQUARE) == ""


def test_complex128_is_rejected_and_float64_is_not() -> None:
    with jax.enable_x64(True):
        wide = jax.ShapeDtypeStruct((3, 3), jnp.float64)
        assert _rejection(lambda x: x @ x + 1, wide) == ""
        text = "INVALID_ARGUMENT: Element type C128 is not supported on TPU."
        assert text in _rejection(lambda x: x @ x, jax.ShapeDtypeStruct((3, 3), jnp.complex128))
        assert text in _rejection(jnp.fft.fft, wide)
        rounded = _rejection(lambda x: jax.lax.reduce_precision(x, 8, 7), wide)
        assert "element types, XLA encountered an HLO for which" in rounded


@pytest.mark.parametrize(
    ("generation", "mib", "words"),
    [
        ("v3", 16.0, None),
        ("v3", 16.375, "Used 16.38M of 16.00M vmem. Exceeded vmem capacity by 384.0K."),
        ("v5e", 16.75, "size 16.75M and limit 16.00M exceeded scoped vmem limit by 768.0K"),
        ("v6e", 32.0, None),
        ("v6e", 32.375, "size 32.38M and limit 32.00M exceeded scoped vmem limit by 384.0K"),
    ],
)
def test_blocks_beyond_the_scoped_limit_are_rejected_as_libtpu_does(
    generation: str, mib: float, words: str | None
) -> None:
    cost = KernelCost("k", 0.0, 0.0, vmem_bytes=mib * MIB)
    error = kernel_rules.vmem_rejection(cost, GENERATIONS[generation])
    assert (error is None) is (words is None)
    assert words is None or words in str(error)


def test_the_authors_limit_wins() -> None:
    cost = KernelCost("k", 0.0, 0.0, vmem_bytes=20.0 * MIB, vmem_limit_bytes=64.0 * MIB)
    assert kernel_rules.vmem_rejection(cost, GENERATIONS["v5e"]) is None


def _params(rows: int, columns: int) -> tuple[Any, dict[str, Any], Any]:
    def double(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    shape = jax.ShapeDtypeStruct((32, 256), jnp.float32)
    block, grid = pl.BlockSpec((rows, columns), lambda i, j: (i, j)), (32 // rows, 256 // columns)
    call = pl.pallas_call(
        double,
        out_shape=shape,
        grid=grid,
        in_specs=[block],
        out_specs=block,
    )
    (equation,) = jax.make_jaxpr(call)(shape).eqns
    return equation.primitive, dict(equation.params), [value.aval for value in equation.invars]


def test_a_block_that_is_not_a_multiple_of_a_tile_is_rejected() -> None:
    importlib.import_module("jax._src.pallas.mosaic.pallas_call_registration")
    assert kernel_rules.lowering_rejection(*_params(8, 128)) is None
    error = kernel_rules.lowering_rejection(*_params(4, 64))
    assert "divisible by 8 and 128" in str(error)
