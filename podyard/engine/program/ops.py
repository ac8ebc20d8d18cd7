"""A program as a list of operations with their work: what timing models read. No JAX in here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

Kind = Literal["matrix", "other"]


@dataclasses.dataclass(frozen=True, slots=True)
class Op:
    """`flops` counts a multiply-add as two; `hbm_bytes` is what must cross the HBM bus."""

    name: str
    kind: Kind
    flops: int
    hbm_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceProgram:
    """What one device does in one step, and the bytes that the step then all-reduces over the slice."""

    ops: tuple[Op, ...]
    all_reduce_bytes: int

    @property
    def flops(self) -> int:
        return total_flops(self.ops)

    @property
    def hbm_bytes(self) -> int:
        return sum(op.hbm_bytes for op in self.ops)


def total_flops(ops: Iterable[Op]) -> int:
    return sum(op.flops for op in ops)
