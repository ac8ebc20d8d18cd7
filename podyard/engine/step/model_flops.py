"""Model FLOPs of a program, for its model FLOPs utilization (MFU) and hardware FLOPs utilization
(HFU).

The field's definition (PaLM, arXiv 2204.02311, appendix B): model FLOPs are those of the products
and convolutions of the forward and the backward pass, each multiply-add counted as two; what is
computed again in the backward pass counts for HFU alone. JAX names what it computes again
`rematted_computation` in the name stack of an operation. Kernels count what their author states
(`cost_estimate`), else what their body does over the grid; those of the backward pass at most twice
the forward ones, because what they compute again inside is not the model's. Lookups that are
written as products are not the model's either (`lookups.py`).

Counted on the program as it is written, for all devices together: work that several devices do
alike counts once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from podyard.base.kernel_cost import KernelCost
from podyard.engine.cost.custom_call import kernel_of
from podyard.engine.program.ir import (
    REMATTED,
    Body,
    HloOperation,
    Program,
    matrix_flops,
)
from podyard.engine.program.loops import trip_count
from podyard.engine.program.shardings import PLACED, Sharding
from podyard.engine.step.causal import causal_products
from podyard.engine.step.lookups import lookup_products
from podyard.hardware.generation import Generation

_PRODUCTS = ("dot_general", "convolution")
_NARROW = re.compile(r"[su](?:2|4|8)|f8\w*|f4\w*")


@dataclasses.dataclass(frozen=True, slots=True)
class Flops:
    """Of one step, on all devices. `model`: without what is computed again; `hardware`: with it.
    `narrow`: of `hardware`, those of operands of one byte or less, whose products can have a higher
    peak. `masked`: of `model`, the half of causal attention that the mask leaves out."""

    model: int = 0
    hardware: int = 0
    narrow: int = 0
    masked: int = 0

    def __add__(self, other: Flops) -> Flops:
        return Flops(
            self.model + other.model, self.hardware + other.hardware, self.narrow + other.narrow,
            self.masked + other.masked,
        )  # fmt: skip

    def times(self, count: int) -> Flops:
        return Flops(
            self.model * count, self.hardware * count, self.narrow * count, self.masked * count
        )


# Of the bf16 peak, what a product sustains at most. The largest figure that is published with its
# program: 8192 cubed on v5e, XLA's product in a loop of 100, 181.8 of 197 TFLOP/s (jax-ml/jax,
# docs/pallas/tpu/matmul.ipynb@1082251). Others are lower: TPU7x 82.9 % at 32768 cubed
# (AI-Hypercomputer/accelerator-microbenchmarks,
# Ironwood/Ironwood_Microbenchmarks_readme.md@0ddd4b8).
SUSTAINED_SHARE = 0.923


def sustained_seconds(flops: Flops, generation: Generation) -> float:
    """Return the time that the products of one device's program take at least, in seconds."""
    wide = (flops.hardware - flops.narrow) / peak_flops(generation)
    return (wide + flops.narrow / narrow_peak_flops(generation)) / SUSTAINED_SHARE


def peak_flops(generation: Generation) -> float:
    """Return the bf16 peak of one device, in FLOP/s."""
    return generation.peak_bf16_flops_per_second / generation.devices_per_chip


def narrow_peak_flops(generation: Generation) -> float:
    """Return the peak of one device for operands of one byte, in operations/s: at least bf16's."""
    peak = generation.peak_int8_ops_per_second or generation.peak_bf16_flops_per_second
    return max(peak, generation.peak_bf16_flops_per_second) / generation.devices_per_chip


def dtype_peak_flops(flops: Flops, generation: Generation) -> float:
    """Return the peak of one device for the types of most of a step's products."""
    return (
        narrow_peak_flops(generation)
        if 2 * flops.narrow > flops.hardware
        else peak_flops(generation)
    )


def model_flops(program: Program) -> Flops:
    """Count the FLOPs of one step. A loop whose turns are unknown counts as one turn; of branches,
    the largest."""
    products = _Counter(
        program, lambda _: False, causal_products(program), lookup_products(program)
    ).of_body(program.body)
    return products + _kernels(program, is_causal=False) + _kernels(program, is_causal=True)


def _kernels(program: Program, *, is_causal: bool) -> Flops:
    """Count the kernels with a causal mask, or those without one."""
    forward, backward = (
        _Counter(
            program,
            functools.partial(_is_kind, is_backward=is_backward, is_causal=is_causal),
            has_products=False,
        ).of_body(program.body)
        for is_backward in (False, True)
    )
    return forward + _limit_backward(backward, 2 * forward.model)


def _is_kind(kernel: KernelCost, *, is_backward: bool, is_causal: bool) -> bool:
    return kernel.is_backward == is_backward and (kernel.causal_flops > 0) == is_causal


def _limit_backward(backward: Flops, limit: int) -> Flops:
    """Leave out what kernels of the backward pass compute again, if there are forward ones."""
    if not limit or backward.model <= limit:
        return backward
    masked = backward.masked * limit // backward.model
    return dataclasses.replace(backward, model=limit, masked=masked)


def device_flops(program: Program) -> Flops:
    """Count the products of one step on a device, of its part of a program: masks leave nothing
    out. Kernels count nothing: engine/cost/custom_call.py says how long they take."""
    return _Counter(program, lambda _: False).of_body(program.body)


@dataclasses.dataclass(slots=True)
class _Counter:
    """`counts`: which kernels are counted, `has_products`: whether products are. `causal`,
    `lookups`: identities of the products that a mask makes half, and of those that look rows up.
    `parts`: how many devices each compute a different part, of values inside of a manual
    computation."""

    program: Program
    counts: Callable[[KernelCost], bool]
    causal: Collection[int] = ()
    lookups: Collection[int] = ()
    has_products: bool = True
    parts: dict[int, int] = dataclasses.field(default_factory=dict)

    def of_body(self, body: Body) -> Flops:
        return sum(map(self._of_operation, body.operations), Flops())

    def _of_operation(self, operation: HloOperation) -> Flops:
        parts = self._spread(operation)
        if operation.opcode in _PRODUCTS:
            return self._of_product(operation).times(parts) if self.has_products else Flops()
        if operation.opcode == "custom_call":
            kernel = kernel_of(operation.attributes)
            if kernel is None or not self.counts(kernel):
                return Flops()
            return self._of_kernel(operation, kernel).times(parts)
        for inner in operation.bodies:
            self._enter(inner.parameters, operation.operands, parts)
        if operation.opcode == "while":
            turns = trip_count(self.program, operation)
            return self.of_body(operation.bodies[-1]).times(1 if turns is None else turns)
        if operation.opcode in ("case", "if"):
            return max(
                map(self.of_body, operation.bodies), key=lambda one: one.hardware, default=Flops()
            )
        return Flops()

    def _of_product(self, operation: HloOperation) -> Flops:
        flops = matrix_flops(self.program, operation)
        is_model = REMATTED not in operation.attributes and id(operation) not in self.lookups
        model = flops if is_model else 0
        masked = model // 2 if id(operation) in self.causal else 0
        return Flops(model, flops, flops if self._is_narrow(operation) else 0, masked)

    def _of_kernel(self, operation: HloOperation, kernel: KernelCost) -> Flops:
        """Under a causal mask the model has half of the products of all steps, or fewer."""
        flops, whole = int(kernel.flops), int(kernel.causal_flops or kernel.flops)
        model = 0 if REMATTED in operation.attributes else whole
        masked = max(0, model - min(flops, model // 2)) if kernel.causal_flops else 0
        return Flops(model, flops, flops if self._is_narrow(operation) else 0, masked)

    def _is_narrow(self, operation: HloOperation) -> bool:
        types = [self.program.types[value].dtype for value in operation.operands[:2]]
        return bool(types) and all(map(_NARROW.fullmatch, types))

    def _spread(self, operation: HloOperation) -> int:
        """Devices that each compute another part of what the operation makes: 1 outside of manual
        computations, where types are those of the whole."""
        if operation.opcode == "shard":
            placed, sizes = operation.attributes.get(PLACED), self.program.mesh.sizes
            manual = placed.manual if isinstance(placed, Sharding) else range(len(sizes))
            parts = math.prod(sizes[axis] for axis in manual)
        elif operation.opcode == "unshard":
            parts = 1
        else:
            parts = max((self.parts.get(value, 1) for value in operation.operands), default=1)
        if parts > 1:
            self.parts.update(dict.fromkeys(operation.results, parts))
        return parts

    def _enter(self, parameters: Sequence[int], operands: Iterable[int], parts: int) -> None:
        own = [self.parts.get(value, 1) for value in operands]
        for place, parameter in enumerate(parameters):
            self.parts[parameter] = own[place] if len(own) == len(parameters) else parts
