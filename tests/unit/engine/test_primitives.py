"""Every primitive that the pinned JAX has is read, or has a reason why no program for TPUs has
it."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any

import jax
import jax.numpy as jnp
import jax.random
import jax.scipy.special
import pytest
from jax._src import core
from jax._src import lax as lax_modules
from jax._src.interpreters import mlir

from podyard import engine
from podyard.engine.program import from_jaxpr
from podyard.engine.program.from_jaxpr import program_of_jaxpr
from podyard.engine.program.ir import walk

Shape = jax.ShapeDtypeStruct
_NVIDIA, _ELSEWHERE = "for GPUs", "for CPUs and GPUs: JAX itself refuses it for TPUs"
_BOXES = "a mutable box of Python's, gone when a program is traced"
_NEVER = {
    "box_get": _BOXES, "box_set": _BOXES, "new_box": _BOXES, "new_log": _BOXES,
    "log_extend": _BOXES,
    "log_read": _BOXES,
    "call_hi_primitive": "replaced by ordinary primitives before lowering",
    "call_hi_primitive_linearized": "replaced by ordinary primitives before lowering",
    "custom_jvp_call_jaxpr": "of older versions: nothing makes it",
    "zeros_like": "of differentiation: made into a broadcast",
    "cudnn_fusion": _NVIDIA, "scaled_matmul": _NVIDIA, "dot_product_attention_bwd": _NVIDIA,
    "dot_product_attention_fwd": _NVIDIA, "dot_product_attention_fp8_bwd": _NVIDIA,
    "dot_product_attention_fp8_fwd": _NVIDIA,
    "eig": _ELSEWHERE, "geqp3": _ELSEWHERE, "hessenberg": _ELSEWHERE, "schur": _ELSEWHERE,
    "tridiagonal": _ELSEWHERE,
}  # fmt: skip


def primitives() -> dict[str, Any]:
    for module in pkgutil.walk_packages(lax_modules.__path__, f"{lax_modules.__name__}."):
        importlib.import_module(module.name)
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        # inside of kernels
        if name.startswith(("jax._src", "jax.lax")) and not name.startswith("jax._src.pallas"):
            found |= {
                one.name: one for one in vars(module).values() if isinstance(one, core.Primitive)
            }
    return found


def is_read(name: str, primitive: Any) -> bool:
    """By a rule of ours, or by what JAX lowers it to."""
    direct = (
        from_jaxpr._ONE_OPERATION,
        from_jaxpr._RULES,
        from_jaxpr._CALLS,
        from_jaxpr._KEY_VIEWS,
    )
    if any(name in names for names in (*direct, from_jaxpr._REFERENCES)) or name.startswith(
        "select_and_scatter"
    ):
        return True
    return primitive in mlir._lowerings or primitive in mlir._platform_specific_lowerings.get(
        "tpu", {}
    )


def test_every_primitive_of_jax_is_read_or_cannot_come() -> None:
    known = primitives()
    assert len(known) > 250
    assert {name for name, primitive in known.items() if not is_read(name, primitive)} == set(
        _NEVER
    )


def test_there_is_no_rule_for_a_primitive_that_jax_does_not_have() -> None:
    rules = {
        *from_jaxpr._ONE_OPERATION,
        *from_jaxpr._RULES,
        *from_jaxpr._CALLS,
        *from_jaxpr._REFERENCES,
    }
    made_up = {name for name in rules if name.endswith(("_start", "_done"))}
    assert rules - made_up <= primitives().keys()


X = Shape((64, 96), jnp.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.split(x, 4, axis=1),
        lambda x: jnp.stack([x, x + 1]),
        lambda x: jnp.unstack(x[:3]),
        lambda x: jnp.tile(x, (2, 1)),
        jnp.arctan,
        jnp.sinh,
        jax.scipy.special.gammaln,
        jax.scipy.special.digamma,
        jax.scipy.special.i0e,
        lambda x: jax.scipy.special.betainc(x, x, 0.5),
        lambda x: jax.lax.cumlogsumexp(x, axis=1),
        lambda x: jax.random.gamma(jax.random.key(0), 2.0, x.shape) * x,
        lambda x: jax.lax.approx_max_k(x, 4),
        lambda x: jnp.linalg.cholesky(x @ x.T) @ x,
    ],
)
def test_what_is_more_than_one_operation_is_what_jax_makes_of_it(function: Any) -> None:
    program = program_of_jaxpr(jax.make_jaxpr(function)(X))
    assert {"split", "stack", "unstack", "tile"}.isdisjoint(
        one.opcode for one in walk(program.body)
    )
    assert engine.analyze(function, X).unknown_ops == ()


def test_a_program_with_references_is_read_as_jax_lowers_it() -> None:
    def function(x: Any) -> Any:
        place = jax.new_ref(jnp.zeros((64, 64)))
        place[...] += x @ x.T
        return place[...] * 2

    estimate = engine.analyze(function, X)
    assert estimate.unknown_ops == ()
    assert estimate.flops >= 2 * 64 * 64 * 96
