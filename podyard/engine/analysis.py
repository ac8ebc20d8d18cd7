"""`engine.analyze`, `engine.analyze_stablehlo`: what a program would take on a slice, without
running it."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from podyard.base.errors import invalid
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import Program
from podyard.engine.program.serialized import text_of_bytes
from podyard.engine.timing.analysis import device_count, estimate_program
from podyard.engine.timing.energy import device_joules
from podyard.engine.timing.estimate import Estimate, OpEstimate, overhead_seconds
from podyard.engine.timing.kernels import Bound
from podyard.engine.timing.memory import named_total_bytes
from podyard.hardware.accelerator_types import parse

if TYPE_CHECKING:
    from podyard.engine.exact.hlo import ExactCollective

Compiler = Literal["podyard", "xla-tpu"]
COMPILERS = ("podyard", "xla-tpu")
# Estimates that are kept: asking again for the same function and shapes is asking once.
_KEPT_ESTIMATES = 256

# `{1,0:T(8,128)}` behind a shape of the compiler's.
_LAYOUT = re.compile(r"\{[^}]*\}")

_kept: OrderedDict[object, Estimate] = OrderedDict()


def analyze(
    fn: Callable[..., Any],
    *args: Any,
    accelerator_type: str = "v3-8",
    global_batch: int | None = None,
    compiler: str = "podyard",
    host_loop: bool = False,
) -> Estimate:
    """One step of `fn` on a slice; `fn` is traced and never executed.

    `args`: arrays or `jax.ShapeDtypeStruct`s, in trees. With `global_batch`, `fn` is the global
    step: arguments whose leading axis has that size are split over the devices, all others are on
    each. Without, the arguments are one device's already. `host_loop`: the host waits for every
    step (infeed, logging), instead of starting the next one while the devices are busy. Raises
    PodyardError INVALID_ARGUMENT for an illegal type, a compiler that does not exist, a batch that
    does not divide; UNIMPLEMENTED for element types that TPUs do not have.
    """
    import jax

    kind, choice = parse(accelerator_type), _check_compiler(compiler)
    leaves, tree = jax.tree.flatten(args)
    shapes = tuple(
        (tuple(getattr(leaf, "shape", ())), str(getattr(leaf, "dtype", type(leaf))))
        for leaf in leaves
    )
    shardings = tuple(getattr(leaf, "sharding", None) for leaf in leaves)
    key = (fn, tree, shapes, shardings, kind.name, global_batch, choice, host_loop)
    found = _kept.get(key)
    if found is not None:
        _kept.move_to_end(key)
        return found
    program = _trace(fn, args, shardings)
    estimate = estimate_program(program, kind, global_batch, host_loop)
    if choice == "xla-tpu":
        from podyard.engine.exact import client

        text = client.lower_for_tpu(fn, *_split_over(args, global_batch, device_count(kind)))
        estimate = _exact(estimate, text)
    _kept[key] = estimate
    while len(_kept) > _KEPT_ESTIMATES:
        _kept.popitem(last=False)
    return estimate


def analyze_stablehlo(
    module: str | bytes,
    accelerator_type: str = "v3-8",
    compiler: str = "podyard",
    host_loop: bool = False,
) -> Estimate:
    """One device's program as StableHLO (or a module for several devices with its shardings): text,
    or the bytes of `jax.export` or MLIR, which JAX reads (extra `engine`).

    Raises PodyardError INVALID_ARGUMENT naming the line of what is malformed, dynamic or unknown,
    and for a module that is written for more devices than the slice has; UNIMPLEMENTED for f64;
    FAILED_PRECONDITION for bytes without JAX.
    """
    kind, choice = parse(accelerator_type), _check_compiler(compiler)
    text = text_of_bytes(module) if isinstance(module, bytes) else module
    estimate = estimate_program(_parse(text), kind, host_loop=host_loop)
    return estimate if choice == "podyard" else _exact(estimate, text)


def _check_compiler(compiler: str) -> str:
    if compiler not in COMPILERS:
        raise invalid(f"compiler {compiler!r} is not one of {', '.join(COMPILERS)}", "compiler")
    return compiler


@functools.lru_cache(maxsize=16)
def _parse(text: str) -> Program:
    return parse_stablehlo(text)


def _trace(fn: Callable[..., Any], args: tuple[Any, ...], shardings: tuple[Any, ...]) -> Program:
    import jax

    from podyard.engine.program.from_jaxpr import program_of_jaxpr

    return program_of_jaxpr(jax.make_jaxpr(fn)(*args), shardings)


def _split_over(args: tuple[Any, ...], global_batch: int | None, devices: int) -> tuple[Any, ...]:
    """The same shapes; those that have the global batch as leading axis are to be split over the
    devices, so that the compiler makes one device's program of it, with the sums over the slice."""
    import jax
    from jax import sharding

    if global_batch is None or devices == 1:
        return args
    mesh = sharding.AbstractMesh((devices,), ("devices",), axis_types=(sharding.AxisType.Auto,))
    split_as: Any = sharding.PartitionSpec
    shape_of: Any = jax.ShapeDtypeStruct

    def place(leaf: Any) -> Any:
        if not hasattr(leaf, "dtype"):
            return leaf
        split = split_as("devices") if leaf.shape[:1] == (global_batch,) else split_as()
        return shape_of(leaf.shape, leaf.dtype, sharding=sharding.NamedSharding(mesh, split))

    mapped: tuple[Any, ...] = jax.tree.map(place, args)
    return mapped


def _exact(estimate: Estimate, text: str) -> Estimate:
    """`estimate` with the real compiler's cycles, memory, collectives and operations in place of
    the modelled ones.

    The compiler gives no time for collectives and dispatch: those seconds stay the model's, as do
    flops and bytes, which are the program's. What bounds an operation it does not say. Of a program
    that does not fit it says only how much it needs: there is no step, hence no time.
    """
    from podyard.engine.exact import client

    verdict = client.compile_exact(text, estimate.accelerator_type, _parse(text).partitions)
    # Memory and operations are the compiler's; the time of collectives and the turns of loops are
    # still the model's.
    doubts = tuple(
        dataclasses.replace(doubt, about_memory=False)
        for doubt in estimate.doubts
        if doubt.kind != "operation"
    )
    unsaid = dataclasses.replace(
        estimate,
        compiler="xla-tpu",
        largest_buffers=(),
        unknown_ops=(),
        bound="unpriced",
        doubts=doubts,
    )
    if not verdict.fits:
        return dataclasses.replace(
            unsaid,
            modelled_seconds=0.0, compute_seconds=0.0, collective_seconds=0.0, overhead_seconds=0.0,
            cycles=0.0,
            mxu_utilization=0.0, energy_joules=None, ops=(), collectives=(), argument_bytes=0,
            result_bytes=0,
            temporary_bytes=0, peak_hbm_bytes=named_total_bytes(verdict.out_of_memory_text) or 0,
            fits=False,
            memory_text=verdict.out_of_memory_text, doubts=(),
        )  # fmt: skip
    clock, ops = 0.0, list[OpEstimate]()
    names = {collective.name for collective in verdict.collectives}
    for op in verdict.ops:
        cycles = float((op.cycles or 0) * op.count)
        bound: Bound = "ici" if op.name in names else "unpriced"
        ops.append(
            OpEstimate(op.name, op.kind, cycles, 0, 0, bound, op.count, clock, where=op.where)
        )
        clock += cycles
    compute = verdict.cycles / estimate.clock_hz
    # The model may see a sum that the compiler found a way around: what it does not send takes no
    # time.
    summed, sent = (
        (estimate.collective_seconds, estimate.ici_bytes) if verdict.collectives else (0.0, 0)
    )
    overhead = overhead_seconds(
        compute + summed, estimate.dispatch_seconds, estimate.feed_seconds, estimate.host_loop
    )
    parts: dict[Bound, float] = {"unpriced": compute, "ici": summed, "overhead": overhead}
    seconds = sum(parts.values())
    kind = parse(estimate.accelerator_type)
    return dataclasses.replace(
        unsaid,
        cycles=float(verdict.cycles),
        compute_seconds=compute,
        collective_seconds=summed,
        overhead_seconds=overhead,
        ici_bytes=sent,
        modelled_seconds=seconds,
        mxu_utilization=estimate.mxu_utilization * estimate.modelled_seconds / seconds,
        energy_joules=device_joules(kind, estimate.devices, seconds, compute / seconds),
        argument_bytes=verdict.argument_bytes,
        result_bytes=verdict.output_bytes,
        temporary_bytes=verdict.temporary_bytes,
        peak_hbm_bytes=verdict.peak_bytes,
        fits=True,
        memory_text="",
        bound=max(parts, key=lambda bound: parts[bound]),
        ops=tuple(ops),
        collectives=tuple(map(_collective_text, verdict.collectives)),
    )


def _collective_text(collective: ExactCollective) -> str:
    """`all-reduce (f32[512,512], f32[8]) x 1 in groups of 8: UniDirectionNDRingStrategy, 4 colours
    x 2 phases,
    {4 2},...`; where there is no such strategy, the compiler's spelling of it."""
    shape = _LAYOUT.sub("", collective.shape)
    how = collective.emitter or "no strategy named"
    if collective.strategy:
        how = (
            f"{collective.strategy}, {collective.colors} colours x {collective.phases} phases, "
            f"{collective.rings}"
        )
    among = f" in groups of {collective.group_size}" if collective.group_size else ""
    return f"{collective.kind} {shape} x {collective.count}{among}: {how}"
