"""Kernels: what a program is to the timing model, and which operations are what to it. No JAX in
here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

from podyard.engine.program.ir import HloOperation, TensorType

KernelKind = Literal[
    "matrix", "window", "reduce", "loop", "copy", "opaque", "collective", "control"
]

MATRIX = frozenset({"dot_general", "convolution"})
# Operations that read images in their own layout.
OF_IMAGES = ("convolution", "select_and_scatter")
COLLECTIVES = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"}
)
CONTROL = frozenset({"while", "case", "if"})
# Kernels of their own that the compiler gives no cycles.
OPAQUE = frozenset({
    "gather", "scatter", "sort", "select_and_scatter", "custom_call", "fft", "cholesky",
    "triangular_solve",
    "rng", "rng_bit_generator", "dynamic_gather", "top_k", "attention", "host_load",
    "host_store",
})  # fmt: skip
# Of these, the arithmetic is not modelled: an estimate with one of them is a lower bound.
BYTES_ONLY = frozenset(
    {"sort", "custom_call", "fft", "cholesky", "triangular_solve", "rng_bit_generator", "top_k"}
)
ALIASES = frozenset({"shard", "unshard", "optimization_barrier", "get_tuple_element", "tuple"})
# Their operands are in memory before they start, their results when they end.
UNFUSED = ("opaque", "collective", "control", "copy")
# Operations that only rename or reorder numbers.
REORDERING = ("reshape", "transpose", "convert", "reverse", "pad", "bitcast_convert")
# Arrays below this many numbers are not worth a decision.
SMALL_SIZE = 4096
# Fewer kernels than this make a value that is made from several arrays again, each for itself.
READERS_TO_SHARE = 3
# Stands for the end of the program among the readers of a value.
LEAVES_PROGRAM = -1
# A kernel that waits for another runs right after it.
JUST_AFTER = 0.25
# Masks that are kept for the backward pass are packed into words.
MASK_BITS = 32
LEAVES = frozenset({"constant", "iota", "create_token", "after_all", "partition_id", "replica_id"})
ELEMENTWISE = frozenset({
    "abs", "add", "and", "atan2", "bitcast_convert", "broadcast_in_dim", "cbrt", "ceil", "clamp",
    "compare",
    "complex", "concatenate", "convert", "cosine", "count_leading_zeros", "divide", "dynamic_slice",
    "exponential",
    "exponential_minus_one", "floor", "imag", "is_finite", "log", "log_plus_one", "logistic",
    "maximum", "minimum",
    "multiply", "negate", "not", "or", "pad", "popcnt", "power", "real", "reduce_precision",
    "remainder", "reshape",
    "reverse", "round_nearest_afz", "round_nearest_even", "rsqrt", "select", "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical", "sign", "sine", "slice", "sqrt", "square", "subtract", "tan", "tanh",
    "transpose", "xor",
    "erf", "erf_inv", "copy", "broadcast", "map", "next_after", "asin", "acos", "atan", "asinh",
    "acosh", "atanh",
    "sinh", "cosh", "lgamma", "digamma", "polygamma", "zeta", "bessel_i1e", "conj", "is_inf",
    "mulhi",
})  # fmt: skip


@dataclasses.dataclass(slots=True)
class Kernel:
    """`anchor` is what it was started for (None: element-wise work only). `operations` are done in
    it, once each; `inputs` and `outputs` are values in memory. `moved`: what a copy into another
    layout moves (`turned`: with other axes in lanes), or a loop writes that reads nothing."""

    index: int
    kind: KernelKind
    anchor: HloOperation | None
    operations: list[HloOperation] = dataclasses.field(default_factory=list)
    inputs: list[int] = dataclasses.field(default_factory=list)
    outputs: list[int] = dataclasses.field(default_factory=list)
    reductions: list[HloOperation] = dataclasses.field(default_factory=list)
    moved: TensorType | None = None
    turned: bool = False
    # Whether that is a table, whose rows lie along the lanes at one end, with their padding.
    is_table: bool = False
    # The value that it copies into another layout, in which all later kernels read it.
    turns: int | None = None
    # The array that it copies into another layout, for convolutions that read it.
    copies: int | None = None
    # How many groups of features it takes apart.
    regroups: int = 0
    # Whether what it moves is an argument, which can be fetched ahead.
    ahead: bool = False
    # The axes in lanes and in sublanes that it gives to what it moves.
    minor: tuple[int, ...] = ()
    # Operands and results of a convolution that are copied into another layout: the axes in lanes
    # and in sublanes.
    layouts: dict[int, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    # Whether parts of images are its examples.
    is_cut: bool = False
    # What it copies or fills into memory that a later kernel's result has.
    laid_out: TensorType | None = None
    # How often it runs, one after the other.
    repeats: int = 1
    # What it writes into a part of an array that is in memory already.
    updates: list[HloOperation] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Fused:
    """Kernels in the order they run. `stored[value]`: the type a value has in memory, where that is
    narrower than the program's (operands of matrix products are kept in bfloat16). `aliases`:
    values that are others by another name; `in_place`: results of updates, with the arrays whose
    memory they have."""

    kernels: list[Kernel]
    stored: dict[int, TensorType]
    aliases: dict[int, int]
    unknown: list[HloOperation]
    in_place: dict[int, int] = dataclasses.field(default_factory=dict)
    # Arrays of constants that something is written into.
    filled: set[int] = dataclasses.field(default_factory=set)


def sources(
    value: int, kernel: Kernel, producers: Mapping[int, HloOperation], resolve: Callable[[int], int]
) -> list[int]:
    """The kernel's inputs that a value is computed from."""
    inputs, found = set(kernel.inputs), dict[int, None]()
    stack, seen = [value], set[int]()
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in inputs:
            found[value] = None
            continue
        producer = producers.get(value)
        if producer is not None:
            stack += [resolve(source) for source in producer.operands]
    return list(found)
