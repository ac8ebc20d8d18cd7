"""The matrix unit's numerics, put into a module before XLA compiles it.

A TPU multiplies bfloat16 numbers and adds them up in float32. A product of float32 operands at
default precision rounds them first; `high` and `highest` split each into two or three bfloat16
parts and add three or six products, the smallest first. A product with a vector is computed by the
vector unit, in float32. Source: jax.lax.Precision, and podyard.engine.numerics.transform, whose
results these are bit by bit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from podyard.programs.jax_internals import ir

_CHOSEN = ("precision_config", "algorithm")  # attributes that the rewritten products do not have
_PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution")
_PARTS = {"DEFAULT": 1, "HIGH": 2, "HIGHEST": 3}
_PARTS_BY_PRODUCTS = {1: 1, 3: 2, 6: 3}
_ALGORITHM_TYPES = ("lhs_precision_type", "rhs_precision_type", "accumulation_type")
_ALGORITHM_FIELD = re.compile(r"(\w+)\s*=\s*(\w+)")
_LEFT_AXES = re.compile(r"lhs_(?:contracting|batching)_dimensions = \[([\d, ]*)\]")
_BFLOAT16_BITS = (8, 7)  # exponent, mantissa
_BFLOAT16_MAX = float.fromhex("0x1.fep127")


def round_operands(module: Any) -> None:
    """Rewrites the products of `module` in place.

    Products of integers, of float64 and of complex numbers stay as they are, and so do those of
    bfloat16 operands, which is what the unit computes anyway, and those with a vector.
    """
    found = [op for op in _operations(module.operation) if op.name in _PRODUCTS]
    with module.context, ir.Location.unknown():
        for op in found:
            if parts := _parts_of(op):
                _rewrite(op, parts)


def _operations(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                yield inner.operation
                yield from _operations(inner.operation)


def _parts_of(op: Any) -> int:
    """Return how many bfloat16 parts an operand is split into; 0: the product stays."""
    types = {str(_element(value)) for value in list(op.operands)[:2]}
    if "f32" not in types or not types <= {"f32", "bf16"}:
        return 0
    if "algorithm" in op.attributes:
        return _parts_of_algorithm(str(op.attributes["algorithm"]))
    if op.name != "stablehlo.convolution" and _has_vector(op):
        return 0
    if "precision_config" not in op.attributes:
        return 1
    asked = [str(one) for one in op.attributes["precision_config"]]
    return max(
        (parts for word, parts in _PARTS.items() for one in asked if f" {word}>" in one), default=1
    )


def _parts_of_algorithm(algorithm: str) -> int:
    """Return the parts of an algorithm that TPUs have: bfloat16 parts, float32 sums; 0 for all
    others."""
    fields = dict(_ALGORITHM_FIELD.findall(algorithm))
    if [fields.get(name) for name in _ALGORITHM_TYPES] != ["bf16", "bf16", "f32"]:
        return 0
    return _PARTS_BY_PRODUCTS.get(int(fields.get("num_primitive_operations", 0)), 0)


def _has_vector(op: Any) -> bool:
    """Return whether an operand of a product has one row or column only: XLA makes products and a
    sum of it, which the vector unit computes in float32 (jax-ml/jax#16349)."""
    left, right = (ir.RankedTensorType(value.type).shape for value in list(op.operands)[:2])
    if op.name == "stablehlo.dot":
        return bool(min(math.prod(left[:-1]), math.prod(right[1:])) == 1)
    shared = math.prod(
        left[int(axis)]
        for axes in _LEFT_AXES.findall(str(op.attributes["dot_dimension_numbers"]))
        for axis in re.findall(r"\d+", axes)
    )
    return shared in (math.prod(left), math.prod(right))


def _element(value: Any) -> Any:
    return ir.RankedTensorType(value.type).element_type


class _Builder:
    """Makes operations in front of `op`."""

    def __init__(self, op: Any) -> None:
        self._at = ir.InsertionPoint(op)

    def make(self, name: str, result: Any, *operands: Any, **attributes: Any) -> Any:
        created = ir.Operation.create(
            f"stablehlo.{name}", [result], list(operands), attributes, ip=self._at
        )
        return created.results[0]

    def constant(self, like: Any, value: float) -> Any:
        """A scalar in the type of `like`."""
        scalar = ir.RankedTensorType.get([], _element(like))
        attribute = ir.DenseElementsAttr.get_splat(scalar, ir.FloatAttr.get(_element(like), value))
        return self.make("constant", scalar, value=attribute)

    def round(self, value: Any) -> Any:
        exponent, mantissa = (
            ir.IntegerAttr.get(ir.IntegerType.get_signless(32), bits) for bits in _BFLOAT16_BITS
        )
        return self.make(
            "reduce_precision", value.type, value, exponent_bits=exponent, mantissa_bits=mantissa
        )

    def as_float32(self, value: Any) -> Any:
        wanted = ir.RankedTensorType.get(ir.RankedTensorType(value.type).shape, ir.F32Type.get())
        return value if value.type == wanted else self.make("convert", wanted, value)

    def split(self, value: Any, parts: int) -> tuple[Any, list[Any]]:
        """The leading part, and all parts with infinities and NaN as 0: those take part in one
        product only."""
        if parts == 1:
            return self.round(value), []
        shape = ir.RankedTensorType(value.type).shape
        truth = ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(1))
        is_finite = self.make("is_finite", truth, value)
        nowhere = ir.DenseI64ArrayAttr.get([])
        zeros = self.make(
            "broadcast_in_dim", value.type, self.constant(value, 0.0), broadcast_dimensions=nowhere
        )
        rest = self.make("select", value.type, is_finite, value, zeros)
        found = []
        for _ in range(parts):
            low, high = self.constant(value, -_BFLOAT16_MAX), self.constant(value, _BFLOAT16_MAX)
            part = self.round(self.make("clamp", value.type, low, rest, high))
            found.append(part)
            rest = self.make("subtract", value.type, rest, part)
        return self.make("select", value.type, is_finite, found[0], value), found


def _rewrite(op: Any, parts: int) -> None:
    build = _Builder(op)
    left, right = (build.split(build.as_float32(value), parts) for value in list(op.operands)[:2])
    pairs = [(i, j) for i in range(parts) for j in range(parts) if 0 < i + j < parts]
    pairs.sort(key=sum, reverse=True)
    operands = [(left[1][i], right[1][j]) for i, j in pairs] + [(left[0], right[0])]
    attributes = {name: op.attributes[name] for name in _names(op) if name not in _CHOSEN}
    total = None
    for one, other in operands:
        product = ir.Operation.create(
            op.name, [op.results[0].type], [one, other], attributes, ip=ir.InsertionPoint(op)
        )
        value = product.results[0]
        total = value if total is None else build.make("add", value.type, total, value)
    op.results[0].replace_all_uses_with(total)
    op.erase()


def _names(op: Any) -> list[str]:
    return [getattr(item, "name", item) for item in op.attributes]
