"""Reads a jaxpr into priced operations.

Fusion is taken to be perfect: only matrix operations, and whatever touches an input or a result of the program, move
bytes over HBM. That makes the bytes a lower bound, which is what a roofline wants.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from podyard.engine.program.ops import Op, total_flops

_MATRIX = frozenset({"dot_general", "conv_general_dilated"})
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
_CALLS |= {"remat": "jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr", "closed_call": "call_jaxpr"}


def ops_of(closed: ClosedJaxpr) -> list[Op]:
    """The operations of one device's program, in program order. A `while` counts as one turn of its body (its number
    of turns is not in the program); a `cond` as its most expensive branch."""
    external = {*closed.jaxpr.invars, *closed.jaxpr.constvars}
    return _walk(closed.jaxpr, external, set(_variables(closed.jaxpr.outvars)))


def _variables(atoms: Any) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _walk(jaxpr: Jaxpr, inputs: Set[Any], outputs: Set[Any]) -> list[Op]:
    ops: list[Op] = []
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in _CALLS and _CALLS[name] in eqn.params:
            ops += _inner(eqn.params[_CALLS[name]], eqn, inputs, outputs)
        elif name == "scan":
            ops += _inner(eqn.params["jaxpr"], eqn, inputs, outputs) * int(eqn.params["length"])
        elif name == "while":
            ops += _inner(eqn.params["body_jaxpr"], eqn, set(), set())
        elif name == "cond":
            ops += max((_inner(branch, eqn, set(), set()) for branch in eqn.params["branches"]), key=total_flops)
        else:
            ops.append(_op(eqn, inputs, outputs))
    return ops


def _inner(body: Any, eqn: JaxprEqn, inputs: Set[Any], outputs: Set[Any]) -> list[Op]:
    jaxpr: Jaxpr = body.jaxpr if isinstance(body, ClosedJaxpr) else body
    pairs = list(zip(jaxpr.invars, eqn.invars, strict=False))
    inner_inputs = {own for own, outer in pairs if not isinstance(outer, Literal) and outer in inputs}
    inner_outputs = {
        own
        for own, outer in zip(jaxpr.outvars, eqn.outvars, strict=False)
        if outer in outputs and not isinstance(own, Literal)
    }
    return _walk(jaxpr, inner_inputs, inner_outputs)


def _op(eqn: JaxprEqn, inputs: Set[Any], outputs: Set[Any]) -> Op:
    name = eqn.primitive.name
    if name in _MATRIX:
        moved = sum(_nbytes(atom) for atom in [*eqn.invars, *eqn.outvars])
        return Op(name, "matrix", _matrix_flops(eqn), moved)
    # A set: an operand that is used twice is read once.
    read = sum(_nbytes(atom) for atom in {*_variables(eqn.invars)} if atom in inputs)
    written = sum(_nbytes(atom) for atom in eqn.outvars if atom in outputs)
    return Op(name, "other", sum(_size(atom) for atom in eqn.outvars), read + written)


def _shape(atom: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = getattr(atom.aval, "shape", ())
    return shape


def _size(atom: Any) -> int:
    return math.prod(_shape(atom))


def _nbytes(atom: Any) -> int:
    # Extended types (random keys) have no size of a machine word; they are a few bytes.
    itemsize = getattr(getattr(atom.aval, "dtype", None), "itemsize", 0)
    return _size(atom) * int(itemsize)


def _matrix_flops(eqn: JaxprEqn) -> int:
    left, right = (_shape(atom) for atom in eqn.invars)
    result_size = _size(eqn.outvars[0])
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return int(2 * result_size * math.prod(left[axis] for axis in contracted))
    out_feature_axis: int = eqn.params["dimension_numbers"].rhs_spec[0]
    # Zeros that dilation puts between the inputs are no work.
    dilation: int = math.prod(eqn.params["lhs_dilation"] or ())
    return int(2 * result_size * math.prod(right) // right[out_feature_axis] // dilation)
