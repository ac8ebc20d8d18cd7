"""An export as a SavedModel, which TensorFlow loads without Podyard and without JAX.

The graph is one operation, XlaCallModule, with the StableHLO of the export; the parameters are
constants of the graph. The messages are written field by field, because no TensorFlow is needed to
write them. Source: tensorflow/core/protobuf/saved_model.proto, meta_graph.proto, and
tensorflow/core/framework/{graph,node_def,attr_value,tensor,tensor_shape,types}.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import export
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager
from numpy.typing import NDArray

from podyard.base.errors import failed_precondition
from podyard.base.protobuf import bytes_field, number_field
from podyard.engine.exported import ExportFiles

FILE = "saved_model.pb"
OUTPUT = "answers"
# A message of protocol buffers has at most 2 GiB; the graph has little besides the parameters.
PARAMETERS_BYTES_MAX = (2 << 30) - (16 << 20)
_TAG, _SIGNATURE = b"serve", b"serving_default"
_METHOD = b"tensorflow/serving/predict"
# The newest version of the calling convention that TensorFlow 2.15 knows. Later ones differ in how
# effects and shardings are written, and an export has neither.
_CALL_VERSION_MAX = 8
# The oldest StableHLO that can hold the module is written: older TensorFlow reads it.
_STABLEHLO_VERSIONS = ("0.14.0", "0.19.0", "1.0.0")
_GRAPH_PRODUCER = 1482  # of TensorFlow 2.15
_TYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9,
    "bool": 10, "bfloat16": 14, "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
_ANY_SIZE = (1 << 64) - 1  # -1 as a varint

Dimensions = Sequence[Any]  # numbers, or a name for a size that is open


def saved_model_of(files: ExportFiles) -> bytes:
    """Return `saved_model.pb` of an export. Its signature has the inputs by name and `OUTPUT`.

    Raises PodyardError FAILED_PRECONDITION for parameters that do not fit into the file, or a type
    that TensorFlow does not have.
    """
    program = files.program
    # Sorted, as JAX flattens dicts.
    values = [tree[name] for tree in files.tensors for name in sorted(tree)]
    inputs = sorted(files.inputs)
    size = sum(value.nbytes for value in values)
    if size > PARAMETERS_BYTES_MAX:
        raise failed_precondition(
            f"a SavedModel of one file has at most {PARAMETERS_BYTES_MAX} bytes of parameters, and "
            f"the model has {size}: use the StableHLO of the export"
        )
    features = program.in_avals[len(values) :]
    names = [f"tensor_{index}" for index in range(len(values))]
    names += [f"{_SIGNATURE.decode()}_{name}" for name in inputs]
    nodes = [_constant(name, value) for name, value in zip(names, values, strict=False)]
    nodes += [
        _placeholder(name, aval) for name, aval in zip(names[len(values) :], features, strict=True)
    ]
    indices = program.module_kept_var_idx
    nodes.append(_call(program, [names[index] for index in indices]))
    graph = b"".join(bytes_field(1, node) for node in nodes)
    graph += bytes_field(4, number_field(1, _GRAPH_PRODUCER))
    entries = zip(inputs, names[len(values) :], features, strict=True)
    signature = b"".join(
        bytes_field(1, _entry(name, _tensor_info(node, aval))) for name, node, aval in entries
    )
    signature += bytes_field(2, _entry(OUTPUT, _tensor_info("answer", program.out_avals[0])))
    signature += bytes_field(3, _METHOD)
    meta = bytes_field(1, bytes_field(4, _TAG)) + bytes_field(2, graph)
    meta += bytes_field(5, _entry(_SIGNATURE.decode(), signature))
    return number_field(1, 1) + bytes_field(2, meta)


def _call(program: export.Exported, arguments: Iterable[str]) -> bytes:
    avals = [program.in_avals[index] for index in program.module_kept_var_idx]
    attributes = {
        "Tin": _types(avals),
        "Tout": _types(program.out_avals),
        "Sout": bytes_field(
            1, b"".join(bytes_field(7, _shape(aval.shape)) for aval in program.out_avals)
        ),
        "version": number_field(3, min(program.calling_convention_version, _CALL_VERSION_MAX)),
        "module": bytes_field(2, _module(program.mlir_module_serialized)),
        "platforms": bytes_field(
            1, b"".join(bytes_field(2, name.upper().encode()) for name in program.platforms)
        ),
    }
    return _node("answer", "XlaCallModule", attributes, arguments)


def _module(serialized: bytes) -> bytes:
    """Return the module in the oldest version that can hold it."""
    with ir.Context() as context:
        stablehlo.register_dialect(context)
        module = stablehlo.deserialize_portable_artifact(context, serialized)
        # Older readers do not know places of source with a range.
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        for version in _STABLEHLO_VERSIONS:
            try:
                return bytes(stablehlo.serialize_portable_artifact(module, version))
            except ValueError:  # an operation that this version does not have
                continue
    return serialized


def _constant(name: str, value: NDArray[Any]) -> bytes:
    kind = number_field(6, _type(value.dtype))
    tensor = number_field(1, _type(value.dtype)) + bytes_field(2, _shape(value.shape))
    tensor += bytes_field(4, np.ascontiguousarray(value).tobytes())
    return _node(name, "Const", {"dtype": kind, "value": bytes_field(8, tensor)})


def _placeholder(name: str, aval: Any) -> bytes:
    kind = number_field(6, _type(aval.dtype))
    return _node(name, "Placeholder", {"dtype": kind, "shape": bytes_field(7, _shape(aval.shape))})


def _node(
    name: str, operation: str, attributes: Mapping[str, bytes], inputs: Iterable[str] = ()
) -> bytes:
    parts = [bytes_field(1, name.encode()), bytes_field(2, operation.encode())]
    parts += [bytes_field(3, source.encode()) for source in inputs]
    parts += [bytes_field(5, _entry(key, value)) for key, value in attributes.items()]
    return b"".join(parts)


def _tensor_info(node: str, aval: Any) -> bytes:
    parts = (bytes_field(1, f"{node}:0".encode()), number_field(2, _type(aval.dtype)))
    return b"".join((*parts, bytes_field(3, _shape(aval.shape))))


def _shape(dimensions: Dimensions) -> bytes:
    sizes = (size if isinstance(size, int) else _ANY_SIZE for size in dimensions)
    return b"".join(bytes_field(2, number_field(1, size)) for size in sizes)


def _entry(key: str, value: bytes) -> bytes:
    """Return an entry of a map."""
    return bytes_field(1, key.encode()) + bytes_field(2, value)


def _types(avals: Iterable[Any]) -> bytes:
    return bytes_field(1, b"".join(number_field(6, _type(aval.dtype)) for aval in avals))


def _type(dtype: Any) -> int:
    name = np.dtype(dtype).name
    if name not in _TYPES:
        raise failed_precondition(f"a SavedModel has no tensors of type {name}")
    return _TYPES[name]
