"""`engine.analyze`, `engine.analyze_stablehlo`: what a program would take on a slice, without
running it."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Literal

from podyard.base.errors import invalid
from podyard.engine.exact.answer import answer_of_compiler
from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.program.ir import Program
from podyard.engine.program.serialized import text_of_bytes
from podyard.engine.step.host_input import arguments_named
from podyard.engine.timing.analysis import device_count, estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import parse

Compiler = Literal["podyard", "xla-tpu"]
COMPILERS = ("podyard", "xla-tpu")
# Estimates that are kept: asking again for the same function and shapes is asking once.
_KEPT_ESTIMATES = 256

# Traced programs that are kept: a plan asks for the same one on many accelerator types.
_KEPT_PROGRAMS = 4

_kept: OrderedDict[object, Estimate] = OrderedDict()
_traced: OrderedDict[object, Program] = OrderedDict()


def analyze(
    fn: Callable[..., Any],
    *args: Any,
    accelerator_type: str = "v3-8",
    global_batch: int | None = None,
    compiler: str = "podyard",
    host_loop: bool = False,
    infeed: Sequence[str | int] = (),
) -> Estimate:
    """One step of `fn` on a slice; `fn` is traced and never executed.

    `args`: arrays or `jax.ShapeDtypeStruct`s, in trees. With `global_batch`, `fn` is the global
    step: arguments whose leading axis has that size are split over the devices, all others are on
    each. Without, the arguments are one device's already. `host_loop`: the host waits for every
    step (infeed, logging), instead of starting the next one while the devices are busy. `infeed`:
    arguments that the host sends at each step, by name or index; a tree is all of its arrays, and
    `batch['image']` is one. Raises PodyardError INVALID_ARGUMENT for an illegal type, a compiler
    that does not exist, a batch that does not divide, an argument that does not exist;
    UNIMPLEMENTED for element types that TPUs do not have.
    """
    import jax

    kind, choice = parse(accelerator_type), _check_compiler(compiler)
    leaves, tree = jax.tree.flatten(args)
    shapes = tuple(
        (tuple(getattr(leaf, "shape", ())), str(getattr(leaf, "dtype", type(leaf))))
        for leaf in leaves
    )
    shardings = tuple(getattr(leaf, "sharding", None) for leaf in leaves)
    key = (fn, tree, shapes, shardings, kind.name, global_batch, choice, host_loop, tuple(infeed))
    found = _kept.get(key)
    if found is not None:
        _kept.move_to_end(key)
        return found
    fed = arguments_named(infeed, _argument_names(fn, args)) if infeed else frozenset[int]()
    traced = (fn, tree, shapes, shardings)
    program = _traced.get(traced)
    if program is None:
        program = _traced[traced] = _trace(fn, args, shardings)
        while len(_traced) > _KEPT_PROGRAMS:
            _traced.popitem(last=False)
    estimate = estimate_program(program, kind, global_batch, host_loop, fed)
    if choice == "xla-tpu":
        from podyard.engine.exact import client

        text = client.lower_for_tpu(fn, *_split_over(args, global_batch, device_count(kind)))
        estimate = answer_of_compiler(estimate, text, parse_module(text).partitions)
    _kept[key] = estimate
    while len(_kept) > _KEPT_ESTIMATES:
        _kept.popitem(last=False)
    return estimate


def analyze_stablehlo(
    module: str | bytes,
    accelerator_type: str = "v3-8",
    compiler: str = "podyard",
    host_loop: bool = False,
    infeed: Sequence[str | int] = (),
    slices: int = 1,
    device_order: Sequence[int] = (),
) -> Estimate:
    """One device's program as StableHLO (or a module for several devices with its shardings): text,
    or the bytes of `jax.export` or MLIR, which JAX reads (extra `engine`). `infeed`: arguments that
    the host sends at each step, by index (`0`), by name (`arg0`), or by the name that their
    location has. `slices`: of the type, that the module runs on together. `device_order`: for each
    device of the module its place in the list of the slices' devices.

    Raises PodyardError INVALID_ARGUMENT naming the line of what is malformed, dynamic or unknown,
    for a module that is written for more devices than the slice has, and for an argument that does
    not exist; UNIMPLEMENTED for f64; FAILED_PRECONDITION for bytes without JAX.
    """
    kind, choice = parse(accelerator_type), _check_compiler(compiler)
    text = text_of_bytes(module) if isinstance(module, bytes) else module
    program = parse_module(text)
    fed = arguments_named(infeed, program.argument_names)
    estimate = estimate_program(
        program,
        kind,
        host_loop=host_loop,
        infeed=fed,
        slices=slices,
        device_order=device_order,
    )
    if choice == "podyard":
        return estimate
    return answer_of_compiler(estimate, text, program.partitions)


def _check_compiler(compiler: str) -> str:
    if compiler not in COMPILERS:
        raise invalid(f"compiler {compiler!r} is not one of {', '.join(COMPILERS)}", "compiler")
    return compiler


@functools.lru_cache(maxsize=16)
def parse_module(text: str) -> Program:
    """Return the program of a StableHLO text, parsed once for all that ask for it."""
    return parse_stablehlo(text)


def _trace(fn: Callable[..., Any], args: tuple[Any, ...], shardings: tuple[Any, ...]) -> Program:
    import jax

    from podyard.engine.program.from_jaxpr import program_of_jaxpr

    return program_of_jaxpr(jax.make_jaxpr(fn)(*args), shardings)


def _argument_names(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[tuple[str, ...]]:
    """Return the names of each array in `args`: the index and the name of the function's argument,
    and its path."""
    import jax

    try:
        own = [
            name
            for name, one in inspect.signature(fn).parameters.items()
            if one.kind is not one.KEYWORD_ONLY
        ]
    except (TypeError, ValueError):  # a callable of C
        own = []
    names: list[tuple[str, ...]] = []
    for place, argument in enumerate(args):
        roots = (str(place), *own[place : place + 1])
        for path, _ in jax.tree_util.tree_leaves_with_path(argument):
            names.append(tuple(root + jax.tree_util.keystr(path) for root in roots))
    return names


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
