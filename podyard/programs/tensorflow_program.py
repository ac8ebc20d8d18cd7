"""The changes to a program that imports TensorFlow where a TPU is asked for: resolver, system,
strategy, devices.

Two ways to run replicas. *mirrored*: each has a logical CPU device, as MirroredStrategy has it, and
their values are summed on one, in a fixed order. *fused*: the whole global batch runs on one
device, as one replica; outside of it, the strategy says how many replicas the slice has. Mirrored
is right for what differs between replicas (batch normalization per replica, replica ids); fused is
for slices of more devices than a machine runs well. PODYARD_TF_REPLICAS chooses.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podyard.programs import slice as slices
from podyard.programs import tensorflow_1, tensorflow_system
from podyard.programs.records import recorder_of
from podyard.programs.say import say
from podyard.programs.slice import Slice
from podyard.programs.tensorflow_system import TpuSystem

if TYPE_CHECKING:
    from podyard.programs.tensorflow_steps import TensorFlowSteps

_OF_TENSORFLOW_1 = re.compile(
    r"module 'tensorflow' has no attribute "
    r"'(Session|InteractiveSession|placeholder|contrib|app|flags|layers|get_variable|"
    r"global_variables_initializer|train|"
    r"ConfigProto|set_random_seed|to_float|estimator|logging)'"
    r"|No module named 'tensorflow\.(contrib|estimator|examples)"
)


def apply(tensorflow: Any) -> None:
    """Raises what goes wrong, for the hook's line."""
    of = slices.from_environment()
    if of is None:
        return
    from podyard.programs.lowering.tensorflow_host import outside_compilation
    from podyard.programs.tensorflow_strategy import strategy_class

    system = TpuSystem(tensorflow, of)
    system.set_devices()
    strategy, resolver = strategy_class(tensorflow, system), system.resolver_class()
    system.steps = _steps(tensorflow, of, system)
    for owner in (tensorflow, tensorflow.compat.v1):  # their modules are not the same
        distribute, experimental = owner.distribute, owner.tpu.experimental
        distribute.cluster_resolver.TPUClusterResolver = resolver
        distribute.TPUStrategy = strategy
        distribute.experimental.TPUStrategy = strategy
        experimental.initialize_tpu_system = system.initialize
        experimental.shutdown_tpu_system = lambda cluster_resolver=None: None  # noqa: ARG005
        _replace_devices(owner.config, system)
    tensorflow.compat.v1.tpu.outside_compilation = outside_compilation(tensorflow)
    tensorflow.device = system.device(tensorflow.device)
    tensorflow_system.set_current(system)
    if not tensorflow_1.lend(tensorflow, system):
        sys.excepthook = _hint_behind(sys.excepthook)


def _replace_devices(config: Any, system: TpuSystem) -> None:
    config.experimental_connect_to_cluster = system.connect
    config.experimental_connect_to_host = system.connect
    for name in ("list_logical_devices", "list_physical_devices"):
        setattr(config, name, system.list_devices(getattr(config, name)))
        setattr(config.experimental, name, getattr(config, name))


def _hint_behind(inner: Any) -> Any:
    """The program's own traceback comes first."""

    def excepthook(kind: Any, error: BaseException, traceback: Any) -> None:
        inner(kind, error, traceback)
        if _OF_TENSORFLOW_1.search(str(error)):
            say(
                "this program is for TensorFlow 1: it runs with TensorFlow 2.15, the last release "
                "that has its "
                "estimators (pip install tensorflow-cpu==2.15.1, or a node of version "
                "tpu-vm-tf-2.15.1)"
            )

    return excepthook


def _steps(tensorflow: Any, of: Slice, system: TpuSystem) -> TensorFlowSteps | None:
    """None where nobody asks what steps take."""
    folder = os.environ.get(slices.RUN_VARIABLE)
    if not folder:
        return None
    from podyard.programs.tensorflow_steps import TensorFlowSteps

    recorder = recorder_of(Path(folder), of.process_index)
    recorder.watch_failure()
    strict = os.environ.get(slices.STRICT_VARIABLE) == "1"
    steps = TensorFlowSteps(
        tensorflow, recorder, len(system.devices), not system.is_mirrored, strict
    )
    steps.install()
    return steps
