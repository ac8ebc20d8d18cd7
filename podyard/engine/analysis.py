"""`engine.analyze`, `engine.analyze_stablehlo`: what a program would take on a slice, without running it."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

from podyard.base.errors import invalid
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import Program
from podyard.engine.timing.analysis import device_count, estimate_program
from podyard.engine.timing.estimate import Estimate, OpEstimate
from podyard.hardware.accelerator_types import slice_named

Compiler = Literal["podyard", "xla-tpu"]
COMPILERS = ("podyard", "xla-tpu")
# Estimates that are kept: asking again for the same function and shapes is asking once.
_KEPT_ESTIMATES = 256

_kept: OrderedDict[object, Estimate] = OrderedDict()


def analyze(
    fn: Callable[..., Any],
    *args: Any,
    accelerator_type: str = "v3-8",
    global_batch: int | None = None,
    compiler: str = "podyard",
) -> Estimate:
    """One step of `fn` on a slice; `fn` is traced and never executed.

    `args`: arrays or `jax.ShapeDtypeStruct`s, in trees. With `global_batch`, `fn` is the global step: arguments whose
    leading axis has that size are split over the devices, all others are on each. Without, the arguments are one
    device's already. Raises PodyardError INVALID_ARGUMENT for an illegal type, a compiler that does not exist, a batch
    that does not divide; UNIMPLEMENTED for element types that TPUs do not have.
    """
    import jax

    kind, choice = slice_named(accelerator_type), _checked(compiler)
    leaves, tree = jax.tree.flatten(args)
    shapes = tuple((tuple(getattr(leaf, "shape", ())), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves)
    key = (fn, tree, shapes, kind.name, global_batch, choice)
    found = _kept.get(key)
    if found is not None:
        _kept.move_to_end(key)
        return found
    estimate = estimate_program(_traced(fn, args), kind, global_batch)
    if choice == "xla-tpu":
        from podyard.engine.exact import client

        text = client.lower_for_tpu(fn, *_of_one_device(args, global_batch, device_count(kind)))
        estimate = _exact(estimate, text)
    _kept[key] = estimate
    while len(_kept) > _KEPT_ESTIMATES:
        _kept.popitem(last=False)
    return estimate


def analyze_stablehlo(text: str, accelerator_type: str = "v3-8", compiler: str = "podyard") -> Estimate:
    """One device's program as StableHLO text (or a module for several devices with its shardings).

    Raises PodyardError INVALID_ARGUMENT naming the line of what is malformed, dynamic or unknown, and for a module that
    is written for more devices than the slice has; UNIMPLEMENTED for f64.
    """
    kind, choice = slice_named(accelerator_type), _checked(compiler)
    estimate = estimate_program(_parsed(text), kind)
    return estimate if choice == "podyard" else _exact(estimate, text)


def _checked(compiler: str) -> str:
    if compiler not in COMPILERS:
        raise invalid(f"compiler {compiler!r} is not one of {', '.join(COMPILERS)}", "compiler")
    return compiler


@functools.lru_cache(maxsize=16)
def _parsed(text: str) -> Program:
    return parse_stablehlo(text)


def _traced(fn: Callable[..., Any], args: tuple[Any, ...]) -> Program:
    import jax

    from podyard.engine.program.from_jaxpr import program_of_jaxpr

    return program_of_jaxpr(jax.make_jaxpr(fn)(*args))


def _of_one_device(args: tuple[Any, ...], global_batch: int | None, devices: int) -> tuple[Any, ...]:
    """The shapes that one device sees."""
    import jax

    def local(leaf: Any) -> Any:
        shape = tuple(getattr(leaf, "shape", ()))
        if global_batch is not None and shape[:1] == (global_batch,):
            shape = (shape[0] // devices, *shape[1:])
        return jax.eval_shape(lambda: jax.numpy.zeros(shape, leaf.dtype)) if hasattr(leaf, "dtype") else leaf

    mapped: tuple[Any, ...] = jax.tree.map(local, args)
    return mapped


def _exact(estimate: Estimate, text: str) -> Estimate:
    """`estimate` with the real compiler's cycles, memory and operations in place of the modelled ones."""
    from podyard.engine.exact import client

    partitions = _parsed(text).partitions
    verdict = client.compile_exact(text, estimate.accelerator_type, partitions)
    if not verdict.fits:
        return dataclasses.replace(
            estimate, compiler="xla-tpu", fits=False, memory_text=verdict.out_of_memory_text, ops=(), cycles=0.0
        )
    clock, ops = 0.0, list[OpEstimate]()
    for op in verdict.ops:
        cycles = float((op.cycles or 0) * op.count)
        ops.append(OpEstimate(op.name, op.kind, cycles, 0, 0, "unpriced", op.count, clock, where=op.where))
        clock += cycles
    compute = max(verdict.cycles / estimate.clock_hz, estimate.compute_seconds if not verdict.cycles else 0.0)
    peak = verdict.argument_bytes + verdict.output_bytes + verdict.temporary_bytes - verdict.alias_bytes
    return dataclasses.replace(
        estimate,
        compiler="xla-tpu",
        cycles=float(verdict.cycles),
        compute_seconds=compute,
        modelled_seconds=compute + estimate.collective_seconds + estimate.overhead_seconds,
        argument_bytes=verdict.argument_bytes,
        result_bytes=verdict.output_bytes,
        temporary_bytes=verdict.temporary_bytes,
        peak_hbm_bytes=peak,
        fits=True,
        memory_text="",
        ops=tuple(ops),
    )


__all__ = ["COMPILERS", "Compiler", "analyze", "analyze_stablehlo"]
