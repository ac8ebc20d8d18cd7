"""An inference on an Edge TPU: operations of the program, memory on the chip, time and energy.

Operations are those that Coral's table of supported operations names
(https://coral.ai/docs/edgetpu/models-intro#supported-operations), as StableHLO has them. Figures of
the chip and their sources are in `engine/timing/edge.py`.
"""

from __future__ import annotations

from collections import Counter

from podyard.base.errors import invalid
from podyard.engine.edge.inference import EdgeInference
from podyard.engine.program.ir import HloOperation, Program, matrix_flops, walk
from podyard.engine.timing.edge import analyze_int8

NAME = "edgetpu"
_NAMES = frozenset({"edgetpu", "edge-tpu", "edge"})
_PRODUCTS = frozenset({"convolution", "dot", "dot_general"})
_INTEGERS = ("s8", "u8")
# What moves or converts weights and leaves them the weights.
_MOVES = frozenset({"reshape", "transpose", "convert", "broadcast", "broadcast_in_dim"})
_RUN = frozenset({
    *_PRODUCTS, *_MOVES, "constant", "iota", "add", "subtract", "multiply", "divide", "maximum",
    "minimum", "negate", "abs", "clamp", "concatenate", "slice", "pad", "reduce", "reduce_window",
    "exponential", "logistic", "tanh", "rsqrt", "sqrt", "select", "compare", "and", "or", "not",
    "optimization_barrier",
})  # fmt: skip


def is_edge_tpu(name: str) -> bool:
    return name.lower().replace("_", "-") in _NAMES


def analyze_edge(program: Program) -> EdgeInference:
    """Return what an inference takes.

    Raises PodyardError INVALID_ARGUMENT for an operation that an Edge TPU cannot run, and for
    products of anything but integers of 8 bits.
    """
    operations = list(walk(program.body))
    for operation in operations:
        if operation.opcode not in _RUN:
            where = f" ({operation.where})" if operation.where else ""
            raise invalid(
                f"an Edge TPU cannot run {operation.opcode}{where}: it runs convolutions, "
                "products, pools and element-wise operations of int8; replace it, or leave it to "
                "the host",
                "module",
            )
    weights = set[int]()
    macs = 0
    for operation in operations:
        if operation.opcode in _PRODUCTS:
            macs += matrix_flops(program, operation) // 2
            _check_types(program, operation)
            weights |= _sources(program, operation.operands[1])
    sizes = {value: program.type_of(value).nbytes for value in weights}
    inputs = sum(
        program.type_of(value).nbytes for value in program.body.parameters if value not in weights
    )
    outputs = sum(program.type_of(value).nbytes for value in program.body.results)
    counts = Counter(one.opcode for one in program.body.operations if one.opcode != "constant")
    weight_bytes = sum(sizes.values())
    estimate = analyze_int8(macs, weight_bytes, inputs + outputs)
    return EdgeInference(dict(counts), {}, macs, weight_bytes, inputs + outputs, estimate)


def _check_types(program: Program, operation: HloOperation) -> None:
    for value in operation.operands[:2]:
        dtype = program.type_of(value).dtype
        if dtype not in _INTEGERS:
            raise invalid(
                f"an Edge TPU cannot run {operation.opcode} of {dtype}: it computes with integers "
                "of 8 bits; quantize the model to int8",
                "module",
            )


def _sources(program: Program, value: int) -> set[int]:
    """Return the constant or argument that a product's right side is, or nothing: activations."""
    producer = program.producer(value)
    while producer is not None and producer.opcode in _MOVES and producer.operands:
        value = producer.operands[0]
        producer = program.producer(value)
    is_weight = producer is None or producer.opcode == "constant"
    return {value} if is_weight else set()
