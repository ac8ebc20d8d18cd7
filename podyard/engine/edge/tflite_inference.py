"""An inference of a TensorFlow Lite model on an Edge TPU.

The table of operations and its limits: https://coral.ai/docs/edgetpu/models-intro (supported
operations), as of the compiler 16.0.
"""

from __future__ import annotations

import math
from collections import Counter

from podyard.base.errors import invalid
from podyard.engine.edge.inference import EdgeInference
from podyard.engine.edge.tflite_model import TfliteModel, TfliteOperation, TfliteTensor
from podyard.engine.timing.edge import analyze_int8

_RUN = frozenset({
    "ADD", "AVERAGE_POOL_2D", "CONCATENATION", "CONV_2D", "DEPTHWISE_CONV_2D", "EXPAND_DIMS",
    "FULLY_CONNECTED", "L2_NORMALIZATION", "LOGISTIC", "MAXIMUM", "MAX_POOL_2D", "MEAN", "MINIMUM",
    "MUL", "PACK", "PAD", "PRELU", "QUANTIZE", "REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU6",
    "RELU_N1_TO_1", "RESHAPE", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "RSQRT", "SLICE",
    "SOFTMAX", "SPACE_TO_DEPTH", "SPLIT", "SQUARED_DIFFERENCE", "SQUEEZE", "STRIDED_SLICE", "SUB",
    "SUM", "TANH", "TRANSPOSE", "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM",
})  # fmt: skip
_ON_HOST = frozenset({"QUANTIZE", "DEQUANTIZE"})  # from and to floats, at the model's ends
_INTEGERS = ("int8", "uint8")
_BESIDES = ("int8", "uint8", "int32", "int16")  # of biases, shapes and the state of an LSTM
_COMPILED = "edgetpu-custom-op"


def analyze_tflite(model: TfliteModel) -> EdgeInference:
    """Return what an inference takes.

    Raises PodyardError INVALID_ARGUMENT for an operation that an Edge TPU cannot run, and for
    operations of anything but integers of 8 bits.
    """
    on_chip = [one for one in model.operations if not _is_on_host(one)]
    for operation in on_chip:
        _check(operation)
    constants = {
        id(one): one.nbytes
        for operation in on_chip
        for one in operation.inputs
        if one is not None and one.is_constant
    }
    weight_bytes = sum(constants.values())
    activation_bytes = sum(one.nbytes for one in (*model.inputs, *model.outputs))
    macs = sum(_macs(one) for one in on_chip)
    return EdgeInference(
        operations=dict(Counter(one.name for one in on_chip)),
        on_host=dict(Counter(one.name for one in model.operations if _is_on_host(one))),
        macs=macs,
        weight_bytes=weight_bytes,
        activation_bytes=activation_bytes,
        estimate=analyze_int8(macs, weight_bytes, activation_bytes),
    )


def _is_on_host(operation: TfliteOperation) -> bool:
    tensors = (*operation.inputs, *operation.outputs)
    is_float = any(one is not None and one.dtype.startswith("float") for one in tensors)
    return operation.name in _ON_HOST and is_float


def _check(operation: TfliteOperation) -> None:
    """Raises PodyardError INVALID_ARGUMENT, with the first tensor that the operation gives."""
    where = f" ({operation.outputs[0].name})" if operation.outputs else ""
    if operation.custom == _COMPILED:
        raise invalid(
            "this file was compiled for the Edge TPU, and its operations cannot be read: estimate "
            "the model that edgetpu_compiler got",
            "module",
        )
    if operation.name not in _RUN:
        name = operation.custom or operation.name
        raise invalid(
            f"an Edge TPU cannot run {name}{where}: edgetpu_compiler leaves it, and all that "
            "follows, to the host's CPU; replace it, or end the model before it",
            "module",
        )
    main = next((one for one in operation.inputs if one is not None), None)
    for tensor in (main, *operation.outputs):
        if tensor is not None and tensor.dtype not in _INTEGERS:
            raise _not_int8(operation, where, tensor)
    for tensor in operation.inputs:
        if tensor is not None and tensor.dtype not in _BESIDES:
            raise _not_int8(operation, where, tensor)


def _not_int8(operation: TfliteOperation, where: str, tensor: TfliteTensor) -> Exception:
    return invalid(
        f"an Edge TPU cannot run {operation.name} of {tensor.dtype}{where}: it computes with "
        "integers of 8 bits; quantize the model to int8 with a representative data set",
        "module",
    )


def _macs(operation: TfliteOperation) -> int:
    """Return multiplications of a product; 0 for what has no weights. Shapes of weights are those
    of TensorFlow Lite: (outputs, height, width, inputs) of a convolution, (outputs, inputs) of a
    dense layer."""
    shapes = [() if one is None else one.shape for one in operation.inputs]
    results = operation.outputs[0].elements if operation.outputs else 0
    match operation.name, shapes:
        case "CONV_2D", [_, (_, height, width, inputs), *_]:
            return results * height * width * inputs
        case "DEPTHWISE_CONV_2D", [_, (_, height, width, _), *_]:
            return results * height * width
        case "FULLY_CONNECTED", [_, (_, inputs), *_]:
            return results * inputs
        case "TRANSPOSE_CONV", [_, (outputs, height, width, _), images, *_]:
            return math.prod(images) * outputs * height * width
        case "UNIDIRECTIONAL_SEQUENCE_LSTM", [(*turns, _), *_]:
            weights = [one for one in operation.inputs[1:] if one is not None and one.is_constant]
            sizes = (one.elements for one in weights if len(one.shape) == 2)
            return math.prod(turns) * sum(sizes)
    return 0
