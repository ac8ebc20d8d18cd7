"""TensorFlow Lite files, written with the tables of TensorFlow's schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import flatbuffers
import tflite


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    name: str
    shape: tuple[int, ...]
    dtype: str = "INT8"
    data: int = 0  # bytes of a constant


@dataclasses.dataclass(frozen=True)
class OperatorEntry:
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    custom: str = ""


def model_bytes(
    tensors: Sequence[TensorEntry],
    operators: Sequence[OperatorEntry],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> bytes:
    builder = flatbuffers.Builder(1024)
    buffers = [_buffer(builder, 0), *(_buffer(builder, one.data) for one in tensors)]
    codes = [_code(builder, one) for one in operators]
    tables = [_tensor(builder, one, place + 1) for place, one in enumerate(tensors)]
    operations = [_operator(builder, one, place) for place, one in enumerate(operators)]
    vectors = [
        _vector(builder, tables), _vector(builder, operations),
        builder.CreateNumpyVector(_ints(inputs)), builder.CreateNumpyVector(_ints(outputs)),
    ]  # fmt: skip
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, vectors[0])
    tflite.SubGraphAddOperators(builder, vectors[1])
    tflite.SubGraphAddInputs(builder, vectors[2])
    tflite.SubGraphAddOutputs(builder, vectors[3])
    graph = tflite.SubGraphEnd(builder)
    parts = [_vector(builder, one) for one in (codes, [graph], buffers)]
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, parts[0])
    tflite.ModelAddSubgraphs(builder, parts[1])
    tflite.ModelAddBuffers(builder, parts[2])
    builder.Finish(tflite.ModelEnd(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _ints(values: Sequence[int]) -> Any:
    import numpy as np

    return np.array(values, np.int32)


def _vector(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _buffer(builder: Any, size: int) -> int:
    data = builder.CreateByteVector(bytes(size)) if size else None
    tflite.BufferStart(builder)
    if data is not None:
        tflite.BufferAddData(builder, data)
    return int(tflite.BufferEnd(builder))


def _code(builder: Any, operator: OperatorEntry) -> int:
    custom = builder.CreateString(operator.custom) if operator.custom else None
    number = getattr(tflite.BuiltinOperator, operator.name)
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, min(number, 127))
    tflite.OperatorCodeAddBuiltinCode(builder, number)
    if custom is not None:
        tflite.OperatorCodeAddCustomCode(builder, custom)
    return int(tflite.OperatorCodeEnd(builder))


def _tensor(builder: Any, tensor: TensorEntry, buffer: int) -> int:
    name, shape = builder.CreateString(tensor.name), builder.CreateNumpyVector(_ints(tensor.shape))
    tflite.TensorStart(builder)
    tflite.TensorAddShape(builder, shape)
    tflite.TensorAddType(builder, getattr(tflite.TensorType, tensor.dtype))
    tflite.TensorAddBuffer(builder, buffer)
    tflite.TensorAddName(builder, name)
    return int(tflite.TensorEnd(builder))


def _operator(builder: Any, operator: OperatorEntry, code: int) -> int:
    inputs, outputs = (
        builder.CreateNumpyVector(_ints(one)) for one in (operator.inputs, operator.outputs)
    )
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, code)
    tflite.OperatorAddInputs(builder, inputs)
    tflite.OperatorAddOutputs(builder, outputs)
    return int(tflite.OperatorEnd(builder))
