"""Primitives that are more than one operation: JAX itself lowers them, and what it makes of them is
read."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import REMATTED, Body, HloOperation, Program, mark_rematted

_kept: dict[object, Program | None] = {}
# Programs of single primitives that are remembered: a model has some dozens.
_KEPT_MAX = 1024


def lower_equation(eqn: JaxprEqn) -> Program | None:
    """The program of one equation, with a parameter for each of its operands; None where JAX has no
    lowering of it for TPUs. Raises PodyardError UNIMPLEMENTED for element types that TPUs do not
    have."""
    avals = tuple(atom.aval for atom in eqn.invars)
    key = (eqn.primitive, str(avals), str(sorted(eqn.params.items(), key=lambda item: item[0])))
    if key not in _kept:
        if len(_kept) >= _KEPT_MAX:
            _kept.clear()
        _kept[key] = _lower(eqn, avals)
    return _kept[key]


def behind_barrier(eqn: JaxprEqn) -> tuple[bool, ...]:
    """Return which operands of a call JAX hides behind an optimization barrier: those of a
    checkpoint on the way back, so that nothing is shared with the way there. Empty for other
    calls."""
    hidden = eqn.params.get("prevent_cse", False)
    if not eqn.params.get("differentiated", False) or not hidden:
        return ()
    return tuple(hidden) if isinstance(hidden, tuple) else (True,) * len(eqn.invars)


def _lower(eqn: JaxprEqn, avals: tuple[Any, ...]) -> Program | None:
    primitive: Any = eqn.primitive

    def function(*operands: Any) -> Any:
        return primitive.bind(*operands, **primitive.get_bind_params(eqn.params))

    try:
        text = _text(function, avals)
    # whatever a primitive raises that TPUs do not have, or that has to be inside of something
    except Exception:
        return None
    return parse_stablehlo(text)


def whole_program(closed: ClosedJaxpr) -> Program:
    return parse_stablehlo(_text(jaxpr_as_fun(closed), closed.in_avals))


def mark_remat(eqn: JaxprEqn, operations: Sequence[HloOperation], start: int) -> None:
    """Marks the operations from `start` on, if they are of an equation that JAX computes again in
    the backward pass."""
    if REMATTED in str(eqn.source_info.name_stack):
        mark_rematted(operations[start:])


def call_sites(jaxpr: Jaxpr) -> Counter[int]:
    """Return how many equations call the same function, by its identity: JAX lowers those to calls
    of one function."""
    sites, stack, seen = Counter[int](), [jaxpr], {id(jaxpr)}
    while stack:
        for eqn in stack.pop().eqns:
            for inner in _functions_in(tuple(eqn.params.values())):
                sites[id(inner)] += eqn.primitive.name == "jit"
                if id(inner) not in seen:
                    seen.add(id(inner))
                    stack.append(inner)
    return sites


def _functions_in(parameter: object) -> Iterator[Jaxpr]:
    """The functions that a parameter of an equation holds."""
    if isinstance(parameter, ClosedJaxpr):
        yield parameter.jaxpr
    elif isinstance(parameter, Jaxpr):
        yield parameter
    elif isinstance(parameter, tuple | list):
        for one in parameter:
            yield from _functions_in(one)


def _text(function: Callable[..., Any], avals: Sequence[Any]) -> str:
    shape_of: Any = jax.ShapeDtypeStruct
    shapes = [shape_of(aval.shape, aval.dtype) for aval in avals]
    return str(
        jax.jit(function, keep_unused=True)
        .trace(*shapes)
        .lower(lowering_platforms=("tpu",))
        .as_text()
    )


def renumber(program: Program, operands: list[int], offset: int, where: str) -> Body:
    """The body of `program` with `operands` for its parameters and all other values raised by
    `offset`."""
    given = dict(zip(program.body.parameters, operands, strict=True))
    return _renumber(program.body, functools.partial(_number, given, offset), where)


def _number(given: dict[int, int], offset: int, value: int) -> int:
    return given.get(value, value + offset)


def _renumber(body: Body, number: functools.partial[int], where: str) -> Body:
    def operation(one: HloOperation) -> HloOperation:
        inner = tuple(_renumber(own, number, where) for own in one.bodies)
        operands, results = tuple(map(number, one.operands)), tuple(map(number, one.results))
        return dataclasses.replace(
            one, operands=operands, results=results, bodies=inner, where=where, call=0
        )

    parameters, results = list(map(number, body.parameters)), list(map(number, body.results))
    return Body(parameters, list(map(operation, body.operations)), results)
