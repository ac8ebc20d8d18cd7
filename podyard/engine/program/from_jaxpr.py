"""Reads a jaxpr into a `Program`: the same operations that JAX would lower it to, without lowering
it.

Primitives whose lowering is another program (random bits, cumulative sums) become one operation
that costs the same.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.interpreters.partial_eval import dce_jaxpr
from jax._src.lax.control_flow.loops import _scan_impl
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from podyard.base.errors import Code, PodyardError
from podyard.engine.program import lowered
from podyard.engine.program.attributes import jax_precision
from podyard.engine.program.branches import chosen_branches
from podyard.engine.program.doubts import Doubt
from podyard.engine.program.ir import (
    DTYPE_BYTES,
    Body,
    HloOperation,
    Program,
    TensorType,
    mark_call,
    values_read,
)
from podyard.engine.program.placements import Placements, place_of
from podyard.engine.program.shardings import PLACED, Sharding

_DTYPES = {
    "bool": "pred",
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "complex64": "c64",
}
_DTYPES |= {
    f"{name}int{bits}": f"{name or 's'}{bits}" for name in ("", "u") for bits in (4, 8, 16, 32, 64)
}
_DTYPES |= {f"float8_{form}": f"f8{form}" for form in ("e4m3fn", "e5m2", "e4m3b11fnuz")}
# A random key is a vector of words; JAX hides that behind a separate type, whose name says how it
# is made.
_KEY_WORDS = {"key<fry>": 2, "key<rbg>": 4, "key<urbg>": 4}

_CALLS = {
    "jit": "jaxpr", "eval_jaxpr": "jaxpr", "closed_call": "call_jaxpr", "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "custom_lin": "call_jaxpr",
    "shard_map": "jaxpr",
}  # fmt: skip
_SCAN_PARAMS = frozenset({"reverse", "length", "num_consts", "num_carry", "jaxpr", "unroll"})
_PLACING = frozenset({"sharding_constraint", "reshard"})
# The same arithmetic under StableHLO's name.
_RENAMED = {
    "add": "add", "add_any": "add", "sub": "subtract", "mul": "multiply", "div": "divide",
    "rem": "remainder",
    "neg": "negate", "max": "maximum", "min": "minimum", "exp": "exponential",
    "expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one", "tanh": "tanh",
    "sin": "sine", "cos": "cosine", "tan": "tan", "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt",
    "abs": "abs",
    "sign": "sign", "floor": "floor", "ceil": "ceil", "round": "round_nearest_even",
    "is_finite": "is_finite",
    "erf": "erf", "erf_inv": "erf_inv", "erfc": "erf", "square": "multiply", "atan2": "atan2",
    "and": "and", "or": "or", "xor": "xor", "not": "not", "shift_left": "shift_left",
    "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "select_n": "select", "clamp": "clamp", "convert_element_type": "convert",
    "bitcast_convert_type": "bitcast_convert",
    "squeeze": "reshape", "rev": "reverse", "copy": "get_tuple_element", "real": "real",
    "imag": "imag",
    "population_count": "popcnt", "nextafter": "next_after", "reduce_precision": "reduce_precision",
    "dynamic_slice": "dynamic_slice", "dynamic_update_slice": "dynamic_update_slice",
    "concatenate": "concatenate",
    "empty2": "constant", "axis_index": "partition_id",
    "sort": "sort", "top_k": "top_k", "cholesky": "cholesky",
    "triangular_solve": "triangular_solve", "fft": "fft",
    "clz": "count_leading_zeros", "optimization_barrier": "optimization_barrier",
    **dict.fromkeys(("sharding_constraint", "reshard", "pvary", "preduced"),
        "optimization_barrier"),
    **dict.fromkeys(("reduced_vary_cast_p", "vary_unreduced_cast_p"), "optimization_barrier"),
}  # fmt: skip
# Element-wise operations of several operands.
_SPREADING = frozenset({
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power", "atan2",
    "and", "or", "xor",
    "shift_left", "shift_right_logical", "shift_right_arithmetic", "select", "clamp", "compare",
    "next_after",
})  # fmt: skip
_COMPARISONS = {
    "eq": "EQ",
    "ne": "NE",
    "lt": "LT",
    "le": "LE",
    "gt": "GT",
    "ge": "GE",
    "lt_to": "LT",
    "le_to": "LE",
}
_REDUCTIONS = frozenset({
    "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or",
    "reduce_xor", "reduce",
})  # fmt: skip
_WINDOWS = frozenset(
    {"reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min"}
)
_KEY_VIEWS = frozenset({"random_wrap", "random_unwrap", "random_clone"})
# Collectives of JAX by StableHLO's names; one that is started and waited for apart is the start.
_EXCHANGES = {
    "psum": "all_reduce", "psum_invariant": "all_reduce", "pmax": "all_reduce",
    "pmin": "all_reduce",
    "unreduced_psum": "all_reduce", "all_gather": "all_gather",
    "all_gather_invariant": "all_gather",
    "all_gather_reduced": "all_gather", "reduce_scatter": "reduce_scatter",
    "unreduced_reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all", "ragged_all_to_all": "all_to_all", "ppermute": "collective_permute",
    "psend": "collective_permute", "precv": "collective_permute", "pbroadcast": "all_reduce",
}  # fmt: skip
_EXCHANGES |= {f"{name}_start": opcode for name, opcode in _EXCHANGES.items()}
_RENAMED |= {f"{name.removesuffix('_start')}_done": "get_tuple_element" for name in _EXCHANGES}
# References are read and written in place; only a whole program says what that comes to.
_REFERENCES = frozenset({
    "new_ref", "empty_ref", "free_ref", "freeze", "get", "swap", "addupdate", "accum_grad_in_ref",
    "run_state",
})  # fmt: skip


def program_of_jaxpr(closed: ClosedJaxpr, argument_shardings: Sequence[Any] = ()) -> Program:
    """The program of a traced function. Raises PodyardError UNIMPLEMENTED for element types that
    TPUs do not have."""
    try:
        return _JaxprReader().program(closed, argument_shardings)
    except _HasReferences:
        program, places = lowered.whole_program(closed), Placements()
        for place, sharding in enumerate(argument_shardings):
            places.place_argument(
                program, program.body.parameters[place], sharding, f"argument {place}"
            )
        return program


class _HasReferences(Exception):
    """A program that only JAX can bring to operations without side effects."""


class _JaxprReader:
    def __init__(self) -> None:
        self.types: list[TensorType] = []
        self.shared: dict[int, int] = {}
        self.places = Placements()
        # Meshes of the shard_maps around, innermost last, and their manual axes.
        self.manual: list[Any] = []
        # How often each function is called.
        self._sites = Counter[int]()

    def program(self, closed: ClosedJaxpr, argument_shardings: Sequence[Any]) -> Program:
        scope: dict[Any, int] = {}
        operations: list[HloOperation] = []
        parameters = [self._define(scope, variable) for variable in closed.jaxpr.invars]
        for sharding in argument_shardings:
            self.places.of(sharding, 0, "an argument")
        for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            scope[variable] = self._constant(value, variable.aval, operations)
        live, _ = dce_jaxpr(closed.jaxpr, True, instantiate=True)
        self._sites = lowered.call_sites(live)
        operations += self._operations(live, scope)
        results = [self._read(atom, scope, operations) for atom in live.outvars]
        body = chosen_branches(Body(parameters, operations, results))
        # Compiling drops arguments that nothing reads; they take no memory.
        read = values_read(body)
        body.parameters = [value for value in parameters if value in read]
        donated = self._donations(closed.jaxpr, parameters, results, read)
        program = Program(body, self.types, donated=donated, doubts=self.places.doubts)
        for place, sharding in enumerate(argument_shardings):
            self.places.place_argument(program, parameters[place], sharding, f"argument {place}")
        self._place_outside(program, closed.jaxpr)
        return program

    def _donations(
        self, jaxpr: Jaxpr, parameters: list[int], results: list[int], read: set[int]
    ) -> dict[int, int]:
        """Of a function that was jitted with donated arguments: each is taken over by the first
        free result of its
        type, as JAX does it when it lowers."""
        if len(jaxpr.eqns) != 1 or jaxpr.eqns[0].primitive.name != "jit":
            return {}
        given = zip(
            jaxpr.eqns[0].invars, jaxpr.eqns[0].params.get("donated_invars", ()), strict=False
        )
        offered = {id(variable) for variable, is_donated in given if is_donated}
        donated: dict[int, int] = {}
        free: dict[TensorType, list[int]] = {}
        for index in reversed(range(len(results))):
            free.setdefault(self.types[results[index]], []).append(index)
        for variable, value in zip(jaxpr.invars, parameters, strict=True):
            if id(variable) not in offered or value not in read:
                continue
            if places := free.get(self.types[value]):
                donated[value] = places.pop()
        return donated

    # --- values

    def _new(self, type_: TensorType) -> int:
        self.types.append(type_)
        return len(self.types) - 1

    def _define(self, scope: dict[Any, int], variable: Any) -> int:
        scope[variable] = self._new(type_of(variable.aval))
        return scope[variable]

    def _read(self, atom: Any, scope: dict[Any, int], operations: list[HloOperation]) -> int:
        if not isinstance(atom, Literal):
            return scope[atom]
        return self._constant(atom.val, atom.aval, operations)

    def _constant(self, value: Any, aval: Any, operations: list[HloOperation]) -> int:
        result = self._new(type_of(aval))
        attributes: dict[str, object] = {}
        if self.types[result].size == 1 and isinstance(
            value, int | float | bool | np.generic | np.ndarray
        ):
            number = np.asarray(value).reshape(()).item()
            if isinstance(number, int | float):
                attributes["value"] = number
        operations.append(HloOperation("constant", (), (result,), attributes))
        return result

    # --- operations

    def _operations(self, jaxpr: Jaxpr, scope: dict[Any, int]) -> list[HloOperation]:
        operations: list[HloOperation] = []
        for eqn in jaxpr.eqns:
            start = len(operations)
            self._equation(eqn, scope, operations)
            lowered.mark_remat(eqn, operations, start)
        return operations

    def _equation(
        self, eqn: JaxprEqn, scope: dict[Any, int], operations: list[HloOperation]
    ) -> None:
        name = eqn.primitive.name
        operands = [self._read(atom, scope, operations) for atom in eqn.invars]
        attributes = self._place(eqn)
        if name == "shard_map" and math.prod(eqn.params["mesh"].shape.values()) > 1:
            self._shard_map(eqn, operands, scope, operations)
            return
        if name in _CALLS and _CALLS[name] in eqn.params:
            self._call(eqn.params[_CALLS[name]], operands, eqn, scope, operations)
            return
        if name in _KEY_VIEWS:
            scope[eqn.outvars[0]] = operands[0]
            return
        if name in _REFERENCES:
            raise _HasReferences
        rule = _RULES.get(name)
        if rule is not None:
            rule(self, eqn, operands, scope, operations)
            return
        if not _is_plain(eqn) and self._lower(eqn, operands, scope, operations):
            return
        results = tuple(self._define(scope, variable) for variable in eqn.outvars)
        opcode, own = _plain(eqn)
        attributes |= own | (self._exchange(eqn) if name in _EXCHANGES else {})
        if opcode in _SPREADING:
            operands = [
                self._spread(operand, self.types[results[0]], operations) for operand in operands
            ]
        operations.append(HloOperation(opcode, tuple(operands), results, attributes, where=name))

    def _lower(
        self,
        eqn: JaxprEqn,
        operands: list[int],
        scope: dict[Any, int],
        operations: list[HloOperation],
    ) -> bool:
        """The operations that JAX lowers the equation to; whether it does."""
        program = lowered.lower_equation(eqn)
        if program is None:
            return False
        body = lowered.renumber(program, operands, len(self.types), eqn.primitive.name)
        self.types += program.types
        self.places.doubts += program.doubts
        operations += body.operations
        scope.update(zip(eqn.outvars, body.results, strict=True))
        return True

    def _spread(self, operand: int, result: TensorType, operations: list[HloOperation]) -> int:
        """Lowering makes operands of element-wise operations as large as the result; a jaxpr leaves
        it unsaid."""
        type_ = self.types[operand]
        if type_.shape == result.shape:
            return operand
        spread = self._new(TensorType(result.shape, type_.dtype))
        dims = tuple(range(len(result.shape) - len(type_.shape), len(result.shape)))
        operations.append(HloOperation("broadcast_in_dim", (operand,), (spread,), {"dims": dims}))
        return spread

    def _call(
        self,
        body: Any,
        operands: list[int],
        eqn: JaxprEqn,
        scope: dict[Any, int],
        operations: list[HloOperation],
    ) -> None:
        """The body in place of the call."""
        jaxpr, consts = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
        barred = dict.fromkeys(
            value for value, one in zip(operands, lowered.behind_barrier(eqn), strict=False) if one
        )
        renamed = dict(
            zip(barred, range(len(self.types), len(self.types) + len(barred)), strict=True)
        )
        self.types += [self.types[value] for value in barred]
        if renamed:
            operations.append(
                HloOperation("optimization_barrier", tuple(renamed), tuple(renamed.values()), {})
            )
        inner = dict(
            zip(jaxpr.invars, (renamed.get(value, value) for value in operands), strict=True)
        )
        for variable, value in zip(jaxpr.constvars, consts, strict=False):
            inner[variable] = self._constant(value, variable.aval, operations)
        called = self._operations(jaxpr, inner)
        if self._sites[id(jaxpr)] > 1:
            mark_call(called, len(self.types))
        operations += called
        for variable, atom in zip(eqn.outvars, jaxpr.outvars, strict=True):
            scope[variable] = self._read(atom, inner, operations)

    def _place(self, eqn: JaxprEqn) -> dict[str, object]:
        """The attributes of a sharding constraint."""
        if eqn.primitive.name not in _PLACING:
            return {}
        sharding = eqn.params.get("sharding", eqn.params.get("dst_sharding"))
        rank = len(type_of(eqn.outvars[0].aval).shape)
        found = self.places.of(
            sharding, rank, f"the result of {eqn.primitive.name} ({place_of(eqn)})"
        )
        return {} if found is None else {PLACED: found}

    def _place_outside(self, program: Program, jaxpr: Jaxpr) -> None:
        """Shardings of a jitted function are those of the program where it is all of it."""
        whole = len(jaxpr.eqns) == 1 and list(jaxpr.eqns[0].invars) == list(jaxpr.invars)
        for eqn in jaxpr.eqns:
            if eqn.primitive.name != "jit":
                continue
            name = eqn.params.get("name", "jit")
            for place, sharding in enumerate(eqn.params.get("in_shardings") or ()):
                if whole:
                    self.places.place_argument(program, place, sharding, f"argument {place}")
                elif (
                    self.places.of(sharding, len(type_of(eqn.invars[place].aval).shape), name)
                    is not None
                ):
                    program.doubts.append(_inner_sharding(f"argument {place} of {name}"))
            for place, sharding in enumerate(eqn.params.get("out_shardings") or ()):
                rank = len(type_of(eqn.outvars[place].aval).shape)
                if whole:
                    self.places.place_result(program, place, sharding, rank)
                elif self.places.of(sharding, rank, f"result {place}") is not None:
                    program.doubts.append(_inner_sharding(f"result {place} of {name}"))
        self.places.tell(program)

    def _shard_map(
        self,
        eqn: JaxprEqn,
        operands: list[int],
        scope: dict[Any, int],
        operations: list[HloOperation],
    ) -> None:
        """The body is one device's program; what goes in and comes out is brought to the sharding
        that it has there."""
        body, mesh, where = eqn.params["jaxpr"], eqn.params["mesh"], place_of(eqn) or "shard_map"
        jaxpr, consts = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
        names = [
            str(name)
            for name in eqn.params.get(
                "newly_manual_axes", eqn.params.get("manual_axes", mesh.shape)
            )
        ]
        manual = self.places.axes(mesh, names, where)

        def border(spec: Any, rank: int) -> dict[str, object]:
            entries = [
                entry if isinstance(entry, tuple) else (entry,)
                for entry in (*spec, *(None,) * (rank - len(spec)))
            ]
            dims = tuple(
                self.places.axes(mesh, [n for n in one if isinstance(n, str)], where)
                for one in entries
            )
            return {PLACED: Sharding(dims, (len(names) < len(mesh.shape),) * rank, manual)}

        inner: dict[Any, int] = {}
        for variable, operand, spec in zip(
            jaxpr.invars, operands, eqn.params["in_specs"], strict=True
        ):
            own = self._define(inner, variable)
            attributes = border(spec, len(self.types[operand].shape))
            operations.append(HloOperation("shard", (operand,), (own,), attributes, where=where))
        for variable, value in zip(jaxpr.constvars, consts, strict=False):
            inner[variable] = self._constant(value, variable.aval, operations)
        self.manual.append(mesh)
        operations += self._operations(jaxpr, inner)
        self.manual.pop()
        for variable, atom, spec in zip(
            eqn.outvars, jaxpr.outvars, eqn.params["out_specs"], strict=True
        ):
            made, own = self._read(atom, inner, operations), self._define(scope, variable)
            attributes = border(spec, len(type_of(variable.aval).shape))
            operations.append(HloOperation("unshard", (made,), (own,), attributes, where=where))

    def _exchange(self, eqn: JaxprEqn) -> dict[str, object]:
        """Along which axes a collective inside of a shard_map goes."""
        given = eqn.params.get("axes", eqn.params.get("axis_name", ()))
        names = given if isinstance(given, tuple | list) else (given,)
        if not self.manual:
            return {}
        names = [name for name in names if isinstance(name, str)]
        found: dict[str, object] = {
            "axes": self.places.axes(self.manual[-1], names, eqn.primitive.name),
            "given": True,
        }
        if "perm" in eqn.params:
            found["shifts"] = tuple((int(a), int(b)) for a, b in eqn.params["perm"])
        return found

    def _body(self, closed: Any, given: Sequence[int]) -> Body:
        """A body with its parameters; `given`: outside values in place of its first arguments."""
        jaxpr, consts = (
            (closed.jaxpr, closed.consts) if isinstance(closed, ClosedJaxpr) else (closed, ())
        )
        inner: dict[Any, int] = dict(zip(jaxpr.invars, given, strict=False))
        parameters = [self._define(inner, variable) for variable in jaxpr.invars[len(given) :]]
        operations: list[HloOperation] = []
        for variable, value in zip(jaxpr.constvars, consts, strict=False):
            inner[variable] = self._constant(value, variable.aval, operations)
        operations += self._operations(jaxpr, inner)
        return Body(
            parameters, operations, [self._read(atom, inner, operations) for atom in jaxpr.outvars]
        )

    def scan(
        self,
        eqn: JaxprEqn,
        operands: list[int],
        scope: dict[Any, int],
        operations: list[HloOperation],
    ) -> None:
        """The loop that JAX makes of it: a counter, slices of the stacked inputs, slices put into
        stacked results."""
        params = {name: value for name, value in eqn.params.items() if name in _SCAN_PARAMS}
        written_out = jax.make_jaxpr(functools.partial(_scan_impl, **params))(
            *(atom.aval for atom in eqn.invars)
        )
        self._call(written_out, operands, eqn, scope, operations)

    def while_loop(
        self,
        eqn: JaxprEqn,
        operands: list[int],
        scope: dict[Any, int],
        operations: list[HloOperation],
    ) -> None:
        """Return a loop that carries what its condition and body take from outside, too, as it is
        in StableHLO."""
        own, carried = (
            eqn.params["cond_nconsts"],
            eqn.params["cond_nconsts"] + eqn.params["body_nconsts"],
        )
        place = place_of(eqn)
        state = [self.types[operand] for operand in operands]
        parameters = [[self._new(type_) for type_ in state] for _ in range(2)]
        condition = self._body(
            eqn.params["cond_jaxpr"], [*parameters[0][:own], *parameters[0][carried:]]
        )
        body = self._body(eqn.params["body_jaxpr"], parameters[1][own:])
        condition.parameters, body.parameters = parameters
        body.results = [*parameters[1][:carried], *body.results]
        results = tuple(self._new(type_) for type_ in state)
        scope.update(zip(eqn.outvars, results[carried:], strict=True))
        operations.append(
            HloOperation(
                "while", tuple(operands), results, {"place": place}, (condition, body), "while"
            )
        )

    def cond(
        self,
        eqn: JaxprEqn,
        operands: list[int],
        scope: dict[Any, int],
        operations: list[HloOperation],
    ) -> None:
        bodies = tuple(self._body(branch, operands[1:]) for branch in eqn.params["branches"])
        results = tuple(self._define(scope, variable) for variable in eqn.outvars)
        operations.append(HloOperation("case", tuple(operands), results, {}, bodies, "cond"))

    def reshape(
        self,
        eqn: JaxprEqn,
        operands: list[int],
        scope: dict[Any, int],
        operations: list[HloOperation],
    ) -> None:
        """Reading the axes in another order is a transposition before."""
        order, value = eqn.params.get("dimensions"), operands[0]
        if order is not None:
            type_ = self.types[value]
            turned = self._new(TensorType(tuple(type_.shape[axis] for axis in order), type_.dtype))
            operations.append(
                HloOperation(
                    "transpose", (value,), (turned,), {"dims": tuple(order)}, where="reshape"
                )
            )
            value = turned
        result = self._define(scope, eqn.outvars[0])
        operations.append(HloOperation("reshape", (value,), (result,), {}, where="reshape"))


_RULES: dict[str,
    Callable[[_JaxprReader, JaxprEqn, list[int], dict[Any, int], list[HloOperation]], None]] = {
    "scan": _JaxprReader.scan, "while": _JaxprReader.while_loop, "cond": _JaxprReader.cond,
    "reshape": _JaxprReader.reshape,
}  # fmt: skip


def _inner_sharding(what: str) -> Doubt:
    return Doubt("sharding", what, f"the sharding of {what} is not counted")


def type_of(aval: Any) -> TensorType:
    """Raises PodyardError UNIMPLEMENTED for float64, complex128 and element types that TPUs do not
    have."""
    shape = tuple(int(extent) for extent in getattr(aval, "shape", ()))
    name = str(getattr(aval, "dtype", "token"))
    if name in _KEY_WORDS:
        return TensorType((*shape, _KEY_WORDS[name]), "u32")
    dtype = _DTYPES.get(name, name)
    if dtype == "float0":
        return TensorType(shape, "pred")
    if dtype not in DTYPE_BYTES:
        raise PodyardError(
            Code.UNIMPLEMENTED, f"TPUs have no {name}: a value of shape {shape} has it"
        )
    return TensorType(shape, dtype)


def _is_plain(eqn: JaxprEqn) -> bool:
    """Return whether a primitive is one operation of StableHLO, so that nothing has to be
    lowered."""
    name = eqn.primitive.name
    if name == "convert_element_type":
        return bool(eqn.params["new_dtype"] != np.bool_)
    if name == "select_n":
        return len(eqn.invars) == 3
    return name in _ONE_OPERATION or name.startswith("select_and_scatter")


def _plain(eqn: JaxprEqn) -> tuple[str, dict[str, object]]:
    """Opcode and attributes of a primitive that is one operation. An unknown one keeps its name."""
    name, params = eqn.primitive.name, eqn.params
    if name in _COMPARISONS:
        return "compare", {"direction": _COMPARISONS[name]}
    if name in _REDUCTIONS:
        return "reduce", {
            "dims": tuple(params.get("axes", params.get("dimensions", ()))),
            "by": name,
        }
    if name in _WINDOWS or name == "select_and_gather_add":
        return "reduce_window", _window(params)
    if name.startswith("select_and_scatter"):
        return "select_and_scatter", _window(params)
    if name in _EXCHANGES:
        return _EXCHANGES[name], {}
    special = _ATTRIBUTES.get(name)
    if special is not None:
        opcode, attributes = special(eqn)
        return opcode, attributes
    return _RENAMED.get(name, name), {}


def _window(params: Any) -> dict[str, object]:
    flat = tuple(int(edge) for pair in params.get("padding", ()) for edge in pair)
    return {
        "window": tuple(params.get("window_dimensions", ())),
        "strides": tuple(params.get("window_strides", ())),
        "padding": flat,
    }


def _dot(eqn: JaxprEqn) -> tuple[str, dict[str, object]]:
    (lhs_contracting, rhs_contracting), (lhs_batching, rhs_batching) = eqn.params[
        "dimension_numbers"
    ]
    return "dot_general", {
        "lhs_contracting": tuple(lhs_contracting), "rhs_contracting": tuple(rhs_contracting),
        "lhs_batching": tuple(lhs_batching), "rhs_batching": tuple(rhs_batching),
        "precision": jax_precision(eqn.params),
    }  # fmt: skip


def _convolution(eqn: JaxprEqn) -> tuple[str, dict[str, object]]:
    params = eqn.params
    numbers = params["dimension_numbers"]
    out_first, in_first, *spatial = numbers.rhs_spec
    rank = len(spatial)
    return "convolution", {
        "lhs_dims": tuple(numbers.lhs_spec), "kernel_dims": (in_first, out_first, *spatial),
        "out_dims": tuple(numbers.out_spec), "strides": tuple(params["window_strides"]),
        "padding": tuple(int(edge) for pair in params["padding"] for edge in pair),
        "lhs_dilation": tuple(params["lhs_dilation"] or (1,) * rank),
        "rhs_dilation": tuple(params["rhs_dilation"] or (1,) * rank),
        "feature_group_count": params["feature_group_count"],
        "batch_group_count": params["batch_group_count"],
        "precision": jax_precision(params),
    }  # fmt: skip


def _cut(eqn: JaxprEqn) -> tuple[str, dict[str, object]]:
    starts, limits = tuple(eqn.params["start_indices"]), tuple(eqn.params["limit_indices"])
    return "slice", {
        "starts": starts,
        "limits": limits,
        "strides": tuple(eqn.params["strides"] or (1,) * len(starts)),
    }


def _pad(eqn: JaxprEqn) -> tuple[str, dict[str, object]]:
    sides = zip(*eqn.params["padding_config"], strict=True)
    return "pad", dict(zip(("low", "high", "interior"), sides, strict=False))


_ATTRIBUTES: dict[str, Callable[[JaxprEqn], tuple[str, dict[str, object]]]] = {
    "dot_general": _dot,
    "conv_general_dilated": _convolution,
    "slice": _cut,
    "pad": _pad,
    "broadcast_in_dim": lambda eqn: (
        "broadcast_in_dim",
        {"dims": tuple(eqn.params["broadcast_dimensions"])},
    ),
    "transpose": lambda eqn: ("transpose", {"dims": tuple(eqn.params["permutation"])}),
    "concatenate": lambda eqn: ("concatenate", {"dim": eqn.params["dimension"]}),
    "iota": lambda eqn: ("iota", {"dim": eqn.params["dimension"]}),
    "rev": lambda eqn: ("reverse", {"dims": tuple(eqn.params["dimensions"])}),
    "sort": lambda eqn: ("sort", {"dim": eqn.params["dimension"]}),
    "dynamic_slice": lambda eqn: ("dynamic_slice", {"sizes": tuple(eqn.params["slice_sizes"])}),
}

_ONE_OPERATION = frozenset({
    *_RENAMED, *_COMPARISONS, *_REDUCTIONS, *_WINDOWS, *_EXCHANGES, *_ATTRIBUTES,
    "select_and_gather_add",
})  # fmt: skip
