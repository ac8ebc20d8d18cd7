"""The steps that a TensorFlow program runs on its TPU: what each compiles to, and how often it
runs.

A step is what `strategy.run` gets, Keras' own included, or a function with `jit_compile=True` that
is called by itself. After its first run it is traced once more, as one replica with that replica's
part of the batch, and XLA's bridge gives its StableHLO: nothing is executed for that, and no state
of the program changes. Sums over replicas stand in it as all-reduces. A counter in the program's
own graph tells how often a step ran, loops on the device included.
"""

from __future__ import annotations

import atexit
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from podyard.base.clock import OsClock
from podyard.base.rng import keep_users_chance
from podyard.programs import tensorflow_internals as internals
from podyard.programs import tensorflow_modules
from podyard.programs.lowering import tensorflow_host
from podyard.programs.modules import hlo_records
from podyard.programs.records import MODULES_MAX, NOT_LOWERED, ModuleRuns, Recorder
from podyard.programs.say import say

# how long a step waits for the verdict under --strict: the TPU compiler takes minutes
VERDICT_SECONDS = 600.0
_REASON_CHARACTERS_MAX = 300
# from one look at all counters to the next; those of the function that ran are looked at at once
_LOOK_SECONDS = 1.0
_NO_KERNEL = re.compile(r"XLA_CPU_JIT: (\w+) \(No registered")
_OF_KERAS = re.compile(r"\bmake_(train|test|predict)_function\b")
# what TensorFlow before 2.19 answers
_NO_STAGE = "Invalid stage selected: 'stablehlo'"
_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
_SUMMED = ("float32", "bfloat16", "float16", "int32", "uint32")  # what XLA sums over replicas
_monotonic = OsClock().monotonic_seconds


class _Step:
    """One way in which a step runs: the function with its arguments' structure, and the module of
    their shapes.

    `specs`: the tensors among the arguments as TensorSpecs, of which `open_dims` are known only
    when they run. `counter`: in the program's graph: how often it ran, and the largest extents of
    `open_dims`; None: `ran` is called.
    """

    def __init__(
        self,
        name: str,
        devices: int,
        specs: list[Any],
        open_dims: list[tuple[int, int]],
        counter: Any,
    ) -> None:
        self.name = name
        self.devices = devices
        self.specs = specs
        self.open_dims = open_dims
        self.counter = counter
        self.lower: Callable[[list[Any]], bytes] = _never
        self.replica: Callable[[], Any] = _never_a_replica
        self.module: ModuleRuns | None = None
        self.extents: tuple[int, ...] = ()
        self.ran = 0
        self._before = 0  # runs of the modules of smaller batches
        self._first = (0, 0.0)  # runs at the end of the first call, and when it ended

    def look(self, steps: TensorFlowSteps) -> None:
        """Counts what has run since the last look."""
        ran, extents = self.ran, self.extents
        if self.counter is not None:
            ran, *found = (int(value) for value in self.counter.numpy())
            extents = tuple(found)
        counted = self._before + (self.module.runs if self.module is not None else 0)
        if ran == counted:
            return
        if self.module is None or extents != self.extents:
            self._before, self.extents = counted, extents
            self._first = (0, 0.0)
            self.module = steps.add(self, self._shapes(extents))
        runs, now = ran - self._before, _monotonic()
        if not self._first[0]:
            self._first = (runs, now)
        first_runs, first = self._first
        self.module.runs, self.module.last = runs, now
        # A call runs several steps at once: the time of a step is that of the later calls over
        # their steps.
        later = runs - first_runs
        self.module.first = now - (now - first) * (runs - 1) / later if later else now

    def _shapes(self, extents: Sequence[int]) -> list[Any]:
        shapes = [list(spec.shape) for spec in self.specs]
        for (place, axis), extent in zip(self.open_dims, extents, strict=True):
            shapes[place][axis] = extent
        return shapes


class TensorFlowSteps:
    """All steps of the program. `replicas`: of the slice. `shares`: whether a step gets the global
    batch."""

    def __init__(
        self, tf: Any, recorder: Recorder, replicas: int, shares: bool, strict: bool
    ) -> None:
        self.tf = tf
        self.replicas = replicas
        self._shares = shares
        self._strict = strict
        self._recorder = recorder
        self._steps: list[_Step] = []
        self._eager: dict[object, _Step] = {}
        self._of_function: weakref.WeakKeyDictionary[Any, list[_Step]] = weakref.WeakKeyDictionary()
        self._looked_at = 0.0
        self._ends_with_look = False
        self._lock = threading.RLock()
        self._thread = threading.local()

    @property
    def is_tracing(self) -> bool:
        """Return whether this thread is tracing a step for its module."""
        return getattr(self._thread, "traces", False)

    def install(self) -> None:
        """Looks at the counters after each call of a tf.function that comes from no other."""
        inner, steps = internals.Function.__call__, self

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            if (
                steps._outer is not None
                or steps.is_tracing
                or not internals.context.executing_eagerly()
            ):
                return inner(function, *args, **kwargs)
            return steps._call(function, args, kwargs, lambda: inner(function, *args, **kwargs))

        internals.Function.__call__ = call

    @property
    def _outer(self) -> Any:
        """The function that this thread called first."""
        return getattr(self._thread, "outer", None)

    @contextmanager
    def _inside(self, function: Any) -> Iterator[None]:
        before, self._thread.outer = self._outer, function
        try:
            yield
        finally:
            self._thread.outer = before

    def _call(self, function: Any, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        is_compiled, alone = bool(function._jit_compile), None
        with self._inside(function):
            if is_compiled and self._strict:
                alone = self._step_alone(function, args, kwargs)  # before anything runs
            result = call()
        if is_compiled:
            alone = alone or self._step_alone(function, args, kwargs)
        if alone is not None:
            alone.ran += 1
            self._look([alone])
        now = _monotonic()
        if now > self._looked_at + _LOOK_SECONDS:
            self._looked_at = now
            self._look(self._steps)  # a step may run in several functions
        else:
            self._look(self._of_function.get(function, ()))
        return result

    def _look(self, among: Sequence[_Step]) -> None:
        with self._lock:
            for step in among:
                step.look(self)

    def _keep(self, step: _Step) -> bool:
        """A program that compiles without end is counted up to MODULES_MAX."""
        if len(self._steps) >= MODULES_MAX:
            return False
        self._steps.append(step)
        return True

    # --- steps of replicas

    def run(self, strategy: Any, fn: Any, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """`call()`, in which each replica runs `fn`."""
        if self.is_tracing:
            return call()
        if internals.context.executing_eagerly():
            return self._run_now(strategy, fn, args, kwargs, call)
        try:
            step = self._step_of(strategy, fn, args, kwargs, counts_itself=False)
            self._refuse_what_xla_does_not_compile(step)
        except self.tf.errors.InvalidArgumentError:
            raise
        except Exception as error:  # the program itself goes on
            say(f"runs of {_name_of(fn)} are not counted: {_reason(error)}")
            return call()
        result = call()
        try:
            self._count_in_graph(step, args, kwargs)
        except Exception as error:  # the program itself goes on
            say(f"runs of {_name_of(fn)} are not counted: {_reason(error)}")
            return result
        with self._lock:
            known = self._keep(step)
            if self._outer is not None:
                self._of_function.setdefault(self._outer, []).extend([step] if known else [])
        return result

    def _run_now(
        self, strategy: Any, fn: Any, args: Any, kwargs: Any, call: Callable[[], Any]
    ) -> Any:
        step = self._step_of(strategy, fn, args, kwargs, counts_itself=True)
        self._refuse_what_xla_does_not_compile(step)
        with self._inside(fn):
            result = call()
        key = (getattr(fn, "python_function", fn), tuple(map(repr, step.specs)))
        with self._lock:
            if key in self._eager or self._keep(step):
                step = self._eager.setdefault(key, step)
                step.ran += 1
                step.look(self)
        return result

    def _step_of(
        self, strategy: Any, fn: Any, args: Any, kwargs: Any, *, counts_itself: bool
    ) -> _Step:
        tf = self.tf
        one = tf.nest.map_structure(_of_first_replica, (args, kwargs))
        leaves = tf.nest.flatten(one)
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, tf.Tensor)]
        specs = [tf.TensorSpec(leaves[place].shape, leaves[place].dtype) for place in places]
        open_dims = [] if counts_itself else _open_dims(specs)
        counter = None
        if not counts_itself:
            with tf.init_scope(), tf.device("/CPU:0"):
                counter = internals.ResourceVariable(
                    np.zeros(1 + len(open_dims), np.int64), trainable=False
                )
        step = _Step(_name_of(fn), self.replicas, specs, open_dims, counter)
        rest = [None if isinstance(leaf, tf.Tensor) else leaf for leaf in leaves]

        def replica(*tensors: Any) -> Any:
            filled = list(rest)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            own_args, own_kwargs = tf.nest.pack_sequence_as(one, filled)
            with internals.distribute_lib.ReplicaContext(strategy, 0):
                result = fn(*own_args, **own_kwargs)
            return [
                leaf
                for leaf in tf.nest.flatten(result, expand_composites=True)
                if isinstance(leaf, tf.Tensor)
            ]

        def compile_replica() -> Any:
            return tf.function(replica, jit_compile=True, autograph=False)

        def lower(shapes: list[Any]) -> bytes:
            if self._shares:
                batch = next((shape[0] for shape in shapes if shape), 0)
                shapes = share(shapes, batch, self.replicas)
            # Numbers of 64 bits from NumPy: a TPU holds one as two of 32, and Keras casts them.
            dtypes = [tf.float32 if one.dtype == tf.float64 else one.dtype for one in specs]
            at_run = [
                tf.TensorSpec(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)
            ]

            return self.lower_replica(compile_replica(), at_run, step.name, self.replicas)

        step.lower, step.replica = lower, compile_replica
        return step

    def _refuse_what_xla_does_not_compile(self, step: _Step) -> None:
        """Without soft device placement nothing of a step runs on the host.

        Raises TensorFlow's InvalidArgumentError, in the words of its bridge."""
        if internals.has_soft_placement():
            return
        with self._tracing():
            operations = tensorflow_host.host_operations(
                step.replica().get_concrete_function(*step.specs)
            )
        if operations:
            text = tensorflow_host.refusal(step.name, operations)
            raise self.tf.errors.InvalidArgumentError(None, None, text)

    def _count_in_graph(self, step: _Step, args: Any, kwargs: Any) -> None:
        tf = self.tf
        if not step.open_dims:
            step.counter.assign_add([1])
            return
        leaves = tf.nest.flatten(tf.nest.map_structure(_of_first_replica, (args, kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, tf.Tensor)]
        extents = [tf.shape(tensors[place], tf.int64)[axis] for place, axis in step.open_dims]
        before = step.counter.read_value()
        step.counter.assign(
            tf.concat([before[:1] + 1, tf.maximum(before[1:], tf.stack(extents))], 0)
        )

    # --- functions of one device

    def _step_alone(self, function: Any, args: Any, kwargs: Any) -> _Step | None:
        """None for a function in which replicas run."""
        if function in self._of_function:
            return None
        leaves = self.tf.nest.flatten((args, kwargs))
        shapes = [
            (tuple(leaf.shape), str(leaf.dtype)) if hasattr(leaf, "shape") else repr(leaf)
            for leaf in leaves
        ]
        key = (function, *shapes)
        with self._lock:
            step = self._eager.get(key)
            if step is None:
                step = _Step(_name_of(function), 1, [], [], None)
                step.lower = lambda _shapes: self.lower_function(
                    function, args, kwargs, _name_of(function)
                )
                step.module = self.add(step, [])
                step.lower = _never  # the arguments are the program's to free
                if function in self._of_function or not self._keep(step):
                    return None
                self._eager[key] = step
            return step

    # --- modules

    def add(self, step: _Step, shapes: list[Any]) -> ModuleRuns:
        """The module of a step with these shapes; what XLA cannot lower is named as that."""
        return self.add_lowered(step.name, step.devices, lambda: step.lower(shapes))

    def add_lowered(self, name: str, devices: int, lower: Callable[[], bytes]) -> ModuleRuns:
        """Return the module that `lower` gives, which may trace the program's functions."""
        started = _monotonic()
        try:
            with self._tracing():
                text = lower()
        # whatever a program's function raises where it is traced once more
        except Exception as error:
            text = NOT_LOWERED + _reason(error).encode()
        module = self._recorder.add(text, name, devices)
        if not self._ends_with_look:
            self._ends_with_look = True
            # behind the recorder's: it runs before that
            atexit.register(lambda: self._look(self._steps))
        module.compile_seconds = _monotonic() - started
        if self._strict:
            self._refuse_what_does_not_fit(module)
        return module

    def _refuse_what_does_not_fit(self, module: ModuleRuns) -> None:
        found = self._recorder.verdict(module, VERDICT_SECONDS)
        if not found:
            say(f"no verdict on {module.name} within {VERDICT_SECONDS:.0f} s: it runs")
        elif found.get("fits") is False:
            raise self.tf.errors.ResourceExhaustedError(None, None, str(found.get("refusal", "")))

    @contextmanager
    def _tracing(self) -> Iterator[None]:
        """Yield what is random outside of TensorFlow's variables is as before, whatever the
        function draws."""
        own = getattr(internals.context.context(), "_rng", None)
        drawn = None if own is None else own.getstate()
        self._thread.traces = True
        try:
            with keep_users_chance():
                yield
        finally:
            self._thread.traces = False
            if own is not None:
                own.setstate(drawn)

    def lower_function(
        self,
        function: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        name: str,
        replicas: int = 1,
        split: int = 0,
    ) -> bytes:
        """Return the module of a function with `jit_compile=True`, as StableHLO on `replicas`
        devices, or as a record of HLO. The device is that of its variables, by name: TensorFlow
        would draw a random number to find it out, from the program's own sequence."""
        captured = function.get_concrete_function(*args, **kwargs).captured_inputs
        device = next((one.device for one in captured if one.dtype == self.tf.resource), _HOST)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            generate = function.experimental_get_compiler_ir(*args, **kwargs)
            try:
                text = str(generate(stage="stablehlo", device_name=device))
            except ValueError as error:
                if _NO_STAGE not in str(error):
                    raise
                hlo = generate(stage="hlo_serialized", device_name=device)
                return hlo_records.record_of(hlo, name, replicas, split)
        return tensorflow_modules.over_replicas(text, name, replicas, split).encode()

    def lower_replica(self, function: Any, specs: Sequence[Any], name: str, replicas: int) -> bytes:
        """Return the module of what each replica runs, in which custom calls stand for what the
        host runs."""
        traced = function.get_concrete_function(*specs)
        if not tensorflow_host.has_marks(traced):
            try:
                return self.lower_function(function, specs, {}, name, replicas, len(specs))
            except (ValueError, self.tf.errors.InvalidArgumentError):
                if not tensorflow_host.host_operations(traced):
                    raise
        on_host = tensorflow_host.with_host_calls(self.tf, traced)
        return self.lower_function(on_host, specs, {}, name, replicas, len(specs))

    def all_reduce(self, op: Any, value: Any) -> Any:
        """A sum over replicas, where a step is traced for one."""
        tf = self.tf
        if isinstance(value, tf.IndexedSlices):
            value = tf.convert_to_tensor(value)
        if (
            not isinstance(value, tf.Tensor)
            or value.dtype.name not in _SUMMED
            or self.replicas == 1
        ):
            return value
        total = tf.custom_gradient(_sum)(value)
        return total / tf.cast(self.replicas, value.dtype) if op == internals.MEAN else total


def _never(_shapes: list[Any]) -> bytes:
    raise AssertionError


def _never_a_replica() -> Any:
    raise AssertionError


def _sum(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return what stands for the sum of a value over replicas, and its gradient: a sum, too."""
    (total,) = internals.custom_call(
        [value],
        call_target_name=tensorflow_modules.SUM,
        backend_config="",
        has_side_effect=False,
        result_dtypes=[value.dtype],
        result_shapes=[value.shape],
    )
    return total, lambda gradient: _sum(gradient)[0]


def _of_first_replica(value: Any) -> Any:
    is_shared = isinstance(value, internals.DistributedValues) and not hasattr(value, "assign")
    return value.values[0] if is_shared and hasattr(value, "values") else value


def _open_dims(specs: Sequence[Any]) -> list[tuple[int, int]]:
    return [
        (place, axis)
        for place, spec in enumerate(specs)
        if spec.shape.rank is not None
        for axis, extent in enumerate(spec.shape)
        if extent is None
    ]


def share(shapes: list[Any], batch: int, replicas: int) -> list[Any]:
    """One replica's shapes, of those of the global batch: its extent is that of the first axis of
    the first array."""
    return [
        [-(-batch // replicas), *shape[1:]] if shape and shape[0] == batch else shape
        for shape in shapes
    ]


def _name_of(fn: Any) -> str:
    own = getattr(fn, "python_function", fn)
    if inside := _OF_KERAS.search(getattr(own, "__qualname__", "")):
        return f"{inside[1]}_step"  # what Keras runs in it has no name, or the same in all three
    return str(getattr(own, "__name__", type(own).__name__)).strip("<>") or "step"


def _reason(error: Exception) -> str:
    """The first line that says something, without the graph's names."""
    text = str(getattr(error, "message", error)).strip()
    if found := _NO_KERNEL.search(text):
        return f"it has no kernel for {found[1]}"
    return (text.splitlines() or [type(error).__name__])[0][:_REASON_CHARACTERS_MAX]
