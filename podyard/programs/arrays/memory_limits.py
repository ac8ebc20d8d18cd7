"""Modules that no TPU can run because a single array is larger than the memory of the devices, from
their text.

XLA counts the arrays that must be in memory before it compiles, and gives up early (jax#7822).
These are arguments and results of the program, and what products read and write. Element-wise work
is fused into what reads it: there, what it is worked out from counts. Compiled with libtpu 0.0.42
for v3 and v5e: `tanh(outer(x, x)) @ cos(outer(x, x))` of 45,000 numbers needs its result alone,
7.55 GiB; `sum(exp(outer(x, x)))` of 100,000 nothing; a zero of u8[20,2**30] 24 GiB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from podyard.hardware.cost_model import Tiling
from podyard.hardware.layout import compact_layout_of

_TENSOR = re.compile(r"tensor<((?:\d+x)+)(?:complex<f(\d+)>|[a-z]+(\d+)\w*)>")
_MAIN = re.compile(r"func\.func public @main\((.*?)\) -> (.*?) \{\n", re.DOTALL)
_LINE = re.compile(r"\s*(%\w+)(?::\d+)? = \"?(?:stablehlo|chlo|func|sdy)\.(\w+)(.*?)(?: : |$)")
_TYPE = re.compile(r"tensor<[^>]*>")
_VALUE = re.compile(r"%\w+(?:#\d+)?")
_PRODUCTS = ("dot_general", "dot", "convolution")
# Worked out where they are read, from what they are worked out of.
_FUSED = frozenset({
    "abs", "add", "and", "broadcast_in_dim", "ceil", "clamp", "compare", "constant", "convert",
    "cosine", "divide",
    "erf", "exponential", "exponential_minus_one", "floor", "iota", "log", "log_plus_one",
    "logistic", "maximum",
    "minimum", "multiply", "negate", "not", "or", "power", "reshape", "rsqrt", "select",
    "sharding_constraint", "sign",
    "sine", "sqrt", "subtract", "tan", "tanh", "transpose", "xor",
})  # fmt: skip
_HOST_MEMORY = re.compile(r'mhlo\.memory_kind = "(?:un)?pinned_host"')
_UNITS = "BKMGTPE"


def size_text(nbytes: float) -> str:
    """Return a size as XLA writes it, `7.48G`."""
    power = min(len(_UNITS) - 1, max(0, int(math.log2(max(1, nbytes))) // 10))
    return f"{nbytes / 1024**power:.2f}{_UNITS[power]}"


def early_refusal(text: str, devices: int, limit: int, tiling: Tiling) -> str:
    """Return the words of XLA for a module with an array that is larger than `devices` devices with
    `limit` bytes each; empty for a module without one. Shardings are taken for the best ones: equal
    parts on all devices."""
    room = devices * limit
    sizes = _Sizes(devices, tiling)
    if max(map(sizes.of, set(_TENSOR.findall(text))), default=0.0) <= room:
        return ""
    main = _MAIN.search(text)
    groups = [sizes.in_signature(part) for part in (main.groups() if main else ())]
    groups += _products(text, sizes)
    needs = [sum(group) for group in groups if max(group, default=0.0) > room]
    if not needs:
        return ""
    return (
        "RESOURCE_EXHAUSTED: Aborting compilation early because it's unlikely to have "
        "enough memory."
        f" Requires {size_text(max(needs) / devices)}, has {size_text(limit)} available."
    )


def largest_bytes(text: str) -> float:
    """Return the bytes of the largest array of a module, whatever becomes of it."""
    sizes = _Sizes(0, Tiling(1))
    return max(map(sizes.of, set(_TENSOR.findall(text))), default=0.0)


class _Sizes:
    """Bytes of arrays on all devices together; padded as they lie in memory where there is one
    device."""

    def __init__(self, devices: int, tiling: Tiling) -> None:
        self._is_whole = devices == 1
        self._tiling = tiling

    def of(self, match: tuple[str, str, str]) -> float:
        shape, complex_bits, bits = match
        itemsize = (
            2 * int(complex_bits) / 8
            if complex_bits
            else max(1, int(bits) / 8)
            if bits == "1"
            else int(bits) / 8
        )
        extents = tuple(map(int, shape.split("x")[:-1]))
        return (
            compact_layout_of(extents, itemsize, self._tiling).nbytes
            if self._is_whole
            else math.prod(extents) * itemsize
        )

    def all_in(self, types: str) -> list[float]:
        return [self.of(match) for match in _TENSOR.findall(types)]

    def in_signature(self, signature: str) -> list[float]:
        """Of arguments or results, those in HBM."""
        return self.all_in(
            "".join(
                part for part in re.split("(?=tensor<)", signature) if not _HOST_MEMORY.search(part)
            )
        )


def _products(text: str, sizes: _Sizes) -> Iterable[list[float]]:
    """Yield the bytes that each product needs in memory: its result, and the arrays that its
    operands are worked out from."""
    sources: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if "func.func" in line:
            arguments = re.findall(r"(%\w+): (tensor<[^>]*>)", line)
            sources = {name: {name: sum(sizes.all_in(type_))} for name, type_ in arguments}
        match = _LINE.match(line)
        if match is None:
            continue
        name, opcode, rest = match.groups()
        operands: dict[str, float] = {}
        for value in _VALUE.findall(rest):
            operands |= sources.get(value, {})
        types = _TYPE.findall(line.rpartition("->" if "->" in line else " : ")[2])
        own = [sum(sizes.all_in(type_)) for type_ in types]
        sources[name] = operands if opcode in _FUSED else {name: sum(own)}
        # of a loop and of other operations with several results, each one
        sources |= {f"{name}#{place}": {f"{name}#{place}": one} for place, one in enumerate(own)}
        if opcode in _PRODUCTS:
            yield [*operands.values(), *own]
