"""The error of step times that is to be expected, by generation: quantiles of published step times
over their estimates (`engine/data/published_error.json`, which `benchmarks/published.py` writes).

The file has `source` and `generations`: NAME -> {"rows": N, "p10": RATIO, "p90": RATIO}.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path

PATH = Path(__file__).parents[1] / "data" / "published_error.json"


@dataclasses.dataclass(frozen=True, slots=True)
class PublishedError:
    """Quantiles of published over estimated step time, of `rows` published runs."""

    rows: int
    p10: float
    p90: float

    def interval(self, seconds: float) -> tuple[float, float]:
        """Return the 10th and the 90th percentile of a step that is estimated at `seconds`."""
        return seconds * self.p10, seconds * self.p90


@functools.cache
def published_errors() -> Mapping[str, PublishedError]:
    """Return the expected error by the name of the generation; one without published runs is not
    there."""
    return read_errors(PATH.read_text(encoding="utf-8"))


def read_errors(text: str) -> Mapping[str, PublishedError]:
    """Raises ValueError, KeyError or TypeError for a text of another form."""
    generations = json.loads(text)["generations"]
    errors = {
        name: PublishedError(int(one["rows"]), float(one["p10"]), float(one["p90"]))
        for name, one in generations.items()
        if one["rows"]
    }
    for name, error in errors.items():
        if not 0 < error.p10 <= error.p90:
            raise ValueError(f"{name}: p10 {error.p10} and p90 {error.p90}: use 0 < p10 <= p90")
    return errors
