"""TPUStrategy on logical CPU devices: mirrored on one for each core, or fused in one.

A step is traced a second time as one replica, for its module: then values of one replica stand
where TensorFlow has those of all, sums are XLA's all-reduces, and only the first replica's
variables are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from podyard.programs import tensorflow_internals as internals
from podyard.programs.tensorflow_internals import distribute_lib, validate_run_function

if TYPE_CHECKING:
    from podyard.programs.tensorflow_system import TpuSystem


def strategy_class(tf: Any, system: TpuSystem) -> Any:  # noqa: C901
    # What AutoGraph rewrites is the program, as with TensorFlow's own strategies.
    rules = internals.autograph
    rules.CONVERSION_RULES = (rules.DoNotConvert("podyard"), *rules.CONVERSION_RULES)
    base: Any = (
        tf.distribute.MirroredStrategy if system.is_mirrored else tf.distribute.OneDeviceStrategy
    )
    extended_base: Any = (
        internals.MirroredExtended if system.is_mirrored else internals.OneDeviceExtended
    )

    class Extended(extended_base):  # type: ignore[misc]
        """`steps` sees what replicas run, and how it is traced for its module."""

        def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
            def call() -> Any:
                return super(Extended, self)._call_for_each_replica(fn, args, kwargs)

            steps = system.steps
            return (
                call()
                if steps is None
                else steps.run(self._container_strategy(), fn, args, kwargs, call)
            )

        def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
            if isinstance(dataset, tf.data.Dataset):
                dataset = _untuned(tf, dataset)
            return super()._experimental_distribute_dataset(dataset, options)

        def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
            if not system.is_tracing:
                return super()._reduce_to(reduce_op, value, destinations, options)
            return system.steps.all_reduce(reduce_op, value)

        def _batch_reduce_to(
            self, reduce_op: Any, value_destination_pairs: Any, options: Any
        ) -> Any:
            if not system.is_tracing:
                return super()._batch_reduce_to(reduce_op, value_destination_pairs, options)
            return [
                system.steps.all_reduce(reduce_op, value) for value, _ in value_destination_pairs
            ]

        def _replica_ctx_all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
            if not system.is_tracing:
                return super()._replica_ctx_all_reduce(reduce_op, value, options)
            return tf.nest.map_structure(lambda one: system.steps.all_reduce(reduce_op, one), value)

        def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
            return tensor if system.is_tracing else super()._broadcast_to(tensor, destinations)

        def _update(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
            if not system.is_tracing or not isinstance(var, tf.distribute.DistributedValues):
                return super()._update(var, fn, args, kwargs, group)
            with distribute_lib.UpdateContext(0):
                return fn(var.values[0], *args, **kwargs)

    create = internals.multi_device_iterator._create_device_dataset
    internals.multi_device_iterator._create_device_dataset = lambda *args, **kwargs: _untuned(
        tf, create(*args, **kwargs)
    )

    class TPUStrategy(base):  # type: ignore[misc]
        """All cores of the slice, under one program."""

        def __init__(self, tpu_cluster_resolver: Any = None, *_args: Any, **_named: Any) -> None:
            self._resolver = tpu_cluster_resolver
            system.say_what_was_found()
            if system.is_mirrored:
                devices: Sequence[str] = [
                    system.cpu_of(place) for place in range(len(system.devices))
                ]
                log = tf.get_logger()
                level = log.level
                log.setLevel("WARNING")  # it names its devices, which no TPU has
                try:
                    extended = Extended(
                        self, devices=devices, cross_device_ops=tf.distribute.ReductionToOneDevice()
                    )
                finally:
                    log.setLevel(level)
            else:
                extended = Extended(self, system.cpu_of(0))
            distribute_lib.Strategy.__init__(self, extended)
            self.extended.num_hosts = len(system.workers)
            self.extended.num_replicas_per_host = system.cores_per_host

        def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
            validate_run_function(fn)
            return super().run(fn, args, kwargs, options)

        def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
            """Parts of an uneven batch are added as XLA's arrays of bounded size are: filled up
            with zeros."""
            if axis is None and not system.is_tracing:
                value = tf.nest.map_structure(lambda one: _same_extents(tf, one), value)
            return super().reduce(reduce_op, value, axis)

        @property
        def cluster_resolver(self) -> Any:
            return self._resolver

        @property
        def num_replicas_in_sync(self) -> int:
            """Of the slice; 1 inside of a fused replica, which is alone with the global batch."""
            if system.is_mirrored:
                return int(super().num_replicas_in_sync)
            context = distribute_lib.get_replica_context()
            inside = context is not None and context.strategy is self and not system.is_tracing
            return 1 if inside else len(system.devices)

    return TPUStrategy


def _untuned(tf: Any, dataset: Any) -> Any:
    """The thread that tunes a pipeline may sleep a minute where its iterator, and the program, wait
    for its end. A distributed pipeline has one, and one for each of its devices."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _same_extents(tf: Any, value: Any) -> Any:
    """Return the value of all replicas, with arrays of the same extents."""
    if not isinstance(value, internals.DistributedValues) or not hasattr(value, "values"):
        return value
    parts = value.values
    shapes = [part.shape for part in parts if hasattr(part, "shape")]
    is_known = all(shape.is_fully_defined() for shape in shapes) and len(shapes) == len(parts)
    if not is_known or len({shape.rank for shape in shapes}) > 1 or len(set(map(str, shapes))) == 1:
        return value
    largest = [max(extents) for extents in zip(*shapes, strict=True)]
    padded = [
        tf.pad(part, [[0, most - extent] for most, extent in zip(largest, shape, strict=True)])
        for part, shape in zip(parts, shapes, strict=True)
    ]
    return internals.PerReplica(padded)
