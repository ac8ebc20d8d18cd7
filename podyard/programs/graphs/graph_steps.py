"""The module of a function that a program for TensorFlow 1 has put into its graph.

The function is traced once more, as one replica with its part of the batch, outside of the
program's graph: its variables are zeros there, and nothing is computed. Runs are counted where the
program's session runs the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from podyard.programs import tensorflow_internals as internals
from podyard.programs.records import ModuleRuns
from podyard.programs.tensorflow_steps import share

if TYPE_CHECKING:
    from podyard.programs.tensorflow_system import TpuSystem


def add_step(
    system: TpuSystem,
    name: str,
    build: Callable[..., Any],
    arguments: Any,
    batch: int | None,
    replicas: int,
) -> ModuleRuns:
    """Return the module of `build(*arguments)` on `replicas` devices.

    `arguments` is a structure of tensors or TensorSpecs, which `build` gets with a replica's
    shapes: of extent `batch` on the first axis (None: the first tensor's; -1: of none) it has its
    share. `build` returns a structure with the tensors that the step hands back.
    """
    tf, steps = system.tf, system.steps
    structure = tf.nest.flatten(arguments)
    places = [place for place, leaf in enumerate(structure) if leaf is not None]
    leaves = [
        leaf if isinstance(leaf, tf.TensorSpec) else tf.convert_to_tensor(leaf)
        for leaf in (structure[place] for place in places)
    ]
    extents = [None if leaf.shape.rank is None else leaf.shape.as_list() for leaf in leaves]
    batch = batch or next((one[0] for one in extents if one), None) or 0
    shapes = [_close(one or [], batch) for one in extents]
    shapes = share(shapes, batch, replicas) if replicas > 1 else shapes
    specs = [tf.TensorSpec(shape, leaf.dtype) for shape, leaf in zip(shapes, leaves, strict=True)]
    variables, keys = _Variables(tf), tf.compat.v1.GraphKeys

    def replica(*tensors: Any) -> Any:
        for name in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES, keys.TRAINABLE_VARIABLES):
            tf.compat.v1.get_collection_ref(name).clear()  # of an earlier trace
        tf.compat.v1.train.create_global_step()
        filled: list[Any] = [None] * len(structure)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        results = build(*tf.nest.pack_sequence_as(arguments, filled))
        flat = tf.nest.flatten(results, expand_composites=True)
        return [leaf for leaf in flat if isinstance(leaf, tf.Tensor)]

    def lower() -> bytes:
        # The lists of variables are those of the graph around: not the program's.
        with tf.Graph().as_default(), internals.context.eager_mode():
            compiled = tf.function(variables.in_place(replica), jit_compile=True, autograph=False)
            lowered: bytes = steps.lower_replica(compiled, specs, name, replicas)
            return lowered

    module: ModuleRuns = steps.add_lowered(name, replicas, lower)
    return module


def count_runs(tf: Any, module: ModuleRuns, results: Sequence[Any]) -> list[Any]:
    """Return the same tensors, which count a run of the module where a session computes them."""
    count = tf.numpy_function(module.count, [], [])
    with tf.control_dependencies([count]):
        return [tf.identity(one) if isinstance(one, tf.Tensor) else one for one in results]


def counting_hook(tf: Any, module: ModuleRuns) -> Any:
    """Return a hook that counts the runs of a session as runs of the module."""

    class CountingHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:  # noqa: ARG002
            module.count()

    return CountingHook()


class _Variables:
    """Zeros in place of the variables that a function makes, by their names: it may be traced more
    than once."""

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self._by_name: dict[tuple[object, ...], Any] = {}

    def in_place(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def trace(*tensors: Any) -> Any:
            self._count = 0
            with self._tf.variable_creator_scope(self._create):
                return function(*tensors)

        return trace

    def _create(self, _next_creator: Any, **given: Any) -> Any:
        tf, initial = self._tf, given.get("initial_value")
        shape, dtype = given.get("shape"), given.get("dtype")
        if shape is None or not tf.TensorShape(shape).is_fully_defined() or dtype is None:
            value = initial() if callable(initial) else tf.convert_to_tensor(initial)
            shape, dtype = value.shape, value.dtype
        shape, dtype = tf.TensorShape(shape), tf.as_dtype(dtype).base_dtype
        self._count += 1
        key = (self._count, given.get("name"), *shape.as_list(), dtype)
        if key not in self._by_name:
            with tf.init_scope():
                self._by_name[key] = internals.ResourceVariable(
                    tf.zeros(shape, dtype),
                    trainable=given.get("trainable", True),
                    name=given.get("name"),
                )
        variable = self._by_name[key]
        collections = given.get("collections") or [tf.compat.v1.GraphKeys.GLOBAL_VARIABLES]
        if given.get("trainable", True):
            collections = [*collections, tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES]
        tf.compat.v1.get_default_graph().add_to_collections(set(collections), variable)
        return variable


def _close(extents: Sequence[int | None], batch: int) -> list[int]:
    """Return the extents of a shape: an open first axis has the batch, any other 1."""
    return [
        extent if extent is not None else (batch if axis == 0 and batch > 0 else 1)
        for axis, extent in enumerate(extents)
    ]
