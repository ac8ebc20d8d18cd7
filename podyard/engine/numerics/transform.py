"""The fast path: any JAX function with the matrix unit's numerics.

`mxu_numerics` traces a function and evaluates its jaxpr again with every float32 dot and
convolution computed from operands that are rounded to bfloat16, added in float32. Apply it to the
whole training step, gradient included: `mxu_jit(jax.grad(loss))`. Differentiating the result,
`jax.grad(mxu_jit(loss))`, is refused: it would get a backward pass of plain float32.

Precision as XLA counts passes on this hardware: `default` 1 pass, `high` 3, `highest` 6.
An operation that asks for more by its own `precision` gets more.

Mode: in `reference` the rounded operands stay float32 numbers, and a dot has the bits of the same
float32 dot of operands rounded by ml_dtypes. In `fast` a dot gets bfloat16 operands, which XLA may
give to other instructions: the products are the same, the order of additions is not.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.core import dimension_as_value
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.extend.core import Literal as JaxprLiteral

from podyard.base.errors import Code, PodyardError, failed_precondition, invalid
from podyard.engine.numerics.rewrites import convolve, rewrite
from podyard.engine.program.attributes import jax_precision

Precision = Literal["default", "high", "highest"]
Mode = Literal["reference", "fast"]

# How many bfloat16 parts an operand is split into: the products of parts i and j with i + j < parts
# are computed.
_PARTS: dict[str, int] = {"default": 1, "high": 2, "highest": 3}
_LAX_PARTS = {lax.Precision.DEFAULT: 1, lax.Precision.HIGH: 2, lax.Precision.HIGHEST: 3}

# The first two operands are multiplied; what follows says which rows belong together (ragged_dot).
_MATRIX_PRIMITIVES = frozenset(
    {"dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"}
)

# Calls whose body simply stands for them; derivative rules do not matter, the gradient has been
# taken.
_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
# Control flow keeps its primitive and gets transformed bodies. Remat too: inlined, XLA would undo
# it.
_REBOUND = {
    "cond": ("branches",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "scan": ("jaxpr",),
    "remat": ("jaxpr",),
    "remat2": ("jaxpr",),
    "checkpoint": ("jaxpr",),
    "custom_linear_solve": ("jaxprs",),
}
# Their inner jaxpr combines two scalars: no matrix operation fits into it.
_SCALAR_COMBINERS = frozenset(
    {"reduce", "reduce_window", "select_and_scatter", "scatter"}
    | {f"scatter-{op}" for op in ("add", "sub", "mul", "min", "max")}
    | {f"scatter_{op}" for op in ("add", "sub", "mul", "min", "max")}
)
# Matrix products that have no rule here: silence would leave them in float32.
_REFUSED = frozenset({"pallas_call", "scaled_matmul", "conv_general_dilated_local"})

_BFLOAT16_SIZE_MIN = 32
_FLOAT32, _BFLOAT16 = jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16)
_BFLOAT16_MAX = np.float32(float.fromhex("0x1.fep127"))


@dataclasses.dataclass(frozen=True)
class _Rules:
    """The options of the interpreter."""

    parts: int
    fast: bool
    rewrites: bool


def mxu_numerics(
    fn: Callable[..., Any],
    precision: Precision = "default",
    *,
    mode: Mode = "reference",
    rewrites: bool = True,
) -> Callable[..., Any]:
    """`fn` with the matrix unit's numerics. Arguments and results are trees of arrays; what is not
    an array in an argument reaches `fn` as it is.

    `rewrites`: replace operations that are slow on CPUs by faster ones (`numerics/rewrites.py`).
    Raises PodyardError INVALID_ARGUMENT for another precision or mode; when called, UNIMPLEMENTED,
    naming a primitive that has an inner jaxpr and no rule; when differentiated,
    FAILED_PRECONDITION.
    """
    if precision not in _PARTS or mode not in ("reference", "fast"):
        raise invalid(
            f"precision is default, high or highest, mode reference or fast, not {precision!r} "
            f"and {mode!r}"
        )
    rules = _Rules(_PARTS[precision], mode == "fast", rewrites)

    @functools.wraps(fn)
    def transform_call(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        places = [
            place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)
        ]

        def of_arrays(*arrays: Any) -> Any:
            traced = list(leaves)
            for place, array in zip(places, arrays, strict=True):
                traced[place] = array
            own_args, own_kwargs = jax.tree.unflatten(tree, traced)
            return fn(*own_args, **own_kwargs)

        arrays = [leaves[place] for place in places]
        closed, result_shape = jax.make_jaxpr(of_arrays, return_shape=True)(*arrays)
        # What `fn` closes over may be traced by an outer gradient: it has to pass the guard too.
        results = _no_gradient(closed.jaxpr, rules)(*closed.consts, *arrays)
        return jax.tree.unflatten(jax.tree.structure(result_shape), results)

    return transform_call


def mxu_jit(
    fn: Callable[..., Any],
    precision: Precision = "default",
    *,
    mode: Mode = "reference",
    rewrites: bool = True,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
) -> Callable[..., Any]:
    """`mxu_numerics(fn)`, compiled. The last three arguments are those of `jax.jit`."""
    return jax.jit(
        mxu_numerics(fn, precision, mode=mode, rewrites=rewrites),
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
    )


def _no_gradient(jaxpr: Jaxpr, rules: _Rules) -> Callable[..., list[Any]]:
    """f(constants and arguments of `jaxpr`) -> its results. Every way to differentiate begins with
    the forward derivative of what is called, which is an error here."""

    @jax.custom_jvp
    def run(*values: Any) -> list[Any]:
        return _evaluate(jaxpr, values, rules)

    @run.defjvp
    def refuse(_primals: Any, _tangents: Any) -> Any:
        raise failed_precondition(
            "A function with the matrix unit's numerics cannot be differentiated: the gradient "
            "would be computed in "
            "plain float32. Take the gradient inside, mxu_jit(jax.grad(loss)) instead of "
            "jax.grad(mxu_jit(loss))"
        )

    return run


def _evaluate(jaxpr: Jaxpr, inputs: Sequence[Any], rules: _Rules) -> list[Any]:
    """`inputs`: the jaxpr's constants, then its arguments."""
    values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], inputs, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, JaxprLiteral) else values[atom]

    for eqn in jaxpr.eqns:
        with eqn.ctx.manager:
            results = _apply(eqn, [read(atom) for atom in eqn.invars], rules)
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(eqn: JaxprEqn, operands: list[Any], rules: _Rules) -> list[Any]:
    name = eqn.primitive.name
    params: dict[str, Any] = dict(eqn.params)
    if name in _MATRIX_PRIMITIVES:
        return [_matrix_product(eqn, operands, params, rules)]
    if name in _INLINED and _INLINED[name] in params:
        return _evaluate_body(params[_INLINED[name]], operands, rules)
    if name == "shard_map" and "in_specs" in params:
        return _shard_map(operands, params, rules)
    if rules.rewrites and (rewritten := rewrite(name, operands, params)) is not None:
        return [rewritten]
    if name in _REBOUND:
        for key in _REBOUND[name]:
            params[key] = _transform_bodies(params[key], rules)
    elif name in _REFUSED or (name not in _SCALAR_COMBINERS and _has_inner_jaxpr(params.values())):
        raise PodyardError(
            Code.UNIMPLEMENTED,
            f"the matrix unit's numerics have no rule for the JAX primitive '{name}': its inner "
            "program would silently "
            "run in plain float32",
        )
    primitive: Any = eqn.primitive
    results = primitive.bind(*operands, **params)
    return list(results) if primitive.multiple_results else [results]


def _evaluate_body(body: Jaxpr | ClosedJaxpr, operands: Sequence[Any], rules: _Rules) -> list[Any]:
    if isinstance(body, ClosedJaxpr):
        return _evaluate(body.jaxpr, [*body.consts, *operands], rules)
    return _evaluate(body, operands, rules)


def _transform_bodies(body: Any, rules: _Rules) -> Any:
    if body is None:
        return None
    if isinstance(body, tuple):
        bodies = [_transform_bodies(one, rules) for one in body]
        return type(body)(*bodies) if hasattr(body, "_fields") else tuple(bodies)
    avals = body.in_avals if isinstance(body, ClosedJaxpr) else [var.aval for var in body.invars]
    traced = jax.make_jaxpr(lambda *args: _evaluate_body(body, args, rules))(*avals)
    if isinstance(body, ClosedJaxpr):
        return traced
    if traced.consts:
        raise AssertionError("a transformed body closes over arrays that the original did not")
    return traced.jaxpr


def _shard_map(operands: list[Any], params: dict[str, Any], rules: _Rules) -> list[Any]:
    """Mapped again: only inside of it do the body's axes have names."""
    shard_map: Any = jax.shard_map
    mapped = shard_map(
        lambda *shards: tuple(_evaluate_body(params["jaxpr"], shards, rules)),
        mesh=params["mesh"],
        in_specs=tuple(params["in_specs"]),
        out_specs=tuple(params["out_specs"]),
        axis_names=set(params["newly_manual_axes"]),
        check_vma=params["check_vma"],
    )
    return list(mapped(*operands))


def _has_inner_jaxpr(values: Any) -> bool:
    for value in values:
        if isinstance(value, Jaxpr | ClosedJaxpr):
            return True
        if isinstance(value, tuple | list) and _has_inner_jaxpr(value):
            return True
        if isinstance(value, dict) and _has_inner_jaxpr(value.values()):
            return True
    return False


def _matrix_product(
    eqn: JaxprEqn, operands: list[Any], params: dict[str, Any], rules: _Rules
) -> Any:
    """One pass per product of bfloat16 parts, the smallest products first. Bfloat16 operands
    already are what the
    unit multiplies; integers, other floats and complex numbers it does not know: they stay
    untouched."""
    primitive: Any = eqn.primitive
    left, right, *_ = operands
    types = {left.dtype, right.dtype}
    if _FLOAT32 not in types or not types <= {_FLOAT32, _BFLOAT16}:
        return primitive.bind(*operands, **params)
    precision = params.get("precision")
    rounded = functools.partial(_rounded_product, eqn, operands, params, rules)
    if _is_algorithm(precision) or primitive.name != "dot_general":
        return rounded()
    # XLA makes products and a sum of a dot with one row or column, which the vector unit computes
    # in float32 (jax-ml/jax#16349).
    sides = _rows_and_columns(left, right, params)
    if any(isinstance(side, int) and side == 1 for side in sides):
        return primitive.bind(*operands, **params)
    unknown = [side for side in sides if not isinstance(side, int)]
    if not unknown:
        return rounded()
    # A program for batches of any size (an export) learns how many rows there are when it runs.
    is_vector = functools.reduce(
        jnp.logical_or, [jnp.equal(dimension_as_value(side), 1) for side in unknown]
    )
    return lax.cond(is_vector, lambda: primitive.bind(*operands, **params), rounded)


def _rows_and_columns(left: Any, right: Any, params: dict[str, Any]) -> list[Any]:
    """Return the rows and the columns of a dot's result; symbols where a batch has any size."""
    (left_axes, right_axes), (left_batch, right_batch) = params["dimension_numbers"]

    def rest(shape: Sequence[Any], without: Sequence[int]) -> Any:
        return math.prod(size for axis, size in enumerate(shape) if axis not in without)

    return [
        rest(left.shape, (*left_axes, *left_batch)),
        rest(right.shape, (*right_axes, *right_batch)),
    ]


def _rounded_product(
    eqn: JaxprEqn, operands: list[Any], params: dict[str, Any], rules: _Rules
) -> Any:
    """Return the product of operands that are rounded to bfloat16 parts."""
    primitive: Any = eqn.primitive
    out_aval: Any = eqn.outvars[0].aval
    left, right, *rest = operands
    own_parts = _own_parts(params)
    parts = own_parts if _is_algorithm(params.get("precision")) else max(rules.parts, own_parts)
    # Each pass below multiplies bfloat16 numbers: XLA must not split them again.
    params = params | {"precision": None, "preferred_element_type": out_aval.dtype}
    held_as = (
        _BFLOAT16
        if rules.fast and _gains_by_bfloat16(primitive.name, left, right, params)
        else _FLOAT32
    )
    left_parts, right_parts = (_split(operand.astype(_FLOAT32), parts) for operand in (left, right))

    def multiply(one: Any, other: Any) -> Any:
        if rules.rewrites and primitive.name == "conv_general_dilated":
            return convolve(one, other, params, rules.fast)
        return primitive.bind(one.astype(held_as), other.astype(held_as), *rest, **params)

    pairs = [(i, j) for i in range(parts) for j in range(parts) if 0 < i + j < parts]
    pairs.sort(key=sum, reverse=True)
    products = [multiply(left_parts.finite[i], right_parts.finite[j]) for i, j in pairs]
    products.append(multiply(left_parts.leading, right_parts.leading))
    return functools.reduce(jnp.add, products)


def _gains_by_bfloat16(name: str, left: Any, right: Any, params: dict[str, Any]) -> bool:
    """Measured on XLA:CPU with avx512_bf16, relative to plain float32. Large dots: 0.55 - 0.75 of
    the time with
    bfloat16 operands, 1.0 - 1.4 with rounded float32 ones; with a side of about 32 equal within the
    noise; with a smaller side up to 2.8 with bfloat16 operands. Convolutions: 1.00 - 1.05 either
    way."""
    if name != "dot_general":
        return False
    (contracted, _), (batched, _) = params["dimension_numbers"]
    depth = math.prod(left.shape[axis] for axis in contracted)
    shared = depth * math.prod(left.shape[axis] for axis in batched)
    return bool(
        shared > 0 and min(depth, left.size // shared, right.size // shared) >= _BFLOAT16_SIZE_MIN
    )


def _is_algorithm(precision: Any) -> bool:
    """Return whether a product names a dot algorithm, which is then computed as it says."""
    presets = (lax.DotAlgorithm, lax.DotAlgorithmPreset)
    return isinstance(precision, presets) and precision != lax.DotAlgorithmPreset.DEFAULT


def _own_parts(params: dict[str, Any]) -> int:
    """Return the parts that an operation asks for itself."""
    precision = params.get("precision")
    if precision is None or precision == lax.DotAlgorithmPreset.DEFAULT:
        return 1
    if _is_algorithm(precision):
        return _PARTS[jax_precision(params).lower()]
    asked = precision if isinstance(precision, tuple) else (precision,)
    return max(_LAX_PARTS[one] for one in asked)


@dataclasses.dataclass(frozen=True)
class _TransformParts:
    """An operand as bfloat16 numbers. `finite` add up to it where it is finite and are 0 elsewhere;
    `leading` is finite[0] there and the operand itself elsewhere."""

    leading: Any
    finite: list[Any]


def _split(operand: Any, parts: int) -> _TransformParts:
    """Infinities and NaN only take part in the product of the leading parts: infinity times a part
    that is 0 would be NaN, and so would be infinity less its rounded self."""
    if parts == 1:
        return _TransformParts(_round(operand), [])
    is_finite = lax.is_finite(operand)
    rest = lax.select(is_finite, operand, lax.full_like(operand, 0))
    result = []
    for _ in range(parts):
        # Above the largest bfloat16 number rounding would give infinity, and a remainder of minus
        # infinity.
        part = _round(lax.clamp(-_BFLOAT16_MAX, rest, _BFLOAT16_MAX))
        result.append(part)
        rest = rest - part
    return _TransformParts(lax.select(is_finite, result[0], operand), result)


def _round(operand: Any) -> Any:
    return lax.reduce_precision(operand, exponent_bits=8, mantissa_bits=7)
