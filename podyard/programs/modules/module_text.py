"""The text of a module, as it is priced: kernels of Pallas are custom calls there, whatever runs in
their place."""

from __future__ import annotations

from typing import Any

from podyard.programs.jax_internals import ir
from podyard.programs.modules.locations import again_alone, lines_of_program

TARGET = "tpu_custom_call"
FUNCTION = "podyard_kernel"  # how names of functions begin that stand for kernels
ATTRIBUTES = "mhlo.frontend_attributes"


def text_of(module: Any) -> tuple[bytes, bytes]:
    """Return the text of a module, and for each of its lines the program's line, as text.

    The first is its StableHLO, with a custom call for each kernel; of large constants the shapes,
    of locations those of what is computed again in the backward pass. All others change with each
    line of the program, and the module is the same."""
    kernels = [op for op in module.body.operations if _is_kernel(op)]
    if kernels:
        with module.context:
            module = module.operation.clone()
            for op in [one for one in module.regions[0].blocks[0].operations if _is_kernel(one)]:
                _replace_body(op)
    text: str = module.operation.get_asm(large_elements_limit=16, enable_debug_info=True)
    return again_alone(text).encode(), "\n".join(lines_of_program(text)).encode()


def _is_kernel(op: Any) -> bool:
    return (
        op.operation.name == "func.func"
        and FUNCTION in str(op.attributes["sym_name"])
        and ATTRIBUTES in op.attributes
    )


def _replace_body(op: Any) -> None:
    block = op.regions[0].blocks[0]
    types = list(op.type.results)
    for inner in reversed(list(block.operations)):
        inner.operation.erase()
    attributes = {
        "call_target_name": ir.StringAttr.get(TARGET),
        ATTRIBUTES: op.attributes[ATTRIBUTES],
    }
    with ir.Location.unknown(), ir.InsertionPoint(block):
        call = ir.Operation.create(
            "stablehlo.custom_call", types, list(block.arguments), attributes
        )
        ir.Operation.create("func.return", [], list(call.results))
