"""The published rows, and what was recorded of each: the trainer's step as it was lowered in a dry
run, and the trainer's own count of its FLOPs."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROWS, TRACES, TRAINER = FOLDER / "rows.json", FOLDER / "traces", FOLDER / "trainer.json"


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedRow:
    """A training run of a real slice. `missing`: what its source does not state; a row without is
    fully stated. `flags`: of MaxText; None where the run cannot be repeated from its source.
    `scoped_vmem_kib`: libtpu's flag of the run. `causal_full`: whether the source counts causal
    attention in full (MaxText before its change 1988)."""

    id: str
    model: str
    generation: str
    type: str
    slices: int
    chips: int | None
    missing: tuple[str, ...]
    step_seconds: float | None
    tokens_per_second_per_chip: float | None
    tflops_per_chip: float | None
    causal_full: bool
    flags: tuple[str, ...] | None
    scoped_vmem_kib: int | None
    sources: tuple[str, ...]
    notes: str

    @property
    def name(self) -> str:
        slices = f"{self.slices}x " if self.slices > 1 else ""
        return f"{self.model} on {slices}{self.type}"

    @property
    def trace(self) -> Path:
        return TRACES / f"{self.id}.mlir.gz"


@dataclasses.dataclass(frozen=True, slots=True)
class TrainerCount:
    """`tflops`: of the model, a step and a device, as the trainer logs it: causal attention counts
    half. `attention_share`: of attention in it. `wall_seconds`, `rss_bytes`: of the dry run."""

    tflops: float
    attention_share: float
    wall_seconds: float
    rss_bytes: int


def read_rows() -> Sequence[PublishedRow]:
    return [_row(data) for data in json.loads(ROWS.read_text())]


def _row(data: Mapping[str, Any]) -> PublishedRow:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
    return PublishedRow(**fields)


def read_counts() -> dict[str, TrainerCount]:
    data = json.loads(TRAINER.read_text()) if TRAINER.exists() else {}
    return {name: TrainerCount(**count) for name, count in data.items()}


def write_counts(counts: Mapping[str, TrainerCount]) -> None:
    data = {name: dataclasses.asdict(counts[name]) for name in sorted(counts)}
    TRAINER.write_text(json.dumps(data, indent=1) + "\n")


def read_trace(row: PublishedRow) -> bytes:
    return gzip.decompress(row.trace.read_bytes())


def write_trace(row: PublishedRow, text: bytes) -> None:
    row.trace.parent.mkdir(exist_ok=True)
    row.trace.write_bytes(gzip.compress(text, mtime=0))
