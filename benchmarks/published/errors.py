"""The spread of published step times over their estimates, which `podyard run` shows as the error
that is to be expected. It is a fact of a generation (`Generation.step_error`)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.published.table import Comparison
from podyard.hardware.generation import StepError

ROWS_MIN = 3  # of a generation: fewer have no spread


def errors_of(comparisons: Sequence[Comparison]) -> Mapping[str, StepError]:
    """Return the deciles of published over estimated step time, by generation."""
    errors = {}
    for name in sorted({one.row.generation for one in comparisons}):
        ratios = [1 / one.ratio for one in comparisons if one.row.generation == name and one.ratio]
        if len(ratios) >= ROWS_MIN:
            deciles = statistics.quantiles(ratios, n=10, method="inclusive")
            errors[name] = StepError(len(ratios), round(deciles[0], 2), round(deciles[-1], 2))
    return errors
