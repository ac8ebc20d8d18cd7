"""Every private name of TensorFlow that the other modules use. A release without one of them is
left as it is."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import import_module
from typing import Any

TESTED = ("2.15.", "2.16.", "2.18.", "2.21.")  # versions that the tests run


def _module(name: str) -> Any:
    """TensorFlow's modules say nothing of their types."""
    return import_module(f"tensorflow.{name}")


custom_call: Any = _module("compiler.tf2xla.ops.gen_xla_ops").xla_custom_call_v2
autograph: Any = _module("python.autograph.core.config")
context: Any = _module("python.eager.context")
control_flow: Any = _module("python.ops.control_flow_ops")
distribute_lib: Any = _module("python.distribute.distribute_lib")
Function: Any = _module("python.eager.polymorphic_function.polymorphic_function").Function
MirroredExtended: Any = _module("python.distribute.mirrored_strategy").MirroredExtended
multi_device_iterator: Any = _module("python.data.ops.multi_device_iterator_ops")
OneDeviceExtended: Any = _module("python.distribute.one_device_strategy").OneDeviceExtended
DistributedValues: Any = _module("python.distribute.values").DistributedValues
PerReplica: Any = _module("python.distribute.values").PerReplica
MEAN: Any = _module("python.distribute.reduce_util").ReduceOp.MEAN
ResourceVariable: Any = _module("python.ops.resource_variable_ops").ResourceVariable
TPUSystemMetadata: Any = _module("python.tpu.tpu_system_metadata").TPUSystemMetadata
validate_run_function: Any = _module("python.distribute.tpu_strategy").validate_run_function
op_def_registry: Any = _module("python.framework.op_def_registry")
types_pb2: Any = _module("core.framework.types_pb2")
_kernels: Any = _module("python.framework.kernels").get_registered_kernels_for_op
STRING: int = types_pb2.DT_STRING
# Types of elements that XLA has; tf2xla/type_util.cc.
_XLA_TYPES = """
    FLOAT DOUBLE INT32 UINT8 INT16 INT8 COMPLEX64 INT64 BOOL BFLOAT16 UINT16 HALF UINT32 UINT64
    COMPLEX128 FLOAT8_E5M2 FLOAT8_E4M3FN INT4 UINT4
"""
XLA_TYPES = frozenset(getattr(types_pb2, f"DT_{name}") for name in _XLA_TYPES.split())


def turn_into_custom_call(
    node: Any,
    target: str,
    config: str,
    operands: Sequence[int],
    results: Sequence[int],
    shapes: Sequence[Any],
    *,
    has_side_effect: bool,
) -> None:
    """Make a node of a graph XLA's custom call. `operands`, `results`: types of elements; `shapes`:
    of the results."""
    node.op = "XlaCustomCallV2"
    node.attr["call_target_name"].s = target.encode()
    node.attr["backend_config"].s = config.encode()
    node.attr["has_side_effect"].b = has_side_effect
    for name, values in (("operand_dtypes", operands), ("result_dtypes", results)):
        node.attr[name].list.SetInParent()  # an empty list is a list, too
        node.attr[name].list.type.extend(values)
    node.attr["result_shapes"].list.SetInParent()
    node.attr["result_shapes"].list.shape.extend(shapes)


@functools.cache
def is_compiled_by_xla(operation: str) -> bool:
    """Return whether XLA's bridge has a kernel for a type of operation."""
    _register_kernels()
    return any(kernel.device_type == "XLA_CPU_JIT" for kernel in _kernels(operation).kernel)


@functools.cache
def _register_kernels() -> None:
    """TensorFlow registers the bridge's kernels when it compiles for the first time."""
    Function(lambda: None, "none", jit_compile=True).experimental_get_compiler_ir()(stage="hlo")


def is_variable(handle: Any) -> bool:
    """Return whether a resource is a variable; symbolic ones are taken for that."""
    data = getattr(handle, "_handle_data", None)
    return not hasattr(handle, "numpy") or (data is not None and data.is_set)


def has_soft_placement() -> bool:
    """Return whether the program may use soft device placement, also where a function is traced:
    there `tf.config.get_soft_device_placement` answers for graphs."""
    return getattr(context.context(), "_soft_device_placement", None) is not False
