"""A TensorFlow Lite file as records: operations with the tensors that they take and give.

The tables are read with the package `tflite`, which is made from TensorFlow's schema
(`tensorflow/compiler/mlir/lite/schema/schema.fbs`, version 3).
"""

from __future__ import annotations

import dataclasses
import math
import struct
from importlib import import_module
from typing import Any

from podyard.base.errors import Code, PodyardError, invalid

_IDENTIFIER = b"TFL3"  # flatbuffers puts it behind the offset of the root
# A MobileNet has about 100; beyond this, a table's length is damaged or the file is made to last.
ITEMS_MAX = 100_000
# What flatbuffers raises where an offset leads out of the file.
_DAMAGE = (struct.error, IndexError, TypeError, ValueError, OverflowError, AttributeError)


@dataclasses.dataclass(frozen=True, slots=True)
class TfliteTensor:
    """`dtype` is lower case, as `int8`. `is_constant`: its values are in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bits: int
    is_constant: bool

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return -(-self.elements * self.bits // 8)


@dataclasses.dataclass(frozen=True, slots=True)
class TfliteOperation:
    """`name` is TensorFlow Lite's, as `CONV_2D`; `custom` that of an operation that is not its own.
    An input that is left out is None."""

    name: str
    custom: str
    inputs: tuple[TfliteTensor | None, ...]
    outputs: tuple[TfliteTensor, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class TfliteModel:
    """`subgraphs`: how many functions it has besides the one that is read."""

    operations: tuple[TfliteOperation, ...]
    inputs: tuple[TfliteTensor, ...]
    outputs: tuple[TfliteTensor, ...]
    subgraphs: int


def is_tflite(data: bytes) -> bool:
    return data[4:8] == _IDENTIFIER


def read_model(data: bytes) -> TfliteModel:
    """Return the model of a file.

    Raises PodyardError FAILED_PRECONDITION without the package `tflite`, and INVALID_ARGUMENT for a
    damaged file.
    """
    try:
        tflite = import_module("tflite")
    except ImportError as error:
        raise PodyardError(
            Code.FAILED_PRECONDITION,
            f"a TensorFlow Lite file is read with tflite: pip install 'podyard[engine]' ({error})",
        ) from error
    try:
        return _TfliteReader(tflite, data).model()
    except _DAMAGE as error:
        raise invalid(f"the TensorFlow Lite file is damaged: {error}", "module") from error


class _TfliteReader:
    def __init__(self, tflite: Any, data: bytes) -> None:
        self._model = tflite.Model.GetRootAsModel(data, 0)
        self._operators = {
            code: name
            for name, code in vars(tflite.BuiltinOperator).items()
            if isinstance(code, int)
        }
        self._types = {
            code: name.lower()
            for name, code in vars(tflite.TensorType).items()
            if isinstance(code, int)
        }

    def model(self) -> TfliteModel:
        graph = self._model.Subgraphs(0)
        tensors = [self._tensor(graph.Tensors(i)) for i in range(_count(graph.TensorsLength()))]
        operators = [graph.Operators(i) for i in range(_count(graph.OperatorsLength()))]
        return TfliteModel(
            operations=tuple(self._operation(one, tensors) for one in operators),
            inputs=tuple(tensors[graph.Inputs(i)] for i in range(_count(graph.InputsLength()))),
            outputs=tuple(tensors[graph.Outputs(i)] for i in range(_count(graph.OutputsLength()))),
            subgraphs=self._model.SubgraphsLength() - 1,
        )

    def _tensor(self, table: Any) -> TfliteTensor:
        shape = tuple(table.Shape(i) for i in range(_count(table.ShapeLength())))
        if any(extent < 0 for extent in shape):
            raise ValueError(f"a tensor has the shape {shape}")
        dtype = self._types.get(table.Type(), f"type {table.Type()}")
        return TfliteTensor(
            name=(table.Name() or b"").decode(errors="replace"),
            dtype=dtype,
            shape=shape,
            bits=_bits(dtype),
            is_constant=self._model.Buffers(table.Buffer()).DataLength() > 0,
        )

    def _operation(self, table: Any, tensors: list[TfliteTensor]) -> TfliteOperation:
        code = self._model.OperatorCodes(table.OpcodeIndex())
        # Files before 2020 have the code in one byte.
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        places = [table.Inputs(i) for i in range(_count(table.InputsLength()))]
        return TfliteOperation(
            name=self._operators.get(number, f"operator {number}"),
            custom=(code.CustomCode() or b"").decode(errors="replace"),
            inputs=tuple(tensors[place] if place >= 0 else None for place in places),
            outputs=tuple(tensors[table.Outputs(i)] for i in range(_count(table.OutputsLength()))),
        )


def _bits(dtype: str) -> int:
    """Return the size of a type whose name ends in it; others (bool, string) have a byte."""
    digits = dtype.lstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) if digits.isdigit() else 8


def _count(length: int) -> int:
    """Raises ValueError for a length that no model has."""
    if length > ITEMS_MAX:
        raise ValueError(f"a table has {length} items, more than {ITEMS_MAX}")
    return length
