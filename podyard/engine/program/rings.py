"""Products that the TPU compiler works out in turns, part by part, while the parts go around a ring
of devices (from
v4 on): a scattered sum of a product, and a gather that one product reads. Found in compiled steps
of fully sharded perceptrons: groups of 4 to 64 devices, 32 to 8192 rows on each."""

from __future__ import annotations

from collections import Counter

from podyard.engine.program.doubts import convolution_in_ring
from podyard.engine.program.ir import Body, HloOperation, Program, all_operands, matrix_flops

# Of 8, 16 and 32 devices there are rings, of 4 and 64 none.
_DEVICES = range(8, 64)


def into_rings(program: Program, body: Body, rows: int) -> None:
    """`rows`: how many multiplications for each number that is sent take as long as sending it; 0
    for no rings. What is sent in turns is a permutation with `turns`, and its product has the
    devices of the `ring`."""
    reads = Counter(body.results)
    makers: dict[int, HloOperation] = {}
    readers: dict[int, HloOperation] = {}
    for operation in body.operations:
        reads.update(all_operands(operation))
        makers.update(dict.fromkeys(operation.results, operation))
        readers.update(dict.fromkeys(operation.operands, operation))

    def source(gather: HloOperation) -> int:
        value = gather.operands[0]
        while value in makers and makers[value].opcode == "convert":
            value = makers[value].operands[0]
        return value

    # What another product reads, too, is gathered for both.
    gathers = Counter(
        source(operation) for operation in body.operations if operation.opcode == "all_gather"
    )
    for operation in body.operations if rows else ():
        if (
            operation.opcode not in ("reduce_scatter", "all_gather")
            or "given" in operation.attributes
        ):
            continue
        is_sum = operation.opcode == "reduce_scatter"
        whole = operation.operands[0] if is_sum else operation.results[0]
        product = (makers if is_sum else readers).get(whole)
        axes = operation.attributes.get("axes")
        if product is None or reads[whole] != 1 or not isinstance(axes, tuple):
            continue
        devices, size = program.mesh.extent(axes), program.types[whole].size
        if product.opcode == "convolution" and devices in _DEVICES:
            program.doubts.append(convolution_in_ring(product.where))
        if product.opcode != "dot_general" or (not is_sum and gathers[source(operation)] > 1):
            continue
        if devices in _DEVICES and matrix_flops(program, product) >= 2 * rows * size:
            part = program.types[operation.results[0] if is_sum else operation.operands[0]]
            operation.opcode = "collective_permute"
            operation.attributes = {
                **operation.attributes,
                "turns": devices + 1,
                "bytes": part.nbytes,
                "shifts": tuple((place, (place + 1) % devices) for place in range(devices)),
            }
            axis = _axis(program, product, whole, operation.int("dim"), is_sum)
            product.attributes = {**product.attributes, "ring": devices, "ring_axis": axis}


def _axis(program: Program, product: HloOperation, whole: int, dim: int, is_sum: bool) -> str:
    """Return which size of the product is split into parts: rows `m`, columns `n`, or the depth
    `k`; `sum m` of a sum."""
    batch = len(product.ints("lhs_batching"))
    if is_sum:
        rows = len(program.types[product.operands[0]].shape) - len(product.ints("lhs_contracting"))
        return "sum m" if batch <= dim < rows else "sum n"
    side = "lhs" if product.operands[0] == whole else "rhs"
    return "k" if dim in product.ints(f"{side}_contracting") else "m" if side == "lhs" else "n"
