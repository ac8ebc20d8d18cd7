"""Estimates of the recorded steps next to the published ones."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from benchmarks.published.rows import PublishedRow, TrainerCount, read_trace
from podyard.cli.kit.tables import table
from podyard.hardware.accelerator_types import parse
from podyard.programs.estimator import ModuleEstimate, estimate

HEADINGS = (
    "ROW", "PUBLISHED", "ESTIMATE", "RATIO", "MFU", "FITS", "FLOPS", "MISSING IN THE SOURCE",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """A row, the estimate of its step, and the trainer's count; None: the trainer was not run."""

    row: PublishedRow
    estimate: ModuleEstimate | None
    count: TrainerCount | None

    @property
    def published_seconds(self) -> float | None:
        """Of a step: as printed, else from the rate that is printed. A rate of FLOPs is turned into
        seconds by the trainer's own count, under the convention of the source."""
        row = self.row
        if row.step_seconds is not None or self.count is None or row.tflops_per_chip is None:
            return row.step_seconds
        share = 1 + (self.count.attention_share if row.causal_full else 0.0)
        return self.count.tflops * share / row.tflops_per_chip

    @property
    def ratio(self) -> float | None:
        """Of the estimated to the published seconds."""
        published = self.published_seconds
        if self.estimate is None or not self.estimate.seconds or not published:
            return None
        return self.estimate.seconds / published

    @property
    def flops_ratio(self) -> float | None:
        """Of Podyard's model FLOPs to the trainer's."""
        if self.estimate is None or self.count is None:
            return None
        return self.estimate.model_flops / (self.count.tflops * 1e12)


def compare(row: PublishedRow, count: TrainerCount | None) -> Comparison:
    if not row.trace.exists():
        return Comparison(row, None, count)
    kind = parse(row.type)
    return Comparison(row, estimate(read_trace(row), kind, slices=row.slices), count)


def report(comparisons: Sequence[Comparison]) -> str:
    """Return the table, and the spread of the fully stated rows of each generation."""
    lines = [table(HEADINGS, [_cells(one) for one in comparisons])]
    for generation in sorted({one.row.generation for one in comparisons}):
        ratios = stated_ratios(comparisons, generation)
        if ratios:
            middle = statistics.median(ratios)
            lines.append(
                f"{generation}: {len(ratios)} fully stated rows, estimate / published "
                f"{min(ratios):.2f} to {max(ratios):.2f}, median {middle:.2f}"
            )
    return "\n".join(lines)


def stated_ratios(comparisons: Iterable[Comparison], generation: str) -> list[float]:
    """Return the ratios of a generation's fully stated rows."""
    return [
        one.ratio
        for one in comparisons
        if one.row.generation == generation and not one.row.missing and one.ratio is not None
    ]


def _cells(one: Comparison) -> tuple[str, ...]:
    published, found = one.published_seconds, one.estimate
    known = found is not None and found.seconds is not None
    return (
        one.row.name,
        "-" if published is None else f"{published:.2f} s",
        f"{found.seconds:.2f} s" if found is not None and found.seconds is not None else "-",
        "-" if one.ratio is None else f"{one.ratio:.2f}",
        f"{found.mfu:.1%}" if found is not None and known else "-",
        "-" if found is None else "yes" if found.fits else f"no: {found.verdict}",
        "-" if one.flops_ratio is None else f"{one.flops_ratio:.3f}",
        ", ".join(one.row.missing) or "nothing",
    )
