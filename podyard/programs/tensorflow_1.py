"""Programs of 2018 and 2019, for TensorFlow 1: TPUEstimator, `keras_to_tpu_model`,
`tf.contrib.tpu`.

TensorFlow 2.15 is the last release with estimators, and `tensorflow.compat.v1` is TensorFlow 1's
interface in it. The first name that only TensorFlow 1 has turns the module `tensorflow` into that
one, where the program itself asks for it: libraries look for such names to find out what they run
on. Replicas are fused: the global batch runs as one, so sums over replicas are what they are given.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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
_INSTALLED = ("site-packages", "dist-packages", "importlib", "<frozen")  # in the paths of libraries
BATCH_SIZES = ("train_batch_size", "eval_batch_size", "predict_batch_size")


def lend(tensorflow: Any, system: TpuSystem) -> bool:
    """Whether this release can run such programs; then it does from the first name on."""
    if not hasattr(tensorflow.compat.v1, "estimator"):
        return False
    made = _TensorFlow1(tensorflow, system)
    made.replace()
    # A module's own `__getattr__` is asked for names that it does not have (PEP 562).
    tensorflow.__getattr__ = made.missing
    sys.meta_path.insert(0, _ContribFinder(made.begin))
    return True


def apply(estimators: Any) -> None:
    """Of TensorFlow's module that has TPUEstimator, once it is imported: it finds its TPU here."""
    from podyard.programs.tensorflow_system import current

    system = current()
    if system is None:
        return
    make, configure = estimators.TPUEstimator.__init__, estimators.tpu_config.RunConfig.__init__

    # In place: TensorFlow's methods name their own class where they call those above it.
    def make_fused(
        self: Any,
        model_fn: Any = None,
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        use_tpu: bool = True,
        *args: Any,
        **named: Any,
    ) -> None:
        if use_tpu:
            system.say_what_was_found()
            sizes = {**dict(zip(BATCH_SIZES, args, strict=False)), **named}
            for name in BATCH_SIZES:
                if (size := sizes.get(name)) and size % len(system.devices):
                    raise ValueError(_uneven(name, size, len(system.devices)))
        make(self, model_fn, model_dir, config, params, False, *args, **named)

    def configure_here(
        self: Any,
        tpu_config: Any = None,
        evaluation_master: Any = None,  # noqa: ARG001
        master: Any = None,  # noqa: ARG001
        cluster: Any = None,  # noqa: ARG001
        **named: Any,
    ) -> None:
        configure(self, tpu_config, **named)

    estimators.TPUEstimator.__init__ = make_fused
    estimators.tpu_config.RunConfig.__init__ = configure_here


class _TensorFlow1:
    def __init__(self, tensorflow: Any, system: TpuSystem) -> None:
        self._tf = tensorflow
        self._system = system
        self._has_begun = False

    def missing(self, name: str) -> Any:
        if name in NAMES and not self._has_begun and _is_asked_by_program():
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
        tf.contrib = self._contrib()

    def replace(self) -> None:
        """What `compat.v1` has for TPUs, and needs one."""
        v1 = self._tf.compat.v1
        # The real one sums by an operation that no CPU has.
        v1.tpu.CrossShardOptimizer.apply_gradients = lambda self, *args, **named: (
            self._opt.apply_gradients(*args, **named)
        )
        for name, one in self._operations().items():
            setattr(v1.tpu, name, one)
        v1.Session = _session_class(v1)

    def _operations(self) -> dict[str, Any]:
        v1, system = self._tf.compat.v1, self._system

        def rewrite(
            computation: Callable[..., Any], inputs: Sequence[Any] | None = None, **_named: Any
        ) -> Any:
            found = computation(*(inputs or ()))
            return (
                []
                if found is None
                else list(found)
                if isinstance(found, (list, tuple))
                else [found]
            )

        def replicate(
            computation: Callable[..., Any], inputs: Sequence[Any] | None = None, **_named: Any
        ) -> Any:
            return [rewrite(computation, one) for one in inputs or ((),)]

        def shard(
            computation: Callable[..., Any],
            inputs: Sequence[Any] | None = None,
            num_shards: int = 1,
            **named: Any,
        ) -> Any:
            for one in inputs or ():
                if one.shape.rank and one.shape[0] is not None and one.shape[0] % num_shards:
                    raise ValueError(_uneven("input", int(one.shape[0]), num_shards))
            return rewrite(computation, inputs, **named)

        def initialize_system(*_args: Any, **_named: Any) -> Any:
            system.say_what_was_found()
            return v1.constant(system.initialize().serialized())

        return {
            "cross_replica_sum": lambda x, *_args, **_named: x,
            "initialize_system": initialize_system,
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

        def keras_to_tpu_model(model: Any, strategy: Any = None) -> Any:  # noqa: ARG001
            system.say_what_was_found()
            model.sync_to_cpu = lambda: model
            return model

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
            f"{CONTRIB}.cluster_resolver": resolvers,
        }
        for name, values in of.items():
            module = types.ModuleType(name, "Of TensorFlow 1, as far as programs for TPUs use it.")
            module.__path__ = []
            module.__dict__.update(values, __getattr__=_not_emulated(name))
            sys.modules[name] = module
            parent, _, own = name.rpartition(".")
            if name != CONTRIB:
                setattr(sys.modules[parent], own, module)
        return sys.modules[CONTRIB]


class TPUDistributionStrategy:
    """What `keras_to_tpu_model` is given: where the TPU is."""

    def __init__(self, tpu_cluster_resolver: Any = None, using_single_core: bool = False) -> None:
        self.tpu_cluster_resolver = tpu_cluster_resolver
        self.using_single_core = using_single_core


def _session_class(v1: Any) -> Any:
    class LocalSession(v1.Session):  # type: ignore[misc]
        """A session of this process, also where the TPU's address is given."""

        def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
            super().__init__("" if target.startswith("grpc:") else target, graph, config)

    return LocalSession


def _uneven(name: str, size: int, cores: int) -> str:
    return (
        f"{name} {size} cannot be shared evenly: {cores} cores have the same number of "
        "examples each"
    )


def _not_emulated(module: str) -> Callable[[str], Any]:
    def missing(name: str) -> Any:
        text = f"module {module!r} has no attribute {name!r}"
        raise AttributeError(
            text if name.startswith("__") else f"{text}: contrib has tpu and cluster_resolver here"
        )

    return missing


class _ContribFinder:
    """`import tensorflow.contrib.tpu` may come before any name."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin

    def find_spec(
        self, name: str, _path: Any = None, _target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != CONTRIB or not _is_asked_by_program():
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


def _is_asked_by_program() -> bool:
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename == __file__ or "importlib" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return frame is None or not any(part in frame.f_code.co_filename for part in _INSTALLED)
