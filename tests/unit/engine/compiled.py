"""Programs that the TPU compiler (libtpu 0.0.51) compiled ahead of time, with its cycles, bytes and
strategies."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from podyard.engine.program.from_stablehlo import parse_stablehlo
from podyard.engine.timing.analysis import estimate_program
from podyard.engine.timing.estimate import Estimate
from podyard.hardware.accelerator_types import AcceleratorType, parse

_FILE = Path(__file__).parents[2] / "data" / "compiled_programs.jsonl.gz"
# The smallest slice of each generation whose devices are what the cases were compiled for.
_ONE_DEVICE = {
    "v2": "v2-8", "v3": "v3-8", "v4": "v4-8", "v5e": "v5litepod-1", "v5p": "v5p-8", "v6e": "v6e-1",
}  # fmt: skip
_SLICES = {
    "v2:2x2": "v2-8", "v2:16x16": "v2-512", "v3:2x2": "v3-8", "v3:4x4": "v3-32", "v4:2x2x1": "v4-8",
    "v4:2x2x4": "v4-32", "v4:4x4x4": "v4-128", "v5e:4x4": "v5litepod-16",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One case; `facts` as the compiler reported them."""

    case: str
    kind: str
    generation: str
    text: str
    facts: dict[str, Any]

    @property
    def in_test_part(self) -> bool:
        """Never used in fitting: the SHA-256 of the name modulo 10 is below 3."""
        return int(hashlib.sha256(self.case.encode()).hexdigest(), 16) % 10 < 3

    @property
    def slice(self) -> AcceleratorType:
        return parse(_SLICES.get(self.facts["topology"], _ONE_DEVICE[self.generation]))

    @property
    def peak_bytes(self) -> int:
        facts = self.facts
        return int(
            facts["arg_bytes"] + facts["out_bytes"] + facts["temp_bytes"] - facts["alias_bytes"]
        )

    def estimate(self) -> Estimate:
        return _estimate(self.text, self.slice.name)


def estimate_of(
    function: Callable[..., Any], on: str, *shapes: Any, donated: tuple[int, ...] = ()
) -> Estimate:
    """A function lowered for TPUs, on a slice `on`; `donated`: the numbers of arguments that are
    given away."""
    lowered = (
        jax.jit(function, donate_argnums=donated).trace(*shapes).lower(lowering_platforms=("tpu",))
    )
    return _estimate(lowered.as_text(), on)


@functools.cache
def _estimate(text: str, accelerator_type: str) -> Estimate:
    return estimate_program(parse_stablehlo(text), parse(accelerator_type))


@functools.cache
def cases() -> tuple[Compiled, ...]:
    with gzip.open(_FILE, "rt") as lines:
        texts = json.loads(next(lines))["texts"]
        rows = [json.loads(line) for line in lines]
    return tuple(
        Compiled(row["id"], row["kind"], row["gen"], texts[row["program"]], row) for row in rows
    )
