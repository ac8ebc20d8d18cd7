"""The fast path: any JAX function with the matrix unit's numerics.

`mxu_numerics` traces a function and evaluates its jaxpr again with every float32 dot and convolution computed from
operands that are rounded to bfloat16, added in float32. Apply it to the whole training step, gradient included: what
is differentiated afterwards would get a backward pass of plain float32.

Precision as XLA counts passes on this hardware: `default` 1 pass, `high` 3, `highest` 6.
An operation that asks for more by its own `precision` gets more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.extend.core import Literal as JaxprLiteral

from podyard.base.errors import Code, PodyardError

Precision = Literal["default", "high", "highest"]

# How many bfloat16 parts an operand is split into: the products of parts i and j with i + j < parts are computed.
_PARTS: dict[str, int] = {"default": 1, "high": 2, "highest": 3}
_LAX_PARTS = {lax.Precision.DEFAULT: 1, lax.Precision.HIGH: 2, lax.Precision.HIGHEST: 3}

_MATRIX_PRIMITIVES = frozenset({"dot_general", "conv_general_dilated"})

# Calls whose body simply stands for them; derivative rules do not matter, the gradient has been taken.
_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
# Control flow keeps its primitive and gets transformed bodies. Remat too: inlined, XLA would undo it.
_REBOUND = {
    "cond": ("branches",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "scan": ("jaxpr",),
    "remat": ("jaxpr",),
    "remat2": ("jaxpr",),
    "checkpoint": ("jaxpr",),
}
# Their inner jaxpr combines two scalars: no matrix operation fits into it.
_SCALAR_COMBINERS = frozenset(
    {"reduce", "reduce_window", "select_and_scatter", "scatter"}
    | {f"scatter-{op}" for op in ("add", "sub", "mul", "min", "max")}
    | {f"scatter_{op}" for op in ("add", "sub", "mul", "min", "max")}
)
# Matrix products that have no rule here: silence would leave them in float32.
_REFUSED = frozenset({"ragged_dot", "ragged_dot_general", "scaled_matmul", "conv_general_dilated_local"})


def mxu_numerics(fn: Callable[..., Any], precision: Precision = "default") -> Callable[..., Any]:
    """`fn` with the matrix unit's numerics. Positional arguments and results are trees of arrays.

    When called, raises PodyardError UNIMPLEMENTED naming a primitive that has an inner jaxpr and no rule.
    """
    parts = _PARTS[precision]

    def transformed(*args: Any) -> Any:
        closed, result_shape = jax.make_jaxpr(fn, return_shape=True)(*args)
        flat = jax.tree.leaves(args)
        results = _evaluate(closed, flat, parts)
        return jax.tree.unflatten(jax.tree.structure(result_shape), results)

    return transformed


def mxu_jit(fn: Callable[..., Any], precision: Precision = "default") -> Callable[..., Any]:
    """`mxu_numerics(fn)`, compiled."""
    return jax.jit(mxu_numerics(fn, precision))


def _evaluate(closed: ClosedJaxpr, args: Sequence[Any], parts: int) -> list[Any]:
    values: dict[Any, Any] = {}
    values.update(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(closed.jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, JaxprLiteral) else values[atom]

    for eqn in closed.jaxpr.eqns:
        results = _apply(eqn, [read(atom) for atom in eqn.invars], parts)
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in closed.jaxpr.outvars]


def _apply(eqn: JaxprEqn, operands: list[Any], parts: int) -> list[Any]:
    name = eqn.primitive.name
    params: dict[str, Any] = dict(eqn.params)
    if name in _MATRIX_PRIMITIVES:
        return [_matrix_product(eqn, operands, params, parts)]
    if name in _INLINED and _INLINED[name] in params:
        return _evaluate(_closed(params[_INLINED[name]]), operands, parts)
    if name in _REBOUND:
        for key in _REBOUND[name]:
            params[key] = _transform_bodies(params[key], parts)
    elif name in _REFUSED or (name not in _SCALAR_COMBINERS and _has_inner_jaxpr(params.values())):
        raise PodyardError(
            Code.UNIMPLEMENTED,
            f"the matrix unit's numerics have no rule for the JAX primitive '{name}': its inner program would silently "
            "run in plain float32",
        )
    primitive: Any = eqn.primitive
    results = primitive.bind(*operands, **params)
    return list(results) if primitive.multiple_results else [results]


def _closed(body: Any) -> ClosedJaxpr:
    return body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())


def _transform_bodies(body: Any, parts: int) -> Any:
    if isinstance(body, tuple):
        return tuple(_transform_bodies(one, parts) for one in body)
    closed = _closed(body)
    traced = jax.make_jaxpr(lambda *args: _evaluate(closed, args, parts))(*closed.in_avals)
    if isinstance(body, ClosedJaxpr):
        return traced
    if traced.consts:
        raise AssertionError("a transformed body closes over arrays that the original did not")
    return traced.jaxpr


def _has_inner_jaxpr(values: Any) -> bool:
    for value in values:
        if isinstance(value, Jaxpr | ClosedJaxpr):
            return True
        if isinstance(value, tuple | list) and _has_inner_jaxpr(value):
            return True
        if isinstance(value, dict) and _has_inner_jaxpr(value.values()):
            return True
    return False


def _matrix_product(eqn: JaxprEqn, operands: list[Any], params: dict[str, Any], parts: int) -> Any:
    """One pass per product of bfloat16 parts, the smallest products first. Other types than float32 stay untouched:
    bfloat16 operands already are what the unit multiplies, integers and float64 it does not know."""
    primitive: Any = eqn.primitive
    if any(operand.dtype != jnp.float32 for operand in operands):
        return primitive.bind(*operands, **params)
    parts = max(parts, _own_parts(eqn.primitive.name, params.get("precision")))
    # The passes below are exact products: XLA must not split them again.
    params |= {"precision": None, "preferred_element_type": params.get("preferred_element_type") or jnp.float32}
    left, right = (_split(operand, parts) for operand in operands)
    pairs = [(i, j) for i in range(parts) for j in range(parts) if i + j < parts]
    pairs.sort(key=sum, reverse=True)
    products = [primitive.bind(left[i], right[j], **params) for i, j in pairs]
    result = products[0]
    for product in products[1:]:
        result = result + product
    return result


def _own_parts(name: str, precision: Any) -> int:
    """The parts that an operation asks for itself."""
    if precision is None:
        return 1
    asked = precision if isinstance(precision, tuple) else (precision,)
    if not all(isinstance(one, lax.Precision) for one in asked):
        raise PodyardError(
            Code.UNIMPLEMENTED,
            f"the matrix unit's numerics know the precisions default, high and highest, not {precision} of '{name}'",
        )
    return max(_LAX_PARTS[one] for one in asked)


def _split(operand: Any, parts: int) -> list[Any]:
    """bfloat16 numbers (held in float32) that add up to `operand`, the largest first."""
    result = []
    for _ in range(parts):
        part = lax.reduce_precision(operand, exponent_bits=8, mantissa_bits=7)
        result.append(part)
        operand = operand - part
    return result


__all__ = ["Precision", "mxu_jit", "mxu_numerics"]
