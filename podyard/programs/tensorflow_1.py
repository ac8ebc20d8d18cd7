"""Programs of 2018 and 2019, for TensorFlow 1: TPUEstimator, `keras_to_tpu_model`,
`tf.contrib.tpu`.

TensorFlow 2.15 is the last release with estimators, and `tensorflow.compat.v1` is TensorFlow 1's
interface in it. The module `tensorflow` turns into that one for a program whose source uses names
that only TensorFlow 1 has, or else where the program asks for the first of them: libraries look
for such names to find out what they run on.

Replicas are fused: the global batch runs as one, so sums over replicas are what they are given.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from podyard.programs.contrib.modules import modules_of
from podyard.programs.graphs import estimators as estimators_of_graphs
from podyard.programs.graphs.estimators import uneven
from podyard.programs.graphs.graph_steps import add_step, count_runs
from podyard.programs.graphs.keras_models import TPUDistributionStrategy, give_to_tpu
from podyard.programs.graphs.keras_strategy import strategy_of_graphs
from podyard.programs.graphs.source import (
    Chain,
    calling_file,
    is_of_library,
    sources_of_program,
    uses_tensorflow_1,
)
from podyard.programs.say import say

if TYPE_CHECKING:
    from podyard.programs.tensorflow_system import TpuSystem

# Names that TensorFlow 2 does not have, and that programs for TensorFlow 1 begin with.
NAMES = frozenset({
    "ConfigProto", "InteractiveSession", "Session", "app", "contrib", "flags", "get_variable",
    "global_variables_initializer", "layers", "logging", "placeholder", "set_random_seed",
    "to_float", "variable_scope",
})  # fmt: skip
CONTRIB = "tensorflow.contrib"


def lend(tensorflow: Any, system: TpuSystem) -> bool:
    """Return whether this release can run such programs; then it does from the first name on."""
    if not hasattr(tensorflow.compat.v1, "estimator"):
        return False
    made = _TensorFlow1(tensorflow, system)
    made.replace()
    # A module's own `__getattr__` is asked for names that it does not have (PEP 562).
    tensorflow.__getattr__ = made.missing
    sys.meta_path.insert(0, _ContribFinder(made.begin))
    if any(uses_tensorflow_1(one, made.has_alone) for one in sources_of_program()):
        made.begin()
    return True


def apply(estimators: Any) -> None:
    """Of TensorFlow's module that has TPUEstimator, once it is imported: it finds its TPU here."""
    from podyard.programs.tensorflow_system import current

    system = current()
    if system is None:
        return
    estimators_of_graphs.apply_to(estimators, system)


class _TensorFlow1:
    def __init__(self, tensorflow: Any, system: TpuSystem) -> None:
        self._tf = tensorflow
        self._system = system
        self._has_begun = False

    def has_alone(self, chain: Chain) -> bool:
        """Return whether TensorFlow 1 has this name and TensorFlow 2 does not. Keras is not asked:
        that would import it."""
        if chain[0] in ("contrib", "keras"):
            return chain[0] == "contrib"
        return _has(self._tf.compat.v1, chain) and not _has(self._tf, chain)

    def missing(self, name: str) -> Any:
        if name in NAMES and not self._has_begun and not is_of_library(calling_file()):
            self.begin()
            return getattr(self._tf, name)
        raise AttributeError(f"module 'tensorflow' has no attribute {name!r}")

    def begin(self) -> None:
        """The module `tensorflow` is that of TensorFlow 1 from now on."""
        if self._has_begun:
            return
        self._has_begun = True
        tf, v1 = self._tf, self._tf.compat.v1
        v1.disable_v2_behavior()
        v1.logging.set_verbosity(v1.logging.INFO)  # as TensorFlow 1 begins
        say(
            f"this program is for TensorFlow 1: it has tensorflow.compat.v1 of {tf.__version__}; "
            "replicas are fused"
        )
        for name in dir(v1):
            if not name.startswith("_"):
                setattr(tf, name, getattr(v1, name))
        make = strategy_of_graphs(tf, self._system, tf.distribute.TPUStrategy)
        tf.distribute.TPUStrategy = tf.distribute.experimental.TPUStrategy = make
        tf.contrib = self._contrib()

    def replace(self) -> None:
        """Replace the names of `compat.v1` that need a TPU."""
        v1 = self._tf.compat.v1
        # The real one sums by an operation that no CPU has.
        system = self._system

        def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **named: Any) -> Any:
            pairs = [(_sum_of(system, gradient), variable) for gradient, variable in grads_and_vars]
            return self._opt.apply_gradients(pairs, *args, **named)

        v1.tpu.CrossShardOptimizer.apply_gradients = apply_gradients
        for name, one in self._operations().items():
            setattr(v1.tpu, name, one)
        v1.Session = _session_class(v1)

    def _operations(self) -> dict[str, Any]:
        v1, system = self._tf.compat.v1, self._system

        def call(computation: Callable[..., Any], inputs: Sequence[Any] | None) -> list[Any]:
            results = computation(*(inputs or ()))
            return list(results) if isinstance(results, (list, tuple)) else [results]

        def run(
            computation: Callable[..., Any],
            per_replica: Sequence[Sequence[Any]],
            replicas: int,
            batch: int | None = None,
        ) -> list[list[Any]]:
            """Return the results for each of the inputs; the first count the runs of a module on
            `replicas` devices."""
            results = [call(computation, one) for one in per_replica]
            results = [[one for one in each if one is not None] for each in results]
            if system.steps is not None and not system.is_tracing:
                name = getattr(computation, "__name__", "computation").strip("<>")
                arguments = tuple(per_replica[0])
                module = add_step(system, name, computation, arguments, batch, replicas)
                results[0] = count_runs(self._tf, module, results[0])
            return results

        def rewrite(
            computation: Callable[..., Any], inputs: Sequence[Any] | None = None, **_named: Any
        ) -> Any:
            return run(computation, [inputs or ()], 1)[0]

        def replicate(
            computation: Callable[..., Any], inputs: Sequence[Any] | None = None, **_named: Any
        ) -> Any:
            each = inputs or [()]
            return run(computation, each, len(each), batch=-1)

        def shard(
            computation: Callable[..., Any],
            inputs: Sequence[Any] | None = None,
            num_shards: int = 1,
            **_named: Any,
        ) -> Any:
            for one in inputs or ():
                if one.shape.rank and one.shape[0] is not None and one.shape[0] % num_shards:
                    raise ValueError(uneven("input", int(one.shape[0]), num_shards))
            return run(computation, [inputs or ()], num_shards)[0]

        def initialize_system(*_args: Any, **_named: Any) -> Any:
            system.say_what_was_found()
            return v1.constant(system.initialize().serialized())

        return {
            "cross_replica_sum": lambda x, *_args, **_named: _sum_of(system, x),
            "initialize_system": initialize_system,
            "outside_compilation": v1.tpu.outside_compilation,
            "shutdown_system": lambda *_args, **_named: v1.no_op(),
            "rewrite": rewrite,
            "replicate": replicate,
            "shard": shard,
            "batch_parallel": shard,
        }

    def _contrib(self) -> types.ModuleType:
        """`tensorflow.contrib` and its modules, by the paths that programs import them from."""
        v1, system = self._tf.compat.v1, self._system
        estimators = v1.estimator.tpu

        def keras_to_tpu_model(model: Any, strategy: Any = None) -> Any:
            return give_to_tpu(model, strategy, system)

        config = {
            name: getattr(estimators, name)
            for name in ("RunConfig", "TPUConfig", "InputPipelineConfig")
        }
        estimator = {
            name: getattr(estimators, name) for name in ("TPUEstimator", "TPUEstimatorSpec")
        }
        optimizer = {"CrossShardOptimizer": v1.tpu.CrossShardOptimizer}
        keras = {
            "TPUDistributionStrategy": TPUDistributionStrategy,
            "keras_to_tpu_model": keras_to_tpu_model,
        }
        inside = f"{CONTRIB}.tpu.python.tpu"
        resolvers = {"TPUClusterResolver": v1.distribute.cluster_resolver.TPUClusterResolver}
        of: dict[str, dict[str, Any]] = {
            CONTRIB: {},
            f"{CONTRIB}.tpu": {**config, **estimator, **optimizer, **keras, **self._operations()},
            f"{CONTRIB}.tpu.python": {},
            inside: {},
            f"{inside}.tpu_config": config,
            f"{inside}.tpu_estimator": estimator,
            f"{inside}.tpu_optimizer": optimizer,
            f"{inside}.keras_support": keras,
            f"{CONTRIB}.cluster_resolver": resolvers,
            **{f"{CONTRIB}.{name}": names for name, names in modules_of(self._tf).items()},
        }
        below = [name.removeprefix(f"{CONTRIB}.") for name in of if name != CONTRIB]
        for name, values in of.items():
            module = types.ModuleType(name, "Of TensorFlow 1, as far as programs for TPUs use it.")
            module.__path__ = []
            module.__dict__.update(values, __getattr__=_not_emulated(name, below))
            sys.modules[name] = module
            parent, _, own = name.rpartition(".")
            if name != CONTRIB:
                setattr(sys.modules[parent], own, module)
        return sys.modules[CONTRIB]


def _sum_of(system: TpuSystem, value: Any) -> Any:
    """Return a sum over replicas where a step is traced for one: a fused replica has them all."""
    return system.steps.all_reduce("sum", value) if system.is_tracing else value


def _session_class(v1: Any) -> Any:
    class LocalSession(v1.Session):  # type: ignore[misc]
        """A session of this process, also where the TPU's address is given."""

        def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
            super().__init__("" if target.startswith("grpc:") else target, graph, config)

    return LocalSession


def _not_emulated(module: str, modules: Sequence[str]) -> Callable[[str], Any]:
    there = ", ".join(sorted(name for name in modules if "." not in name))

    def missing(name: str) -> Any:
        text = f"module {module!r} has no attribute {name!r}"
        raise AttributeError(text if name.startswith("__") else f"{text}: contrib has {there} here")

    return missing


class _ContribFinder:
    """`import tensorflow.contrib.tpu` may come before any name."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin

    def find_spec(
        self, name: str, _path: Any = None, _target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != CONTRIB or is_of_library(calling_file()):
            return None
        self._begin()
        return importlib.machinery.ModuleSpec(name, _Made(sys.modules[name]), is_package=True)


class _Made(importlib.abc.Loader):
    """Gives what `_contrib` has made."""

    def __init__(self, made: types.ModuleType) -> None:
        self._made = made

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__.update(
            {name: one for name, one in vars(self._made).items() if name != "__spec__"}
        )


def _has(owner: Any, chain: Chain) -> bool:
    for name in chain:
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True
