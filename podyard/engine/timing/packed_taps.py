"""Taps of few features that share a pass through the matrix unit: what puts them next to each other."""

from __future__ import annotations

from podyard.engine.timing.layout import LANES
from podyard.hardware.cost_model import SUBLANES, CostModel

# Columns that taps are packed for before others are multiplied: with 256 all of it counts, with 768 nothing. (Twenty
# compiled patch embeddings on v5e.)
_FIRST_COLUMNS = 256


def packing_cycles(examples: int, features: int, window: int, places: int, costs: CostModel) -> float:
    """Where features lie in lanes and fill less than half of a tile, every place of an image is moved to the lanes of
    its tap: one turn of a register. Places of one, two or four examples share one; others have rows of padding, and one
    each. Of more than eight examples nothing was seen. (Gradients of the kernels of 40 compiled patches and strided
    convolutions of one to 16 channels, half of them on v5e, half on v6e.)"""
    if features >= LANES // 2 or examples > SUBLANES or window == 1:
        return 0.0
    is_full = SUBLANES % examples == 0
    share = examples / SUBLANES if is_full else 1.0
    return places * share * (costs.packing_cycles + costs.packing_feature_cycles * features)


def not_hidden(packing: float, multiplied: float, columns: int) -> float:
    """Of `packing` cycles those that are not hidden while all but the first columns are multiplied, in `multiplied`."""
    return max(0.0, packing - multiplied * max(0.0, 1 - _FIRST_COLUMNS / columns))
