"""The spread of published step times over their estimates, which `podyard run` shows as the error
that is to be expected."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from benchmarks.published.table import Comparison, stated_ratios
from podyard.engine.plan.published_error import PATH

ROWS_MIN = 3  # of a generation: fewer have no spread
_SOURCE = "python -m benchmarks.published: step time of published training runs over the estimate"


def errors_of(comparisons: Sequence[Comparison]) -> dict[str, object]:
    """Return the document of `PATH`: deciles of published over estimated step time of the fully
    stated rows, by generation."""
    generations = {}
    for name in sorted({one.row.generation for one in comparisons}):
        ratios = [1 / ratio for ratio in stated_ratios(comparisons, name)]
        if len(ratios) >= ROWS_MIN:
            deciles = statistics.quantiles(ratios, n=10, method="inclusive")
            generations[name] = {
                "rows": len(ratios), "p10": round(deciles[0], 3), "p90": round(deciles[-1], 3),
            }  # fmt: skip
    return {"source": _SOURCE, "generations": generations}


def write_errors(comparisons: Sequence[Comparison]) -> None:
    PATH.write_text(json.dumps(errors_of(comparisons), indent=2) + "\n", encoding="utf-8")
