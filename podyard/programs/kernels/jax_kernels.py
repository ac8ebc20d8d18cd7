"""Every private name of JAX's Pallas that Podyard's hook uses.

A kernel is an operation without effects: it is differentiated, rematerialised, scanned and sharded
as on a TPU. What it does is written on the custom call that stands for it in the module that is
priced. In a dry run that is the call of JAX's own lowering for TPUs. When computing, the module
that runs has a function in its place, which JAX's interpreter has made of the kernel's body.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from podyard.base.kernel_cost import KERNEL_ATTRIBUTE, KernelCost
from podyard.programs.jax_internals import ir, mlir
from podyard.programs.kernels import kernel_interpreter
from podyard.programs.kernels.kernel_body import kernel_cost
from podyard.programs.kernels.kernel_uses import KernelUse, kernel_uses
from podyard.programs.lowering.kernel_rules import scoped_vmem_bytes
from podyard.programs.modules.module_text import ATTRIBUTES, FUNCTION

Check = Callable[[KernelCost], None]
_OF_GRID = frozenset({"program_id", "num_programs"})  # the interpreter knows the place in the grid

_lowered = threading.local()  # `uses`: of the kernels of the program that a thread lowers

pallas_call: Any = importlib.import_module("jax._src.pallas.pallas_call")
_hlo: Any = importlib.import_module("jax._src.pallas.hlo_interpreter")
_discharge: Any = importlib.import_module("jax._src.state.discharge")

NAMES = (
    (pallas_call, "pallas_call_p _pallas_call_lowering"),
    (_hlo, "_eval_jaxpr_hop_rules"),
    *kernel_interpreter.NAMES,
    (_discharge, "_discharge_rules"),
    (mlir, "_lowerings _platform_specific_lowerings lower_fun"),
)


def missing() -> list[str]:
    """The names that this JAX does not have."""
    return [
        f"{owner.__name__}.{name}"
        for owner, names in NAMES
        for name in names.split()
        if not hasattr(owner, name)
    ]


def lower_for_tpu(check: Check) -> None:
    """Have each kernel lowered as for a TPU. Errors of that are the user's: a TPU gives them.
    `check` gets its cost."""
    rule: Any = importlib.import_module(
        "jax._src.pallas.mosaic.pallas_call_registration"
    ).pallas_call_tpu_lowering_rule

    def lower(ctx: Any, nodes: Any, params: dict[str, Any]) -> Any:
        results = rule(ctx, *nodes, interpret=False, **params)
        call, cost = _maker(results), cost_of(params)
        check(cost)
        if call is not None:
            _mark(call, cost)
        return results

    _replace_lowering(lower)


def interpret(
    before: Callable[[bool], None], check: Check, check_lowering: Callable[..., None]
) -> None:
    """Have each kernel run in JAX's interpreters, and call `before(is_simulated)` for each. `check`
    gets its cost, `check_lowering` the primitive, its parameters and the types of its operands.

    Kernels that signal, or copy between chips, need the interpreter that simulates a TPU. It has
    effects: such kernels are not differentiated. All others run in the one that makes XLA's
    operations of the body.
    """
    simulator: Any = importlib.import_module(
        "jax._src.pallas.mosaic.interpret.interpret_pallas_call"
    )
    simulator.set_tpu_interpret_mode()
    inner_simulate, primitive = simulator.interpret_pallas_call, pallas_call.pallas_call_p
    inner_bind = primitive.bind

    def simulate(*args: Any, **named: Any) -> Any:
        before(True)
        return inner_simulate(*args, **named)

    def bind(*args: Any, **named: Any) -> Any:
        if isinstance(named.get("interpret"), simulator.InterpretParams) and not _needs_simulator(
            named["jaxpr"], named["grid_mapping"]
        ):
            named["interpret"] = False
        return inner_bind(*args, **named)

    def lower(ctx: Any, nodes: Any, named: dict[str, Any]) -> Any:
        before(False)
        check_lowering(primitive, named, ctx.avals_in)
        cost = cost_of(named)
        check(cost)
        return _call_of_function(ctx, nodes, named, cost)

    simulator.interpret_pallas_call = simulate
    primitive.bind = bind
    _replace_lowering(lower)


def _replace_lowering(lower: Callable[[Any, Any, dict[str, Any]], Any]) -> None:
    """`lower(ctx, nodes, params)` lowers the kernels of TPU devices, but for those that are to be
    interpreted."""
    inner = pallas_call._pallas_call_lowering

    def lowering(ctx: Any, *nodes: Any, interpret: Any, **params: Any) -> Any:
        backend, platforms = ctx.module_context.backend, tuple(ctx.module_context.platforms)
        # Lowering for TPUs alone is JAX's: `jax.export`, and the check of a kernel.
        is_ours = platforms != ("tpu",) and (backend is None or backend.platform == "tpu")
        if interpret or not is_ours:
            return inner(ctx, *nodes, interpret=interpret, **params)
        return lower(ctx, nodes, params)

    pallas_call._pallas_call_lowering = lowering
    mlir.register_lowering(pallas_call.pallas_call_p, lowering)


def _call_of_function(ctx: Any, nodes: Any, params: dict[str, Any], cost: KernelCost) -> Any:
    """A call of a function that holds what JAX's interpreter makes of the body."""
    run = functools.partial(kernel_interpreter.run, **params)
    with ir.InsertionPoint.at_block_begin(ctx.module_context.module.body):
        operand_types = [node.type for node in mlir.flatten_ir_values(nodes)]
        func = mlir.func_dialect.FuncOp(FUNCTION, ir.FunctionType.get(operand_types, []))
    func.attributes["sym_visibility"] = ir.StringAttr.get("private")
    ctx.module_context.symbol_table.insert(func)
    _mark(func, cost)
    with ir.InsertionPoint(func.add_entry_block()):
        inner = ctx.replace(const_lowering={})
        results = mlir.flatten_ir_values(mlir.lower_fun(run)(inner, *func.arguments))
        mlir.func_dialect.ReturnOp(results)
    types = [result.type for result in results]
    func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(operand_types, types))
    call = mlir.func_dialect.CallOp(
        types, ir.FlatSymbolRefAttr.get(func.name.value), mlir.flatten_ir_values(nodes)
    )
    return list(call.results)


def _mark(op: Any, cost: KernelCost) -> None:
    attributes = {KERNEL_ATTRIBUTE: ir.StringAttr.get(cost.to_json())}
    if ATTRIBUTES in op.attributes:
        attributes |= {one.name: one.attr for one in op.attributes[ATTRIBUTES]}
    op.attributes[ATTRIBUTES] = ir.DictAttr.get(attributes)


def cost_of(params: dict[str, Any]) -> KernelCost:
    """Return the cost of a kernel of the program that is lowered now."""
    uses: Mapping[int, KernelUse] = getattr(_lowered, "uses", {})
    cost = kernel_cost(kernel_name(params), params, uses.get(id(params["jaxpr"])))
    if cost.vmem_limit_bytes is None:
        return dataclasses.replace(cost, vmem_limit_bytes=scoped_vmem_bytes())
    return cost


def read_kernel_uses() -> None:
    """Have the uses of kernels read from each program before it is lowered."""
    inner = mlir.lower_jaxpr_to_module

    def lower(name: Any, jaxpr: Any, *args: Any, **named: Any) -> Any:
        _lowered.uses = kernel_uses(jaxpr)
        return inner(name, jaxpr, *args, **named)

    mlir.lower_jaxpr_to_module = lower


def kernel_name(params: dict[str, Any]) -> str:
    """As the program calls it: its name, or that of the function."""
    return str(params["name"] or params["jaxpr"].debug_info.func_name)


def _maker(results: Any) -> Any:
    """The custom call that results come from, through conversions."""
    value = next(iter(mlir.flatten_ir_values(results)), None)
    while value is not None and hasattr(value.owner, "name"):
        op = value.owner
        if op.name == "stablehlo.custom_call":
            return op
        value = op.operands[0] if len(op.operands) else None
    return None


def _needs_simulator(jaxpr: Any, grid_mapping: Any) -> bool:
    """Return True for a kernel that copies between chips, or does something that JAX has no
    operation of XLA's for."""
    try:
        _hlo.kernel_to_hlo_jaxpr(jaxpr, (), grid_mapping)
    except Exception:  # JAX raises many kinds for what it has not built
        return True
    rules: tuple[Any, ...] = (
        _discharge._discharge_rules, getattr(_discharge, "_partial_discharge_rules", {}),
        _hlo._eval_jaxpr_hop_rules,
        mlir._lowerings, mlir._platform_specific_lowerings["cpu"],
    )  # fmt: skip
    return any(
        not (
            equation.primitive.name in _OF_GRID
            or any(equation.primitive in table for table in rules)
        )
        or _copies_to_another_chip(equation)
        for equation in _equations(jaxpr)
    )


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    yield from _equations(inner)


def _copies_to_another_chip(equation: Any) -> bool:
    if equation.primitive.name != "dma_start":
        return False
    return equation.params["tree"].unflatten(equation.invars)[-1] is not None


__all__ = ["interpret", "kernel_name", "lower_for_tpu", "missing"]
