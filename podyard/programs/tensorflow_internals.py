"""Every private name of TensorFlow that the other modules use. A release without one of them is
left as it is."""

from __future__ import annotations

from importlib import import_module
from typing import Any

TESTED = ("2.15.", "2.18.", "2.21.")  # versions that the tests run


def _module(name: str) -> Any:
    """TensorFlow's modules say nothing of their types."""
    return import_module(f"tensorflow.{name}")


all_reduce: Any = _module("compiler.tf2xla.ops.gen_xla_ops").xla_all_reduce
autograph: Any = _module("python.autograph.core.config")
context: Any = _module("python.eager.context")
distribute_lib: Any = _module("python.distribute.distribute_lib")
Function: Any = _module("python.eager.polymorphic_function.polymorphic_function").Function
MirroredExtended: Any = _module("python.distribute.mirrored_strategy").MirroredExtended
multi_device_iterator: Any = _module("python.data.ops.multi_device_iterator_ops")
OneDeviceExtended: Any = _module("python.distribute.one_device_strategy").OneDeviceExtended
DistributedValues: Any = _module("python.distribute.values").DistributedValues
MEAN: Any = _module("python.distribute.reduce_util").ReduceOp.MEAN
ResourceVariable: Any = _module("python.ops.resource_variable_ops").ResourceVariable
TPUSystemMetadata: Any = _module("python.tpu.tpu_system_metadata").TPUSystemMetadata
validate_run_function: Any = _module("python.distribute.tpu_strategy").validate_run_function
